/* Opening a log: takeovers and warm-ups on the scan pool, answers on the asker's loop. */
#include "storage/ks_int.h"

#include <errno.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"

/* A handle lives until done ran with a log or an error, or until it is cancelled. */
struct ks_open {
    _Atomic uint32_t refs; /* the asker's, and one of the job or message under way */
    _Atomic bool cancelled;
    bool prepare; /* the next job only warms */
    struct ks_engine *e;
    struct ks_open_args args;
    struct ks_log *log; /* while it is ours */
    struct ks_takeover takeover;
    uint64_t seal_k; /* the chain reaches at least this far */
    struct rt_work work;
    struct rt_msg msg;
    int rc;
    struct kc_err err;
    int32_t blocker_broker;
    struct kc_uuid blocker;
};

static void unref(struct ks_open *o)
{
    if (atomic_fetch_sub(&o->refs, 1) != 1) {
        return;
    }
    if (o->log) {
        ks_takeover_fini(&o->takeover);
        ks_log_abandon(o->log);
    }
    ks_engine_unref(o->e);
    kc_free(o);
}

/* Makes the log object and enters it into the map. A log of the same partition that is just being
 * let go is waited for: its last appends may still be under way. */
static int enter(struct ks_open *o)
{
    struct ks_engine *e = o->e;
    struct ks_key key = ks_key_of(&o->args.topic_id, o->args.partition);
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    for (struct ks_log *old; (old = kc_map_get(&e->logs, &key, sizeof(key)));) {
        if (!atomic_load(&old->leaving)) {
            rc = kc_fail(&o->err, KC_E_EXISTS, "this partition is open or being opened here");
            break;
        }
        pthread_cond_wait(&e->log_gone, &e->lock);
    }
    if (!rc && !e->inc) {
        rc = kc_fail(&o->err, KC_E_FENCED, "no incarnation is registered");
    }
    struct ks_log *log = rc ? NULL : ks_log_new(e, e->inc, &o->args);
    if (log) {
        kc_map_put(&e->logs, &key, sizeof(key), log);
        atomic_fetch_add(&e->n_logs, 1);
        o->log = log;
    } else if (!rc) {
        rc = kc_fail(&o->err, -ENOMEM, "%s", kc_strerror(-ENOMEM));
    }
    pthread_mutex_unlock(&e->lock);
    if (log) {
        ks_watch_wake(e);
        ks_takeover_init(&o->takeover, log);
        o->takeover.may_create = o->args.may_create;
        o->takeover.condemned = o->args.condemned;
        o->takeover.condemned_ctx = o->args.condemned_ctx;
        o->takeover.cancelled = &o->cancelled;
    }
    return rc;
}

static int open_now(struct ks_open *o)
{
    int rc = ks_takeover_run(&o->takeover, &o->err);
    if (rc == KC_E_BLOCKED) {
        o->blocker_broker = o->takeover.blocker_broker;
        o->blocker = o->takeover.blocker;
    }
    /* Reads may be answered as soon as the log has an owner: they need a fresh check. */
    if (!rc && ks_fence_age_ms(o->e, kc_mono_ms()) > KS_WATCH_MS / 2 &&
        !ks_engine_check(o->e, o->log->inc)) {
        rc = kc_fail(&o->err, KC_E_FENCED, "%s", kc_strerror(KC_E_FENCED));
    }
    if (!rc) {
        ks_log_install_lower(o->log, &o->takeover);
        rc = ks_log_install_upper(o->log, &o->takeover);
        if (rc) {
            kc_fail(&o->err, rc, "%s", kc_strerror(rc));
        }
    }
    return rc;
}

/* On the asker's loop. */
static void on_done(struct rt_msg *msg)
{
    struct ks_open *o = KC_CONTAINER_OF(msg, struct ks_open, msg);
    bool warm = o->prepare && o->rc == 0;
    if (!atomic_load(&o->cancelled)) {
        struct ks_log *log = NULL;
        if (!o->rc && !warm) {
            log = o->log;
            o->log = NULL;
            ks_takeover_fini(&o->takeover);
        }
        o->prepare = false;
        o->args.done(o->args.ctx, o->rc, log, o->rc ? &o->err : NULL, o->blocker_broker,
                     &o->blocker);
        if (!warm) {
            unref(o); /* the asker's: this was the last word */
        }
    }
    unref(o);
}

static void run(struct rt_work *w)
{
    struct ks_open *o = KC_CONTAINER_OF(w, struct ks_open, work);
    o->rc = o->log ? 0 : enter(o);
    o->takeover.known_k = KC_MAX(o->takeover.known_k, o->seal_k);
    o->takeover.synced_k = KC_MAX(o->takeover.synced_k, o->seal_k); /* by who handed it over */
    if (o->rc == 0) {
        o->rc = o->prepare ? ks_takeover_warm(&o->takeover, &o->err) : open_now(o);
    }
    if (o->rc && o->log) {
        /* Let go here, so that the asker may open again from within done. */
        ks_takeover_fini(&o->takeover);
        ks_log_abandon(o->log);
        o->log = NULL;
    }
    rt_post(o->args.loop, &o->msg);
}

static void submit(struct ks_open *o)
{
    atomic_fetch_add(&o->refs, 1);
    o->work.fn = run;
    o->msg.fn = on_done;
    /* Nobody waits for a warm-up, and a thousand of them at once would starve those who serve. */
    rt_pool_post(o->prepare ? o->e->warm : o->e->scan, &o->work);
}

static struct ks_open *start(struct ks_engine *e, const struct ks_open_args *args, bool prepare)
{
    struct ks_open *o = kc_zalloc(sizeof(*o));
    atomic_init(&o->refs, 1);
    o->e = e;
    atomic_fetch_add(&e->refs, 1);
    o->args = *args;
    o->prepare = prepare;
    o->blocker_broker = KP_NO_BROKER;
    submit(o);
    return o;
}

struct ks_open *ks_log_open(struct ks_engine *e, const struct ks_open_args *args)
{
    return start(e, args, false);
}

struct ks_open *ks_log_prepare(struct ks_engine *e, const struct ks_open_args *args)
{
    return start(e, args, true);
}

void ks_open_go(struct ks_open *o, struct kc_bytes seal)
{
    struct ks_rec r;
    if (seal.ptr && seal.len > 0 && ks_rec_decode(seal.ptr, (size_t)seal.len, &r) == 0) {
        /* Proof that the chain reaches this far, whatever a stale listing says. */
        o->seal_k = r.k < INT64_MAX ? r.k + 1 : 0;
        ks_rec_fini(&r);
    }
    submit(o);
}

void ks_open_cancel(struct ks_open *o)
{
    atomic_store(&o->cancelled, true);
    unref(o);
}
