#include "rt/rt_pool.h"

#include <pthread.h>

#include "base/kc_mem.h"
#include "rt/rt_thread.h"

enum { MAX_THREADS = 64 };

struct worker {
    struct rt_pool *pool;
    pthread_t thread;
};

struct rt_pool {
    const char *name;
    int n_threads;
    pthread_mutex_t lock; /* guards head, tail, queued, idle, running, stopping */
    pthread_cond_t more;
    struct rt_work *head, *tail;
    int queued;
    int idle;
    int running;
    bool stopping;
    struct worker workers[MAX_THREADS];
};

static struct rt_work *take(struct rt_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->idle++;
    while (!p->head && !p->stopping) {
        pthread_cond_wait(&p->more, &p->lock);
    }
    p->idle--;
    struct rt_work *w = p->head;
    if (w) {
        p->head = w->next;
        if (!p->head) {
            p->tail = NULL;
        }
        p->queued--;
    }
    pthread_mutex_unlock(&p->lock);
    return w;
}

static void *worker_main(void *arg)
{
    struct worker *me = arg;
    rt_thread_enter(me->pool->name);
    for (struct rt_work *w; (w = take(me->pool));) {
        w->fn(w);
    }
    return NULL;
}

struct rt_pool *rt_pool_new(const char *name, int n_threads)
{
    KC_ASSERT(n_threads >= 1 && n_threads <= MAX_THREADS);
    struct rt_pool *p = kc_zalloc(sizeof(*p));
    p->name = name;
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    return p;
}

void rt_pool_free(struct rt_pool *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->running; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    kc_free(p);
}

/* With the lock held: one more thread if nobody is free for what is queued. */
static void maybe_spawn(struct rt_pool *p)
{
    if (p->idle >= p->queued || p->running == p->n_threads) {
        return;
    }
    struct worker *w = &p->workers[p->running];
    w->pool = p;
    if (pthread_create(&w->thread, NULL, worker_main, w) == 0) {
        p->running++;
    } else {
        KC_ASSERT(p->running > 0); /* queued work must have someone to run it */
    }
}

void rt_pool_post(struct rt_pool *p, struct rt_work *w)
{
    w->next = NULL;
    pthread_mutex_lock(&p->lock);
    if (p->tail) {
        p->tail->next = w;
    } else {
        p->head = w;
    }
    p->tail = w;
    p->queued++;
    maybe_spawn(p);
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}
