/* The local host runs children as a cluster would run pods. The broker is this program itself: called
 * with --config it answers /readyz on the port its file names, until SIGTERM. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "kt_dir.h"
#include "local/lo_host.h"
#include "ol_store.h"
#include "rt/rt_http.h"

enum { BASE_PORT = 21600 }; /* health on 21700, 21701, … */

static int answer(void *ctx, struct kc_str path, char *body, size_t cap, size_t *ret_len)
{
    (void)ctx;
    (void)path;
    *ret_len = (size_t)snprintf(body, cap, "ready\n");
    return 200;
}

static int broker_main(const char *config)
{
    size_t len;
    struct rt_http *http;
    struct kc_err err;
    sigset_t term;
    int sig;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    char *text = lo_read_file(config, &len, &err);
    json_t *doc = text ? kc_yaml_load(text, len, &err) : NULL;
    uint16_t port = (uint16_t)kc_json_int(doc, "health.port", 0);
    json_decref(doc);
    kc_free(text);
    if (!port || rt_http_start("127.0.0.1", port, answer, NULL, &http, &err)) {
        return 1;
    }
    sigwait(&term, &sig);
    rt_http_stop(http);
    _exit(0); /* nothing of the parent's is to be looked at by a leak checker here */
}

struct bed {
    struct ol t;
    struct lo_host *host;
    char dir[KT_DIR_MAX], self[512];
    int serving; /* endpoints that serve, in the slice as last seen */
    int endpoints;
    bool drained;
};

static void on_slice(void *ctx, enum ko_event ev, json_t *doc)
{
    struct bed *b = ctx;
    size_t i;
    json_t *e;
    if (ev != KO_ADDED && ev != KO_MODIFIED) {
        return;
    }
    b->serving = b->endpoints = 0;
    json_array_foreach(json_object_get(doc, "endpoints"), i, e)
    {
        b->endpoints++;
        b->serving += kc_json_bool(e, "conditions.serving", false);
        KT_TRUE(kc_json_bool(e, "conditions.ready", false)); /* publishNotReadyAddresses */
        KT_STR(kc_json_str(e, "targetRef.name", ""), kc_json_str(e, "hostname", "-"));
    }
}

static void on_drained(void *ctx)
{
    ((struct bed *)ctx)->drained = true;
}

static void start(struct bed *b)
{
    char objects[80];
    memset(b, 0, sizeof(*b));
    KT_REQUIRE(readlink("/proc/self/exe", b->self, sizeof(b->self) - 1) > 0);
    kt_dir_make(b->dir);
    struct kc_err err;
    int lock;
    KT_EQ(lo_dir_open(b->dir, &lock, &err), 0);
    int second;
    KT_EQ(lo_dir_open(b->dir, &second, &err), KC_E_BUSY);
    close(lock);
    snprintf(objects, sizeof(objects), "%s/objects", b->dir);
    ol_start(&b->t, objects);
    struct lo_host_opts o = {.loop = &b->t.loop,
                             .store = b->t.store,
                             .dir = b->dir,
                             .broker = b->self,
                             .ports = {BASE_PORT},
                             .drained = on_drained,
                             .ctx = b};
    b->host = lo_host_start(&o);
    b->t.store->ops->watch(b->t.store, KO_ENDPOINTSLICE, "ns", NULL, on_slice, b);
    ol_create(&b->t, KO_KAASCLUSTER,
              "{'apiVersion':'kaas.dev/v1alpha1','kind':'KaasCluster','metadata':{'namespace':'ns',"
              "'name':'demo'},'spec':{'storage':{'hostPath':'volume'}}}");
    ol_create(&b->t, KO_STATEFULSET,
              "{'apiVersion':'apps/v1','kind':'StatefulSet','metadata':{'namespace':'ns','name':"
              "'demo'},'spec':{'replicas':3,'serviceName':'demo-brokers','template':{'x':1}}}");
    OL_WAIT(&b->t, b->serving == 3);
}

static void stop(struct bed *b)
{
    lo_host_drain(b->host);
    OL_WAIT(&b->t, b->drained);
    lo_host_stop(b->host);
    ol_stop(&b->t);
    kt_dir_remove(b->dir);
}

static int pid_of(const struct bed *b, int n)
{
    char path[100];
    size_t len;
    struct kc_err err;
    snprintf(path, sizeof(path), "%s/brokers/%d/pid", b->dir, n);
    char *text = lo_read_file(path, &len, &err);
    int pid = text ? (int)strtol(text, NULL, 10) : 0;
    kc_free(text);
    return pid;
}

static void a_crash_restarts_the_process_in_the_same_pod(void)
{
    struct bed b;
    char uid[40];
    start(&b);
    ol_get(&b.t, KO_POD, "demo-1");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b.t.doc));
    int pid = pid_of(&b, 1);
    KT_REQUIRE(pid > 0);
    kill(pid, SIGKILL);
    OL_WAIT(&b.t, b.serving == 2);
    KT_EQ(b.endpoints, 3);
    OL_WAIT(&b.t, b.serving == 3);
    ol_get(&b.t, KO_POD, "demo-1");
    KT_STR(ko_uid(b.t.doc), uid);
    KT_EQ(kc_json_int(b.t.doc, "status.containerStatuses.0.restartCount", 0), 1);
    KT_EQ(kc_json_int(b.t.doc, "status.containerStatuses.0.lastState.terminated.exitCode", 0),
          128 + SIGKILL);
    KT_TRUE(pid_of(&b, 1) != pid);
    stop(&b);
}

static void scale_down_ends_the_highest_and_up_brings_a_new_pod(void)
{
    struct bed b;
    char uid[40];
    start(&b);
    ol_get(&b.t, KO_POD, "demo-2");
    snprintf(uid, sizeof(uid), "%s", ko_uid(b.t.doc));
    ol_merge(&b.t, KO_STATEFULSET, "demo", "{'spec':{'replicas':2}}");
    OL_WAIT(&b.t, b.endpoints == 2);
    KT_EQ(b.serving, 2);
    KT_EQ(ol_get(&b.t, KO_POD, "demo-2"), 404);
    ol_merge(&b.t, KO_STATEFULSET, "demo", "{'spec':{'replicas':3}}");
    OL_WAIT(&b.t, b.serving == 3);
    KT_EQ(ol_get(&b.t, KO_POD, "demo-2"), 200);
    KT_TRUE(strcmp(ko_uid(b.t.doc), uid) != 0);
    stop(&b);
}

static void a_new_template_replaces_every_pod(void)
{
    struct bed b;
    start(&b);
    int before[3];
    for (int i = 0; i < 3; i++) {
        before[i] = pid_of(&b, i);
    }
    ol_merge(&b.t, KO_STATEFULSET, "demo", "{'spec':{'template':{'x':2}}}");
    OL_WAIT(&b.t, b.serving < 3); /* the status may be that of the template before */
    int updated = 0;
    while (updated < 3 || b.serving < 3) {
        uv_run(&b.t.loop.uv, UV_RUN_ONCE);
        KT_TRUE(b.serving >= 2 || b.endpoints < 3); /* one at a time */
        ol_get(&b.t, KO_STATEFULSET, "demo");
        updated = (int)kc_json_int(b.t.doc, "status.updatedReplicas", 0);
    }
    for (int i = 0; i < 3; i++) {
        KT_TRUE(pid_of(&b, i) != before[i]);
    }
    stop(&b);
}

/* The program is the Pod's for life: back in an older pod it is the older one, as with an image. */
static void an_image_that_is_a_path_is_the_program_of_its_pods(void)
{
    struct bed b;
    char program[128], found[512], proc[64], patch[400];
    start(&b);
    snprintf(program, sizeof(program), "%s/another-broker", b.dir);
    KT_EQ(symlink(b.self, program), 0);
    snprintf(patch, sizeof(patch),
             "{'spec':{'updateStrategy':{'rollingUpdate':{'partition':2}},"
             "'template':{'spec':{'containers':[{'name':'broker','image':'%s'}]}}}}",
             program);
    ol_merge(&b.t, KO_STATEFULSET, "demo", patch);
    OL_WAIT(&b.t, b.serving == 2);
    OL_WAIT(&b.t, b.serving == 3);
    for (int n = 1; n <= 2; n++) {
        int pid = pid_of(&b, n);
        for (int life = 0; life < 2; life++) {
            snprintf(proc, sizeof(proc), "/proc/%d/cmdline", pid);
            FILE *f = fopen(proc, "re");
            KT_REQUIRE(f != NULL);
            size_t len = fread(found, 1, sizeof(found) - 1, f);
            fclose(f);
            found[len] = '\0'; /* argv[0] ends at its own zero */
            KT_STR(found, n == 2 ? program : b.self);
            kill(pid, SIGKILL);
            OL_WAIT(&b.t, b.serving == 2);
            OL_WAIT(&b.t, b.serving == 3);
            pid = pid_of(&b, n);
        }
    }
    stop(&b);
}

static void a_held_broker_stays_down(void)
{
    struct bed b;
    char path[100];
    start(&b);
    snprintf(path, sizeof(path), "%s/brokers/0/hold", b.dir);
    kt_file_write(path, "held\n");
    kill(pid_of(&b, 0), SIGKILL);
    OL_WAIT(&b.t, b.serving == 2);
    int64_t turns = 0;
    OL_WAIT(&b.t, ++turns > 8); /* several ticks past the back-off */
    KT_EQ(b.serving, 2);
    unlink(path);
    OL_WAIT(&b.t, b.serving == 3);
    stop(&b);
}

int main(int argc, char **argv)
{
    static const struct kt_case cases[] = {
        KT(a_crash_restarts_the_process_in_the_same_pod),
        KT(scale_down_ends_the_highest_and_up_brings_a_new_pod),
        KT(a_new_template_replaces_every_pod),
        KT(an_image_that_is_a_path_is_the_program_of_its_pods),
        KT(a_held_broker_stays_down),
    };
    if (argc >= 3 && strcmp(argv[1], "--config") == 0) {
        return broker_main(argv[2]);
    }
    return kt_run("olocal/host", cases, KC_ARRAY_LEN(cases), argc, argv);
}
