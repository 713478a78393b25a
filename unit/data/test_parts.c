/* Partitions on their loops: install, find, wait, release with a hint, stop by themselves. */
#include "kt.h"

#include <poll.h>
#include <stdlib.h>

#include "base/kc_clock.h"
#include "data/kd_data.h"
#include "kt_dir.h"

enum { LOOPS = 3 };

static struct {
    char dir[KT_DIR_MAX];
    struct kd_data *data;
    struct ks_engine *engine;
    struct kc_uuid topic, slots;
    _Atomic int opened, closing, stopped;
    _Atomic bool done;
} fx;

static void wait_for(_Atomic bool *flag)
{
    int64_t until = kc_mono_ms() + 20000;
    while (!atomic_load(flag) && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_REQUIRE(atomic_load(flag));
    atomic_store(flag, false);
}

struct call {
    void (*fn)(void *);
    void *arg;
};

static void run_call(void *arg)
{
    struct call *c = arg;
    c->fn(c->arg);
    atomic_store(&fx.done, true);
}

static void on_loop(struct rt_loop *l, void (*fn)(void *), void *arg)
{
    struct call c = {fn, arg};
    rt_call(l, run_call, &c);
    wait_for(&fx.done);
}

static void on_fenced(void *ctx, const char *why)
{
    (void)ctx;
    (void)why;
}

static void on_open_hook(void *ctx, int32_t kind, int32_t slot, struct kd_part *part)
{
    (void)ctx;
    KT_EQ(kind, KP_GROUP_SLOTS);
    KT_TRUE(slot == ks_log_partition(kd_part_log(part)));
    atomic_fetch_add(&fx.opened, 1);
}

static void on_closing_hook(void *ctx, int32_t kind, int32_t slot)
{
    (void)ctx;
    (void)slot;
    KT_EQ(kind, KP_GROUP_SLOTS);
    atomic_fetch_add(&fx.closing, 1);
}

static void up(void)
{
    struct kc_err err;
    memset(&fx, 0, sizeof(fx));
    kt_dir_make(fx.dir);
    fx.topic = kc_uuid_random();
    fx.slots = kc_uuid_random();
    KT_REQUIRE(kd_new(LOOPS, &fx.data, &err) == 0);
    struct kd_slot_hooks hooks = {on_open_hook, on_closing_hook, NULL};
    kd_set_slot_hooks(fx.data, &hooks);
    kd_set_slot_topic(fx.data, KP_GROUP_SLOTS, &fx.slots);
    KT_REQUIRE(kd_start(fx.data, &err) == 0);
    char cluster[KC_UUID_B64_LEN + 1] = "";
    struct ks_opts o = {
        .dir = fx.dir, .unsafe_storage = true, .loop = kd_loop(fx.data, 0), .on_fenced = on_fenced};
    KT_REQUIRE(ks_engine_open(&o, cluster, &fx.engine, &err) == 0);
    struct kc_uuid inc = kc_uuid_random();
    KT_REQUIRE(ks_register(fx.engine, &inc, &err) == 0);
}

static void down(void)
{
    ks_engine_close(fx.engine); /* first: the data loops run what it still has to tell them */
    kd_stop(fx.data);
    kd_free(fx.data);
    kt_dir_remove(fx.dir);
}

static bool condemn(void *ctx, int32_t broker, const struct kc_uuid *inc)
{
    (void)ctx;
    (void)broker;
    (void)inc;
    return true;
}

static void set_done(void *ctx)
{
    (void)ctx;
    atomic_store(&fx.done, true);
}

static void on_opened(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                      int32_t blocker, const struct kc_uuid *inc)
{
    (void)ctx;
    (void)err;
    (void)blocker;
    (void)inc;
    KT_EQ(rc, 0);
    kd_install(fx.data, log, kd_loop(fx.data, 0), set_done, NULL);
}

static void open_part(const struct kc_uuid *topic, int32_t p)
{
    struct ks_open_args a = {.topic_id = *topic,
                             .partition = p,
                             .may_create = true,
                             .order = {"uid", 1, 1},
                             .condemned = condemn,
                             .loop = kd_loop(fx.data, 0),
                             .done = on_opened};
    a.config = (struct ks_log_config){.segment_bytes = 1 << 20,
                                      .retention_ms = -1,
                                      .retention_bytes = -1,
                                      .segment_ms = INT64_MAX,
                                      .max_message_bytes = 1 << 20,
                                      .flush_messages = 1,
                                      .timestamp_before_max_ms = INT64_MAX,
                                      .timestamp_after_max_ms = INT64_MAX};
    KT_REQUIRE(ks_log_open(fx.engine, &a) != NULL);
    wait_for(&fx.done);
}

static int release_rc;
static void on_released(void *ctx, int rc, struct kc_bytes seal, int64_t end, int32_t epoch)
{
    (void)ctx;
    (void)seal;
    (void)end;
    (void)epoch;
    release_rc = rc;
    atomic_store(&fx.done, true);
}

static int release(const struct kc_uuid *topic, int32_t p, bool seal, int32_t to)
{
    kd_release(fx.data, topic, p, seal, to, kd_loop(fx.data, 1), on_released, NULL);
    wait_for(&fx.done);
    return release_rc;
}

struct look {
    int32_t partition;
    bool found;
    int32_t hint, epoch;
};

static void look_owner(void *arg)
{
    struct look *l = arg;
    l->found = kd_find(fx.data, &fx.topic, l->partition) != NULL;
    l->hint = kd_hint(fx.data, &fx.topic, l->partition);
    l->epoch = kd_open_epoch(fx.data, &fx.topic, l->partition);
}

static void look_known(void *arg)
{
    struct look *l = arg;
    l->hint = kd_hint(fx.data, &fx.topic, l->partition);
    l->epoch = kd_open_epoch(fx.data, &fx.topic, l->partition);
}

static void partitions_are_found_on_their_loop_and_known_on_all(void)
{
    up();
    for (int32_t p = 0; p < 8; p++) {
        open_part(&fx.topic, p);
    }
    KT_EQ(kd_n_open(fx.data), 8);
    for (int32_t p = 0; p < 8; p++) {
        struct look l = {.partition = p};
        on_loop(kd_loop_of(fx.data, &fx.topic, p), look_owner, &l);
        KT_TRUE(l.found);
        KT_EQ(l.hint, KP_NO_BROKER);
        for (int32_t i = 0; i < LOOPS; i++) {
            on_loop(kd_loop(fx.data, i), look_known, &l);
            KT_EQ(l.epoch, 0);
        }
    }
    for (int32_t p = 0; p < 8; p++) {
        KT_EQ(release(&fx.topic, p, p % 2, 5), 0);
        struct look l = {.partition = p};
        on_loop(kd_loop_of(fx.data, &fx.topic, p), look_owner, &l);
        KT_FALSE(l.found);
        KT_EQ(l.hint, 5);
        KT_EQ(l.epoch, -1);
        for (int32_t i = 0; i < LOOPS; i++) {
            on_loop(kd_loop(fx.data, i), look_known, &l);
            KT_EQ(l.hint, 5);
            KT_EQ(l.epoch, -1);
        }
    }
    KT_EQ(release(&fx.topic, 0, true, 5), KC_E_NOT_FOUND);
    KT_EQ(kd_n_open(fx.data), 0);
    open_part(&fx.topic, 0); /* it comes back: the hint is forgotten, the epoch grew */
    struct look l = {.partition = 0};
    on_loop(kd_loop_of(fx.data, &fx.topic, 0), look_owner, &l);
    KT_EQ(l.hint, KP_NO_BROKER);
    KT_EQ(l.epoch, 1);
    for (int32_t i = 0; i < LOOPS; i++) {
        on_loop(kd_loop(fx.data, i), look_known, &l);
        KT_EQ(l.hint, KP_NO_BROKER);
    }
    release(&fx.topic, 0, true, -1);
    down();
}

static struct kd_waiter waiters[3];
static _Atomic int woken, gone;

static void on_woken(struct kd_waiter *w, bool is_gone)
{
    atomic_fetch_add(is_gone ? &gone : &woken, 1);
    if (!is_gone) {
        kd_unwait(w);
    }
}

static void start_waiting(void *arg)
{
    struct kd_part *p = kd_find(fx.data, &fx.topic, *(int32_t *)arg);
    KT_REQUIRE(p != NULL);
    struct kd_waiter *w = &waiters[*(int32_t *)arg];
    *w = (struct kd_waiter){.fn = on_woken};
    kd_wait(p, w);
}

static void only_the_waiters_of_a_partition_are_woken(void)
{
    up();
    atomic_store(&woken, 0);
    atomic_store(&gone, 0);
    for (int32_t p = 0; p < 3; p++) {
        open_part(&fx.topic, p);
        on_loop(kd_loop_of(fx.data, &fx.topic, p), start_waiting, &p);
    }
    release(&fx.topic, 1, true, -1);
    KT_EQ(atomic_load(&gone), 1);
    KT_EQ(atomic_load(&woken), 0);
    KT_TRUE(waiters[1].part == NULL);
    KT_TRUE(waiters[0].part != NULL && waiters[2].part != NULL);
    release(&fx.topic, 0, false, -1);
    release(&fx.topic, 2, false, -1);
    KT_EQ(atomic_load(&gone), 3);
    down();
}

static void slots_are_told_to_their_coordinator(void)
{
    up();
    open_part(&fx.slots, 3);
    open_part(&fx.topic, 3);
    KT_EQ(atomic_load(&fx.opened), 1);
    release(&fx.topic, 3, true, -1);
    KT_EQ(atomic_load(&fx.closing), 0);
    release(&fx.slots, 3, true, -1);
    KT_EQ(atomic_load(&fx.closing), 1);
    down();
}

static struct kd_arrival arrivals[3];
static int served[3];
static int n_served;

static void on_served(struct kd_arrival *a)
{
    served[n_served++] = (int)(a - arrivals);
    if (n_served == KC_ARRAY_LEN(arrivals)) {
        atomic_store(&fx.done, true);
    }
}

/* The first gives up soon, the others would wait for ever. */
static void await_all(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < KC_ARRAY_LEN(arrivals); i++) {
        arrivals[i] = (struct kd_arrival){.fn = on_served};
        kd_await(fx.data, &fx.topic, 0, &arrivals[i], i == 0 ? kc_mono_ms() + 20 : INT64_MAX);
    }
}

static void who_waits_behind_one_that_gave_up_is_turned_away_with_it(void)
{
    up();
    n_served = 0;
    rt_call(kd_loop_of(fx.data, &fx.topic, 0), await_all, NULL);
    wait_for(&fx.done);
    for (int i = 0; i < n_served; i++) {
        KT_EQ(served[i], i);
    }
    open_part(&fx.topic, 0); /* nobody is left that it could be given to */
    KT_EQ(n_served, 3);
    release(&fx.topic, 0, false, -1);
    down();
}

KT_MAIN("parts", KT(partitions_are_found_on_their_loop_and_known_on_all),
        KT(only_the_waiters_of_a_partition_are_woken), KT(slots_are_told_to_their_coordinator),
        KT(who_waits_behind_one_that_gave_up_is_turned_away_with_it))
