/* The end of a loop while others still talk to it. */
#include "kt.h"

#include "base/kc_mem.h"
#include "rt/rt_loop.h"

static _Atomic int ran;

static void count(void *arg)
{
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

/* libuv aborts on a wake-up of a closed handle: stopping right after a message must not race. */
static void a_loop_may_be_stopped_right_after_a_message(void)
{
    for (int i = 0; i < 3000; i++) {
        struct rt_loop l;
        KT_EQ(rt_loop_init(&l, "stop"), 0);
        KT_EQ(rt_loop_start(&l), 0);
        rt_call(&l, count, NULL);
        rt_loop_stop(&l);
        rt_loop_join(&l);
    }
    KT_EQ(atomic_load(&ran), 3000);
}

static _Atomic int on_own_loop;

static void look(void *loop)
{
    atomic_store(&on_own_loop, rt_on_loop(loop) ? 1 : -1);
}

static void a_loop_knows_its_thread(void)
{
    struct rt_loop l;
    KT_EQ(rt_loop_init(&l, "own"), 0);
    KT_EQ(rt_loop_start(&l), 0);
    rt_call(&l, look, &l);
    rt_loop_stop(&l);
    rt_loop_join(&l);
    KT_EQ(atomic_load(&on_own_loop), 1);
}

static void *stopper(void *loop)
{
    rt_loop_stop(loop);
    return NULL;
}

static void two_may_stop_it(void)
{
    for (int i = 0; i < 1000; i++) {
        struct rt_loop l;
        KT_EQ(rt_loop_init(&l, "stop"), 0);
        KT_EQ(rt_loop_start(&l), 0);
        pthread_t t;
        KT_EQ(pthread_create(&t, NULL, stopper, &l), 0);
        rt_loop_stop(&l);
        pthread_join(t, NULL);
        rt_loop_join(&l);
    }
}

KT_MAIN("rt_stop", KT(a_loop_may_be_stopped_right_after_a_message), KT(two_may_stop_it),
        KT(a_loop_knows_its_thread))
