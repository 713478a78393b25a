#include "storage/ks_tidy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "storage/ks_int.h"

enum { STRAY_TOPICS = 4, TMP_NAME = 20, FENCES = 16 };

struct old {
    struct kc_uuid id;
    bool named; /* by an unsealed epoch */
};

struct tmp {
    char path[KS_PATH_MAX];
};

/* Of the job alone. */
struct ks_tidy_round {
    enum { FENCE, LIST, LOOK, REMOVE, TOPICS, TMPS } phase;
    struct old *old;
    uint32_t n_old, at;
    struct kc_uuid made;
    bool looked; /* into all chains, after all of `old` were fenced */
    struct ks_ids topics, deleted;
    int32_t topic; /* next one to look into */
    int32_t *parts; /* of the topic before it */
    uint32_t n_parts, parts_room, part;
    struct tmp *tmps; /* seen at tmps_ms */
    uint32_t n_tmps;
    int64_t tmps_ms;
};

/* ---- what was there before ---- */

struct names {
    struct kc_uuid *v, made;
    uint32_t n;
};

static bool on_earlier(void *arg, const char *name)
{
    struct names *l = arg;
    struct kc_uuid id;
    if (!ks_inc_parse(name, &id, NULL) || kc_uuid_eq(&id, &l->made)) {
        return true;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        if (kc_uuid_eq(&l->v[i], &id)) {
            return true;
        }
    }
    l->v[l->n++] = id;
    return l->n < KS_TIDY_OLD_MAX; /* the rest in a later life */
}

void ks_tidy_before(struct ks_engine *e, const struct kc_uuid *made)
{
    struct ks_tidy *t = &e->tidy;
    char dir[KS_PATH_MAX];
    struct names l = {.v = kc_try_zalloc(KS_TIDY_OLD_MAX, sizeof(*l.v)), .made = *made};
    snprintf(dir, sizeof(dir), "inc/%d", e->broker_id);
    if (!l.v || ks_fs_list(&e->fs, dir, on_earlier, &l)) {
        l.n = 0; /* nothing is old, then */
    }
    pthread_mutex_lock(&t->lock);
    kc_free(t->before);
    t->before = l.v;
    t->n_before = l.n;
    t->made = *made;
    pthread_mutex_unlock(&t->lock);
}

/* ---- steps: each returns 1 when its phase is done, 0 to go on, or an error ---- */

static int step_fence(struct ks_engine *e, struct ks_tidy_round *r)
{
    for (int n = 0; r->at < r->n_old && n < FENCES; n++, r->at++) {
        int rc = ks_inc_fence(&e->fs, e->broker_id, &r->old[r->at].id);
        if (rc) {
            return rc;
        }
        r->old[r->at].named = false;
    }
    return r->at == r->n_old;
}

static int step_list(struct ks_engine *e, struct ks_tidy_round *r)
{
    ks_ids_fini(&r->topics);
    ks_ids_fini(&r->deleted);
    r->topic = 0;
    r->n_parts = r->part = 0;
    int rc = ks_ids_list(&e->fs, "topics", &r->topics, NULL);
    rc = rc ? rc : ks_ids_list(&e->fs, "deleted", &r->deleted, NULL); /* topics first (D7) */
    return rc ? rc : 1;
}

static bool on_part(void *arg, const char *name)
{
    struct ks_tidy_round *r = arg;
    int64_t n;
    if (kc_parse_i64(kc_str_of(name), &n) || n < 0 || n > INT32_MAX) {
        return true;
    }
    if (r->n_parts == r->parts_room) {
        uint32_t room = KC_MAX(r->parts_room * 2, 64u);
        int32_t *parts = kc_try_realloc(r->parts, room * sizeof(*parts));
        if (!parts) {
            r->parts_room = 0; /* told by it */
            return false;
        }
        r->parts = parts;
        r->parts_room = room;
    }
    r->parts[r->n_parts++] = (int32_t)n;
    return true;
}

static int list_parts(struct ks_engine *e, struct ks_tidy_round *r, const struct kc_uuid *id)
{
    char dir[KS_PATH_MAX];
    ks_path_topic(dir, id, NULL);
    r->n_parts = r->part = 0;
    int rc = ks_fs_list(&e->fs, dir, on_part, r);
    return rc ? rc : r->n_parts && !r->parts_room ? -ENOMEM : 0;
}

static int look_into(struct ks_engine *e, struct ks_tidy_round *r, const struct kc_uuid *id,
                     int32_t partition)
{
    struct ks_chain c;
    ks_chain_init(&c);
    int rc = ks_chain_load(&e->fs, id, partition, 0, &c, NULL);
    for (uint32_t i = 0; !rc && i < c.n_epochs; i++) {
        const struct ks_epoch *ep = &c.epochs[i];
        for (uint32_t k = 0; !ep->sealed && k < r->n_old; k++) {
            r->old[k].named |= kc_uuid_eq(&ep->incarnation, &r->old[k].id);
        }
    }
    ks_chain_fini(&c);
    return rc;
}

/* A chain that cannot be read may name anybody: the round ends. Unless its topic was deleted. */
static int step_look(struct ks_engine *e, struct ks_tidy_round *r)
{
    for (int n = 0; n < KS_TIDY_CHAINS; n++) {
        if (r->part < r->n_parts) {
            const struct kc_uuid *id = &r->topics.v[r->topic - 1];
            int rc = look_into(e, r, id, r->parts[r->part++]);
            if (rc && ks_graves_look(e, id, NULL) != KC_E_GONE) {
                return rc;
            }
        } else if (r->topic < r->topics.n) {
            const struct kc_uuid *id = &r->topics.v[r->topic++];
            int rc = ks_ids_have(&r->deleted, id) ? 0 : list_parts(e, r, id);
            if (rc && ks_graves_look(e, id, NULL) != KC_E_GONE) {
                return rc;
            }
        } else {
            return 1;
        }
    }
    return 0;
}

static int step_remove(struct ks_engine *e, struct ks_tidy_round *r)
{
    uint32_t kept = 0;
    int rc = 0;
    for (uint32_t i = 0; i < r->n_old; i++) {
        int gone = r->old[i].named ? 1 : ks_inc_remove(&e->fs, e->broker_id, &r->old[i].id);
        atomic_fetch_add(&e->tidy.claim_files, gone == 0);
        rc = gone < 0 ? gone : rc;
        if (gone) {
            r->old[kept++] = r->old[i];
        }
    }
    r->n_old = kept;
    return rc ? rc : 1;
}

static int step_topics(struct ks_engine *e, struct ks_tidy_round *r)
{
    int n = 0;
    for (; r->topic < r->topics.n && n < STRAY_TOPICS; r->topic++) {
        const struct kc_uuid *id = &r->topics.v[r->topic];
        if (ks_ids_have(&r->deleted, id)) {
            atomic_fetch_add(&e->tidy.topics, ks_topic_remove(e, id, NULL) == 0);
            n++;
        }
    }
    return r->topic == r->topics.n;
}

struct tmps {
    struct ks_tidy_round *r;
    const char *dir;
};

static bool on_tmp(void *arg, const char *name)
{
    struct tmps *l = arg;
    if (strncmp(name, "tmp.", 4) == 0 && strlen(name) == TMP_NAME) {
        struct tmp *t = &l->r->tmps[l->r->n_tmps++];
        int len = snprintf(t->path, sizeof(t->path), "%s/%s", l->dir, name);
        l->r->n_tmps -= len >= (int)sizeof(t->path);
    }
    return l->r->n_tmps < KS_TIDY_TMPS;
}

static void look_for_tmps(struct ks_engine *e, struct ks_tidy_round *r, const char *dir)
{
    struct tmps l = {.r = r, .dir = dir};
    if (r->n_tmps < KS_TIDY_TMPS) {
        ks_fs_list(&e->fs, dir, on_tmp, &l);
    }
}

/* Directories of the logs that are open here; each has one owner. */
static struct tmp *own_dirs(struct ks_engine *e, uint32_t *ret_n)
{
    struct kc_map_iter it = {0};
    *ret_n = 0;
    pthread_mutex_lock(&e->lock);
    struct tmp *v = kc_try_zalloc(e->logs.len + 1, sizeof(*v));
    for (struct kc_map_entry *m; v && (m = kc_map_next(&e->logs, &it));) {
        const struct ks_log *log = m->value;
        ks_path_part(v[(*ret_n)++].path, &log->topic, log->partition, NULL);
    }
    pthread_mutex_unlock(&e->lock);
    return v;
}

static int step_tmps(struct ks_engine *e, struct ks_tidy_round *r, int64_t now)
{
    if (r->n_tmps && now - r->tmps_ms < e->tidy_ms) {
        return 1;
    }
    for (uint32_t i = 0; i < r->n_tmps; i++) {
        atomic_fetch_add(&e->tidy.tmps, ks_fs_unlink(&e->fs, r->tmps[i].path) == 0);
    }
    r->n_tmps = 0;
    r->tmps_ms = now;
    r->tmps = r->tmps ? r->tmps : kc_try_zalloc(KS_TIDY_TMPS, sizeof(*r->tmps));
    uint32_t n;
    struct tmp *dirs = r->tmps ? own_dirs(e, &n) : NULL;
    if (!dirs) {
        return -ENOMEM;
    }
    char inc[KS_PATH_MAX];
    snprintf(inc, sizeof(inc), "inc/%d", e->broker_id);
    look_for_tmps(e, r, inc);
    look_for_tmps(e, r, "deleted");
    look_for_tmps(e, r, "pids");
    for (uint32_t i = 0; i < n; i++) {
        look_for_tmps(e, r, dirs[i].path);
    }
    kc_free(dirs);
    return 1;
}

/* ---- rounds ---- */

/* The incarnation that found them old has claimed, so the image names it, and it is not fenced. */
static bool may_fence(struct ks_engine *e, const struct ks_tidy_round *r)
{
    pthread_mutex_lock(&e->lock);
    bool may = e->inc && kc_uuid_eq(&e->inc->id, &r->made) && atomic_load(&e->inc->claimed) &&
               !atomic_load(&e->inc->fenced);
    pthread_mutex_unlock(&e->lock);
    return may && r->n_old > 0;
}

/* With the lock held: a new incarnation has found others. */
static void take_before(struct ks_tidy *t)
{
    struct ks_tidy_round *r = t->round;
    if (t->before) {
        kc_free(r->old);
        r->old = kc_zalloc((t->n_before + 1) * sizeof(*r->old));
        r->n_old = t->n_before;
        for (uint32_t i = 0; i < r->n_old; i++) {
            r->old[i].id = t->before[i];
        }
        kc_free(t->before);
        t->before = NULL;
        r->made = t->made;
        r->at = 0;
        r->looked = false;
        r->phase = FENCE;
    }
}

/* True: the round has ended. */
static bool step(struct ks_engine *e, struct ks_tidy_round *r, int *ret_rc)
{
    bool fence = may_fence(e, r);
    int rc = 1;
    switch (r->phase) {
    case FENCE:
        rc = fence ? step_fence(e, r) : 1;
        break;
    case LIST:
        rc = step_list(e, r);
        break;
    case LOOK:
        fence = fence && r->at == r->n_old;
        rc = fence ? step_look(e, r) : 1;
        r->looked = fence && rc == 1;
        break;
    case REMOVE:
        rc = fence && r->looked ? step_remove(e, r) : 1;
        r->topic = 0;
        break;
    case TOPICS:
        rc = step_topics(e, r);
        break;
    case TMPS:
        rc = step_tmps(e, r, kc_mono_ms());
        break;
    }
    *ret_rc = KC_MIN(rc, 0);
    bool last = rc < 0 || (rc == 1 && r->phase == TMPS);
    r->phase = last ? FENCE : rc == 1 ? r->phase + 1 : r->phase;
    r->at = last ? 0 : r->at;
    r->looked = r->looked && !last;
    return last;
}

static void run(struct rt_work *w)
{
    struct ks_tidy *t = KC_CONTAINER_OF(w, struct ks_tidy, work);
    struct ks_engine *e = KC_CONTAINER_OF(t, struct ks_engine, tidy);
    int rc = 0;
    pthread_mutex_lock(&t->lock);
    take_before(t);
    pthread_mutex_unlock(&t->lock);
    bool ended = step(e, t->round, &rc);
    if (rc) {
        kc_log(KC_WARN, "storage", "event=tidy_failed error=%d text=\"%s\"", rc, kc_strerror(rc));
    }
    pthread_mutex_lock(&t->lock);
    t->running = !ended;
    t->next_ms = ended ? kc_mono_ms() + e->tidy_ms : 0;
    t->busy = false;
    pthread_mutex_unlock(&t->lock);
    if (!ended) {
        ks_watch_wake(e);
    }
}

void ks_tidy_tick(struct ks_engine *e)
{
    struct ks_tidy *t = &e->tidy;
    pthread_mutex_lock(&t->lock);
    bool post = !t->busy && ks_volume_state(e) == KS_VOLUME_OK &&
                (t->wanted || t->running || kc_mono_ms() >= t->next_ms);
    if (post) {
        t->busy = t->running = true;
        t->wanted = false;
        t->work.fn = run;
    }
    pthread_mutex_unlock(&t->lock);
    if (post) { /* the watch thread ends before the pool */
        rt_pool_post(e->hint, &t->work);
    }
}

bool ks_tidy_now(struct ks_engine *e)
{
    struct ks_tidy *t = &e->tidy;
    pthread_mutex_lock(&t->lock);
    bool idle = !t->running && !t->wanted;
    t->wanted = true;
    pthread_mutex_unlock(&t->lock);
    ks_watch_wake(e);
    return idle;
}

bool ks_tidy_idle(struct ks_engine *e)
{
    pthread_mutex_lock(&e->tidy.lock);
    bool idle = !e->tidy.running && !e->tidy.wanted;
    pthread_mutex_unlock(&e->tidy.lock);
    return idle;
}

void ks_tidy_init(struct ks_engine *e)
{
    struct ks_tidy *t = &e->tidy;
    pthread_mutex_init(&t->lock, NULL);
    t->round = kc_zalloc(sizeof(*t->round));
    t->next_ms = kc_mono_ms() + KS_TIDY_MS;
    e->tidy_ms = KS_TIDY_MS;
}

void ks_tidy_fini(struct ks_engine *e)
{
    struct ks_tidy_round *r = e->tidy.round;
    kc_free(e->tidy.before);
    kc_free(r->old);
    kc_free(r->parts);
    kc_free(r->tmps);
    ks_ids_fini(&r->topics);
    ks_ids_fini(&r->deleted);
    kc_free(r);
    pthread_mutex_destroy(&e->tidy.lock);
}
