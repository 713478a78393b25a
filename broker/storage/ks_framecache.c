/* One reading of an incarnation's journals serves all its partitions: a broker that dies leaves a
 * thousand takeovers and one or two journals. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"

enum { IDLE_MS = 10000 };

struct ks_framed {
    struct ks_framed *next;
    struct kc_uuid incarnation;
    bool loading;
    uint32_t waiting;
    uint64_t begun; /* the clock when the reading began; 0 = none yet */
    int64_t used_ms;
    struct ks_frames *frames; /* NULL = the last reading failed */
};

uint64_t ks_framed_stamp(struct ks_engine *e)
{
    return atomic_fetch_add(&e->framed_clock, 1) + 1;
}

/* With the lock held. */
static struct ks_framed *entry_of(struct ks_engine *e, const struct kc_uuid *incarnation)
{
    for (struct ks_framed *it = e->framed; it; it = it->next) {
        if (kc_uuid_eq(&it->incarnation, incarnation)) {
            return it;
        }
    }
    struct ks_framed *it = kc_zalloc(sizeof(*it));
    it->incarnation = *incarnation;
    it->next = e->framed;
    e->framed = it;
    return it;
}

int ks_framed_get(struct ks_engine *e, int32_t broker, const struct kc_uuid *incarnation,
                  uint64_t since, struct ks_frames **ret, struct kc_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&e->f_lock);
    struct ks_framed *it = entry_of(e, incarnation);
    it->waiting++;
    while (it->loading) {
        pthread_cond_wait(&e->f_done, &e->f_lock);
    }
    if (!it->frames || it->begun <= since) {
        struct ks_frames *fresh = NULL, *old = it->frames;
        it->frames = NULL;
        it->loading = true;
        it->begun = ks_framed_stamp(e);
        pthread_mutex_unlock(&e->f_lock);
        ks_frames_unref(old);
        rc = ks_frames_read(&e->fs, broker, incarnation, &fresh, err);
        pthread_mutex_lock(&e->f_lock);
        it->frames = fresh;
        it->loading = false;
        pthread_cond_broadcast(&e->f_done);
    }
    *ret = rc ? NULL : ks_frames_ref(it->frames);
    it->used_ms = kc_mono_ms();
    it->waiting--;
    pthread_mutex_unlock(&e->f_lock);
    return rc;
}

void ks_framed_expire(struct ks_engine *e, int64_t now_mono_ms)
{
    struct ks_framed *dead = NULL;
    pthread_mutex_lock(&e->f_lock);
    for (struct ks_framed **p = &e->framed; *p;) {
        struct ks_framed *it = *p;
        if (it->waiting || now_mono_ms - it->used_ms < IDLE_MS) {
            p = &it->next;
            continue;
        }
        *p = it->next;
        it->next = dead;
        dead = it;
    }
    pthread_mutex_unlock(&e->f_lock);
    while (dead) {
        struct ks_framed *it = dead;
        dead = it->next;
        ks_frames_unref(it->frames);
        kc_free(it);
    }
}
