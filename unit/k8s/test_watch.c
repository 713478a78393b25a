/* The watch: what it tells when the server behaves, forgets, stalls and dies. */
#include <stdio.h>

#include "base/kc_json.h"
#include "fake_api.h"
#include "k8s/k8s_watch.h"
#include "kt.h"

enum { LOG_MAX = 4096 };

struct rig {
    struct fake_api api;
    struct k8s_client *client;
    struct k8s_watch *watch;
    int lists, streams, told, deleted;
    char told_log[LOG_MAX]; /* "+a@1 " added, "~" modified, "-" deleted, "= " synced */
    char list_target[512], stream_target[512];
    struct fake_conn *stream;
    json_t *items; /* of the next list */
    const char *version; /* of the next list */
    int list_code, stream_code; /* 0 = serve, else refuse that often … */
    int refusals;
    bool stop_at_first;
    bool mute; /* streams are accepted, never answered */
};

static void handle(void *ctx, const struct fake_request *r)
{
    struct rig *g = ctx;
    bool stream = strstr(r->target, "watch=1") != NULL;
    int *code = stream ? &g->stream_code : &g->list_code;
    snprintf(stream ? g->stream_target : g->list_target, 512, "%.511s", r->target);
    if (*code && g->refusals > 0) {
        g->refusals--;
        fake_status(r->conn, *code, *code == 410 ? "Expired" : "InternalError", "no");
        return;
    }
    if (stream) {
        g->stream = r->conn;
        g->streams++;
        if (!g->mute) {
            fake_stream(r->conn);
        }
        return;
    }
    g->lists++;
    json_t *list = fake_list(g->version);
    json_object_set(list, "items", g->items);
    fake_reply(r->conn, 200, NULL, list);
}

static void on_event(void *ctx, enum k8s_event ev, json_t *doc)
{
    struct rig *g = ctx;
    size_t len = strlen(g->told_log);
    snprintf(g->told_log + len, LOG_MAX - len, ev == K8S_SYNCED ? "= " : "%c%s@%s ", "+~-"[ev % 3],
             kc_json_str(doc, "metadata.name", ""),
             kc_json_str(doc, "metadata.resourceVersion", ""));
    if (doc) {
        KT_STR(kc_json_str(doc, "kind", ""), "ConfigMap");
        KT_STR(kc_json_str(doc, "apiVersion", ""), "v1");
        KT_TRUE(kc_json_at(doc, "metadata.managedFields") == NULL);
    }
    if (ev == K8S_DELETED) {
        g->deleted++;
    }
    g->told++;
    if (g->stop_at_first) {
        k8s_watch_stop(g->watch);
        g->watch = NULL;
    }
}

static json_t *bare(const char *name, const char *uid, const char *version)
{
    json_t *o = fake_object(name, uid, version);
    json_object_del(o, "kind"); /* as list items come */
    json_object_del(o, "apiVersion");
    return o;
}

static void put(struct rig *g, const char *name, const char *uid, const char *version)
{
    json_array_append_new(g->items, bare(name, uid, version));
}

static void prepare(struct rig *g)
{
    memset(g, 0, sizeof(*g));
    g->items = json_array();
    g->version = "10";
    fake_api_init(&g->api, handle, g);
    g->client = k8s_client_new(&g->api.loop, &g->api.config, NULL);
    KT_REQUIRE(g->client != NULL);
}

static void start(struct rig *g, int64_t idle_ms)
{
    struct k8s_watch_opts o = {.resource = {"v1", "configmaps"},
                               .ns = "ns",
                               .label_selector = "kaas.dev/cluster=demo",
                               .idle_ms = idle_ms,
                               .backoff_max_ms = 50};
    g->watch = k8s_watch_start(g->client, &o, on_event, g);
}

static void end(struct rig *g)
{
    k8s_watch_stop(g->watch);
    k8s_client_free(g->client);
    fake_api_fini(&g->api);
    json_decref(g->items);
}

/* Lists a@1 and b@2 and opens the stream. */
static void begin(struct rig *g)
{
    prepare(g);
    put(g, "a", "ua", "1");
    put(g, "b", "ub", "2");
    start(g, 0);
    KT_TRUE(fake_api_until(&g->api, &g->streams, 1));
    KT_STR(g->told_log, "+a@1 +b@2 = ");
    g->told_log[0] = '\0';
    g->told = 0;
}

static void lists_then_follows(void)
{
    struct rig g;
    begin(&g);
    KT_STR(g.list_target,
           "/api/v1/namespaces/ns/configmaps?labelSelector=kaas.dev%2Fcluster%3Ddemo&limit=500");
    KT_TRUE(strstr(g.stream_target, "allowWatchBookmarks=true") != NULL);
    KT_TRUE(strstr(g.stream_target, "resourceVersion=10") != NULL);
    fake_event(g.stream, "MODIFIED", fake_object("a", "ua", "11"));
    fake_event(g.stream, "ADDED", fake_object("c", "uc", "12"));
    fake_event(g.stream, "DELETED", fake_object("b", "ub", "13"));
    KT_TRUE(fake_api_until(&g.api, &g.told, 3));
    KT_STR(g.told_log, "~a@11 +c@12 -b@13 ");
    KT_TRUE(k8s_watch_health(g.watch).connected);
    end(&g);
}

static void a_watch_by_name_uses_a_field_selector(void)
{
    struct rig g;
    prepare(&g);
    struct k8s_watch_opts o = {.resource = {"v1", "configmaps"}, .ns = "ns", .name = "demo-image"};
    g.watch = k8s_watch_start(g.client, &o, on_event, &g);
    KT_TRUE(fake_api_until(&g.api, &g.streams, 1));
    KT_TRUE(strstr(g.list_target, "fieldSelector=metadata.name%3Ddemo-image") != NULL);
    KT_TRUE(strstr(g.stream_target, "fieldSelector=metadata.name%3Ddemo-image") != NULL);
    KT_STR(g.told_log, "= ");
    end(&g);
}

static void resumes_at_the_last_version_bookmarks_included(void)
{
    struct rig g;
    begin(&g);
    fake_event(g.stream, "MODIFIED", fake_object("a", "ua", "11"));
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    fake_event(g.stream, "BOOKMARK", fake_object("", "", "20"));
    fake_end(g.stream);
    KT_TRUE(fake_api_until(&g.api, &g.streams, 2));
    KT_TRUE(strstr(g.stream_target, "resourceVersion=20") != NULL);
    KT_EQ(g.lists, 1);
    fake_event(g.stream, "MODIFIED", fake_object("b", "ub", "21"));
    KT_TRUE(fake_api_until(&g.api, &g.told, 2));
    KT_STR(g.told_log, "~a@11 ~b@21 ");
    fake_drop(g.stream); /* broken off, not ended */
    KT_TRUE(fake_api_until(&g.api, &g.streams, 3));
    KT_TRUE(strstr(g.stream_target, "resourceVersion=21") != NULL);
    KT_EQ(g.lists, 1);
    end(&g);
}

/* d came by the stream, which has worked then. */
static void begin_with_d(struct rig *g)
{
    begin(g);
    fake_event(g->stream, "ADDED", fake_object("d", "ud1", "9"));
    KT_TRUE(fake_api_until(&g->api, &g->told, 1));
}

/* The server has forgotten the version that the stream goes on from. */
static void expire(struct rig *g)
{
    fake_event(g->stream, "ERROR",
               json_pack("{s:s,s:s,s:i,s:s}", "kind", "Status", "apiVersion", "v1", "code", 410,
                         "reason", "Expired"));
}

/* a changed, b vanished, c came, d was made again under its name: the relist tells exactly that. */
static void change_the_world(struct rig *g)
{
    json_array_clear(g->items);
    put(g, "a", "ua", "31");
    put(g, "c", "uc", "32");
    put(g, "d", "ud2", "33");
    g->version = "40";
}

static void expect_the_difference(struct rig *g)
{
    KT_TRUE(fake_api_until(&g->api, &g->told, 6));
    KT_STR(g->told_log, "+d@9 ~a@31 +c@32 -d@9 +d@33 -b@2 ");
    KT_TRUE(fake_api_until(&g->api, &g->streams, 2));
    KT_TRUE(strstr(g->stream_target, "resourceVersion=40") != NULL);
    KT_EQ(g->lists, 2);
}

static void R6_an_expired_event_relists_and_tells_the_difference(void)
{
    struct rig g;
    begin_with_d(&g);
    change_the_world(&g);
    expire(&g);
    expect_the_difference(&g);
    end(&g);
}

/* The relist comes out of a back-off then, and must tell deletions all the same. */
static void an_expired_event_after_failures_tells_the_difference(void)
{
    struct rig g;
    begin_with_d(&g);
    fake_drop(g.stream);
    KT_TRUE(fake_api_until(&g.api, &g.streams, 2));
    g.stream_code = 500;
    g.refusals = 2;
    fake_drop(g.stream);
    KT_TRUE(fake_api_until(&g.api, &g.streams, 3));
    change_the_world(&g);
    expire(&g);
    KT_TRUE(fake_api_until(&g.api, &g.told, 6));
    KT_STR(g.told_log, "+d@9 ~a@31 +c@32 -d@9 +d@33 -b@2 ");
    KT_EQ(g.lists, 2);
    KT_EQ(k8s_watch_health(g.watch).relists, 2);
    end(&g);
}

static void an_expired_answer_relists_and_tells_the_difference(void)
{
    struct rig g;
    begin_with_d(&g);
    change_the_world(&g);
    g.stream_code = 410;
    g.refusals = 1;
    fake_end(g.stream);
    expect_the_difference(&g);
    end(&g);
}

static void garbage_in_the_stream_relists(void)
{
    struct rig g;
    begin(&g);
    fake_send(g.stream, "<html>\n");
    KT_TRUE(fake_api_until(&g.api, &g.streams, 2));
    KT_EQ(g.lists, 2);
    KT_EQ(g.told, 0); /* nothing has changed, so nothing is told */
    end(&g);
}

static void events_may_come_in_any_pieces(void)
{
    struct rig g;
    begin(&g);
    fake_send(g.stream, "{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"ConfigMap\",\"apiVer");
    uv_run(&g.api.loop.uv, UV_RUN_ONCE);
    fake_send(g.stream, "sion\":\"v1\",\"metadata\":{\"namespace\":\"ns\",\"name\":\"a\",");
    fake_send(g.stream,
              "\"uid\":\"ua\",\"resourceVersion\":\"11\"}}}\n\n\r\n{\"type\":\"DELETED\",");
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    fake_send(g.stream, "\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":"
                        "{\"namespace\":\"ns\",\"name\":\"a\",\"resourceVersion\":\"12\"}}}\n");
    KT_TRUE(fake_api_until(&g.api, &g.told, 2));
    KT_STR(g.told_log, "~a@11 -a@12 ");
    end(&g);
}

static void a_mute_stream_is_redialled_at_the_idle_deadline(void)
{
    struct rig g;
    prepare(&g);
    g.mute = true;
    start(&g, 50);
    KT_TRUE(fake_api_until(&g.api, &g.streams, 3));
    KT_EQ(g.lists, 1);
    KT_FALSE(k8s_watch_health(g.watch).connected);
    end(&g);
}

static void failures_are_retried_until_the_server_is_back(void)
{
    struct rig g;
    prepare(&g);
    put(&g, "a", "ua", "1");
    g.list_code = 500;
    g.refusals = 5;
    start(&g, 0);
    KT_TRUE(fake_api_until(&g.api, &g.streams, 1));
    KT_EQ(g.api.requests, 7);
    KT_STR(g.told_log, "+a@1 = ");
    end(&g);
}

static void the_callback_may_stop_the_watch(void)
{
    struct rig g;
    prepare(&g);
    put(&g, "a", "ua", "1");
    put(&g, "b", "ub", "2");
    g.stop_at_first = true;
    start(&g, 0);
    KT_TRUE(fake_api_until(&g.api, &g.told, 1));
    KT_STR(g.told_log, "+a@1 ");
    end(&g);
}

struct pages {
    struct fake_api api;
    int lists, streams, told, expire;
    char log[256];
};

/* Two pages; the first time the second is asked for, it has expired. */
static void handle_pages(void *ctx, const struct fake_request *r)
{
    struct pages *p = ctx;
    if (strstr(r->target, "watch=1")) {
        p->streams++;
        fake_stream(r->conn);
        return;
    }
    p->lists++;
    bool second = strstr(r->target, "continue=tok%2B%3D") != NULL;
    if (second && p->expire-- > 0) {
        fake_status(r->conn, 410, "Expired", "the provided continue parameter is too old");
        return;
    }
    json_t *list = fake_list(second ? "11" : "10");
    json_array_append_new(json_object_get(list, "items"),
                          second ? bare("b", "ub", "2") : bare("a", "ua", "1"));
    if (!second) {
        kc_json_set(list, "metadata.continue", json_string("tok+="));
    }
    fake_reply(r->conn, 200, NULL, list);
}

static void note(void *ctx, enum k8s_event ev, json_t *doc)
{
    struct pages *p = ctx;
    size_t len = strlen(p->log);
    snprintf(p->log + len, sizeof(p->log) - len, "%c%s ", "+~-="[ev],
             kc_json_str(doc, "metadata.name", ""));
    p->told++;
}

static void a_list_that_expires_between_pages_begins_anew(void)
{
    struct pages p = {.expire = 1};
    fake_api_init(&p.api, handle_pages, &p);
    struct k8s_client *client = k8s_client_new(&p.api.loop, &p.api.config, NULL);
    struct k8s_watch_opts o = {.resource = {"v1", "configmaps"}, .ns = "ns"};
    struct k8s_watch *w = k8s_watch_start(client, &o, note, &p);
    KT_TRUE(fake_api_until(&p.api, &p.streams, 1));
    KT_STR(p.log, "+a +b = ");
    KT_EQ(p.lists, 4);
    k8s_watch_stop(w);
    k8s_client_free(client);
    fake_api_fini(&p.api);
}

KT_MAIN("watch", KT(lists_then_follows), KT(a_watch_by_name_uses_a_field_selector),
        KT(resumes_at_the_last_version_bookmarks_included),
        KT(R6_an_expired_event_relists_and_tells_the_difference),
        KT(an_expired_event_after_failures_tells_the_difference),
        KT(an_expired_answer_relists_and_tells_the_difference), KT(garbage_in_the_stream_relists),
        KT(events_may_come_in_any_pieces), KT(a_mute_stream_is_redialled_at_the_idle_deadline),
        KT(failures_are_retried_until_the_server_is_back), KT(the_callback_may_stop_the_watch),
        KT(a_list_that_expires_between_pages_begins_anew))
