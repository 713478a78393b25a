#include "groups/kg_pids.h"

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "rt/rt_pool.h"

enum { WAITERS_MAX = 10000 };

struct block {
    int64_t next, end;
};

/* What one loop holds. All fields are the loop's, but the last three are the pool's while a fetch is
 * under way. */
struct store {
    struct kg_pids *pids;
    struct rt_loop *loop;
    struct block now, spare;
    struct kc_list waiters;
    int32_t n_waiters;
    int32_t block_ids; /* how many a block has */
    bool fetching;
    struct rt_work work;
    struct rt_msg back;
    int rc; /* results of the fetch */
    int64_t first;
    int32_t count;
};

struct kg_pids {
    kg_pid_source source;
    void *ctx;
    struct rt_pool *pool;
    int32_t n;
    struct store *stores;
};

struct kg_pids *kg_pids_new(kg_pid_source source, void *ctx, struct rt_loop *const *loops,
                            int32_t n_loops)
{
    struct kg_pids *p = kc_zalloc(sizeof(*p));
    p->source = source;
    p->ctx = ctx;
    p->pool = rt_pool_new("pids", 1);
    p->n = n_loops;
    p->stores = kc_zalloc((size_t)n_loops * sizeof(*p->stores));
    for (int32_t i = 0; i < n_loops; i++) {
        p->stores[i].pids = p;
        p->stores[i].loop = loops[i];
        kc_list_init(&p->stores[i].waiters);
    }
    return p;
}

void kg_pids_free(struct kg_pids *p)
{
    if (p) {
        rt_pool_free(p->pool);
        kc_free(p->stores);
        kc_free(p);
    }
}

static int64_t left(const struct block *b)
{
    return b->end - b->next;
}

/* -1: nothing here. */
static int64_t take(struct store *s)
{
    if (left(&s->now) == 0) {
        s->now = s->spare;
        s->spare = (struct block){0, 0};
    }
    return left(&s->now) > 0 ? s->now.next++ : -1;
}

static void fetch(struct store *s);

static void on_back(struct rt_msg *msg)
{
    struct store *s = KC_CONTAINER_OF(msg, struct store, back);
    s->fetching = false;
    if (s->rc == 0) {
        s->spare = (struct block){s->first, s->first + s->count};
        s->block_ids = s->count;
    }
    while (!kc_list_empty(&s->waiters)) {
        int64_t id = take(s);
        if (id < 0 && s->rc == 0) {
            break; /* more of them than a block holds */
        }
        struct kg_pid_waiter *w = KC_LIST_ENTRY(s->waiters.next, struct kg_pid_waiter, node);
        kc_list_del(&w->node);
        s->n_waiters--;
        w->fn(w, id);
    }
    if (s->n_waiters > 0) {
        fetch(s);
    }
}

static void on_pool(struct rt_work *work)
{
    struct store *s = KC_CONTAINER_OF(work, struct store, work);
    struct kc_err err;
    s->rc = s->pids->source(s->pids->ctx, &s->first, &s->count, &err);
    if (s->rc == 0 && (s->first < 0 || s->count <= 0)) {
        s->rc = kc_fail(&err, KC_E_CORRUPT, "an empty block of producer ids");
    }
    if (s->rc != 0) {
        kc_log(KC_WARN, "groups", "event=producer_ids_unavailable error=\"%s\"", err.msg);
    }
    s->back = (struct rt_msg){.fn = on_back};
    rt_post(s->loop, &s->back);
}

static void fetch(struct store *s)
{
    if (!s->fetching) {
        s->fetching = true;
        s->work = (struct rt_work){.fn = on_pool};
        rt_pool_post(s->pids->pool, &s->work);
    }
}

void kg_pid_next(struct kg_pids *p, int32_t loop, struct kg_pid_waiter *w)
{
    struct store *s = &p->stores[loop];
    int64_t id = s->n_waiters == 0 ? take(s) : -1; /* first come, first served */
    if (left(&s->spare) == 0 && left(&s->now) <= s->block_ids / 2) {
        fetch(s);
    }
    if (id >= 0 || s->n_waiters >= WAITERS_MAX) {
        w->fn(w, id);
        return;
    }
    kc_list_add_tail(&s->waiters, &w->node);
    s->n_waiters++;
}
