#include "reconcile/ko_events.h"

#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "store/ko_object.h"

enum { RECENT_MAX = 256, REPEAT_MS = 600000, BURST = 50, REFILL_MS = 1000 };

struct recent {
    uint64_t key; /* object, reason, message; 0 = free */
    int64_t last_ms;
    int32_t count;
    char ns[254], name[254]; /* of the Event object */
};

struct ko_events {
    struct ko_store *store;
    const char *component;
    int64_t tokens_at_ms; /* when the bucket was filled last */
    int32_t tokens;
    struct recent recent[RECENT_MAX];
};

struct ko_events *ko_events_new(struct ko_store *store, const char *component)
{
    struct ko_events *e = kc_zalloc(sizeof(*e));
    e->store = store;
    e->component = component;
    e->tokens = BURST;
    return e;
}

void ko_events_free(struct ko_events *e)
{
    kc_free(e);
}

static bool take_token(struct ko_events *e, enum ko_event_level level, int64_t now_ms)
{
    if (e->tokens_at_ms == 0 || now_ms < e->tokens_at_ms) {
        e->tokens_at_ms = now_ms;
    }
    int64_t more = (now_ms - e->tokens_at_ms) / REFILL_MS;
    if (more > 0) {
        e->tokens = (int32_t)KC_MIN((int64_t)BURST, e->tokens + more);
        e->tokens_at_ms += more * REFILL_MS;
    }
    if (e->tokens <= (level == KO_EVENT_DETAIL ? BURST / 2 : 0)) {
        return false;
    }
    e->tokens--;
    return true;
}

static uint64_t event_key(const json_t *about, const char *reason, const char *message)
{
    uint64_t h = kc_hash64(ko_uid(about), strlen(ko_uid(about)));
    h = kc_hash64_mix(h, kc_hash64(ko_name(about), strlen(ko_name(about))));
    h = kc_hash64_mix(h, kc_hash64(reason, strlen(reason)));
    h = kc_hash64_mix(h, kc_hash64(message, strlen(message)));
    return h ? h : 1;
}

/* The slot of a key that was used lately, else the one to reuse (free or oldest) with *ret_new. */
static struct recent *slot(struct ko_events *e, uint64_t key, int64_t now_ms, bool *ret_new)
{
    struct recent *oldest = &e->recent[0];
    for (int i = 0; i < RECENT_MAX; i++) {
        struct recent *r = &e->recent[i];
        if (r->key == key && now_ms - r->last_ms < REPEAT_MS) {
            *ret_new = false;
            return r;
        }
        if (r->last_ms < oldest->last_ms) {
            oldest = r;
        }
    }
    *ret_new = true;
    return oldest;
}

static void create(struct ko_events *e, const json_t *about, const struct recent *r, bool warning,
                   const char *reason, const char *message)
{
    char now[32];
    kc_rfc3339(r->last_ms, false, now);
    json_t *doc = ko_doc_new(KO_EVENT, r->ns, r->name);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "apiVersion", kc_json_str(about, "apiVersion", ""),
                  "kind", kc_json_str(about, "kind", ""), "namespace", ko_ns(about), "name",
                  ko_name(about), "uid", ko_uid(about));
    json_object_set_new(doc, "involvedObject", object);
    json_object_set_new(doc, "reason", json_string(reason));
    json_object_set_new(doc, "message", json_string(message));
    json_object_set_new(doc, "type", json_string(warning ? "Warning" : "Normal"));
    json_object_set_new(doc, "count", json_integer(1));
    json_object_set_new(doc, "firstTimestamp", json_string(now));
    json_object_set_new(doc, "lastTimestamp", json_string(now));
    json_object_set_new(doc, "source", json_pack("{s:s}", "component", e->component));
    json_object_set_new(doc, "reportingComponent", json_string(e->component));
    e->store->ops->create(e->store, KO_EVENT, doc, NULL, NULL);
    json_decref(doc);
}

bool ko_event_emit(struct ko_events *e, const json_t *about, enum ko_event_level level,
                   const char *reason, const char *message, int64_t now_ms)
{
    bool fresh;
    uint64_t key = event_key(about, reason, message);
    if (!take_token(e, level, now_ms)) {
        return false;
    }
    struct recent *r = slot(e, key, now_ms, &fresh);
    if (!fresh) {
        char now[32];
        r->last_ms = now_ms;
        r->count++;
        kc_rfc3339(now_ms, false, now);
        json_t *patch = json_pack("{s:i, s:s}", "count", (int)r->count, "lastTimestamp", now);
        e->store->ops->merge(e->store, KO_EVENT, r->ns, r->name, patch, NULL, NULL);
        json_decref(patch);
        return true;
    }
    *r = (struct recent){.key = key, .last_ms = now_ms, .count = 1};
    snprintf(r->ns, sizeof(r->ns), "%s", ko_ns(about));
    snprintf(r->name, sizeof(r->name), "%.200s.%016llx", ko_name(about),
             (unsigned long long)kc_hash64_mix(key, (uint64_t)now_ms));
    create(e, about, r, level == KO_EVENT_WARNING, reason, message);
    return true;
}
