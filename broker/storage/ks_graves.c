/* Tombstones: deleted/<topicId>, for ever. Whether there is one is never asked by the name, which a
 * client may remember as absent: the directory is listed after a forced look at it (ADR 11). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "storage/ks_int.h"

enum { IDS_MAX = 1000000 };

/* ---- lists of ids ---- */

static bool add_id(void *arg, const char *name)
{
    struct ks_ids *l = arg;
    struct kc_uuid id;
    if (kc_uuid_from_b64(kc_str_of(name), &id)) {
        return true; /* not ours */
    }
    if (l->n == l->room) {
        int32_t room = KC_MAX(l->room * 2, 16);
        struct kc_uuid *v = l->n < IDS_MAX ? kc_try_realloc(l->v, (size_t)room * sizeof(*v)) : NULL;
        if (!v) {
            l->rc = -ENOMEM;
            return false;
        }
        l->v = v;
        l->room = room;
    }
    l->v[l->n++] = id;
    return true;
}

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct kc_uuid));
}

int ks_ids_list(struct ks_fs *fs, const char *dir, struct ks_ids *ret, struct kc_err *err)
{
    *ret = (struct ks_ids){0};
    int rc = ks_fs_list(fs, dir, add_id, ret);
    rc = rc ? rc : ret->rc;
    if (rc) {
        ks_ids_fini(ret);
        return kc_fail(err, rc, "%s: %s", dir, kc_strerror(rc));
    }
    if (ret->n) {
        qsort(ret->v, (size_t)ret->n, sizeof(*ret->v), by_id);
    }
    return 0;
}

void ks_ids_fini(struct ks_ids *ids)
{
    kc_free(ids->v);
    *ids = (struct ks_ids){0};
}

bool ks_ids_have(const struct ks_ids *ids, const struct kc_uuid *id)
{
    return ids->n && bsearch(id, ids->v, (size_t)ids->n, sizeof(*ids->v), by_id) != NULL;
}

/* ---- the shared look ---- */

void ks_graves_init(struct ks_graves *g)
{
    *g = (struct ks_graves){0};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->done, NULL);
}

void ks_graves_fini(struct ks_graves *g)
{
    ks_ids_fini(&g->ids);
    pthread_cond_destroy(&g->done);
    pthread_mutex_destroy(&g->lock);
}

/* With the lock held, which is let go meanwhile. */
static void list(struct ks_graves *g, struct ks_fs *fs)
{
    struct ks_ids ids;
    g->started++;
    g->running = true;
    pthread_mutex_unlock(&g->lock);
    int rc = ks_ids_list(fs, "deleted", &ids, NULL);
    pthread_mutex_lock(&g->lock);
    ks_ids_fini(&g->ids);
    g->ids = ids;
    g->rc = rc;
    g->finished = g->started;
    g->running = false;
    pthread_cond_broadcast(&g->done);
}

int ks_graves_look(struct ks_engine *e, const struct kc_uuid *topic, struct kc_err *err)
{
    struct ks_graves *g = &e->graves;
    char id[KC_UUID_B64_LEN + 1];
    pthread_mutex_lock(&g->lock);
    uint64_t need = g->started + 1; /* a look that starts from now on */
    g->waiting++;
    while (g->finished < need) {
        if (g->running) {
            pthread_cond_wait(&g->done, &g->lock);
        } else {
            list(g, &e->fs);
        }
    }
    g->waiting--;
    int rc = g->rc ? g->rc : ks_ids_have(&g->ids, topic) ? KC_E_GONE : 0;
    pthread_mutex_unlock(&g->lock);
    if (!rc) {
        return 0;
    }
    kc_uuid_to_b64(topic, id);
    return rc == KC_E_GONE ? kc_fail(err, rc, "topic %s was deleted", id)
                           : kc_fail(err, rc, "deleted/: %s", kc_strerror(rc));
}
