/* Documents from images. Partitions are arrays, and incarnations indices into a table of the
 * shard: 20,000 partitions must fit 16 ConfigMaps with room for the previous content. */
#include "image/ki_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"

/* The incarnations of a shard, in order of first appearance (so equal contents give equal texts). */
struct table {
    json_t *list;
    struct kc_uuid seen[KP_BROKERS_MAX * 8];
    int32_t n;
};

/* The index, or -1 for the zero id; -2: no memory, or more incarnations than any cluster has. */
static int32_t intern(struct table *t, const struct kc_uuid *u)
{
    if (kc_uuid_is_zero(u)) {
        return -1;
    }
    for (int32_t i = t->n - 1; i >= 0; i--) {
        if (kc_uuid_eq(&t->seen[i], u)) {
            return i;
        }
    }
    char text[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(u, text);
    if (t->n == (int32_t)KC_ARRAY_LEN(t->seen) ||
        json_array_append_new(t->list, json_string(text))) {
        return -2;
    }
    t->seen[t->n] = *u;
    return t->n++;
}

static json_t *encode_move(const struct kp_move *m)
{
    return json_pack("{s:I,s:i,s:i,s:i,s:I}", "id", (json_int_t)m->id, "from", m->from, "to", m->to,
                     "phase", (int)m->phase, "deadline", (json_int_t)m->deadline_ms);
}

/* [home, assigned, its generation, led, its incarnation, its epoch] and, if there is more to say, an
 * object. */
static json_t *encode_part(struct table *incs, const struct kp_part *p)
{
    int32_t inc = intern(incs, &p->led_incarnation);
    if (inc < -1) {
        return NULL;
    }
    json_t *a = json_pack("[i,i,I,i,i,i]", p->home, p->assigned, (json_int_t)p->assigned_generation,
                          p->led, inc, p->led_epoch);
    if (!a || (!p->offline && p->move.id == 0)) {
        return a;
    }
    json_t *more = json_object();
    int rc = json_array_append(a, more);
    if (p->offline) {
        rc |= json_object_set_new(more, "offline", json_true());
    }
    if (p->move.id) {
        rc |= json_object_set_new(more, "move", encode_move(&p->move));
    }
    json_decref(more);
    if (rc) {
        json_decref(a);
        return NULL;
    }
    return a;
}

static json_t *encode_configs(const struct ki_config *configs, int32_t n)
{
    json_t *o = json_object();
    for (int32_t i = 0; o && i < n; i++) {
        if (json_object_set_new(o, configs[i].name, json_string(configs[i].value))) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static json_t *encode_topic(struct table *incs, const struct ki_topic *t)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(&t->id, id);
    json_t *parts = json_array();
    int rc = parts ? 0 : -1;
    for (int32_t i = 0; rc == 0 && i < t->n_parts; i++) {
        rc = json_array_append_new(parts, encode_part(incs, &t->parts[i]));
    }
    json_t *o = rc ? NULL : json_pack("{s:s,s:s}", "id", id, "name", t->name);
    if (!o) {
        json_decref(parts);
        return NULL;
    }
    rc |= json_object_set_new(o, "parts", parts);
    if (t->n_configs) {
        rc |= json_object_set_new(o, "configs", encode_configs(t->configs, t->n_configs));
    }
    if (t->replication_factor != 1) {
        rc |= json_object_set_new(o, "rf", json_integer(t->replication_factor));
    }
    static const char *const names[] = {"internal", "fresh", "deleted"};
    const bool flags[] = {t->internal, t->fresh, t->deleted};
    for (size_t i = 0; i < KC_ARRAY_LEN(flags); i++) {
        if (flags[i]) {
            rc |= json_object_set_new(o, names[i], json_true());
        }
    }
    if (rc) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *ki_content_encode(const struct ki_topic *topics, int32_t n_topics)
{
    struct table incs = {.list = json_array()};
    json_t *list = json_array();
    int rc = incs.list && list ? 0 : -1;
    for (int32_t i = 0; rc == 0 && i < n_topics; i++) {
        rc = json_array_append_new(list, encode_topic(&incs, &topics[i]));
    }
    json_t *content = rc ? NULL : json_pack("{s:O,s:O}", "incarnations", incs.list, "topics", list);
    json_decref(incs.list);
    json_decref(list);
    return content;
}

bool ki_content_hash(const json_t *content, char ret[17])
{
    char *text = kc_json_canonical(content);
    if (!text) {
        return false;
    }
    snprintf(ret, 17, "%016llx", (unsigned long long)kc_hash64(text, strlen(text)));
    free(text);
    return true;
}

static json_t *encode_version(const struct ki_shard *s)
{
    json_t *content = ki_content_encode(s->topics, s->n_topics);
    return content ? json_pack("{s:I,s:I,s:s,s:o}", "term", (json_int_t)s->term, "generation",
                               (json_int_t)s->generation, "hash", s->hash, "content", content)
                   : NULL;
}

json_t *ki_shard_encode(const struct ki_shard *s, const struct ki_shard *previous)
{
    json_t *doc = encode_version(s);
    int rc = doc ? json_object_set_new(doc, "index", json_integer(s->index)) : -1;
    if (rc == 0 && previous && strcmp(previous->hash, s->hash) != 0) {
        rc = json_object_set_new(doc, "previous", encode_version(previous));
    }
    if (rc) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

static json_t *encode_listeners(const struct kp_row *r)
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < r->n_listeners; i++) {
        const struct kp_listener *l = &r->listeners[i];
        if (json_array_append_new(list, json_pack("{s:s,s:s,s:i}", "name", l->name, "host", l->host,
                                                  "port", (int)l->port))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *encode_row(const struct kp_row *r)
{
    char inc[KC_UUID_B64_LEN + 1] = "";
    if (!kc_uuid_is_zero(&r->incarnation)) {
        kc_uuid_to_b64(&r->incarnation, inc);
    }
    json_t *listeners = encode_listeners(r);
    if (!listeners) {
        return NULL;
    }
    return json_pack(
        "{s:i,s:s,s:s,s:s,s:b,s:b,s:b,s:b,s:b,s:I,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:i,s:i}", "id",
        r->id, "health", kp_health_name(r->health), "state", kp_state_name(r->state), "reason",
        kp_reason_name(r->reason), "serving", r->serving, "sliceReady", r->slice_ready, "condemned",
        r->condemned, "everHealthy", r->ever_healthy, "kept", r->kept, "protocol",
        (json_int_t)r->protocol_version, "incarnation", inc, "podUid", r->pod_uid, "version",
        r->version, "rack", r->rack, "host", r->host, "listeners", listeners, "lastSeenMs",
        (json_int_t)r->last_seen_ms, "partitions", r->partitions, "slots", r->slots);
}

static json_t *encode_homes(const int32_t homes[KP_SLOTS])
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < KP_SLOTS; i++) {
        if (json_array_append_new(list, json_integer(homes[i]))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *ki_root_encode(const struct ki_image *im)
{
    json_t *rows = json_array(), *hashes = json_array();
    int rc = rows && hashes ? 0 : -1;
    for (int32_t i = 0; rc == 0 && i < im->n_rows; i++) {
        rc = json_array_append_new(rows, encode_row(&im->rows[i]));
    }
    for (int32_t i = 0; rc == 0 && i < KP_SHARDS; i++) {
        rc = json_array_append_new(hashes, json_string(im->hashes[i]));
    }
    json_t *doc =
        rc ? NULL
           : json_pack("{s:i,s:I,s:I,s:s,s:O,s:o,s:o,s:o,s:O}", "version", 1, "term",
                       (json_int_t)im->order.term, "generation", (json_int_t)im->order.generation,
                       "clusterId", im->cluster_id, "brokers", rows, "groupHomes",
                       encode_homes(im->group_homes), "txnHomes", encode_homes(im->txn_homes),
                       "configs", encode_configs(im->configs, im->n_configs), "shards", hashes);
    json_decref(rows);
    json_decref(hashes);
    return doc;
}
