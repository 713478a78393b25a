/* Group commit: everything that was queued while the last turn ran is written, synced, checked
 * once, and answered with one message a loop. */
#include "storage/ks_int.h"

#include <signal.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

/* Counts tasks of a turn down. The tick's threads are ours alone, so a plain mutex is enough. */
struct ks_latch {
    pthread_mutex_t lock; /* guards left */
    pthread_cond_t zero;
    uint32_t left;
};

struct ks_entry *ks_entry_new(struct ks_log *log, enum ks_entry_kind kind)
{
    /* Letting go and recovering must not fail for want of a few bytes; clients' appends may. */
    struct ks_entry *entry =
        kind == KS_E_APPEND ? kc_try_zalloc(1, sizeof(*entry)) : kc_zalloc(sizeof(*entry));
    if (entry) {
        entry->log = ks_log_ref(log);
        entry->kind = kind;
        entry->epoch = log->epoch;
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

/* Takes what is queued; waits for something unless work is left over. NULL with *stop: the end. */
static struct ks_entry *drain(struct ks_engine *e, bool wait, bool *stop)
{
    pthread_mutex_lock(&e->q_lock);
    while (wait && !e->q_head && (!e->q_stop || e->n_sealing)) {
        pthread_cond_wait(&e->q_more, &e->q_lock);
    }
    struct ks_entry *head = e->q_head;
    e->q_head = e->q_tail = NULL;
    *stop = e->q_stop && !head && !e->n_sealing;
    pthread_mutex_unlock(&e->q_lock);
    return head;
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

/* Deals entries to their logs' queues. KS_E_RECOVERED overtakes what waits for it. */
static void sort_in(struct ks_log **logs, struct ks_entry *list)
{
    while (list) {
        struct ks_entry *entry = list;
        struct ks_log *log = entry->log;
        list = entry->next;
        entry->next = NULL;
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
}

static void run_on_pool(struct rt_work *w)
{
    struct ks_task *t = KC_CONTAINER_OF(w, struct ks_task, work);
    struct ks_latch *latch = t->latch;
    ks_task_run(t);
    pthread_mutex_lock(&latch->lock);
    if (--latch->left == 0) {
        pthread_cond_signal(&latch->zero);
    }
    pthread_mutex_unlock(&latch->lock);
}

static void run_tasks(struct ks_engine *e, struct ks_task *tasks, uint32_t n)
{
    if (n == 1) {
        ks_task_run(&tasks[0]);
        return;
    }
    struct ks_latch latch = {.left = n - 1};
    pthread_mutex_init(&latch.lock, NULL);
    pthread_cond_init(&latch.zero, NULL);
    for (uint32_t i = 1; i < n; i++) {
        tasks[i].latch = &latch;
        tasks[i].work.fn = run_on_pool;
        rt_pool_post(e->sync, &tasks[i].work);
    }
    ks_task_run(&tasks[0]);
    pthread_mutex_lock(&latch.lock);
    while (latch.left) {
        pthread_cond_wait(&latch.zero, &latch.lock);
    }
    pthread_mutex_unlock(&latch.lock);
    pthread_cond_destroy(&latch.zero);
    pthread_mutex_destroy(&latch.lock);
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
        } else if (!atomic_load(&log->c_retry_at_ms)) {
            log->c_recovering = true;
            ks_recover_start(log);
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
        if (entry->kind != KS_E_SEAL) {
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

static void turn(struct ks_engine *e, struct ks_log **logs)
{
    uint32_t n = 0;
    start_seals(e, logs);
    if (!*logs) {
        return;
    }
    for (struct ks_log *l = *logs; l; l = l->c_next) {
        n++;
    }
    struct ks_task *tasks = tasks_new(&n);
    struct ks_log *l = *logs;
    for (uint32_t i = 0; i < n; i++, l = l->c_next) {
        tasks[i].log = l;
        l->c_listed = false;
    }
    *logs = l;
    run_tasks(e, tasks, n);
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
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_setname_np(pthread_self(), "ks-commit");
    struct ks_log *logs = NULL;
    for (bool stop = false; !stop;) {
        sort_in(&logs, drain(e, logs == NULL, &stop));
        if (logs) {
            stop = false;
            turn(e, &logs);
        }
    }
    return NULL;
}

int ks_commit_start(struct ks_engine *e)
{
    pthread_mutex_init(&e->q_lock, NULL);
    pthread_cond_init(&e->q_more, NULL);
    return -pthread_create(&e->commit_thread, NULL, commit_main, e);
}

void ks_commit_stop(struct ks_engine *e)
{
    pthread_mutex_lock(&e->q_lock);
    e->q_stop = true;
    pthread_cond_signal(&e->q_more);
    pthread_mutex_unlock(&e->q_lock);
    pthread_join(e->commit_thread, NULL);
    pthread_cond_destroy(&e->q_more);
    pthread_mutex_destroy(&e->q_lock);
}
