/* ki_image.h - the cluster image: what brokers know of the cluster.
 *
 * One root document and KP_SHARDS shard documents, each the payload of a ConfigMap (design.md, 4).
 * In memory an image is immutable and reference-counted: a root plus references to shards, so that
 * a new image shares the shards that did not change. Any thread may hold a reference. */
#ifndef KI_IMAGE_H
#define KI_IMAGE_H

#include <jansson.h>

#include "base/kc_arena.h"
#include "base/kc_error.h"
#include "image/ki_names.h"
#include "policy/kp_types.h"

struct ki_config {
    const char *name;
    const char *value;
};

struct ki_topic {
    struct kc_uuid id;
    const char *name;
    bool internal;
    bool fresh; /* brokers may create its directory (design.md, 2) */
    bool deleted; /* tombstone: the last leader removes the directory */
    int32_t n_configs;
    const struct ki_config *configs; /* overrides only, sorted by name */
    int32_t n_parts;
    const struct kp_part *parts;
    int32_t replication_factor; /* virtual; what CreateTopics asked for */
};

/* Shard documents carry (term, generation) and hash of their content. */
struct ki_shard {
    _Atomic uint32_t refs;
    int32_t index;
    uint64_t term, generation;
    char hash[17]; /* hex of kc_hash64 of the canonical JSON of the topics */
    int32_t n_topics;
    const struct ki_topic *topics; /* sorted by id */
    /* owns its memory and an index of names; see ki_internal.h */
};

struct ki_image {
    _Atomic uint32_t refs;
    struct kp_order order;
    char cluster_id[KC_UUID_B64_LEN + 1];
    int32_t n_rows;
    const struct kp_row *rows; /* sorted by id */
    int32_t group_homes[KP_SLOTS];
    int32_t txn_homes[KP_SLOTS];
    int32_t n_configs; /* cluster-wide broker configs, sorted by name */
    const struct ki_config *configs;
    char hashes[KP_SHARDS][17];
    struct ki_shard *shards[KP_SHARDS]; /* NULL only while assembling */
    int32_t n_topics; /* over all shards, tombstones excluded */
    /* What was heard of leaders since; newer than the shards, sorted by kp_pid, in no document. */
    int32_t n_leads;
    const struct kp_lead *leads;
};

/* ---- reading ---- */
struct ki_image *ki_image_ref(const struct ki_image *im);
void ki_image_unref(struct ki_image *im); /* NULL allowed */
const struct ki_topic *ki_topic_by_id(const struct ki_image *im, const struct kc_uuid *id);
/* Tombstones are not found by name. */
const struct ki_topic *ki_topic_by_name(const struct ki_image *im, struct kc_str name);
/* The internal topic whose partitions are slots of this kind; NULL: there is none yet. */
const struct ki_topic *ki_slot_topic(const struct ki_image *im, int32_t kind);
const struct kp_row *ki_row(const struct ki_image *im, int32_t broker); /* NULL = gone */
/* NULL: no such topic, or no such partition. */
const struct kp_part *ki_part(const struct ki_image *im, const struct kc_uuid *topic_id,
                              int32_t partition);
/* Who leads t's partition by the newest word; broker KP_NO_BROKER: nobody. partition is t's. */
struct kp_lead ki_leader(const struct ki_image *im, const struct ki_topic *t, int32_t partition);
int ki_pid_cmp(const struct kp_pid *a, const struct kp_pid *b); /* the order of leads */
/* The override, or NULL. */
const char *ki_topic_config(const struct ki_topic *t, const char *name);
const char *ki_config(const struct ki_image *im, const char *name);

/* ---- building (operator, self-led broker, tests) ---- */
/* Deep copies into the arena; parts are copied when there are any. False: no memory. */
bool ki_topic_copy(struct kc_arena *a, const struct ki_topic *from, struct ki_topic *to);
bool ki_configs_copy(struct kc_arena *a, const struct ki_config *from, int32_t n,
                     const struct ki_config **ret);
/* Deep copies of everything given. refs = 1. NULL: no memory. */
struct ki_shard *ki_shard_build(int32_t index, uint64_t term, uint64_t generation,
                                const struct ki_topic *topics, int32_t n_topics);
struct ki_shard *ki_shard_ref(struct ki_shard *s);
void ki_shard_unref(struct ki_shard *s); /* NULL allowed */
/* proto supplies order, cluster_id, rows, homes, configs, leads (copied); shards are taken over (one
 * reference each, also on failure), n_topics and hashes are computed. NULL: no memory. */
struct ki_image *ki_image_build(const struct ki_image *proto, struct ki_shard *shards[KP_SHARDS]);

/* ---- documents ---- */
/* The JSON of a shard / root; new reference or NULL. A shard document keeps `previous`, the content
 * the standing root still names, until the next one (so a root can always be assembled). */
json_t *ki_shard_encode(const struct ki_shard *s, const struct ki_shard *previous);
json_t *ki_root_encode(const struct ki_image *im);
/* Everything from outside is checked (lengths, counts, ranges, sortedness, and a shard's hash against
 * its content): 0 or KC_E_MALFORMED.
 * ki_shard_decode returns the content whose hash is want_hash (current or previous; "" = current),
 * KC_E_NOT_FOUND if neither is. */
int ki_shard_decode(const json_t *doc, const char *want_hash, struct ki_shard **ret,
                    struct kc_err *err);
/* The root with shards[] all NULL and order.uid left ""; the caller fills uid and makes the whole
 * image with ki_image_build (or fills shards itself, before anyone else sees the image). */
int ki_root_decode(const json_t *doc, struct ki_image **ret, struct kc_err *err);
/* The data map of a ConfigMap: {"image.json": text}, or {"image.json.gz": base64} past
 * KI_COMPRESS_ABOVE bytes. */
enum { KI_COMPRESS_ABOVE = 16 * 1024, KI_DOC_MAX = 32 * 1024 * 1024 };
json_t *ki_configmap_data(const json_t *doc);
int ki_configmap_parse(const json_t *configmap, json_t **ret, struct kc_err *err);

#endif
