/* Helpers of the commit thread, from the sync pool. */
#include "storage/ks_int.h"

#include "base/kc_mem.h"

/* Threads that deal with tasks of a turn together, the commit thread among them. A helper that the pool
 * has no thread for until all is done finds nothing left: a turn never waits for what is queued there
 * before it. */
struct ks_team {
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
    struct ks_team *team;
};

static void team_unref(struct ks_team *m)
{
    if (atomic_fetch_sub(&m->refs, 1) == 1) {
        pthread_cond_destroy(&m->zero);
        pthread_mutex_destroy(&m->lock);
        kc_free(m->tasks);
        kc_free(m);
    }
}

static void lend_a_hand(struct ks_team *m)
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

struct ks_team *ks_team_start(struct ks_engine *e, struct ks_task *tasks, uint32_t n,
                              uint32_t helpers, bool (*wanted)(const struct ks_task *t),
                              void (*run)(struct ks_task *t))
{
    struct ks_team *m = kc_zalloc(sizeof(*m));
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
    helpers = KC_MIN(helpers, (uint32_t)e->sync_threads);
    atomic_init(&m->refs, helpers + 1);
    for (uint32_t i = 0; i < helpers; i++) {
        struct helper *h = kc_zalloc(sizeof(*h));
        *h = (struct helper){.work.fn = run_helper, .team = m};
        rt_pool_post(e->sync, &h->work);
    }
    return m;
}

void ks_team_finish(struct ks_team *m)
{
    lend_a_hand(m);
    pthread_mutex_lock(&m->lock);
    while (m->left) {
        pthread_cond_wait(&m->zero, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    team_unref(m);
}
