/* ko_local.h - the inside of ko_store_local, shared by its three files. Owner: the store's loop. */
#ifndef KO_LOCAL_H
#define KO_LOCAL_H

#include "base/kc_list.h"
#include "base/kc_map.h"
#include "store/ko_local_disk.h"
#include "store/ko_store.h"

struct ko_local_object {
    enum ko_kind kind;
    json_t *doc; /* never changed in place: holders of a reference keep what they saw */
    json_t *applied; /* manager -> what it applied last */
};

struct ko_watch {
    struct kc_list link; /* in store.watches; alone after unwatch */
    int refs; /* one of the store, one a delivery on its way */
    bool dead;
    struct ko_local *store;
    enum ko_kind kind;
    char *ns, *selector; /* NULL = all */
    ko_watch_fn fn;
    void *ctx;
};

struct ko_local {
    struct ko_store port;
    struct kc_map objects[KO_KIND_COUNT]; /* "ns/name" -> struct ko_local_object */
    struct kc_map by_uid;
    struct kc_list watches;
    struct kc_list deliveries;
    uint64_t rv; /* of the newest change; also its sequence for the disk */
    uint64_t durable; /* all changes up to here may be told */
    struct ko_disk *disk;
    struct rt_msg wake;
    bool waking, freed;
};

/* Who asked, and so where the result goes. */
struct ko_local_call {
    struct ko_local *s;
    ko_done done;
    void *ctx;
};

/* ---- ko_local_deliver.c: results and watch events, in order, when durable ---- */

void ko_local_on_wake(struct rt_msg *msg);
void ko_local_on_durable(void *ctx, uint64_t seq);
void ko_local_answer(const struct ko_local_call *c, int code, json_t *doc);
/* Answers with a metav1.Status of the code, reason (static) and message. */
void ko_local_refuse(const struct ko_local_call *c, int code, const char *reason, const char *fmt,
                     ...) KC_PRINTF(4, 5);
/* Tells the watches that the object went from one state to another (NULL = not there). */
void ko_local_publish(struct ko_local *s, enum ko_kind k, json_t *before, json_t *after);
/* docs: what exists now; they are told first. */
struct ko_watch *ko_local_watch(struct ko_local *s, const struct ko_watch *proto, json_t **docs,
                                size_t n);
void ko_local_unwatch(struct ko_watch *w);
void ko_local_drop_deliveries(struct ko_local *s);

/* ---- ko_local_objects.c: documents, versions, finalizers, garbage ---- */

struct ko_local_object *ko_local_find(struct ko_local *s, enum ko_kind k, const char *ns,
                                      const char *name);
/* An object read from disk, or just made. Takes both. */
struct ko_local_object *ko_local_insert(struct ko_local *s, enum ko_kind k, json_t *doc,
                                        json_t *applied);
/* A new object of a document whose name and namespace are checked. Takes doc and applied. */
void ko_local_create(const struct ko_local_call *c, enum ko_kind k, json_t *doc, json_t *applied);
/* What a writer of the document may not change is taken out of it, or put back. */
void ko_local_drop_system_fields(json_t *doc);
void ko_local_keep_system_fields(const struct ko_local_object *o, json_t *doc, bool keep_status);
/* Writes what a call made of an object, unless it is the same (no-op writes change no version), and
 * finishes a deletion whose last finalizer went. Takes doc. */
void ko_local_write(const struct ko_local_call *c, struct ko_local_object *o, json_t *doc);
/* Erases, or marks as being deleted while finalizers hold it. */
void ko_local_remove(struct ko_local *s, struct ko_local_object *o);
void ko_local_collect_garbage(struct ko_local *s);
void ko_local_object_free(void *o);

#endif
