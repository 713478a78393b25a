/* kd_loops.c - the data loops: start, stop, who owns what.
 *
 * Any thread asks where a partition lives; all else is the loops' own. */
#include "data/kd_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"

static _Thread_local struct kd_loop *here;

void kd_key(uint8_t key[KD_KEY], const struct kc_uuid *topic_id, int32_t partition)
{
    memcpy(key, topic_id->b, 16);
    memcpy(key + 16, &partition, 4);
}

struct kd_loop *kd_here(void)
{
    return here;
}

static void loop_begin(struct rt_msg *msg)
{
    here = KC_CONTAINER_OF(msg, struct kd_loop, begin);
}

int kd_new(int32_t n_loops, struct kd_data **ret, struct kc_err *err)
{
    if (n_loops == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        n_loops = (int32_t)KC_MIN(KC_MAX(cores, 1L), (long)KD_LOOPS_MAX);
    }
    if (n_loops < 1 || n_loops > KD_LOOPS_MAX) {
        return kc_fail(err, KC_E_CONFIG, "the number of data loops must be 1 to %d", KD_LOOPS_MAX);
    }
    struct kd_data *d = kc_zalloc(sizeof(*d));
    d->loops = kc_zalloc((size_t)n_loops * sizeof(*d->loops));
    for (int32_t i = 0; i < n_loops; i++) {
        struct kd_loop *l = &d->loops[i];
        l->data = d;
        snprintf(l->name, sizeof(l->name), "data-%d", i);
        int rc = rt_loop_init(&l->rt, l->name);
        if (rc) {
            kd_free(d);
            return kc_fail(err, rc, "cannot make data loop %d: %s", i, kc_strerror(rc));
        }
        kd_timers_init(&l->timers, &l->rt);
        kc_map_init(&l->parts);
        kc_map_init(&l->known);
        kc_map_init(&l->hints);
        kc_map_init(&l->refused[0]);
        kc_map_init(&l->refused[1]);
        kc_map_init(&l->awaited);
        l->begin.fn = loop_begin;
        rt_post(&l->rt, &l->begin);
        d->n_loops = i + 1;
    }
    *ret = d;
    return 0;
}

int kd_start(struct kd_data *d, struct kc_err *err)
{
    for (int32_t i = 0; i < d->n_loops; i++) {
        int rc = rt_loop_start(&d->loops[i].rt);
        if (rc) {
            return kc_fail(err, rc, "cannot start data loop %d: %s", i, kc_strerror(rc));
        }
    }
    d->started = true;
    return 0;
}

void kd_stop(struct kd_data *d)
{
    for (int32_t i = d->n_loops - 1; i >= 0; i--) { /* the accepting loop ends last */
        rt_loop_stop(&d->loops[i].rt);
        rt_loop_join(&d->loops[i].rt);
    }
}

void kd_free(struct kd_data *d)
{
    if (!d) {
        return;
    }
    for (int32_t i = 0; i < d->n_loops; i++) {
        struct kd_loop *l = &d->loops[i];
        if (!d->started) { /* never ran: its handles are closed by a run that stops at once */
            rt_loop_stop(&l->rt);
            rt_loop_run(&l->rt);
        }
        kc_map_fini(&l->parts, kc_free);
        kc_map_fini(&l->known, NULL);
        kc_map_fini(&l->hints, NULL);
        kc_map_fini(&l->refused[0], kc_free);
        kc_map_fini(&l->refused[1], kc_free);
        kc_map_fini(&l->awaited, kc_free);
        kd_timers_fini(&l->timers);
    }
    for (int32_t k = 0; k <= KP_TXN_SLOTS; k++) {
        kc_free((void *)(uintptr_t)atomic_load(&d->slot_topics[k]));
    }
    kc_free(d->loops);
    kc_free(d);
}

static struct kd_loop *owner_of(struct kd_data *d, const struct kc_uuid *topic_id,
                                int32_t partition)
{
    uint64_t h = kc_hash64_mix(kc_uuid_hash(topic_id), (uint64_t)partition);
    return &d->loops[h % (uint64_t)d->n_loops];
}

struct rt_loop *kd_loop_of(struct kd_data *d, const struct kc_uuid *topic_id, int32_t partition)
{
    return &owner_of(d, topic_id, partition)->rt;
}

int32_t kd_n_loops(const struct kd_data *d)
{
    return d->n_loops;
}

struct rt_loop *kd_loop(struct kd_data *d, int32_t i)
{
    KC_ASSERT(i >= 0 && i < d->n_loops);
    return &d->loops[i].rt;
}

struct kd_timers *kd_timers_here(struct kd_data *d)
{
    KC_ASSERT(here && here->data == d);
    return &here->timers;
}

int32_t kd_here_index(struct kd_data *d)
{
    KC_ASSERT(here && here->data == d);
    return (int32_t)(here - d->loops);
}

int32_t kd_n_open(const struct kd_data *d)
{
    return atomic_load_explicit(&((struct kd_data *)(uintptr_t)d)->n_open, memory_order_relaxed);
}

void kd_set_slot_hooks(struct kd_data *d, const struct kd_slot_hooks *hooks)
{
    d->hooks = *hooks;
}

void kd_set_stopped_hook(struct kd_data *d,
                         void (*stopped)(void *ctx, const struct kc_uuid *topic_id,
                                         int32_t partition),
                         void *ctx)
{
    d->stopped = stopped;
    d->stopped_ctx = ctx;
}

void kd_set_epoch_hook(struct kd_data *d,
                       void (*grew)(void *ctx, const struct kc_uuid *topic_id, int32_t partition,
                                    int32_t epoch),
                       void *ctx)
{
    d->grew = grew;
    d->grew_ctx = ctx;
}

void kd_set_slot_topic(struct kd_data *d, int32_t slot_kind, const struct kc_uuid *topic_id)
{
    KC_ASSERT(slot_kind > KP_NOT_SLOTS && slot_kind <= KP_TXN_SLOTS);
    if (atomic_load(&d->slot_topics[slot_kind])) {
        return; /* an internal topic is made once in the life of a cluster */
    }
    struct kc_uuid *copy = kc_alloc(sizeof(*copy));
    *copy = *topic_id;
    atomic_store(&d->slot_topics[slot_kind], copy);
}

#if !defined(NDEBUG) || defined(KAAS_TEST_HOOKS)
static void stand_still(void *arg)
{
    struct kd_data *d = arg;
    while (atomic_load(&d->wedged)) {
        usleep(10 * 1000);
    }
}

void kd_test_wedge(struct kd_data *d, bool on)
{
    bool was = atomic_exchange(&d->wedged, on);
    for (int32_t i = 0; on && !was && i < d->n_loops; i++) {
        rt_call(&d->loops[i].rt, stand_still, d);
    }
}
#endif
