/* ki_internal.h - what the files of common/image share. */
#ifndef KI_INTERNAL_H
#define KI_INTERNAL_H

#include "base/kc_arena.h"
#include "image/ki_image.h"

/* Limits of a document from outside; generous against the operator's own (2,000 topics, 20,000
 * partitions by default), tight against memory. */
enum {
    KI_TOPICS_MAX = 65536, /* of a shard */
    KI_PARTS_MAX = 1 << 18, /* of a shard, all topics */
    KI_CONFIGS_MAX = 256, /* of a topic, or of the cluster */
    KI_CONFIG_NAME_MAX = 256,
    KI_CONFIG_VALUE_MAX = 32 * 1024,
    KI_BROKER_ID_MAX = 65535
};

/* A shard and its memory. Names are found through an open-addressing table that belongs to the
 * shard, so that a new image that shares the shard shares the index, too. */
struct ki_shard_own {
    struct ki_shard pub;
    struct kc_arena arena;
    uint32_t *names; /* topic index + 1; 0 = free; tombstones are not in it */
    uint32_t mask;
};

struct ki_image_own {
    struct ki_image pub;
    struct kc_arena arena;
};

/* Copies everything; the hash is given (verified by the caller) or NULL (computed). NULL: no
 * memory, or two live topics of one name. */
struct ki_shard *ki_shard_make(const struct ki_shard *proto, const char *hash);
/* Copies proto without its shards. */
struct ki_image *ki_image_make(const struct ki_image *proto);

/* The part of a shard document the hash covers: new reference or NULL. */
json_t *ki_content_encode(const struct ki_topic *topics, int32_t n_topics);
/* hex of kc_hash64 of the canonical text; false: no memory. */
bool ki_content_hash(const json_t *content, char ret[17]);

#endif
