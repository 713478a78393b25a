/* Producer ids: blocks ahead of need, waiting in turn, failure, no id twice. */
#include <pthread.h>
#include <stdatomic.h>

#include "groups/kg_pids.h"
#include "kt.h"

enum { WANTED = 1000 };

static struct rt_loop loop;
static struct kg_pids *pids;
static _Atomic int fetched;
static _Atomic bool broken;
static int32_t block_size;

static int source(void *ctx, int64_t *ret_first, int32_t *ret_count, struct kc_err *err)
{
    (void)ctx;
    int n = atomic_fetch_add(&fetched, 1);
    if (broken) {
        return kc_fail(err, -5, "the volume is away");
    }
    *ret_first = 1000 + (int64_t)n * block_size;
    *ret_count = block_size;
    return 0;
}

struct asked {
    struct kg_pid_waiter w;
    int64_t id;
    int count;
};
static struct asked asked[WANTED];
static int n_answered, n_wanted;

static void on_id(struct kg_pid_waiter *w, int64_t id)
{
    struct asked *a = KC_CONTAINER_OF(w, struct asked, w);
    a->id = id;
    a->count++;
    if (++n_answered == n_wanted) {
        rt_loop_stop(&loop);
    }
}

static void ask(void *arg)
{
    (void)arg;
    for (int i = 0; i < n_wanted; i++) {
        asked[i] = (struct asked){.w.fn = on_id, .id = -2};
        kg_pid_next(pids, 0, &asked[i].w);
    }
}

static void run(int wanted, int32_t size, bool is_broken)
{
    static struct rt_loop *loops[] = {&loop};
    n_answered = 0;
    n_wanted = wanted;
    block_size = size;
    broken = is_broken;
    fetched = 0;
    KT_REQUIRE(rt_loop_init(&loop, "test") == 0);
    pids = kg_pids_new(source, NULL, loops, 1);
    KT_REQUIRE(rt_loop_start(&loop) == 0);
    rt_call(&loop, ask, NULL);
    rt_loop_join(&loop);
    kg_pids_free(pids);
}

static void everybody_gets_an_id_of_their_own(void)
{
    run(WANTED, 7, false); /* far more at once than a block holds */
    for (int i = 0; i < WANTED; i++) {
        KT_EQ(asked[i].count, 1);
        KT_EQ(asked[i].id, i ? asked[i - 1].id + 1 : 1000); /* in the order of asking */
    }
}

static void the_next_block_comes_before_the_last_is_used_up(void)
{
    run(1, 1000, false);
    KT_EQ(asked[0].id, 1000);
    KT_EQ(fetched, 1);
}

static void without_a_block_they_are_told_to_try_again(void)
{
    run(10, 1000, true);
    for (int i = 0; i < 10; i++) {
        KT_EQ(asked[i].count, 1);
        KT_EQ(asked[i].id, -1);
    }
}

KT_MAIN("producer ids", KT(everybody_gets_an_id_of_their_own),
        KT(the_next_block_comes_before_the_last_is_used_up),
        KT(without_a_block_they_are_told_to_try_again))
