/* ko_pub_int.h - the publisher's state, shared by ko_pub.c (writes) and ko_pub_load.c (taking over).
 * Owner: the API loop. */
#ifndef KO_PUB_INT_H
#define KO_PUB_INT_H

#include "control/ko_pub.h"

enum { KO_ROOT = KP_SHARDS, KO_DOCS = KP_SHARDS + 1 }; /* index of the root beside the shards */

struct ko_pub {
    struct ko_control *c;
    char key[KO_CLUSTER_KEY_MAX];
    char ns[KO_CLUSTER_KEY_MAX], name[KO_CLUSTER_KEY_MAX];
    char *uid; /* of the KaasCluster */
    uint64_t ticket;
    uint64_t attempt; /* answers to calls of older ones are ignored */
    int32_t waiting; /* answers still to come in this attempt */
    bool trouble; /* one of them was not good */
    json_t *docs[KO_DOCS]; /* ConfigMaps as read or written last; NULL: not there */
    struct ki_shard *named[KP_SHARDS]; /* what the standing root names */
    struct ki_shard *next[KP_SHARDS]; /* what the next root will name: the same, or newer */
    struct ki_image *proto; /* of the root to write: order, rows, homes, configs */
    uint32_t todo; /* bit s: shard s (or KO_ROOT) is still to be written */
    uint32_t unwritten; /* bit s: the document of shard s is not what the root names */
    bool lost; /* content that the root names is nowhere */
    struct ko_batch *batch; /* under way; NULL: none */
    void (*again)(struct ko_pub *); /* what the timer resumes */
    uv_timer_t timer, check;
    int32_t check_next; /* document to look at next */
    int open_handles;
    int64_t backoff_ms;
    struct kc_list calls; /* under way; they outlive the publisher */
};

/* The publisher, if the answer is one it waits for; frees the call. */
struct ko_pub *ko_pub_answer(void *call, int32_t *ret_index);

void ko_pub_get(struct ko_pub *p, int32_t index, ko_done done);
/* Writes the payload over the document kept (compare-and-swap), or creates it. Takes payload. */
void ko_pub_put(struct ko_pub *p, int32_t index, json_t *payload, ko_done done);
/* NULL: it is not there. The payload is dropped by ko_pub_slim, or when whole is false. */
void ko_pub_keep(struct ko_pub *p, int32_t index, json_t *doc, bool whole);
void ko_pub_slim(struct ko_pub *p);
/* The document is owned by our KaasCluster, or there is no such owner. */
bool ko_pub_ours(const struct ko_pub *p, const json_t *doc);
void ko_pub_attempt(struct ko_pub *p); /* a new one: nothing is waited for */
/* Runs fn after a back-off; ok resets it. */
void ko_pub_later(struct ko_pub *p, void (*fn)(struct ko_pub *));
void ko_pub_set(struct ki_shard **slot, struct ki_shard *s); /* takes s */
/* An image of proto around the shards `next`; NULL: no memory. */
struct ki_image *ko_pub_image(const struct ko_pub *p);
void ko_pub_load_begin(struct ko_pub *p);
/* Looks at one document every few seconds: someone may have removed or edited it. */
void ko_pub_check_start(struct ko_pub *p);

#endif
