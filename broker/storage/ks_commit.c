/* Group commit: everything that was queued while the last turn ran is written, synced, checked
 * once, and answered with one message a loop. */
#include "storage/ks_int.h"

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "rt/rt_thread.h"

void ks_commit_init(struct ks_engine *e)
{
    pthread_mutex_init(&e->q_lock, NULL);
    rt_cond_init(&e->q_more);
}

void ks_commit_fini(struct ks_engine *e)
{
    pthread_cond_destroy(&e->q_more);
    pthread_mutex_destroy(&e->q_lock);
}

/* From then on the entry may be done, and with it what keeps the engine: the caller has a reference of
 * its own. */
static void push(struct ks_engine *e, struct ks_entry *entry)
{
    atomic_fetch_add_explicit(&e->queued_bytes, entry->data.len, memory_order_relaxed);
    struct ks_entry *old = atomic_load_explicit(&e->q_in, memory_order_relaxed);
    do {
        entry->next = old;
    } while (!atomic_compare_exchange_weak_explicit(&e->q_in, &old, entry, memory_order_release,
                                                    memory_order_relaxed));
}

void ks_commit_push(struct ks_engine *e, struct ks_entry *entry)
{
    ks_engine_ref(e);
    push(e, entry);
    ks_commit_wake(e);
    ks_engine_unref(e);
}

static void on_turn_end(struct rt_after *a)
{
    struct ks_shard *s = KC_CONTAINER_OF(a, struct ks_shard, wake);
    struct ks_engine *e = s->e;
    s->waking = false;
    if (atomic_load_explicit(&e->q_in, memory_order_relaxed)) { /* else: it was awake */
        ks_commit_wake(e);
    }
    ks_engine_unref(e); /* s may be gone */
}

void ks_commit_push_soon(struct ks_engine *e, struct ks_entry *entry)
{
    struct ks_shard *s = entry->log->shard;
    if (!s->waking) {
        s->waking = true;
        ks_engine_ref(e);
        s->wake.fn = on_turn_end;
        rt_loop_after(s->loop, &s->wake);
    }
    push(e, entry);
}

/* Oldest first. */
static struct ks_entry *take_all(struct ks_engine *e)
{
    struct ks_entry *in = atomic_exchange_explicit(&e->q_in, NULL, memory_order_acquire);
    struct ks_entry *ordered = NULL;
    while (in) {
        struct ks_entry *next = in->next;
        in->next = ordered;
        ordered = in;
        in = next;
    }
    return ordered;
}

/* Takes what is queued; waits for something, at most wait_ms (-1: for ever). NULL with *stop: the end,
 * which does not come while a seal or a sync behind is under way. */
static struct ks_entry *drain(struct ks_engine *e, int64_t wait_ms, bool *stop)
{
    struct timespec until = rt_in_ms(KC_MAX(wait_ms, (int64_t)0));
    bool last = e->n_sealing == 0 && ks_journal_idle(e), late = wait_ms == 0;
    pthread_mutex_lock(&e->q_lock);
    while (!late && !atomic_load_explicit(&e->q_in, memory_order_relaxed) && !ks_journal_made(e) &&
           !(e->q_stop && last)) {
        if (wait_ms < 0) {
            pthread_cond_wait(&e->q_more, &e->q_lock);
        } else {
            late = pthread_cond_timedwait(&e->q_more, &e->q_lock, &until) != 0;
        }
    }
    bool stopped = e->q_stop;
    pthread_mutex_unlock(&e->q_lock);
    struct ks_entry *head = take_all(e);
    *stop = stopped && !head && last;
    return head;
}

/* Who sleeps has looked under the lock, and sees what came before it; what comes after it finds a sleeper.
 * The signal is given without the lock, which the woken thread takes first. */
void ks_commit_wake(struct ks_engine *e)
{
    pthread_mutex_lock(&e->q_lock);
    pthread_mutex_unlock(&e->q_lock);
    pthread_cond_signal(&e->q_more);
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

/* A helper is worth its wake-up only where its task waits for the volume: what goes into memory is done
 * sooner than another thread has come. The commit thread waits, too: one that waits needs no helper. */
static void run_all(struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    bool far = ks_fs_network(&e->fs);
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < n; i++) {
        waiting += ks_task_may_wait(&tasks[i], far);
    }
    if (waiting > 1) {
        ks_team_finish(ks_team_start(e, tasks, n, waiting - 1, NULL, ks_task_run));
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        ks_task_run(&tasks[i]);
    }
}

/* ---- what a turn that touches many partitions does (ADR 13) ---- */

static bool appends(const struct ks_log *log)
{
    return log->c_head->kind == KS_E_APPEND && !log->c_failed && log->c_head->epoch == log->c_epoch;
}

/* What the log's next entry may do while its file is synced behind (J7). */
enum way {
    WAIT,
    RUN, /* it needs no sync, or none is under way */
    BESIDE /* an append: written beside it */
};

static enum way way_of(const struct ks_log *log, bool journal)
{
    if (!log->c_syncing) {
        return RUN;
    }
    switch (log->c_head->kind) {
    case KS_E_APPEND:
        if (!appends(log) || (journal && ks_task_fits(log))) {
            return RUN;
        }
        return ks_task_beside(log) ? BESIDE : WAIT;
    case KS_E_SEAL:
    case KS_E_CLOSE:
        return WAIT;
    case KS_E_TRIM:
        return log->c_unsynced > 0 || log->c_head->trim->roll ? WAIT : RUN;
    case KS_E_FLUSH:
        return log->c_unsynced > 0 ? WAIT : RUN;
    case KS_E_COMPACT: /* syncs files that are no longer written to */
    case KS_E_SEALED:
    case KS_E_RECOVERED:
    case KS_E_RETRY:
    case KS_E_SYNCED:
        break;
    }
    return RUN;
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
    uint32_t frames = deal(e, tasks, n), syncs = 0;
    for (uint32_t i = 0; i < n; i++) {
        syncs += syncs_itself(&tasks[i]);
    }
    uint32_t helpers =
        frames || !syncs ? syncs : syncs - 1; /* the journal is the commit thread's */
    helpers = ks_task_sync_waits(e) ? helpers : 0;
    struct ks_team *m =
        helpers ? ks_team_start(e, tasks, n, helpers, syncs_itself, ks_task_sync) : NULL;
    int rc = frames ? ks_journal_write(e, tasks, n) : 0;
    if (m) {
        ks_team_finish(m);
    }
    for (uint32_t i = 0; !m && i < n; i++) {
        if (syncs_itself(&tasks[i])) {
            ks_task_sync(&tasks[i]);
        }
    }
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
    ks_journal_behind(log);
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
        if (entry->kind != KS_E_SEAL || way_of(log, false) == WAIT) {
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

/* Room for the tasks of a turn, kept for the next ones. Without memory for all its logs, some wait for
 * the next turn; one always goes. */
static uint32_t tasks_room(struct ks_engine *e, uint32_t n)
{
    if (n > e->tasks_room) {
        uint32_t room = KC_MAX(n, e->tasks_room * 2);
        struct ks_task *tasks = kc_try_zalloc(room, sizeof(*tasks));
        if (tasks) {
            kc_free(e->tasks);
            e->tasks = tasks;
            e->tasks_room = room;
        }
    }
    return KC_MIN(n, e->tasks_room);
}

/* The tasks of the turn. Logs that are held wait in `parked`: for their sync, or for a journal. */
static uint32_t gather(struct ks_engine *e, struct ks_log **logs, struct ks_log **parked)
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
    uint32_t room = tasks_room(e, n);
    n = 0;
    while (*logs && n < room) {
        struct ks_log *l = *logs;
        *logs = l->c_next;
        bool mine = journal && l->inc == inc;
        enum way way = way_of(l, mine);
        if (way == WAIT) {
            l->c_next = *parked;
            *parked = l;
            continue;
        }
        l->c_listed = false;
        e->tasks[n++] = (struct ks_task){
            .log = l, .later = mine && (many || l->c_syncing), .beside = way == BESIDE};
    }
    return n;
}

static void turn(struct ks_engine *e, struct ks_log **logs, struct ks_log **parked)
{
    start_seals(e, logs);
    if (!*logs) {
        return;
    }
    uint32_t n = gather(e, logs, parked);
    struct ks_task *tasks = e->tasks;
    run_all(e, tasks, n);
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
    ks_journal_start(e);
    e->tasks = kc_zalloc(sizeof(*e->tasks));
    e->tasks_room = 1;
    int rc = -pthread_create(&e->commit_thread, NULL, commit_main, e);
    if (rc) {
        ks_journal_stop(e);
        kc_free(e->tasks);
    }
    return rc;
}

void ks_commit_stop(struct ks_engine *e)
{
    pthread_mutex_lock(&e->q_lock);
    e->q_stop = true;
    pthread_mutex_unlock(&e->q_lock);
    pthread_cond_signal(&e->q_more);
    pthread_join(e->commit_thread, NULL);
    ks_journal_stop(e);
    kc_free(e->tasks);
}
