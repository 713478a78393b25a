/* The life of a broker, and what it takes up. */
#include <string.h>

#include "base/kc_mem.h"
#include "ss_coord.h"
#include "ss_srv.h"
#include "storage/ks_int.h"

/* ---- what befalls it ---- */

void ss_broker_strike(struct ss_broker *b, enum ss_fault f)
{
    int64_t now = ss_now_us();
    ss_hit_node(f, f == SS_F_SERVER_CRASH ? -1 : b->node);
    switch (f) {
    case SS_F_KILL:
    case SS_F_CRASH:
        b->dead = true;
        ss_client_crash(b->client, f == SS_F_KILL);
        ss_thaw(b->node);
        break;
    case SS_F_FREEZE:
        ss_freeze(b->node, now + 1000 + (int64_t)ss_below(ss_chance(300) ? 20000000 : 300000));
        break;
    case SS_F_CUT:
        ss_client_cut(b->client,
                      now + 1000 + (int64_t)ss_below(ss_chance(300) ? 20000000 : 300000));
        break;
    case SS_F_SERVER_CRASH:
        ss_srv_crash();
        break;
    default:
        KC_ASSERT(f == SS_F_CRASH); /* the others strike requests */
    }
}

static void struck(void *ctx, enum ss_fault f)
{
    ss_broker_strike(ctx, f);
}

static void on_fenced(void *ctx, const char *why)
{
    struct ss_broker *b = ctx;
    (void)why;
    b->fenced = true;
}

/* ---- up and down ---- */

static void enroll(struct ss_broker *b)
{
    struct kc_err err = {0};
    uint32_t before = ss_enter(SS_S_REGISTER);
    b->inc = kc_uuid_random();
    b->fenced = false; /* before: a word about the new one may come at once */
    b->fenced = ks_register(b->e, &b->inc, &err) != 0;
    ss_leave(before);
}

/* A cleaner that is fast, or has to wait between its bytes; an auditor's when it is told to. */
static void clean_from_now(struct ss_broker *b)
{
    struct ks_cleaner_config cfg = {.enabled = !b->auditor,
                                    .backoff_ms = 1 + (int64_t)ss_below(20000),
                                    .io_bytes_per_s = ss_chance(300) ? 100000 : 0};
    ks_engine_cleaner(b->e, &cfg);
}

void ss_broker_up(struct ss_broker *b, int node, int id, bool auditor)
{
    struct ks_fs fs;
    struct ks_opts opts = {.broker_id = id,
                           .loop = &b->loop,
                           .on_fenced = on_fenced,
                           .unsafe_storage = ss_srv_lie() != SS_HONEST, /* the probe would tell */
                           .cache_bytes = ss_chance(500) ? 4096 : 1 << 20,
                           .ctx = b};
    char cluster[KC_UUID_B64_LEN + 1] = "";
    struct kc_err err = {0};
    struct ss_thread *main = b->main;
    memset(b, 0, sizeof(*b));
    b->main = main;
    b->node = node;
    b->id = id;
    b->auditor = auditor;
    b->client = ss_client_new(node, struck, b);
    for (int p = 0; p < SS_PARTS; p++) {
        b->slot[p].b = b;
        b->slot[p].part = ss_shared.now * SS_PARTS + p;
    }
    KC_ASSERT(rt_loop_init(&b->loop, "node") == 0);
    b->loop.thread = pthread_self();
    ss_client_fs(b->client, &fs);
    uint64_t boot = ss_srv_boot();
    int rc = ks_engine_open_on(&fs, &opts, cluster, &b->e, &err);
    b->up = rc == 0;
    if (rc && !b->dead && boot == ss_srv_boot()) {
        ss_check_fail("a healthy volume is refused: %s", err.msg);
    }
    ss_coord_new(b);
    if (b->up) {
        b->e->unconfirmed = ss_shared.unconfirmed;
        b->e->checkpoint_bytes = ss_shared.checkpoint_bytes;
        clean_from_now(b);
        b->e->direct_files = ss_shared.direct_files;
        b->e->journal_bytes = ss_shared.journal_bytes;
        b->e->journal_ms = ss_shared.journal_ms;
        ss_client_faults(b->client, !auditor && ss_chance(500));
        enroll(b);
        ss_client_faults(b->client, !auditor && !ss_shared.settling);
    }
}

void ss_broker_turn(struct ss_broker *b)
{
    uv_run(&b->loop.uv, UV_RUN_NOWAIT);
    ss_coord_turn(b);
}

static void finish_job(struct ss_broker *b)
{
    if (b->job) {
        ss_thread_join(b->job);
        b->job = NULL;
    }
}

void ss_broker_down(struct ss_broker *b)
{
    finish_job(b);
    for (int p = 0; p < SS_PARTS; p++) {
        struct ss_slot *s = &b->slot[p];
        while (s->state == SS_SEALING) {
            ss_sleep_us(1000);
            ss_broker_turn(b);
        }
        ss_slot_cancel(s);
        ss_slot_close(s);
    }
    if (b->up) {
        struct ks_metrics m;
        ks_metrics_read(b->e, &m);
        ss_check_counts()->frames += m.frames;
        ks_engine_close(b->e);
    }
    b->up = false;
    rt_loop_stop(&b->loop);
    rt_loop_run(&b->loop); /* runs what was posted, closes the handles */
    ss_coord_free(b);
    ss_client_free(b->client);
    b->client = NULL;
}

/* ---- what it does ---- */

static void *job_main(void *arg)
{
    struct ss_broker *b = arg;
    b->job_fn(b);
    b->job_done = true;
    return NULL;
}

static void start_job(struct ss_broker *b, void (*fn)(struct ss_broker *b))
{
    b->job_fn = fn;
    b->job_done = false;
    b->job = ss_thread_new(job_main, b);
}

static void remove_topic(struct ss_broker *b)
{
    struct kc_err err = {0};
    uint32_t before = ss_enter(SS_S_REMOVE);
    for (int i = 0; i < 10 && !b->dead; i++) {
        if (ks_topic_remove(b->e, &ss_shared.topic[b->job_topic], &err) == 0) {
            break;
        }
        ss_sleep_us(100000);
    }
    ss_leave(before);
}

/* Once fenced: lets go of everything, and registers anew. */
static void come_back(struct ss_broker *b)
{
    struct ks_metrics m;
    for (int p = 0; p < SS_PARTS; p++) {
        ss_slot_close(&b->slot[p]);
        if (b->slot[p].state != SS_NONE) {
            return;
        }
    }
    ks_metrics_read(b->e, &m);
    if (m.open_logs == 0 && !b->job && ss_chance(300)) {
        start_job(b, enroll);
    }
}

static void act_open(struct ss_slot *s)
{
    bool old = s->part / SS_PARTS != ss_shared.now;
    bool cleaning = s->log->clean_job; /* which takes many turns, and few moves */
    if (s->gone || ss_chance(old ? 20 : 2)) {
        ss_slot_close(s);
    } else if (ss_chance(cleaning ? 1 : ss_shared.moves / 8)) {
        ss_slot_seal(s);
    } else if (ss_chance(60)) {
        ss_slot_read(s);
    } else if (ss_shared.retention_bytes[s->part % SS_PARTS] >= 0 && ss_chance(10)) {
        ss_slot_delete_records(s);
    } else {
        for (int i = 0; i < 3 && s->in_flight < 16 && ss_chance(ss_shared.appetite); i++) {
            ss_slot_append(s, ss_chance(400));
        }
    }
}

static void act(struct ss_slot *s)
{
    switch (s->state) {
    case SS_NONE:
        if (s->b->fenced) {
            break;
        }
        /* Somebody who has not heard yet that the topic is deleted goes on with it. */
        s->part =
            (ss_shared.now - (ss_shared.now && ss_chance(200))) * SS_PARTS + s->part % SS_PARTS;
        if (ss_chance(30)) {
            ss_slot_open(s);
        } else if (ss_chance(ss_shared.moves)) {
            ss_slot_prepare(s);
        }
        break;
    case SS_WARM:
        if (ss_chance(ss_shared.seal_len ? 300 : 20)) {
            ss_slot_go(s);
            break;
        }
        /* fall through */
    case SS_OPENING:
    case SS_WARMING:
        if (ss_chance(ss_shared.cancels)) {
            ss_slot_cancel(s);
        }
        break;
    case SS_OPEN:
        act_open(s);
        break;
    case SS_SEALING:
        break;
    }
}

/* While the volume is well at the end: every log acks, or is let go. */
static void act_settling(struct ss_slot *s)
{
    bool deleted = s->part / SS_PARTS != ss_shared.now; /* everybody hears of it at last */
    if (s->state == SS_OPEN && (s->gone || deleted)) {
        ss_slot_close(s);
    } else if (s->state == SS_OPEN && !s->acks && !s->in_flight) {
        ss_slot_append(s, false);
    }
}

static void turn(struct ss_broker *b)
{
    ss_sleep_us((int64_t)ss_below(ss_chance(2) ? 3000000 : 300));
    if (b->job && b->job_done) {
        finish_job(b);
    }
    if (b->dead) {
        return;
    }
    if (b->fenced && !ss_shared.settling) {
        come_back(b);
    }
    if (ss_chance(60)) {
        ks_retention_post(b->e); /* which is rare by itself */
    }
    if (ss_chance(ss_shared.cleanings)) {
        ks_clean_now(b->e);
    }
    if (ss_chance(ss_shared.deletions) && ss_shared.now + 1 < SS_TOPICS && !b->job &&
        !ss_shared.settling) {
        b->job_topic = ss_shared.now++;
        ss_check_deleted(b->job_topic);
        start_job(b, remove_topic);
    }
    for (int p = 0; p < SS_PARTS; p++) {
        if (ss_shared.settling) {
            act_settling(&b->slot[p]);
        } else {
            act(&b->slot[p]);
        }
    }
    if (ss_shared.settling || ss_chance(ss_shared.alert)) {
        ss_broker_turn(b);
    }
}

static void *broker_main(void *arg)
{
    struct ss_broker *b = arg;
    while (!ss_shared.quit && !ss_check_broken()) {
        ss_broker_up(b, b->node, b->id, false);
        while (!ss_shared.quit && b->up && !b->dead && !ss_check_broken()) {
            turn(b);
        }
        ss_broker_down(b);
        if (ss_shared.settling) {
            break;
        }
        ss_sleep_us((int64_t)ss_below(ss_chance(200) ? 3000000 : 30000));
    }
    return NULL;
}

void ss_broker_start(struct ss_broker *b, int node, int id)
{
    memset(b, 0, sizeof(*b));
    b->node = node;
    b->id = id;
    ss_set_node(node);
    b->main = ss_thread_new(broker_main, b);
    ss_set_node(0);
}

void ss_broker_join(struct ss_broker *b)
{
    ss_thread_join(b->main);
    b->main = NULL;
}
