/* Group commit: everything that was queued while the last turn ran is written, synced, checked
 * once, and answered with one message a loop. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "rt/rt_thread.h"

/* Threads that deal with tasks of a turn together, the commit thread among them. A helper that the pool
 * has no thread for until all is done finds nothing left: a turn never waits for what is queued there
 * before it. */
struct team {
    void (*run)(struct ks_task *t);
    struct ks_task **tasks;
    uint32_t n;
    _Atomic uint32_t next;
    _Atomic uint32_t refs;
    pthread_mutex_t lock; /* guards left */
    pthread_cond_t zero;
    uint32_t left; /* tasks that are not done */
};

struct helper {
    struct rt_work work;
    struct team *team;
};

struct ks_entry *ks_entry_new(struct ks_log *log, enum ks_entry_kind kind)
{
    /* Letting go and recovering must not fail for want of a few bytes; clients' appends may. */
    struct ks_entry *entry =
        kind == KS_E_APPEND ? kc_try_zalloc(1, sizeof(*entry)) : kc_zalloc(sizeof(*entry));
    if (entry) {
        entry->log = ks_log_ref(log);
        entry->kind = kind;
        entry->epoch =
            kind == KS_E_SYNCED ? -1 : log->epoch; /* of no epoch, and not by its owner */
        entry->duplicate_base = -1;
    }
    return entry;
}

void ks_entry_free(struct ks_entry *entry)
{
    kc_buf_unref(entry->data.buf);
    ks_file_unref(entry->file);
    kc_free(entry->record);
    kc_free(entry->trim);
    if (entry->takeover) {
        ks_takeover_fini(entry->takeover);
        kc_free(entry->takeover);
    }
    ks_log_unref(entry->log);
    kc_free(entry);
}

void ks_commit_push(struct ks_engine *e, struct ks_entry *entry)
{
    atomic_fetch_add_explicit(&e->queued_bytes, entry->data.len, memory_order_relaxed);
    pthread_mutex_lock(&e->q_lock);
    bool was_empty = !e->q_tail;
    if (e->q_tail) {
        e->q_tail->next = entry;
    } else {
        e->q_head = entry;
    }
    e->q_tail = entry;
    if (was_empty) { /* under the lock: once it is free, the entry may be done, and the engine closed */
        pthread_cond_signal(&e->q_more);
    }
    pthread_mutex_unlock(&e->q_lock);
}

/* Takes what is queued; waits for something, at most wait_ms (-1: for ever). NULL with *stop: the end,
 * which does not come while a seal or a sync behind is under way. */
static struct ks_entry *drain(struct ks_engine *e, int64_t wait_ms, bool *stop)
{
    struct timespec until = rt_in_ms(KC_MAX(wait_ms, (int64_t)0));
    bool last = e->n_sealing == 0 && ks_journal_idle(e), late = wait_ms == 0;
    pthread_mutex_lock(&e->q_lock);
    while (!late && !e->q_head && !ks_journal_made(e) && !(e->q_stop && last)) {
        if (wait_ms < 0) {
            pthread_cond_wait(&e->q_more, &e->q_lock);
        } else {
            late = pthread_cond_timedwait(&e->q_more, &e->q_lock, &until) != 0;
        }
    }
    struct ks_entry *head = e->q_head;
    e->q_head = e->q_tail = NULL;
    *stop = e->q_stop && !head && last;
    pthread_mutex_unlock(&e->q_lock);
    return head;
}

void ks_commit_wake(struct ks_engine *e)
{
    pthread_mutex_lock(&e->q_lock);
    pthread_cond_signal(&e->q_more);
    pthread_mutex_unlock(&e->q_lock);
}

/* A log has work for a turn if its queue starts with something that may run now. */
static bool runnable(const struct ks_log *log)
{
    if (!log->c_head) {
        return false;
    }
    bool ends = log->c_head->kind == KS_E_SEAL || log->c_head->kind == KS_E_CLOSE;
    return !log->c_sealing && !(log->c_recovering && ends); /* a pool has the lower half: wait */
}

static void list_log(struct ks_log **logs, struct ks_log *log)
{
    if (!log->c_listed && runnable(log)) {
        log->c_listed = true;
        log->c_next = *logs;
        *logs = ks_log_ref(log);
    }
}

/* The log stands still: a recovery is due, unless one is under way or waits for its time. */
static void heal(struct ks_log *log)
{
    if (log->c_failed && log->c_error == KS_K_STORAGE_ERROR && !log->c_recovering &&
        !atomic_load(&log->c_retry_at_ms)) {
        log->c_recovering = true;
        ks_recover_start(log);
    }
}

/* Logs that were held, and may go on now. */
static void unpark(struct ks_log **logs, struct ks_log **parked)
{
    while (*parked) {
        struct ks_log *log = *parked;
        *parked = log->c_next;
        log->c_listed = false;
        list_log(logs, log);
        ks_log_unref(log);
    }
}

/* A sync behind came back. No task of its log runs between turns, and no seal (J7). The owner hears of
 * it: a snapshot may wait for it. */
static void synced_behind(struct ks_log **logs, struct ks_entry *entry)
{
    struct ks_log *log = ks_log_ref(entry->log);
    ks_journal_synced(log->e, entry);
    heal(log);
    list_log(logs, log);
    if (entry->synced) {
        ks_ack_post(entry);
    } else {
        ks_entry_free(entry);
    }
    ks_log_unref(log);
}

/* Deals entries to their logs' queues. KS_E_RECOVERED overtakes what waits for it. True: a sync behind
 * was among them. */
static bool sort_in(struct ks_log **logs, struct ks_entry *list)
{
    bool synced = false;
    while (list) {
        struct ks_entry *entry = list;
        struct ks_log *log = entry->log;
        list = entry->next;
        entry->next = NULL;
        if (entry->kind == KS_E_SYNCED) {
            synced_behind(logs, entry);
            synced = true;
            continue;
        }
        if (entry->kind == KS_E_SEALED) {
            log->c_sealing = false;
            log->e->n_sealing--;
        }
        if (!log->c_head) {
            log->c_head = log->c_tail = entry;
        } else if (entry->kind == KS_E_RECOVERED || entry->kind == KS_E_SEALED) {
            entry->next = log->c_head;
            log->c_head = entry;
        } else {
            log->c_tail->next = entry;
            log->c_tail = entry;
        }
        list_log(logs, log);
    }
    return synced;
}

static void team_unref(struct team *m)
{
    if (atomic_fetch_sub(&m->refs, 1) == 1) {
        pthread_cond_destroy(&m->zero);
        pthread_mutex_destroy(&m->lock);
        kc_free(m->tasks);
        kc_free(m);
    }
}

static void lend_a_hand(struct team *m)
{
    uint32_t done = 0;
    for (uint32_t i; (i = atomic_fetch_add(&m->next, 1)) < m->n; done++) {
        m->run(m->tasks[i]);
    }
    pthread_mutex_lock(&m->lock);
    m->left -= done;
    if (m->left == 0) {
        pthread_cond_signal(&m->zero);
    }
    pthread_mutex_unlock(&m->lock);
}

static void run_helper(struct rt_work *w)
{
    struct helper *h = KC_CONTAINER_OF(w, struct helper, work);
    lend_a_hand(h->team);
    team_unref(h->team);
    kc_free(h);
}

/* For those of the n tasks that are wanted (NULL: all). busy: the commit thread has something else to
 * do first. */
static struct team *team_start(struct ks_engine *e, struct ks_task *tasks, uint32_t n, bool busy,
                               bool (*wanted)(const struct ks_task *t),
                               void (*run)(struct ks_task *t))
{
    struct team *m = kc_zalloc(sizeof(*m));
    m->run = run;
    m->tasks = kc_alloc(KC_MAX(n, 1u) * sizeof(struct ks_task *));
    for (uint32_t i = 0; i < n; i++) {
        if (!wanted || wanted(&tasks[i])) {
            m->tasks[m->n++] = &tasks[i];
        }
    }
    m->left = m->n;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->zero, NULL);
    uint32_t helpers = KC_MIN(busy || m->n == 0 ? m->n : m->n - 1, (uint32_t)e->sync_threads);
    atomic_init(&m->refs, helpers + 1);
    for (uint32_t i = 0; i < helpers; i++) {
        struct helper *h = kc_zalloc(sizeof(*h));
        *h = (struct helper){.work.fn = run_helper, .team = m};
        rt_pool_post(e->sync, &h->work);
    }
    return m;
}

static void team_finish(struct team *m)
{
    lend_a_hand(m);
    pthread_mutex_lock(&m->lock);
    while (m->left) {
        pthread_cond_wait(&m->zero, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    team_unref(m);
}

/* ---- what a turn that touches many partitions does (ADR 13) ---- */

static bool appends(const struct ks_log *log)
{
    return log->c_head->kind == KS_E_APPEND && !log->c_failed && log->c_head->epoch == log->c_epoch;
}

/* The log's next entry has to wait for the sync behind of its file (J7). */
static bool held(const struct ks_log *log, bool journal)
{
    if (!log->c_syncing) {
        return false;
    }
    switch (log->c_head->kind) {
    case KS_E_APPEND:
        return appends(log) && !(journal && ks_task_fits(log));
    case KS_E_SEAL:
    case KS_E_CLOSE:
        return true;
    case KS_E_TRIM:
        return log->c_unsynced > 0 || log->c_head->trim->roll;
    case KS_E_FLUSH:
        return log->c_unsynced > 0;
    case KS_E_COMPACT: /* syncs files that are no longer written to */
    case KS_E_SEALED:
    case KS_E_RECOVERED:
    case KS_E_RETRY:
    case KS_E_SYNCED:
        break;
    }
    return false;
}

static bool syncs_itself(const struct ks_task *t)
{
    return t->unsynced && !t->frame;
}

/* Decides what goes into the journal; returns how many tasks do. A few files are synced where they
 * are, and what is more than a journal takes, unless it must not be (J7). */
static uint32_t deal(const struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    uint32_t frames = 0;
    uint64_t bytes = 0;
    bool must = false;
    for (uint32_t i = 0; i < n; i++) {
        struct ks_task *t = &tasks[i];
        t->frame =
            t->unsynced && t->fits && (t->log->c_syncing || bytes + t->written <= e->journal_bytes);
        bytes += t->frame ? t->written : 0;
        frames += t->frame;
        must = must || (t->frame && t->log->c_syncing);
    }
    if (must || frames > e->direct_files) {
        return frames;
    }
    for (uint32_t i = 0; i < n; i++) {
        tasks[i].frame = false;
    }
    return 0;
}

/* One sync of the journal for most, and beside it those of the files that got much. */
static void make_durable(struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    uint32_t frames = deal(e, tasks, n);
    struct team *m = team_start(e, tasks, n, frames > 0, syncs_itself, ks_task_sync);
    int rc = frames ? ks_journal_write(e, tasks, n) : 0;
    team_finish(m);
    for (uint32_t i = 0; rc && i < n; i++) {
        if (tasks[i].frame) {
            ks_task_refuse(&tasks[i]);
        }
    }
}

/* One check covers every log of an incarnation; usually there is only one. */
static bool check(struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    struct ks_inc *checked = NULL;
    bool ok = false, any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!tasks[i].issued) {
            continue;
        }
        any = true;
        if (tasks[i].log->inc != checked) {
            checked = tasks[i].log->inc;
            ok = ks_engine_check(e, checked);
        }
        ks_task_settle(&tasks[i], ok);
    }
    return any;
}

/* After the turn: a seal or close was the log's last entry; a fresh failure starts a recovery. */
static void finish(struct ks_engine *e, struct ks_task *t)
{
    struct ks_log *log = t->log;
    enum ks_entry_kind kind = t->taken->kind;
    ks_journal_confirm(log);
    if (kind == KS_E_SEALED || kind == KS_E_CLOSE) {
        bool sealed = kind == KS_E_SEALED && t->taken->rc == 0;
        log->c_failed = true;
        log->c_error = KS_K_NOT_LEADER;
        ks_engine_forget(e, log, sealed);
        return;
    }
    if (log->c_failed && log->c_error == KS_K_STORAGE_ERROR && !log->c_recovering) {
        if (kind == KS_E_RECOVERED) {
            atomic_store(&log->c_retry_at_ms, kc_mono_ms() + KS_RETRY_MS);
            atomic_fetch_add(&e->n_retries, 1);
        } else {
            heal(log);
        }
    } else if (log->c_failed && log->c_error == KS_K_NOT_LEADER && kind != KS_E_APPEND) {
        ks_log_post_stop(log);
    }
}

struct sealing {
    struct rt_work work;
    struct ks_entry *entry;
};

static void run_seal(struct rt_work *w)
{
    struct sealing *s = KC_CONTAINER_OF(w, struct sealing, work);
    struct ks_entry *entry = s->entry;
    ks_task_seal(entry->log, entry);
    entry->kind = KS_E_SEALED;
    ks_commit_push(entry->log->e, entry);
    kc_free(s);
}

/* Seals go their own way, on threads of their own: the acks of other logs must not wait for their
 * syncs, or every wave of a planned move would be felt by all that stays. Each comes back as
 * KS_E_SEALED. */
static void start_seals(struct ks_engine *e, struct ks_log **logs)
{
    for (struct ks_log **at = logs; *at;) {
        struct ks_log *log = *at;
        struct ks_entry *entry = log->c_head;
        if (entry->kind != KS_E_SEAL || held(log, false)) {
            at = &log->c_next;
            continue;
        }
        *at = log->c_next;
        log->c_listed = false;
        log->c_head = entry->next;
        log->c_tail = log->c_head ? log->c_tail : NULL;
        entry->next = NULL;
        log->c_sealing = true;
        e->n_sealing++;
        struct sealing *s = kc_zalloc(sizeof(*s));
        *s = (struct sealing){.work.fn = run_seal, .entry = entry};
        rt_pool_post(e->seal, &s->work);
        ks_log_unref(log); /* the entry has its own */
    }
}

/* Without memory for all logs of a turn, some wait for the next one; one always goes. */
static struct ks_task *tasks_new(uint32_t *n)
{
    struct ks_task *tasks = kc_try_zalloc(*n, sizeof(*tasks));
    while (!tasks && *n > 1) {
        *n /= 2;
        tasks = kc_try_zalloc(*n, sizeof(*tasks));
    }
    return tasks ? tasks : kc_zalloc(sizeof(*tasks));
}

/* The tasks of the turn. Logs that are held wait in `parked`: for their sync, or for a journal. */
static struct ks_task *gather(struct ks_engine *e, struct ks_log **logs, struct ks_log **parked,
                              uint32_t *ret_n)
{
    uint32_t n = 0, writes = 0, syncing = 0;
    struct ks_inc *inc = NULL;
    for (struct ks_log *l = *logs; l; l = l->c_next) {
        n++;
        if (appends(l)) {
            inc = l->inc;
            writes++;
            syncing += l->c_syncing;
        }
    }
    bool many = writes > e->direct_files;
    bool journal = (many || syncing) && ks_journal_ready(e, inc, many);
    struct ks_task *tasks = tasks_new(&n);
    *ret_n = 0;
    while (*logs && *ret_n < n) {
        struct ks_log *l = *logs;
        *logs = l->c_next;
        bool mine = journal && l->inc == inc;
        if (held(l, mine)) {
            l->c_next = *parked;
            *parked = l;
            continue;
        }
        l->c_listed = false;
        tasks[(*ret_n)++] = (struct ks_task){.log = l, .later = mine && (many || l->c_syncing)};
    }
    return tasks;
}

static void turn(struct ks_engine *e, struct ks_log **logs, struct ks_log **parked)
{
    uint32_t n;
    start_seals(e, logs);
    if (!*logs) {
        return;
    }
    struct ks_task *tasks = gather(e, logs, parked, &n);
    team_finish(team_start(e, tasks, n, false, NULL, ks_task_run));
    make_durable(e, tasks, n);
    if (check(e, tasks, n)) {
        atomic_fetch_add(&e->m_commits, 1);
    }
    struct ks_entry *done = NULL, *done_tail = NULL;
    for (uint32_t i = 0; i < n; i++) {
        struct ks_task *t = &tasks[i];
        finish(e, t);
        for (struct ks_entry *entry = t->taken; entry; entry = entry->next) {
            atomic_fetch_sub_explicit(&e->queued_bytes, entry->data.len, memory_order_relaxed);
            if (!entry->error) {
                atomic_fetch_add_explicit(&e->m_appended, entry->data.len, memory_order_relaxed);
            }
        }
        if (done_tail) {
            done_tail->next = t->taken;
        } else {
            done = t->taken;
        }
        done_tail = t->taken_tail;
        list_log(logs, t->log); /* what did not fit goes into the next turn */
        ks_log_unref(t->log);
    }
    kc_free(tasks);
    ks_ack_post(done);
}

static void *commit_main(void *arg)
{
    struct ks_engine *e = arg;
    rt_thread_enter("ks-commit");
    struct ks_log *logs = NULL, *parked = NULL;
    for (bool stop = false; !stop;) {
        bool made = ks_journal_made(e);
        int64_t wait_ms = ks_journal_tend(e);
        if (made) {
            unpark(&logs, &parked);
        }
        if (sort_in(&logs, drain(e, logs ? 0 : wait_ms, &stop))) {
            unpark(&logs, &parked);
        }
        if (logs) {
            stop = false;
            turn(e, &logs, &parked);
        }
    }
    return NULL;
}

int ks_commit_start(struct ks_engine *e)
{
    pthread_mutex_init(&e->q_lock, NULL);
    rt_cond_init(&e->q_more);
    ks_journal_start(e);
    int rc = -pthread_create(&e->commit_thread, NULL, commit_main, e);
    if (rc) {
        ks_journal_stop(e);
    }
    return rc;
}

void ks_commit_stop(struct ks_engine *e)
{
    pthread_mutex_lock(&e->q_lock);
    e->q_stop = true;
    pthread_cond_signal(&e->q_more);
    pthread_mutex_unlock(&e->q_lock);
    pthread_join(e->commit_thread, NULL);
    ks_journal_stop(e);
    pthread_cond_destroy(&e->q_more);
    pthread_mutex_destroy(&e->q_lock);
}
