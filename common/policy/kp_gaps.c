/* kp_gaps.c - how long partitions were without an acking leader, and how many brokers were out at
 * once, while a rollout is measured.
 *
 * A gap begins when a leader stops acknowledging, as well as that is known: a planned move at the
 * source's own word (its stop, else the order to release); a death at the last sign of life of the
 * incarnation that led, not at the verdict. It ends when an owner reports that it leads. Lengths go
 * into a log-linear histogram, so that memory does not depend on the size of the cluster. */
#include "policy/kp_internal.h"

#include <assert.h>

/* Below LINEAR each millisecond has a bucket; above, each power of two has HALF of them, so that a
 * bucket is never wider than 1/HALF of its values: under 1 %. */
enum { LINEAR = 2 * KP_GAP_HALF, HALF = KP_GAP_HALF, LINEAR_BITS = 8 };
static_assert(LINEAR == 1 << LINEAR_BITS, "the linear part is a power of two");

static int32_t bucket_of(int64_t ms)
{
    uint32_t v = (uint32_t)KC_MIN(KC_MAX(ms, (int64_t)0), (int64_t)UINT32_MAX);
    if (v < LINEAR) {
        return (int32_t)v;
    }
    int32_t shift = 32 - __builtin_clz(v) - LINEAR_BITS; /* v >> shift is in HALF..LINEAR-1 */
    return LINEAR + (shift - 1) * HALF + (int32_t)(v >> shift) - HALF;
}

/* The largest value of a bucket: a figure made of it never flatters. */
static int64_t bucket_top(int32_t bucket)
{
    if (bucket < LINEAR) {
        return bucket;
    }
    int32_t shift = (bucket - LINEAR) / HALF + 1;
    int64_t first = (int64_t)((bucket - LINEAR) % HALF + HALF) << shift;
    return first + ((int64_t)1 << shift) - 1;
}

static int64_t percentile(const struct kp_gaps *g, int32_t percent)
{
    int64_t rank = (g->count * percent + 99) / 100, seen = 0;
    for (int32_t i = 0; i < KP_GAP_BUCKETS; i++) {
        seen += g->buckets[i];
        if (seen >= rank && seen > 0) {
            return KC_MIN(bucket_top(i), g->max_ms);
        }
    }
    return 0;
}

void kp_gap_open(struct kp_topic *t, int32_t partition, int64_t since_ms)
{
    struct kp_aux *a = &t->aux[partition];
    if (a->gap_ms < 0 && !t->deleted) {
        a->gap_ms = KC_MAX(since_ms, (int64_t)0);
    }
}

void kp_gap_died(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int32_t broker)
{
    /* Never heard here: not since the measurement began, which is as far as this operator can say. */
    kp_gap_open(t, partition, c->peers[broker].life_ms);
}

void kp_gap_released(struct kp_ctl *c, struct kp_topic *t, int32_t partition, int64_t stopped_ms)
{
    const struct kp_aux *a = &t->aux[partition];
    /* Not before it was ordered: a source stops for this move because of the order. */
    int64_t since = KC_MAX(a->release_ms, stopped_ms > 0 ? c->now_ms - stopped_ms : -1);
    kp_gap_open(t, partition, since >= 0 ? since : c->now_ms);
}

void kp_gap_close(struct kp_ctl *c, struct kp_topic *t, int32_t partition)
{
    struct kp_aux *a = &t->aux[partition];
    struct kp_gaps *g = &c->gaps;
    int64_t since = a->gap_ms;
    a->gap_ms = -1;
    if (since < 0 || !g->on) {
        return;
    }
    int64_t ms = KC_MAX(c->now_ms - KC_MAX(since, g->since_ms), (int64_t)0);
    g->buckets[bucket_of(ms)]++;
    g->count++;
    g->max_ms = KC_MAX(g->max_ms, ms);
    g->partitions += a->gap_window != g->window;
    a->gap_window = g->window;
}

void kp_gaps_rows(struct kp_ctl *c)
{
    int32_t out = 0;
    for (int32_t i = 0; i < c->n_rows && c->gaps.on; i++) {
        out += c->rows[i].id < c->desired && c->rows[i].state != KP_SERVING;
    }
    c->gaps.max_out = KC_MAX(c->gaps.max_out, out);
}

void kp_ctl_measure(struct kp_ctl *c, bool on, int64_t now_ms)
{
    struct kp_gaps *g = &c->gaps;
    if (!on) {
        g->on = false;
        return;
    }
    uint32_t window = g->window + 1;
    *g = (struct kp_gaps){.on = true, .window = window, .since_ms = now_ms};
    for (int32_t k = 0; k < c->n_topics; k++) {
        struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts; i++) {
            /* Without a leader already, since nobody knows when; one that never had any is new. */
            if (t->parts[i].led < 0 && t->parts[i].led_epoch >= 0) {
                kp_gap_open(t, i, now_ms);
            }
        }
    }
    kp_gaps_rows(c);
}

bool kp_ctl_measured(const struct kp_ctl *c, int64_t now_ms, struct kp_measure *ret)
{
    const struct kp_gaps *g = &c->gaps;
    *ret = (struct kp_measure){.since_ms = g->since_ms,
                               .gaps = g->count,
                               .partitions = g->partitions,
                               .max_ms = g->max_ms,
                               .max_out = g->max_out};
    if (!g->on) {
        return false;
    }
    ret->p50_ms = percentile(g, 50);
    ret->p99_ms = percentile(g, 99);
    for (int32_t k = 0; k < c->n_topics; k++) {
        const struct kp_topic *t = c->topics[k];
        for (int32_t i = 0; i < t->n_parts; i++) {
            if (t->aux[i].gap_ms >= 0) {
                int64_t since = KC_MAX(t->aux[i].gap_ms, g->since_ms);
                ret->open++;
                ret->max_ms = KC_MAX(ret->max_ms, now_ms - since);
            }
        }
    }
    return true;
}
