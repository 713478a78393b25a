#include "ss_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "ss_broker.h"
#include "storage/ks_fsck.h"
#include "storage/ks_scan.h"

enum { BROKERS = 3, ACKS_MIN = 200, STEPS_MIN = 1500, STEPS_MAX = 30000 };

static struct ss_broker brokers[BROKERS];
static struct ss_client *auditor;
static uint32_t trouble; /* how often something befalls the brokers: 1 .. 4 */
static uint32_t appetite; /* per mille: how often a log gets an append */
static uint32_t alert; /* per mille: how often a loop looks after its messages */

struct ss_client *ss_world_auditor(void)
{
    return auditor;
}

/* None, some, or plenty. */
static uint32_t some(uint32_t plenty)
{
    switch (ss_below(3)) {
    case 0:
        return 0;
    case 1:
        return (uint32_t)ss_below(plenty / 6 + 1);
    default:
        return (uint32_t)ss_below(plenty);
    }
}

static void choose_rates(void)
{
    struct ss_rates r = {
        .write_error = some(150),
        .op_error = some(15),
        .check_error = some(3),
        .lost_reply = some(200),
        .stall = some(8),
        .stale_enoent = some(300),
    };
    ss_srv_rates(&r);
}

static void freeze(struct ss_broker *b)
{
    ss_srv_count(SS_F_FREEZE);
    ss_freeze(b->node, ss_now_us() + 1000 + (int64_t)ss_below(ss_chance(300) ? 20000000 : 300000));
}

/* What befalls the brokers themselves. */
static void befall(struct ss_broker *b)
{
    if (!b->up) {
        if (ss_chance(100)) {
            ss_broker_start(b, b->node, b->id, false);
        }
        return;
    }
    if (ss_frozen(b->node)) {
        if (ss_chance(1)) {
            ss_broker_stop(b, true);
        }
        return;
    }
    /* The moments that matter are those with something unsynced. */
    uint64_t weight = trouble * (ss_client_is_dirty(b->client) ? 40 : 1);
    if (ss_below(8000) < weight) {
        ss_broker_stop(b, true);
    } else if (ss_below(8000) < weight) {
        freeze(b);
    } else if (b->fenced) {
        bool held = false;
        for (int p = 0; p < SS_PARTS; p++) {
            ss_slot_close(&b->slot[p]);
            held = held || b->slot[p].state != SS_NONE;
        }
        if (!held && ss_chance(300)) {
            ss_broker_register(b);
        }
    }
}

/* What a broker does with a partition. */
static void act(struct ss_slot *s)
{
    switch (s->state) {
    case SS_NONE:
        if (!s->b->fenced && ss_chance(30)) {
            ss_slot_open(s);
        } else if (!s->b->fenced && ss_chance(8)) {
            ss_slot_prepare(s);
        }
        break;
    case SS_WARM:
        if (ss_chance(ss_shared.seal_len ? 300 : 10)) {
            ss_slot_go(s);
            break;
        }
        /* fall through */
    case SS_OPENING:
    case SS_WARMING:
        if (ss_chance(2)) {
            ss_slot_cancel(s);
        }
        break;
    case SS_OPEN:
        if (s->gone || ss_chance(2)) {
            ss_slot_close(s);
        } else if (ss_chance(4)) {
            ss_slot_seal(s);
        } else if (ss_chance(80)) {
            ss_slot_read(s);
        } else if (s->in_flight < 16 && ss_chance(appetite)) {
            ss_slot_append(s, ss_chance(400));
        }
        break;
    case SS_SEALING:
        break;
    }
}

static void step(void)
{
    ss_srv_land(false);
    ss_sleep_us((int64_t)ss_below(ss_chance(2) ? 3000000 : 300));
    if (ss_chance(1)) {
        ss_srv_full_until(ss_now_us() + (int64_t)ss_below(2000000));
    }
    for (int i = 0; i < BROKERS; i++) {
        struct ss_broker *b = &brokers[i];
        befall(b);
        if (b->up && ss_chance(50)) {
            ss_client_write_back(b->client); /* the kernel's business, also while processes sleep */
        }
        if (!b->up || ss_frozen(b->node)) {
            continue;
        }
        if (ss_shared.retention_bytes >= 0 && ss_chance(60)) {
            ss_broker_retain(b);
        }
        for (int p = 0; p < SS_PARTS; p++) {
            act(&b->slot[p]);
        }
        if (ss_chance(alert)) {
            ss_broker_turn(b);
        }
    }
}

/* A broker of its own takes both partitions and reads them. */
static void audit(int id)
{
    static struct ss_broker b;
    ss_broker_start(&b, BROKERS + 1, id, true);
    for (int p = 0; b.up && p < SS_PARTS && !ss_check_broken(); p++) {
        struct ss_slot *s = &b.slot[p];
        for (int tries = 0; s->state != SS_OPEN && !ss_check_broken(); tries++) {
            if (s->state == SS_NONE) {
                ss_slot_open(s);
            }
            ss_sleep_us(1000);
            ss_broker_turn(&b);
            if (tries > 60000) {
                ss_check_fail("partition %d cannot be opened any more", p);
            }
        }
        for (int i = 0; i < 3 && !ss_check_broken(); i++) {
            ss_slot_append(s, i == 1);
        }
        while (s->in_flight) {
            ss_sleep_us(500);
            ss_broker_turn(&b);
        }
        if (!ss_check_broken()) {
            ss_slot_read_all(s);
        }
    }
    ss_broker_stop(&b, false);
}

static void check_volume(void)
{
    struct ks_fsck_result r;
    struct kc_err err = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    struct ks_fsck_opts opts = {.dir = "simulated", .out = out};
    KC_ASSERT(out);
    auditor = ss_client_new(0, false);
    int rc = ks_fsck(&opts, &r, &err);
    ss_client_free(auditor);
    fclose(out);
    if (rc) {
        const char *line = text ? strstr(text, "ERROR") : NULL;
        ss_check_fail("fsck: %s: %.300s", err.msg, line ? line : "");
    }
    free(text);
}

/* True: it serves, or has let go. */
static bool settled(struct ss_slot *s)
{
    switch (s->state) {
    case SS_NONE:
    case SS_WARM:
        return true;
    case SS_OPEN:
        if (s->gone) {
            ss_slot_close(s);
        } else if (!s->acks && !s->in_flight) {
            ss_slot_append(s, false);
        }
        return s->gone || s->acks > 0;
    case SS_OPENING:
    case SS_WARMING:
    case SS_SEALING:
        return false;
    }
    return false;
}

/* Once the volume is well again, every log acks, or is let go, and every opening ends. */
static void settle(void)
{
    enum { SETTLE_US = 120000000 };
    for (int i = 0; i < BROKERS; i++) {
        ss_thaw(brokers[i].node);
        for (int p = 0; p < SS_PARTS; p++) {
            brokers[i].slot[p].acks = 0;
        }
    }
    bool all = false;
    for (int64_t until = ss_now_us() + SETTLE_US; !all && !ss_check_broken();) {
        all = true;
        ss_sleep_us(5000);
        for (int i = 0; i < BROKERS; i++) {
            for (int p = 0; brokers[i].up && p < SS_PARTS; p++) {
                struct ss_slot *s = &brokers[i].slot[p];
                bool well = settled(s);
                all = all && well;
                if (!well && ss_now_us() > until) {
                    ss_check_fail(
                        "broker %d does nothing with partition %d (%d), on a sound volume", i + 1,
                        p, (int)s->state);
                }
            }
            if (brokers[i].up) {
                ss_broker_turn(&brokers[i]);
            }
        }
    }
}

static void finish(void)
{
    static const struct ss_rates none;
    ss_srv_rates(&none);
    ss_srv_full_until(0);
    settle();
    bool crash = ss_chance(500);
    for (int i = 0; i < BROKERS; i++) {
        ss_broker_stop(&brokers[i], crash);
    }
    if (!ss_check_broken()) {
        audit(90);
    }
    ss_srv_land(true);
    if (!ss_check_broken()) {
        audit(91);
    }
    if (!ss_check_broken()) {
        ss_check_sealed();
        check_volume();
    }
}

static void collect(struct ss_run *run)
{
    const char *broken = ss_check_broken();
    snprintf(run->broken, sizeof(run->broken), "%s", broken ? broken : "");
    run->trace = ss_trace();
    run->switches = ss_switches();
    run->virtual_ms = ss_now_us() / 1000;
    run->takeovers = ss_shared.takeovers;
    run->counts = *ss_check_counts();
    for (int f = 0; f < SS_FAULTS; f++) {
        run->faults[f] = ss_srv_faults((enum ss_fault)f);
    }
}

bool ss_world_run(struct ss_run *run)
{
    kc_log_set_level(KC_ERROR + 1);
    ss_sched_begin(run->seed);
    memset(&ss_shared, 0, sizeof(ss_shared));
    ss_shared.topic = kc_uuid_random();
    ss_shared.segment_bytes = ss_chance(500) ? 2000 + (int64_t)ss_below(20000) : 1 << 20;
    ss_shared.unconfirmed = ss_chance(500) ? 200 + ss_below(3000) : KS_UNCONFIRMED_MAX;
    ss_shared.retention_bytes = ss_chance(400) ? 5000 : -1;
    ss_shared.condemn = ss_chance(700) ? 900 : 200;
    trouble = 1 + (uint32_t)ss_below(4);
    appetite = ss_chance(700) ? 350 : 60;
    alert = ss_chance(600) ? 1000 : 20 + (uint32_t)ss_below(200);
    ss_check_begin(&ss_shared.topic);
    struct ss_watch watch = ss_check_watch();
    ss_srv_start(&watch, run->lie);
    choose_rates();
    ss_mutate(run->mutant);
    for (int i = 0; i < BROKERS; i++) {
        ss_broker_start(&brokers[i], i + 1, i + 1, false);
    }
    for (int i = 0; i < STEPS_MAX && !ss_check_broken(); i++) {
        if (i >= STEPS_MIN && ss_check_counts()->acks >= ACKS_MIN) {
            break;
        }
        step();
    }
    finish();
    collect(run);
    ss_mutate(SS_SOUND);
    ss_srv_stop();
    ss_check_end();
    ss_sched_end();
    return !run->broken[0];
}
