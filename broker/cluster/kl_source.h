/* kl_source.h - where the cluster image comes from.
 *
 * One small vtable, two implementations: a directory of ConfigMap files (local host) and the API
 * server (with a projected mount as the boot-time copy). Owner: the control loop; blocking reads run
 * on the source's own pool thread. Only changed shards are read again. */
#ifndef KL_SOURCE_H
#define KL_SOURCE_H

#include "image/ki_image.h"
#include "rt/rt_loop.h"
#include "rt/rt_pool.h"

/* A whole image; the callee takes the reference. fresh: read from where the image is kept, so its
 * order counts as confirmed; false: a copy of unknown age. May repeat what was told before. */
typedef void (*kl_source_fn)(void *ctx, struct ki_image *im, bool fresh);

struct kl_source;
struct kl_source_ops {
    void (*free)(struct kl_source *s); /* fn is not called any more */
};
struct kl_source {
    const struct kl_source_ops *ops;
    struct rt_loop *loop;
    kl_source_fn fn;
    void *ctx;
};

/* dir/<name>.json and dir/<name>-<shard>.json; need not exist yet. NULL: no memory. */
struct kl_source *kl_source_directory(struct rt_loop *loop, struct rt_pool *io, const char *dir,
                                      const char *name, kl_source_fn fn, void *ctx);
/* The root is watched by name, changed shards are fetched. mount: <mount>/<name>/<key>, or NULL. */
struct kl_source *kl_source_kubernetes(struct rt_loop *loop, struct rt_pool *io, const char *ns,
                                       const char *name, const char *mount, kl_source_fn fn,
                                       void *ctx, struct kc_err *err);

/* ---- assembling; any thread, one at a time ---- */

struct kl_assembly {
    struct ki_image *root;
    struct ki_shard *shards[KP_SHARDS];
    uint32_t missing; /* bit s: shard s is still to be read */
};
/* Decodes the root of a ConfigMap document and takes from previous (or NULL) what did not change. */
int kl_assembly_begin(struct kl_assembly *a, const json_t *configmap,
                      const struct ki_image *previous, struct kc_err *err) KC_MUST_CHECK;
/* KC_E_NOT_FOUND: this document has not the content the root names (a newer root is on its way). */
int kl_assembly_shard(struct kl_assembly *a, int32_t shard, const json_t *configmap,
                      struct kc_err *err) KC_MUST_CHECK;
/* Nothing is missing: the image (one reference), NULL: no memory. The assembly is empty then. */
struct ki_image *kl_assembly_finish(struct kl_assembly *a);
void kl_assembly_fini(struct kl_assembly *a);

/* One read of files: <dir>/<name>.json … (nested false) or <dir>/<name>/<key> … (true). Blocking. */
int kl_read_files(const char *dir, const char *name, bool nested, const struct ki_image *previous,
                  struct ki_image **ret, struct kc_err *err) KC_MUST_CHECK;

#endif
