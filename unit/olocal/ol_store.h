/* ol_store.h - a local store on a loop that the test turns by hand. */
#ifndef OL_STORE_H
#define OL_STORE_H

#include "kt.h"
#include "store/ko_object.h"
#include "store/ko_store_local.h"

struct ol {
    struct rt_loop loop;
    struct ko_store *store;
    int code; /* of the last result; -1 = none yet */
    char reason[64];
    json_t *doc; /* of the last result, owned */
};

/* dir NULL: memory only. */
void ol_start(struct ol *t, const char *dir);
void ol_stop(struct ol *t);
/* Calls that turn the loop until their result is there; they return its code. */
int ol_get(struct ol *t, enum ko_kind k, const char *name);
int ol_list(struct ol *t, enum ko_kind k, const char *selector);
int ol_create(struct ol *t, enum ko_kind k, const char *json);
int ol_update(struct ol *t, enum ko_kind k, const char *json);
int ol_apply(struct ol *t, enum ko_kind k, const char *manager, const char *json);
int ol_apply_status(struct ol *t, enum ko_kind k, const char *json);
int ol_merge(struct ol *t, enum ko_kind k, const char *name, const char *json);
int ol_remove(struct ol *t, enum ko_kind k, const char *name, const char *uid);
/* JSON with ' for ". */
json_t *ol_json(const char *text);
#define OL_WAIT(t, cond)                                                                           \
    while (!(cond)) {                                                                              \
        uv_run(&(t)->loop.uv, UV_RUN_ONCE);                                                        \
    }

#endif
