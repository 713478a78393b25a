/* ko_local_disk.h - the files behind ko_store_local: load at start, write on a pool thread.
 *
 * Internal to operator/store. Owner: the store's loop. Writes are batched: while one batch is on
 * its way the next gathers; a later change of the same object replaces the earlier one and takes
 * its place at the end, so a root that names shards is never on disk before them. A batch that
 * fails (disk full) is tried again every second. */
#ifndef KO_LOCAL_DISK_H
#define KO_LOCAL_DISK_H

#include "base/kc_error.h"
#include "rt/rt_loop.h"
#include "store/ko_store.h"

struct ko_disk;

/* Told on the loop: every change up to seq is on disk. */
typedef void (*ko_disk_durable)(void *ctx, uint64_t seq);

/* One object at load; doc is a new reference for the callee. Returns 0 or an error to stop. */
typedef int (*ko_disk_loaded)(void *ctx, enum ko_kind k, json_t *doc, struct kc_err *err);

int ko_disk_open(struct rt_loop *loop, const char *dir, ko_disk_durable fn, void *ctx,
                 struct ko_disk **ret, struct kc_err *err);
int ko_disk_load(struct ko_disk *d, ko_disk_loaded fn, void *ctx, struct kc_err *err);
/* text NULL: the object is gone. Takes text (free()). seq grows. */
void ko_disk_put(struct ko_disk *d, enum ko_kind k, const char *ns, const char *name, char *text,
                 uint64_t seq);
/* Writes what is pending, blocking; the durable callback is not called any more. */
void ko_disk_close(struct ko_disk *d);

#endif
