/* ko_pub.h - the image publisher: the ConfigMaps of one cluster, on the API loop.
 *
 * Taking over: the root first, with the next term and the same hashes, so that a predecessor's
 * compare-and-swap on it fails for ever; then whole shards that it wrote but did not get into a root
 * are adopted. Publishing: changed shards first, each with its previous content, the root last
 * (design.md, 4). Failures are retried with back-off until they succeed, or until a newer term is
 * seen. */
#ifndef KO_PUB_H
#define KO_PUB_H

#include "control/ko_int.h"

/* A publication: what the image is to say. The arena owns everything in it. */
struct ko_batch {
    struct kc_arena arena;
    char key[KO_CLUSTER_KEY_MAX];
    uint32_t shards; /* bit s: topics[s] is new */
    struct ki_topic *topics[KP_SHARDS];
    int32_t n_topics[KP_SHARDS];
    struct ki_image proto; /* order, cluster id, rows, homes, configs */
};
void ko_batch_free(void *b);

/* What the API loop says when an image is taken over. */
struct ko_loaded {
    char key[KO_CLUSTER_KEY_MAX];
    uint64_t ticket;
    struct ki_image *image; /* with order; never NULL */
    uint32_t unwritten; /* bit s: shard s is to be written, whatever the root says */
    bool lost; /* a shard could not be read: the volume must say what there is */
};
/* And at the end of a publication. */
struct ko_published {
    char key[KO_CLUSTER_KEY_MAX];
    struct kp_order order;
    bool deposed; /* a newer term stands: not published, load again */
};

/* Documents found missing or changed by another hand: to be published again. */
struct ko_mend {
    char key[KO_CLUSTER_KEY_MAX];
    uint32_t shards; /* 0: the root alone */
};

struct ko_load {
    char key[KO_CLUSTER_KEY_MAX];
    char *uid; /* of the KaasCluster */
    uint64_t ticket;
};
/* [api] All of them free their argument. */
void ko_pub_load(struct ko_control *c, void *load);
void ko_pub_batch(struct ko_control *c, void *batch);
void ko_pub_drop(struct ko_control *c, void *key); /* the cluster is no longer ours, or gone */
void ko_pub_free(void *pub);
void ko_load_free(void *load);

/* [control] ko_cluster.c and ko_publish.c; they free their argument. */
void ko_cc_loaded(struct ko_control *c, void *loaded);
void ko_cc_published(struct ko_control *c, void *published);
void ko_cc_mend(struct ko_control *c, void *mend);

#endif
