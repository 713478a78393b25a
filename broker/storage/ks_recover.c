/* After an error on a file: the epoch is sealed at what was acked, and the log goes on under a new
 * claim and a new file (storage.md, "Error on a file"). Reads go on meanwhile; appends get
 * KAFKA_STORAGE_ERROR. A full volume fails the attempt, and the watch thread tries again. */
#include "storage/ks_int.h"

#include "base/kc_log.h"
#include "base/kc_mem.h"

struct recovery {
    struct rt_work work;
    struct ks_log *log;
    struct ks_entry *result;
};

static void run(struct rt_work *w)
{
    struct recovery *r = KC_CONTAINER_OF(w, struct recovery, work);
    struct ks_log *log = r->log;
    struct kc_err err = {0};
    struct ks_entry *result = r->result;
    result->rc = ks_takeover_run(result->takeover, &err);
    if (result->rc) {
        kc_log(KC_WARN, "storage", "event=recovery_failed epoch=%d error=%d text=\"%s\"",
               log->c_epoch, result->rc, err.msg);
    }
    ks_commit_push(log->e, result);
    ks_log_unref(log);
    kc_free(r);
}

void ks_recover_start(struct ks_log *log)
{
    struct ks_engine *e = log->e;
    ks_engine_remember(e, log, false);
    struct recovery *r = kc_zalloc(sizeof(*r));
    r->work.fn = run;
    r->log = ks_log_ref(log);
    r->result = ks_entry_new(log, KS_E_RECOVERED);
    r->result->takeover = kc_zalloc(sizeof(*r->result->takeover));
    ks_takeover_init(r->result->takeover, log);
    r->result->takeover->recovery = true;
    pthread_mutex_lock(&e->p_lock);
    bool gone = e->recover_gone; /* the engine is being closed: no more attempts */
    if (!gone) {
        rt_pool_post(e->recover, &r->work);
    }
    pthread_mutex_unlock(&e->p_lock);
    if (gone) {
        r->result->rc = KC_E_CLOSED;
        ks_commit_push(e, r->result);
        ks_log_unref(log);
        kc_free(r);
    }
}
