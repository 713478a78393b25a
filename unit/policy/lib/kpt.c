/* kpt.c - the operator's side of the world: time, slices, images, operator changes. */
#include "kpt.h"

#include <stdio.h>
#include <string.h>

#include "kt.h"

struct kc_uuid kpt_uuid(struct kpt *w)
{
    struct kc_uuid u = {{0}};
    uint64_t n = ++w->next_id, h = n * 0x9e3779b97f4a7c15u;
    memcpy(u.b, &h, 8);
    memcpy(u.b + 8, &n, 8);
    return u;
}

static struct kp_ctl *make_ctl(void)
{
    struct kp_ctl_opts o = {.max_brokers = KP_BROKERS_MAX,
                            .max_topics = KPT_TOPICS,
                            .max_partitions = KPT_TOPICS * KPT_PARTS,
                            .interval_ms = 1000,
                            .timeout_ms = 3000,
                            .self_id = KP_NO_BROKER};
    struct kp_ctl *c = kp_ctl_new(&o);
    KT_REQUIRE(c != NULL);
    return c;
}

void kpt_init(struct kpt *w, int32_t desired)
{
    memset(w, 0, sizeof(*w));
    w->now = 1000000;
    w->desired = desired;
    w->publish_ms = -1;
    w->c = make_ctl();
    kp_ctl_set_desired(w->c, desired);
    kp_ctl_activate(w->c, w->now);
}

void kpt_fini(struct kpt *w)
{
    kp_ctl_free(w->c);
}

void kpt_slices(struct kpt *w)
{
    for (int32_t s = 0; s < 2; s++) {
        struct kp_endpoint eps[KPT_BROKERS];
        int32_t n = 0;
        for (int32_t id = 0; id < KPT_BROKERS; id++) {
            struct kpt_broker *b = &w->b[id];
            if (!b->listed || b->slice != s) {
                continue;
            }
            struct kp_endpoint *e = &eps[n++];
            memset(e, 0, sizeof(*e));
            e->ordinal = id;
            e->ready = b->serving;
            e->created_ms = b->pod;
            e->grace_s = b->grace_s;
            snprintf(e->pod_uid, sizeof(e->pod_uid), "pod-%d-%d", (int)id, (int)b->pod);
            snprintf(e->host, sizeof(e->host), "demo-%d", (int)id);
        }
        kp_ctl_slice(w->c, s == 0 ? "ns/slice-a" : "ns/slice-b", eps, n, w->now);
    }
}

void kpt_boot(struct kpt *w, int32_t id)
{
    struct kpt_broker *b = &w->b[id];
    if (b->dialled) {
        kp_ctl_stream_closed(w->c, id, b->stream, w->now);
    }
    *b = (struct kpt_broker){.listed = b->listed,
                             .slice = b->slice,
                             .pod = b->pod,
                             .grace_s = b->grace_s,
                             .apart = b->apart,
                             .protocol_version = 1,
                             .up = true,
                             .boot_ms = w->now,
                             .incarnation = kpt_uuid(w),
                             .process = kpt_uuid(w)};
}

void kpt_new_pod(struct kpt *w, int32_t id)
{
    w->b[id].pod++;
    w->b[id].listed = true;
    kpt_boot(w, id);
    kpt_slices(w);
}

void kpt_kill(struct kpt *w, int32_t id)
{
    struct kpt_broker *b = &w->b[id];
    if (b->dialled) {
        kp_ctl_stream_closed(w->c, id, b->stream, w->now);
    }
    b->up = b->dialled = b->serving = false;
}

void kpt_start(struct kpt *w, int32_t n)
{
    for (int32_t id = 0; id < n; id++) {
        kpt_new_pod(w, id);
    }
}

void kpt_start_settled(struct kpt *w, int32_t n)
{
    kpt_start(w, n);
    KT_REQUIRE(kpt_await_settled(w, 30000));
}

void kpt_begin(struct kpt *w, int32_t n, int32_t n_parts)
{
    kpt_init(w, n);
    kpt_topic(w, n_parts);
    kpt_start_settled(w, n);
}

void kpt_crash(struct kpt *w, int32_t id, int64_t away_ms)
{
    kpt_kill(w, id);
    kpt_run(w, away_ms);
    kpt_boot(w, id);
}

void kpt_desired(struct kpt *w, int32_t desired)
{
    w->desired = desired;
    kp_ctl_set_desired(w->c, desired);
}

static int32_t add_topic(struct kpt *w, int32_t n_parts, int32_t kind)
{
    struct kpt_topic *t = &w->topics[w->n_topics];
    KT_REQUIRE(w->n_topics < KPT_TOPICS && n_parts <= KPT_PARTS);
    *t = (struct kpt_topic){.id = kpt_uuid(w), .n_parts = n_parts, .kind = kind};
    for (int32_t i = 0; i < KPT_PARTS; i++) {
        t->owner[i] = (struct kpt_owner){.broker = KP_NO_BROKER, .epoch = -1};
    }
    KT_EQ(kp_ctl_topic(w->c, &t->id, kind != KP_NOT_SLOTS, kind, n_parts, true), 0);
    return w->n_topics++;
}

int32_t kpt_topic(struct kpt *w, int32_t n_parts)
{
    return add_topic(w, n_parts, KP_NOT_SLOTS);
}

int32_t kpt_slot_topic(struct kpt *w, int32_t kind)
{
    return add_topic(w, KP_SLOTS, kind);
}

static void publish(struct kpt *w)
{
    struct kpt_image *im = &w->image;
    const struct kp_row *rows;
    im->generation = w->generation;
    im->n_rows = kp_ctl_rows(w->c, &rows);
    memcpy(im->rows, rows, (size_t)im->n_rows * sizeof(*rows));
    for (int32_t t = 0; t < w->n_topics; t++) {
        int32_t n;
        const struct kp_part *p = kp_ctl_parts(w->c, &w->topics[t].id, &n);
        if (p) {
            memcpy(im->parts[t], p, (size_t)n * sizeof(*p));
        }
    }
    for (int32_t k = 0; k < 2; k++) {
        memcpy(im->homes[k], kp_ctl_homes(w->c, k + 1), sizeof(im->homes[k]));
    }
    kp_ctl_published(w->c, w->generation);
    w->publish_ms = -1;
}

void kpt_step(struct kpt *w)
{
    kp_ctl_step(w->c, w->now, w->generation + 1, &w->ch);
    for (int32_t i = 0; i < w->ch.n_events; i++) {
        w->events[w->ch.events[i].kind]++;
    }
    w->confirm_leases += w->ch.confirm_lease;
    if (w->ch.active && (w->ch.rows || w->ch.shards)) {
        w->generation++;
        if (w->publish_ms < 0) {
            w->publish_ms = w->now + w->publish_delay_ms;
        }
    }
    if (w->publish_ms >= 0 && w->now >= w->publish_ms) {
        publish(w);
    }
}

void kpt_run(struct kpt *w, int64_t ms)
{
    for (int64_t end = w->now + ms; w->now < end;) {
        w->now += KPT_TICK_MS;
        if (!w->step_only) {
            kpt_brokers_act(w);
        }
        kpt_step(w);
    }
}

void kpt_operator_holds(struct kpt *w)
{
    kp_ctl_free(w->c);
    w->c = make_ctl();
    w->publish_ms = -1;
    for (int32_t i = 0; i < w->image.n_rows; i++) {
        kp_ctl_restore_row(w->c, &w->image.rows[i]);
    }
    for (int32_t k = 0; k < 2; k++) {
        kp_ctl_restore_homes(w->c, k + 1, w->image.homes[k]);
    }
    for (int32_t t = 0; t < w->n_topics; t++) {
        struct kpt_topic *x = &w->topics[t];
        KT_EQ(kp_ctl_topic(w->c, &x->id, x->kind != KP_NOT_SLOTS, x->kind, x->n_parts, true), 0);
        for (int32_t i = 0; i < x->n_parts; i++) {
            kp_ctl_restore_part(w->c, &x->id, i, &w->image.parts[t][i]);
        }
    }
    kp_ctl_published(w->c, w->image.generation);
    w->generation++; /* orders only grow */
    kpt_slices(w);
    kp_ctl_set_desired(w->c, w->desired);
    for (int32_t id = 0; id < KPT_BROKERS; id++) {
        w->b[id].dialled = false; /* every stream is dialled anew */
        w->b[id].dial_ms = w->now;
    }
}

void kpt_operator_change(struct kpt *w)
{
    kpt_operator_holds(w);
    kp_ctl_activate(w->c, w->now);
}

bool kpt_settled(struct kpt *w)
{
    for (int32_t t = 0; t < w->n_topics; t++) {
        int32_t n;
        const struct kp_part *p = kp_ctl_parts(w->c, &w->topics[t].id, &n);
        for (int32_t i = 0; i < n; i++) {
            if (p[i].assigned < 0 || p[i].move.id || p[i].assigned != p[i].home ||
                p[i].led != p[i].assigned) {
                return false;
            }
        }
    }
    return true;
}

struct kp_status kpt_status(const struct kpt *w, int32_t id)
{
    return (struct kp_status){.broker = id,
                              .stream = w->b[id].stream,
                              .incarnation = w->b[id].incarnation,
                              .healthy = true,
                              .serving = true};
}

bool kpt_await_settled(struct kpt *w, int64_t max_ms)
{
    for (int64_t end = w->now + max_ms; w->now < end;) {
        kpt_run(w, KPT_TICK_MS);
        if (kpt_settled(w)) {
            return true;
        }
    }
    kpt_dump(w);
    return false;
}

int32_t kpt_leader(const struct kpt *w, int32_t topic, int32_t partition)
{
    int32_t n;
    const struct kp_part *p = kp_ctl_parts(w->c, &w->topics[topic].id, &n);
    return p && partition < n ? p[partition].assigned : KP_NO_BROKER;
}

const struct kp_row *kpt_row(const struct kpt *w, int32_t id)
{
    return kp_ctl_row(w->c, id);
}

int32_t kpt_alive(const struct kpt *w)
{
    const struct kp_row *rows;
    int32_t n = kp_ctl_rows(w->c, &rows), alive = 0;
    for (int32_t i = 0; i < n; i++) {
        alive += rows[i].health == KP_ALIVE;
    }
    return alive;
}

void kpt_dump(const struct kpt *w)
{
    const struct kp_row *rows;
    int32_t n = kp_ctl_rows(w->c, &rows);
    for (int32_t i = 0; i < n; i++) {
        printf("  broker %d %s/%s %s%s%s\n", (int)rows[i].id, kp_health_name(rows[i].health),
               kp_state_name(rows[i].state), kp_reason_name(rows[i].reason),
               rows[i].condemned ? " condemned" : "", rows[i].kept ? " kept" : "");
    }
    for (int32_t t = 0; t < w->n_topics; t++) {
        const struct kp_part *p = kp_ctl_parts(w->c, &w->topics[t].id, &n);
        for (int32_t i = 0; i < n; i++) {
            if (p[i].assigned < 0 || p[i].move.id || p[i].assigned != p[i].home ||
                p[i].led != p[i].assigned) {
                printf(
                    "  %d/%d home %d assigned %d led %d epoch %d move %d->%d phase %d owner %d\n",
                    (int)t, (int)i, (int)p[i].home, (int)p[i].assigned, (int)p[i].led,
                    (int)p[i].led_epoch, (int)p[i].move.from, (int)p[i].move.to,
                    (int)p[i].move.phase, (int)w->topics[t].owner[i].broker);
            }
        }
    }
}
