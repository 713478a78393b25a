/* The broker's configuration: what is read, and that every refusal names its field. */
#include "kt.h"

#include "app/kb_config.h"

static const struct kb_config_env pod = {-1, "demo-2", "uid-2"};
static const struct kb_config_env bare = {-1, NULL, NULL};

static const char full[] =
    "cluster: default/demo\n"
    "dataDir: /data\n"
    "listeners:\n"
    "  - {name: internal, bind: \"\", port: 9092, advertisedHost: "
    "\"{pod}.demo-brokers.default.svc\"}\n"
    "  - {name: external, port: 9094, advertisedHost: \"b{id}.example.org\", advertisedPort: "
    "31000}\n"
    "health: {bind: \"127.0.0.1\", port: 8081}\n"
    "operator: {host: op.svc, port: 7070, tokenFile: /token}\n"
    "image: {source: kubernetes, mount: /etc/kaas/image}\n"
    "heartbeat: {intervalMs: 500, timeoutMs: 2000}\n"
    "rack: zone-a\n"
    "terminationGracePeriodSeconds: 45\n"
    "unsafeStorage: true\n"
    "dataLoops: 3\n"
    "config: {num.partitions: 6, auto.create.topics.enable: false, log.cleanup.policy: compact}\n";

static void every_field_is_read(void)
{
    struct kb_config *c;
    struct kc_err err;
    KT_REQUIRE(kb_config_parse(full, sizeof(full) - 1, &pod, &c, &err) == 0);
    KT_FALSE(c->self_led);
    KT_STR(c->cluster_namespace, "default");
    KT_STR(c->cluster_name, "demo");
    KT_EQ(c->id, 2);
    KT_STR(c->pod_uid, "uid-2");
    KT_STR(c->data_dir, "/data");
    KT_EQ(c->n_listeners, 2);
    KT_STR(c->listeners[0].advertised_host, "demo-2.demo-brokers.default.svc");
    KT_EQ(c->listeners[0].advertised_port, 9092);
    KT_STR(c->listeners[1].advertised_host, "b2.example.org");
    KT_EQ(c->listeners[1].advertised_port, 31000);
    KT_STR(c->health_bind, "127.0.0.1");
    KT_EQ(c->health_port, 8081);
    KT_STR(c->operator_host, "op.svc");
    KT_EQ(c->operator_port, 7070);
    KT_STR(c->token_file, "/token");
    KT_EQ(c->image_source, KB_IMAGE_KUBERNETES);
    KT_STR(c->image_name, "demo-image");
    KT_STR(c->image_mount, "/etc/kaas/image");
    KT_EQ(c->heartbeat_interval_ms, 500);
    KT_EQ(c->heartbeat_timeout_ms, 2000);
    KT_STR(c->rack, "zone-a");
    KT_EQ(c->termination_grace_s, 45);
    KT_TRUE(c->unsafe_storage);
    KT_EQ(c->data_loops, 3);
    KT_EQ(c->n_configs, 3);
    KT_STR(c->configs[0].name, "auto.create.topics.enable"); /* sorted */
    KT_STR(c->configs[0].value, "false");
    KT_STR(c->configs[2].value, "6");
    kb_config_free(c);
}

static void without_a_cluster_the_broker_leads_itself(void)
{
    static const char text[] = "dataDir: /d\nlisteners: [{name: a, port: 0}]\n";
    struct kb_config *c;
    struct kc_err err;
    KT_REQUIRE(kb_config_parse(text, sizeof(text) - 1, &bare, &c, &err) == 0);
    KT_TRUE(c->self_led);
    KT_EQ(c->id, 0);
    KT_STR(c->listeners[0].advertised_host, "localhost");
    KT_EQ(c->termination_grace_s, 30);
    KT_EQ(c->heartbeat_interval_ms, 1000);
    kb_config_free(c);
}

static void the_id_of_the_command_line_outranks_the_pods(void)
{
    struct kb_config_env env = {7, "demo-2", ""};
    struct kb_config *c;
    struct kc_err err;
    KT_REQUIRE(kb_config_parse(full, sizeof(full) - 1, &env, &c, &err) == 0);
    KT_EQ(c->id, 7);
    KT_STR(c->listeners[1].advertised_host, "b7.example.org");
    kb_config_free(c);
}

static void refusals_name_the_field(void)
{
#define L "listeners: [{name: a, port: 1}]\n"
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"[]", "must be a map"},
        {"dataDir: /d\n" L "colour: red\n", "colour"},
        {"dataDir: /d\n", "listeners"},
        {"dataDir: /d\nlisteners: []\n", "listeners"},
        {L, "dataDir"},
        {"dataDir: /d\nlisteners: [{port: 1}]\n", "listeners[0]"},
        {"dataDir: /d\nlisteners: [{name: a}]\n", "listeners[0]"},
        {"dataDir: /d\nlisteners: [{name: a, port: 70000}]\n", "65535"},
        {"dataDir: /d\nlisteners: [{name: a, port: x}]\n", "whole number"},
        {"dataDir: /d\nlisteners: [{name: a, port: 1}, {name: a, port: 2}]\n", "taken"},
        {"dataDir: /d\nlisteners: [{name: a, port: 1, advertisedHost: \"{pod}\"}]\n", "POD_NAME"},
        {"dataDir: 7\n" L, "dataDir"},
        {"cluster: demo\ndataDir: /d\n" L, "id"},
        {"cluster: demo\nid: 1\ndataDir: /d\n" L, "namespace/name"},
        {"cluster: a/b\nid: 1\ndataDir: /d\n" L, "operator"},
        {"cluster: a/b\nid: 1\ndataDir: /d\noperator: {host: h, port: 1}\n" L, "image.source"},
        {"cluster: a/b\nid: 1\ndataDir: /d\noperator: {host: h, port: 1}\n"
         "image: {source: directory}\n" L,
         "image.directory"},
        {"dataDir: /d\nheartbeat: {intervalMs: 1}\n" L, "heartbeat.intervalMs"},
        {"dataDir: /d\nunsafeStorage: maybe\n" L, "unsafeStorage"},
        {"dataDir: /d\nconfig: {no.such: 1}\n" L, "config.no.such"},
        {"dataDir: /d\nconfig: {num.partitions: many}\n" L, "config.num.partitions"},
        {"dataDir: /d\nconfig: {num.partitions: [1]}\n" L, "config.num.partitions"},
        {"dataDir: /d\nconfig: 3\n" L, "config"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kb_config *c = NULL;
        struct kc_err err = {0};
        KT_TRUE(kb_config_parse(cases[i].text, strlen(cases[i].text), &bare, &c, &err) < 0);
        if (!strstr(err.msg, cases[i].names)) {
            fprintf(stderr, "case %zu: \"%s\" does not name \"%s\"\n", i, err.msg, cases[i].names);
        }
        KT_TRUE(strstr(err.msg, cases[i].names) != NULL);
    }
}

KT_MAIN("config", KT(every_field_is_read), KT(without_a_cluster_the_broker_leads_itself),
        KT(the_id_of_the_command_line_outranks_the_pods), KT(refusals_name_the_field))
