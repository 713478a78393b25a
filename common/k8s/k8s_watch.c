/* k8s_watch.c - list, watch, resume, relist. Owner: the client's loop.
 *
 * Failure modes: the server ends a watch now and then (resume at the last resourceVersion); it has
 * forgotten that version (410: list again and compare); the connection is half-open (idle deadline,
 * TCP keep-alive); the server is away or overloaded (back-off, Retry-After). */
#include "k8s/k8s_watch.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_map.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "k8s/k8s_frame.h"
#include "k8s/k8s_stream.h"

enum {
    LIST_LIMIT = 500,
    KEY_MAX = 640, /* a namespace and a name, of at most 253 each */
    EVENT_MAX = 8 << 20, /* one event: etcd's limit on an object is 1.5 MiB */
    PAGE_MAX = 64 << 20,
    LIST_TIMEOUT_MS = 30000,
    IDLE_MS = 150 * 1000, /* the server sends a bookmark a minute */
    BACKOFF_MIN_MS = 100,
    BACKOFF_MAX_MS = 2000,
    HEALTHY_MS = 1000, /* a stream that lived so long was no failure */
    SERVER_TIMEOUT_MIN_S = 300 /* up to twice that: clients spread out */
};

enum step { STEP_LIST, STEP_STREAM };

struct known {
    json_t *doc;
    uint64_t round; /* of the list that saw it last */
};

struct k8s_watch {
    struct k8s_client *client;
    struct k8s_resource resource;
    char *ns, *label_selector, *field_selector;
    int64_t idle_ms, backoff_max_ms;
    k8s_watch_fn fn;
    void *ctx;
    struct kc_map known; /* "ns/name" -> struct known */
    uint64_t round;
    char version[64]; /* to resume at */
    char cont[1024]; /* of the list under way */
    struct k8s_frame frame;
    struct k8s_call *call;
    enum step step; /* what runs, or runs when the timer fires */
    bool waiting; /* the timer is a back-off, not a deadline */
    bool progress; /* this stream has brought an event */
    bool stopped;
    int failures;
    int64_t opened_ms;
    uv_timer_t timer;
    struct kc_rng rng;
    struct k8s_watch_health health;
};

static void begin(struct k8s_watch *w);

/* ---- the cache and what is told ---- */

static void known_free(void *p)
{
    struct known *k = p;
    json_decref(k->doc);
    kc_free(k);
}

/* "ns/name"; returns its length. Names that no API server gives are cut. */
static size_t key_of(const json_t *doc, char out[KEY_MAX])
{
    int n = snprintf(out, KEY_MAX, "%s/%s", kc_json_str(doc, "metadata.namespace", ""),
                     kc_json_str(doc, "metadata.name", ""));
    return KC_MIN((size_t)KC_MAX(n, 0), (size_t)KEY_MAX - 1);
}

static void tell(struct k8s_watch *w, enum k8s_event ev, json_t *doc)
{
    if (!w->stopped) {
        w->fn(w->ctx, ev, doc);
    }
}

static bool same(const json_t *a, const json_t *b, const char *path)
{
    return strcmp(kc_json_str(a, path, ""), kc_json_str(b, path, "-")) == 0;
}

static void forget(struct k8s_watch *w, const char *key, size_t len, json_t *last)
{
    struct known *k = kc_map_del(&w->known, key, len);
    if (k) {
        tell(w, K8S_DELETED, last ? last : k->doc);
        known_free(k);
    }
}

/* An object as it is now: tells what is new about it. */
static void upsert(struct k8s_watch *w, json_t *doc)
{
    char key[KEY_MAX];
    size_t len = key_of(doc, key);
    struct known *k = kc_map_get(&w->known, key, len);
    json_object_del(json_object_get(doc, "metadata"), "managedFields"); /* half of its size */
    if (k && !same(k->doc, doc, "metadata.uid")) {
        forget(w, key, len, NULL); /* deleted and made again while nobody looked */
        k = NULL;
    }
    if (!k) {
        k = kc_zalloc(sizeof(*k));
        k->doc = json_incref(doc);
        kc_map_put(&w->known, key, len, k);
        k->round = w->round;
        tell(w, K8S_ADDED, doc);
        return;
    }
    k->round = w->round;
    if (!same(k->doc, doc, "metadata.resourceVersion")) {
        json_decref(k->doc);
        k->doc = json_incref(doc);
        tell(w, K8S_MODIFIED, doc);
    }
}

/* What a whole list did not show is gone. */
static void sweep(struct k8s_watch *w)
{
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; !w->stopped && (e = kc_map_next(&w->known, &it));) {
        struct known *k = e->value;
        if (k->round != w->round) {
            forget(w, e->key, e->key_len, NULL);
        }
    }
}

/* ---- waiting ---- */

static void on_timer(uv_timer_t *h)
{
    struct k8s_watch *w = h->data;
    if (!w->waiting) { /* the idle deadline */
        k8s_cancel(w->call);
        w->call = NULL;
        w->health.connected = false;
        w->health.redials++;
        kc_log(KC_WARN, "k8s", "event=watch_idle resource=%s idle_ms=%lld", w->resource.plural,
               (long long)w->idle_ms);
    }
    w->waiting = false;
    begin(w);
}

static void wait_ms(struct k8s_watch *w, int64_t ms)
{
    w->waiting = true;
    uv_timer_start(&w->timer, on_timer, (uint64_t)ms, 0);
}

static void sign_of_life(struct k8s_watch *w)
{
    w->health.last_byte_ms = kc_mono_ms();
    uv_update_time(&k8s_client_loop(w->client)->uv);
    uv_timer_start(&w->timer, on_timer, (uint64_t)w->idle_ms, 0);
}

/* Tries `step` again, later and later. One log line a row of failures. */
static void back_off(struct k8s_watch *w, enum step step, const struct k8s_result *r)
{
    int64_t ms = (int64_t)BACKOFF_MIN_MS << KC_MIN(w->failures, 10);
    bool refused = r->code >= 400 && r->code < 500; /* somebody must change something first */
    ms = KC_MIN(ms, refused ? 5 * w->backoff_max_ms : w->backoff_max_ms);
    ms = ms / 2 + (int64_t)kc_rng_below(&w->rng, (uint64_t)ms / 2 + 1);
    w->step = step;
    w->health.connected = false;
    w->health.last_code = r->code;
    if (w->failures++ == 2) { /* a restart of the server is no news */
        struct kc_log_buf b;
        kc_log(KC_WARN, "k8s", "event=watch_failing resource=%s code=%d error=%d message=%s",
               w->resource.plural, r->code, r->error, kc_log_str(kc_str_of(r->message), &b));
    }
    wait_ms(w, KC_MAX(ms, KC_MIN(r->retry_after_ms, (int64_t)60000)));
}

static void recovered(struct k8s_watch *w)
{
    if (w->failures > 2) {
        kc_log(KC_INFO, "k8s", "event=watch_recovered resource=%s", w->resource.plural);
    }
    w->failures = 0;
}

/* ---- the list ---- */

static int selectors(const struct k8s_watch *w, char *q, size_t cap)
{
    int rc = 0;
    q[0] = '\0';
    if (w->label_selector) {
        rc = k8s_query_add(q, cap, "labelSelector", w->label_selector);
    }
    if (rc == 0 && w->field_selector) {
        rc = k8s_query_add(q, cap, "fieldSelector", w->field_selector);
    }
    return rc;
}

static void start_list(struct k8s_watch *w)
{
    w->step = STEP_LIST;
    w->cont[0] = '\0';
    begin(w);
}

/* List items come without apiVersion and kind: a watch event has them, so they get them here. */
static void take_items(struct k8s_watch *w, json_t *list)
{
    const char *kind = kc_json_str(list, "kind", "");
    const char *api = kc_json_str(list, "apiVersion", "");
    size_t len = strlen(kind);
    len = len > 4 && strcmp(kind + len - 4, "List") == 0 ? len - 4 : len;
    json_t *items = json_object_get(list, "items"), *item;
    size_t i;
    json_array_foreach(items, i, item)
    {
        if (!json_is_object(json_object_get(item, "metadata")) || w->stopped) {
            continue;
        }
        json_object_set_new(item, "kind", json_stringn(kind, len));
        json_object_set_new(item, "apiVersion", json_string(api));
        upsert(w, item);
    }
}

static void on_list(void *ctx, const struct k8s_result *r)
{
    struct k8s_watch *w = ctx;
    w->call = NULL;
    const char *version = kc_json_str(r->doc, "metadata.resourceVersion", "");
    const char *cont = kc_json_str(r->doc, "metadata.continue", "");
    if (r->code == 410 && w->cont[0]) { /* the list took so long that its snapshot expired */
        start_list(w);
        return;
    }
    if (!k8s_ok(r) || !*version || strlen(version) >= sizeof(w->version) ||
        strlen(cont) >= sizeof(w->cont)) {
        w->cont[0] = '\0'; /* begins anew: what the broken list has shown proves nothing */
        back_off(w, STEP_LIST, r);
        return;
    }
    w->health.last_byte_ms = kc_mono_ms();
    take_items(w, r->doc);
    snprintf(w->cont, sizeof(w->cont), "%s", cont);
    if (*cont && !w->stopped) {
        begin(w);
        return;
    }
    sweep(w);
    if (w->stopped) {
        return;
    }
    snprintf(w->version, sizeof(w->version), "%s", version);
    recovered(w);
    if (!w->health.synced) {
        w->health.synced = true;
        tell(w, K8S_SYNCED, NULL);
    }
    if (!w->stopped) {
        w->step = STEP_STREAM;
        begin(w);
    }
}

/* ---- the stream ---- */

/* False when the stream must end. */
static bool take_event(struct k8s_watch *w, struct kc_bytes line)
{
    json_t *ev = json_loadb((const char *)line.ptr, (size_t)line.len, 0, NULL);
    const char *type = kc_json_str(ev, "type", "");
    json_t *doc = json_object_get(ev, "object");
    const char *version = kc_json_str(doc, "metadata.resourceVersion", "");
    bool more = true;
    if (strcmp(type, "ERROR") == 0) {
        w->health.last_code = (int)kc_json_int(doc, "code", 0);
        w->step = w->health.last_code == 410 ? STEP_LIST : STEP_STREAM;
        more = false;
    } else if (!*version || strlen(version) >= sizeof(w->version)) {
        w->step = STEP_LIST; /* not an event: start from what is known to be whole */
        more = false;
    } else {
        snprintf(w->version, sizeof(w->version), "%s", version);
        w->progress = true;
        if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0) {
            upsert(w, doc);
        } else if (strcmp(type, "DELETED") == 0) {
            char key[KEY_MAX];
            json_object_del(json_object_get(doc, "metadata"), "managedFields");
            size_t len = key_of(doc, key);
            forget(w, key, len, doc);
        }
    }
    json_decref(ev);
    return more;
}

static void end_stream(struct k8s_watch *w)
{
    if (w->call) {
        k8s_cancel(w->call);
        w->call = NULL;
    }
    w->health.connected = false;
}

static void on_data(void *ctx, const void *data, size_t len)
{
    struct k8s_watch *w = ctx;
    sign_of_life(w);
    w->health.connected = true;
    bool more = k8s_frame_push(&w->frame, data, len) == 0;
    if (!more) {
        w->step = STEP_LIST;
    }
    struct kc_bytes line;
    while (more && !w->stopped && k8s_frame_next(&w->frame, &line)) {
        more = take_event(w, line);
    }
    if (w->stopped) {
        return;
    }
    if (w->progress) {
        recovered(w);
    }
    if (!more) {
        struct k8s_result r = {.code = w->health.last_code,
                               .message = "the watch was ended by an error event"};
        end_stream(w);
        if (w->step == STEP_LIST && w->failures == 0) {
            w->failures = 1; /* a second one in a row waits */
            start_list(w);
        } else {
            back_off(w, w->step, &r);
        }
    }
}

static void on_stream_end(void *ctx, const struct k8s_result *r)
{
    struct k8s_watch *w = ctx;
    w->call = NULL;
    w->health.connected = false;
    w->health.redials++;
    if (r->code == 410) {
        start_list(w);
    } else if (w->progress || (r->code == 200 && kc_mono_ms() - w->opened_ms >= HEALTHY_MS)) {
        /* An ordinary end; what was cut off with it is sent again from the last version on. */
        recovered(w);
        w->step = STEP_STREAM;
        wait_ms(w, (int64_t)kc_rng_below(&w->rng, BACKOFF_MIN_MS));
    } else {
        back_off(w, STEP_STREAM, r);
    }
}

/* Starts what `step` says. */
static void begin(struct k8s_watch *w)
{
    char q[4096], number[32];
    struct k8s_request req = {
        .method = K8S_GET, .resource = w->resource, .ns = w->ns, .query = q, .max_bytes = PAGE_MAX};
    int rc = selectors(w, q, sizeof(q));
    if (w->step == STEP_LIST) {
        if (!w->cont[0]) { /* the first page: what this list does not show will be gone */
            w->round++;
            w->health.relists++;
        }
        req.timeout_ms = LIST_TIMEOUT_MS;
        snprintf(number, sizeof(number), "%d", LIST_LIMIT);
        rc = rc ? rc : k8s_query_add(q, sizeof(q), "limit", number);
        if (rc == 0 && w->cont[0]) {
            rc = k8s_query_add(q, sizeof(q), "continue", w->cont);
        }
        KC_ASSERT(rc == 0); /* selectors are ours and bounded in k8s_watch_start */
        w->call = k8s_send(w->client, &req, on_list, w);
        return;
    }
    uint64_t s = SERVER_TIMEOUT_MIN_S + kc_rng_below(&w->rng, SERVER_TIMEOUT_MIN_S);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)s);
    rc = rc ? rc : k8s_query_add(q, sizeof(q), "watch", "1");
    rc = rc ? rc : k8s_query_add(q, sizeof(q), "allowWatchBookmarks", "true");
    rc = rc ? rc : k8s_query_add(q, sizeof(q), "timeoutSeconds", number);
    rc = rc ? rc : k8s_query_add(q, sizeof(q), "resourceVersion", w->version);
    KC_ASSERT(rc == 0);
    k8s_frame_reset(&w->frame);
    w->progress = false;
    w->opened_ms = kc_mono_ms();
    w->call = k8s_send_stream(w->client, &req, on_data, on_stream_end, w);
    uv_timer_start(&w->timer, on_timer, (uint64_t)w->idle_ms, 0);
}

/* ---- life ---- */

struct k8s_watch *k8s_watch_start(struct k8s_client *c, const struct k8s_watch_opts *o,
                                  k8s_watch_fn fn, void *ctx)
{
    char by_name[300];
    const char *fields = o->field_selector;
    if (o->name) {
        snprintf(by_name, sizeof(by_name), "metadata.name=%s", o->name);
        fields = by_name;
    }
    KC_ASSERT(!o->label_selector || strlen(o->label_selector) < 512);
    KC_ASSERT(!fields || strlen(fields) < 300);
    struct k8s_watch *w = kc_zalloc(sizeof(*w));
    w->client = c;
    w->resource = o->resource;
    w->ns = o->ns ? kc_strdup(o->ns) : NULL;
    w->label_selector = o->label_selector ? kc_strdup(o->label_selector) : NULL;
    w->field_selector = fields ? kc_strdup(fields) : NULL;
    w->idle_ms = o->idle_ms ? o->idle_ms : IDLE_MS;
    w->backoff_max_ms = o->backoff_max_ms ? o->backoff_max_ms : BACKOFF_MAX_MS;
    w->fn = fn;
    w->ctx = ctx;
    kc_map_init(&w->known);
    k8s_frame_init(&w->frame, EVENT_MAX);
    uint64_t seed;
    kc_random_bytes(&seed, sizeof(seed));
    kc_rng_seed(&w->rng, seed);
    uv_timer_init(&k8s_client_loop(c)->uv, &w->timer);
    w->timer.data = w;
    k8s_client_hold(c, 1);
    start_list(w);
    return w;
}

static void closed(uv_handle_t *h)
{
    struct k8s_watch *w = h->data;
    kc_map_fini(&w->known, known_free);
    k8s_frame_fini(&w->frame);
    kc_free(w->ns);
    kc_free(w->label_selector);
    kc_free(w->field_selector);
    kc_free(w);
}

/* The memory goes with the timer's closing, a turn later: fn may be on the stack now. */
void k8s_watch_stop(struct k8s_watch *w)
{
    if (!w || w->stopped) {
        return;
    }
    w->stopped = true;
    end_stream(w);
    k8s_client_hold(w->client, -1);
    uv_close((uv_handle_t *)&w->timer, closed);
}

struct k8s_watch_health k8s_watch_health(const struct k8s_watch *w)
{
    return w->health;
}
