/* IncrementalAlterConfigs: which changes go on to the admin port, and what the others are answered. */
#include "hx.h"

#include "base/kc_str.h"
#include "handlers/kb_kafka_config.h"
#include "wire/kw_errors.h"
#include "wire/kw_incremental_alter_configs.h"

enum { SET, DELETE, APPEND, SUBTRACT };

static struct hx h;
static struct hx_client c;
static struct {
    int32_t n_configs;
    char name[64], value[64];
} port;

static void on_change(struct kb_admin_ticket *t, const struct kb_admin_change *change)
{
    port.n_configs = change->n_configs;
    snprintf(port.name, sizeof(port.name), "%s", change->configs[0].name);
    snprintf(port.value, sizeof(port.value), "%s",
             change->configs[0].value ? change->configs[0].value : "(none)");
    struct kb_admin_result r = {.message = ""};
    kb_admin_settle(t, &r);
}

static void up(void)
{
    memset(&port, 0, sizeof(port));
    hx_up_admin(&h, 1, on_change);
    struct hx_topic *t = hx_topic(&h, "t", 1, 1);
    t->n_configs = 1;
    t->configs[0] = (struct ki_config){"cleanup.policy", "compact"};
    hx_publish(&h);
    hx_dial(&h, &c, 0);
}

static void down(void)
{
    hx_end(&h, &c);
}

static int16_t alter(const char *topic, int8_t op, const char *key, const char *value)
{
    struct kw_incremental_alter_configs_request_alterable_config configs[2] = {
        {kc_str_of(key), op, kc_str_of(value)}};
    struct kw_incremental_alter_configs_request_alter_configs_resource r = {
        .resource_type = 2, .resource_name = kc_str_of(topic), .configs = configs, .n_configs = 1};
    struct kw_incremental_alter_configs_request in = {.resources = &r, .n_resources = 1};
    const struct kw_incremental_alter_configs_response *out = hx_call(&c, 44, 1, &in);
    KT_REQUIRE(out != NULL);
    return out->responses[0].error_code;
}

static void values_are_judged_as_kafka_judges_them(void)
{
    static const struct {
        const char *topic;
        int8_t op;
        const char *key, *value;
        int16_t error;
    } t[] = {
        {"t", SET, "retention.ms", "5", 0},
        {"t", SET, "retention.ms", "-2", 40},
        {"t", SET, "retention.ms", "x", 40},
        {"t", SET, "retention.bytes", "-2", 0}, /* Kafka sets no limit here */
        {"t", SET, "retention.bytes", "9223372036854775808", 40},
        {"t", SET, "segment.ms", "0", 40},
        {"t", SET, "segment.index.bytes", "3", 40},
        {"t", SET, "segment.index.bytes", "4", 0},
        {"t", SET, "segment.jitter.ms", "-1", 40},
        {"t", SET, "flush.messages", "0", 40},
        {"t", SET, "flush.ms", "0", 0},
        {"t", SET, "flush.ms", "-1", 40},
        {"t", SET, "max.message.bytes", "2147483648", 40},
        {"t", SET, "message.timestamp.type", "Createtime", 40},
        {"t", SET, "message.timestamp.before.max.ms", "-1", 40},
        {"t", SET, "no.such.key", "1", 40},
        {"t", SET, "retention.ms", NULL, 42},
        {"t", SET, "no.such.key", NULL, 42}, /* the form comes first */
        {"t", SUBTRACT, "no.such.key", NULL, 42},
        {"t", DELETE, "no.such.key", NULL, 0}, /* it is not set */
        {"t", DELETE, "retention.ms", NULL, 0},
        {"t", APPEND, "retention.ms", "5", 40}, /* no list */
        {"t", APPEND, "cleanup.policy", NULL, 42},
        {"t", APPEND, "cleanup.policy", "nothing", 40},
        {"none", SET, "retention.ms", "5", 3},
        {"none", SET, "retention.ms", "-2", 40}, /* the value comes first */
    };
    up();
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        int16_t error = alter(t[i].topic, t[i].op, t[i].key, t[i].value);
        if (error != t[i].error) {
            fprintf(stderr, "%s %d %s: got %d\n", t[i].key, t[i].op,
                    t[i].value ? t[i].value : "null", error);
        }
        KT_EQ(error, t[i].error);
    }
    down();
}

static void changes_go_on_as_whole_values(void)
{
    up();
    KT_EQ(alter("t", SET, "retention.ms", "5"), 0);
    KT_STR(port.name, "retention.ms");
    KT_STR(port.value, "5");
    KT_EQ(alter("t", DELETE, "retention.ms", NULL), 0);
    KT_STR(port.value, "(none)");
    KT_EQ(alter("t", APPEND, "cleanup.policy", "delete"), 0);
    KT_STR(port.value, "compact,delete");
    KT_EQ(h.submitted, 3);
    KT_EQ(alter("t", DELETE, "no.such.key", NULL), 0);
    KT_EQ(h.submitted, 3); /* nothing to do */
    down();
}

KT_MAIN("alter", KT(values_are_judged_as_kafka_judges_them), KT(changes_go_on_as_whole_values))
