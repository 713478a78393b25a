/* Images from documents. The ConfigMaps are read from outside: every count, range and order is
 * checked, and a shard's content must have the hash it claims. */
#include "image/ki_internal.h"

#include <string.h>

#include "base/kc_json.h"
#include "base/kc_str.h"

#define BAD(err, ...) kc_fail((err), KC_E_MALFORMED, __VA_ARGS__)

/* ---- single values ---- */

static bool get_int(const json_t *v, int64_t lo, int64_t hi, int64_t *ret)
{
    if (!json_is_integer(v)) {
        return false;
    }
    int64_t n = json_integer_value(v);
    if (n < lo || n > hi) {
        return false;
    }
    *ret = n;
    return true;
}

static bool get_i32(const json_t *v, int32_t lo, int32_t hi, int32_t *ret)
{
    int64_t n;
    if (!get_int(v, lo, hi, &n)) {
        return false;
    }
    *ret = (int32_t)n;
    return true;
}

static bool get_u64(const json_t *v, uint64_t *ret)
{
    int64_t n;
    if (!get_int(v, 0, INT64_MAX, &n)) {
        return false;
    }
    *ret = (uint64_t)n;
    return true;
}

static bool get_uuid(const json_t *v, struct kc_uuid *ret)
{
    return json_is_string(v) && json_string_length(v) == KC_UUID_B64_LEN &&
           kc_uuid_from_b64(kc_str_of(json_string_value(v)), ret) == 0;
}

/* Into a field of fixed size; no cut, no embedded NUL. */
static bool get_text(const json_t *v, char *to, size_t size)
{
    if (!json_is_string(v)) {
        return false;
    }
    size_t n = json_string_length(v);
    const char *s = json_string_value(v);
    if (n >= size || strlen(s) != n) {
        return false;
    }
    memcpy(to, s, n + 1);
    return true;
}

static bool get_hash(const json_t *v, char ret[17])
{
    return json_string_length(v) == 16 && get_text(v, ret, 17) &&
           strspn(ret, "0123456789abcdef") == 16;
}

/* ---- configs ---- */

static int config_cmp(const void *a, const void *b)
{
    return strcmp(((const struct ki_config *)a)->name, ((const struct ki_config *)b)->name);
}

/* Strings are borrowed from the document. */
static bool get_configs(const json_t *v, struct kc_arena *a, const struct ki_config **ret,
                        int32_t *ret_n)
{
    *ret = NULL;
    *ret_n = 0;
    if (!v) {
        return true;
    }
    size_t n = json_object_size(v);
    if (!json_is_object(v) || n > KI_CONFIGS_MAX) {
        return false;
    }
    struct ki_config *list = kc_arena_zalloc(a, n, sizeof(*list));
    if (!list) {
        return false;
    }
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        if (!json_is_string(value) || json_string_length(value) > KI_CONFIG_VALUE_MAX ||
            strlen(json_string_value(value)) != json_string_length(value) || key[0] == '\0' ||
            strlen(key) > KI_CONFIG_NAME_MAX) {
            return false;
        }
        list[i++] = (struct ki_config){key, json_string_value(value)};
    }
    qsort(list, n, sizeof(*list), config_cmp);
    *ret = list;
    *ret_n = (int32_t)n;
    return true;
}

/* ---- shards ---- */

struct table {
    int32_t n;
    struct kc_uuid *ids;
};

static bool get_move(const json_t *v, struct kp_move *m)
{
    int32_t phase;
    if (!get_u64(json_object_get(v, "id"), &m->id) || m->id == 0 ||
        !get_i32(json_object_get(v, "from"), KP_NO_BROKER, KI_BROKER_ID_MAX, &m->from) ||
        !get_i32(json_object_get(v, "to"), KP_NO_BROKER, KI_BROKER_ID_MAX, &m->to) ||
        !get_i32(json_object_get(v, "phase"), KP_MOVE_NONE, KP_MOVE_CANCEL, &phase) ||
        !get_int(json_object_get(v, "deadline"), INT64_MIN, INT64_MAX, &m->deadline_ms)) {
        return false;
    }
    m->phase = (enum kp_phase)phase;
    return true;
}

static bool get_part(const json_t *v, const struct table *incs, struct kp_part *p)
{
    size_t n = json_array_size(v);
    int32_t inc;
    *p = (struct kp_part){.home = KP_NO_BROKER};
    if (!json_is_array(v) || n < 6 || n > 7 ||
        !get_i32(json_array_get(v, 0), KP_NO_BROKER, KI_BROKER_ID_MAX, &p->home) ||
        !get_i32(json_array_get(v, 1), KP_NO_BROKER, KI_BROKER_ID_MAX, &p->assigned) ||
        !get_u64(json_array_get(v, 2), &p->assigned_generation) ||
        !get_i32(json_array_get(v, 3), KP_NO_BROKER, KI_BROKER_ID_MAX, &p->led) ||
        !get_i32(json_array_get(v, 4), -1, incs->n - 1, &inc) ||
        !get_i32(json_array_get(v, 5), -1, INT32_MAX, &p->led_epoch)) {
        return false;
    }
    if (inc >= 0) {
        p->led_incarnation = incs->ids[inc];
    }
    if (n == 7) {
        const json_t *more = json_array_get(v, 6), *move = json_object_get(more, "move");
        p->offline = json_is_true(json_object_get(more, "offline"));
        return json_is_object(more) && (!move || get_move(move, &p->move));
    }
    return true;
}

static int get_topic(const json_t *v, const struct table *incs, struct kc_arena *a,
                     struct ki_topic *t, int32_t *parts_left, struct kc_err *err)
{
    const json_t *name = json_object_get(v, "name"), *parts = json_object_get(v, "parts");
    if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name) ||
        !ki_topic_name_valid(kc_str_of(json_string_value(name))) ||
        !get_uuid(json_object_get(v, "id"), &t->id)) {
        return BAD(err, "topic without a valid name or id");
    }
    t->name = json_string_value(name);
    t->internal = json_is_true(json_object_get(v, "internal"));
    t->fresh = json_is_true(json_object_get(v, "fresh"));
    t->deleted = json_is_true(json_object_get(v, "deleted"));
    t->replication_factor = 1;
    const json_t *rf = json_object_get(v, "rf");
    if (rf && !get_i32(rf, 1, INT16_MAX, &t->replication_factor)) {
        return BAD(err, "replication factor of topic %s", t->name);
    }
    if (!get_configs(json_object_get(v, "configs"), a, &t->configs, &t->n_configs)) {
        return BAD(err, "configs of topic %s", t->name);
    }
    size_t n = json_array_size(parts);
    if (!json_is_array(parts) || n > (size_t)*parts_left) {
        return BAD(err, "partitions of topic %s", t->name);
    }
    *parts_left -= (int32_t)n;
    struct kp_part *list = kc_arena_zalloc(a, n, sizeof(*list));
    if (!list) {
        return kc_fail(err, KC_E_TOO_LARGE, "no memory for topic %s", t->name);
    }
    for (size_t i = 0; i < n; i++) {
        if (!get_part(json_array_get(parts, i), incs, &list[i])) {
            return BAD(err, "partition %zu of topic %s", i, t->name);
        }
    }
    t->parts = list;
    t->n_parts = (int32_t)n;
    return 0;
}

static int get_incarnations(const json_t *v, struct kc_arena *a, struct table *ret,
                            struct kc_err *err)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > KI_PARTS_MAX) {
        return BAD(err, "no table of incarnations");
    }
    *ret = (struct table){(int32_t)n, kc_arena_zalloc(a, n, sizeof(struct kc_uuid))};
    for (size_t i = 0; i < n; i++) {
        if (!ret->ids || !get_uuid(json_array_get(v, i), &ret->ids[i])) {
            return BAD(err, "incarnation %zu", i);
        }
    }
    return 0;
}

/* The topics of a content; sorted, each in its shard, all in the arena or the document. */
static int get_topics(const json_t *content, int32_t index, struct kc_arena *a,
                      struct ki_shard *proto, struct kc_err *err)
{
    const json_t *list = json_object_get(content, "topics");
    struct table incs = {0};
    int rc = get_incarnations(json_object_get(content, "incarnations"), a, &incs, err);
    if (rc) {
        return rc;
    }
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > KI_TOPICS_MAX) {
        return BAD(err, "no list of topics");
    }
    struct ki_topic *topics = kc_arena_zalloc(a, n, sizeof(*topics));
    if (!topics) {
        return kc_fail(err, KC_E_TOO_LARGE, "no memory for %zu topics", n);
    }
    int32_t parts_left = KI_PARTS_MAX;
    for (size_t i = 0; i < n; i++) {
        rc = get_topic(json_array_get(list, i), &incs, a, &topics[i], &parts_left, err);
        if (rc) {
            return rc;
        }
        if (kp_shard_of(&topics[i].id) != index) {
            return BAD(err, "topic %s is in the wrong shard", topics[i].name);
        }
        if (i && memcmp(topics[i - 1].id.b, topics[i].id.b, sizeof(topics[i].id.b)) >= 0) {
            return BAD(err, "topics are not sorted by id");
        }
    }
    proto->topics = topics;
    proto->n_topics = (int32_t)n;
    return 0;
}

/* The version of the document whose hash is wanted: the current or the previous one. */
static const json_t *pick(const json_t *doc, const char *want_hash)
{
    const json_t *previous = json_object_get(doc, "previous");
    const json_t *versions[] = {doc, previous};
    for (size_t i = 0; i < KC_ARRAY_LEN(versions); i++) {
        const char *hash = json_string_value(json_object_get(versions[i], "hash"));
        if (hash && (want_hash[0] == '\0' || strcmp(hash, want_hash) == 0)) {
            return versions[i];
        }
    }
    return NULL;
}

int ki_shard_decode(const json_t *doc, const char *want_hash, struct ki_shard **ret,
                    struct kc_err *err)
{
    struct ki_shard proto = {0};
    if (!get_i32(json_object_get(doc, "index"), 0, KP_SHARDS - 1, &proto.index)) {
        return BAD(err, "shard without an index");
    }
    const json_t *version = pick(doc, want_hash);
    if (!version) {
        return kc_fail(err, KC_E_NOT_FOUND, "shard %d has no content %s", proto.index, want_hash);
    }
    const json_t *content = json_object_get(version, "content");
    char hash[17], real[17];
    if (!get_u64(json_object_get(version, "term"), &proto.term) ||
        !get_u64(json_object_get(version, "generation"), &proto.generation) ||
        !get_hash(json_object_get(version, "hash"), hash) || !json_is_object(content)) {
        return BAD(err, "shard %d without order, hash or content", proto.index);
    }
    if (!ki_content_hash(content, real) || strcmp(hash, real) != 0) {
        return BAD(err, "shard %d does not have the hash it claims", proto.index);
    }
    struct kc_arena a;
    kc_arena_init(&a, 64 * 1024, 8 * (size_t)KI_DOC_MAX);
    int rc = get_topics(content, proto.index, &a, &proto, err);
    if (rc == 0) {
        struct ki_shard *s = ki_shard_make(&proto, hash);
        if (s) {
            *ret = s;
        } else {
            rc = BAD(err, "shard %d has one name twice", proto.index);
        }
    }
    kc_arena_fini(&a);
    return rc;
}

/* ---- root ---- */

static bool get_listeners(const json_t *v, struct kp_row *r)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > KP_LISTENERS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *l = json_array_get(v, i);
        int32_t port;
        if (!get_text(json_object_get(l, "name"), r->listeners[i].name,
                      sizeof(r->listeners[i].name)) ||
            !get_text(json_object_get(l, "host"), r->listeners[i].host,
                      sizeof(r->listeners[i].host)) ||
            !get_i32(json_object_get(l, "port"), 1, UINT16_MAX, &port)) {
            return false;
        }
        r->listeners[i].port = (uint16_t)port;
    }
    r->n_listeners = (int32_t)n;
    return true;
}

static bool get_health(const json_t *v, enum kp_health *ret)
{
    for (int h = KP_DEAD; h <= KP_DRAINING; h++) {
        if (json_is_string(v) &&
            strcmp(json_string_value(v), kp_health_name((enum kp_health)h)) == 0) {
            *ret = (enum kp_health)h;
            return true;
        }
    }
    return false;
}

static bool get_state(const json_t *v, enum kp_state *ret)
{
    for (int s = KP_FENCED; s <= KP_STATE_DRAINING; s++) {
        if (json_is_string(v) &&
            strcmp(json_string_value(v), kp_state_name((enum kp_state)s)) == 0) {
            *ret = (enum kp_state)s;
            return true;
        }
    }
    return false;
}

static bool get_row_texts(const json_t *v, struct kp_row *r)
{
    const json_t *inc = json_object_get(v, "incarnation");
    return json_is_string(inc) &&
           (json_string_length(inc) == 0 || get_uuid(inc, &r->incarnation)) &&
           get_text(json_object_get(v, "podUid"), r->pod_uid, sizeof(r->pod_uid)) &&
           get_text(json_object_get(v, "version"), r->version, sizeof(r->version)) &&
           get_text(json_object_get(v, "rack"), r->rack, sizeof(r->rack)) &&
           get_text(json_object_get(v, "host"), r->host, sizeof(r->host));
}

static bool get_row(const json_t *v, struct kp_row *r)
{
    int64_t protocol;
    if (!get_i32(json_object_get(v, "id"), 0, KI_BROKER_ID_MAX, &r->id) ||
        !get_health(json_object_get(v, "health"), &r->health) ||
        !get_state(json_object_get(v, "state"), &r->state) ||
        !get_int(json_object_get(v, "protocol"), 0, UINT32_MAX, &protocol) ||
        !get_int(json_object_get(v, "lastSeenMs"), INT64_MIN, INT64_MAX, &r->last_seen_ms) ||
        !get_i32(json_object_get(v, "partitions"), 0, INT32_MAX, &r->partitions) ||
        !get_i32(json_object_get(v, "slots"), 0, INT32_MAX, &r->slots) || !get_row_texts(v, r) ||
        !get_listeners(json_object_get(v, "listeners"), r)) {
        return false;
    }
    const char *reason = json_string_value(json_object_get(v, "reason"));
    r->reason = kp_reason_parse(reason ? reason : "");
    r->protocol_version = (uint32_t)protocol;
    r->serving = json_is_true(json_object_get(v, "serving"));
    r->slice_ready = json_is_true(json_object_get(v, "sliceReady"));
    r->condemned = json_is_true(json_object_get(v, "condemned"));
    r->ever_healthy = json_is_true(json_object_get(v, "everHealthy"));
    r->kept = json_is_true(json_object_get(v, "kept"));
    return true;
}

static bool get_rows(const json_t *v, struct kc_arena *a, struct ki_image *proto)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > KP_BROKERS_MAX) {
        return false;
    }
    struct kp_row *rows = kc_arena_zalloc(a, n, sizeof(*rows));
    if (!rows) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!get_row(json_array_get(v, i), &rows[i]) || (i && rows[i - 1].id >= rows[i].id)) {
            return false;
        }
    }
    proto->rows = rows;
    proto->n_rows = (int32_t)n;
    return true;
}

static bool get_homes(const json_t *v, int32_t homes[KP_SLOTS])
{
    if (json_array_size(v) != KP_SLOTS) {
        return false;
    }
    for (size_t i = 0; i < KP_SLOTS; i++) {
        if (!get_i32(json_array_get(v, i), KP_NO_BROKER, KI_BROKER_ID_MAX, &homes[i])) {
            return false;
        }
    }
    return true;
}

static int get_root(const json_t *doc, struct kc_arena *a, struct ki_image *proto,
                    struct kc_err *err)
{
    if (kc_json_int(doc, "version", 0) != 1) {
        return kc_fail(err, KC_E_UNSUPPORTED, "image version %lld",
                       (long long)kc_json_int(doc, "version", 0));
    }
    if (!get_u64(json_object_get(doc, "term"), &proto->order.term) ||
        !get_u64(json_object_get(doc, "generation"), &proto->order.generation) ||
        !get_text(json_object_get(doc, "clusterId"), proto->cluster_id,
                  sizeof(proto->cluster_id))) {
        return BAD(err, "root without order or cluster id");
    }
    if (!get_rows(json_object_get(doc, "brokers"), a, proto)) {
        return BAD(err, "broker rows of the root");
    }
    if (!get_homes(json_object_get(doc, "groupHomes"), proto->group_homes) ||
        !get_homes(json_object_get(doc, "txnHomes"), proto->txn_homes)) {
        return BAD(err, "coordinator homes of the root");
    }
    if (!get_configs(json_object_get(doc, "configs"), a, &proto->configs, &proto->n_configs)) {
        return BAD(err, "configs of the root");
    }
    const json_t *hashes = json_object_get(doc, "shards");
    for (size_t i = 0; i < KP_SHARDS; i++) {
        if (json_array_size(hashes) != KP_SHARDS ||
            !get_hash(json_array_get(hashes, i), proto->hashes[i])) {
            return BAD(err, "shard hashes of the root");
        }
    }
    return 0;
}

int ki_root_decode(const json_t *doc, struct ki_image **ret, struct kc_err *err)
{
    struct kc_arena a;
    kc_arena_init(&a, 16 * 1024, 8 * (size_t)KI_DOC_MAX);
    struct ki_image proto = {0};
    int rc = get_root(doc, &a, &proto, err);
    if (rc == 0) {
        *ret = ki_image_make(&proto);
        rc = *ret ? 0 : kc_fail(err, KC_E_TOO_LARGE, "no memory for the root");
    }
    kc_arena_fini(&a);
    return rc;
}
