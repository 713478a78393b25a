#include "ss_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "ss_coord.h"
#include "ss_srv.h"
#include "storage/ks_fsck.h"
#include "storage/ks_journal.h"
#include "storage/ks_scan.h"
#include "storage/ks_vol.h"

enum { ACKS_MIN = 200, FAULTS_MIN = 5, STEPS_MIN = 400, STEPS_AIM = 3000, STEPS_MAX = 12000 };

static struct ss_broker brokers[SS_BROKERS];
static uint32_t trouble; /* how often something befalls the brokers: 1 .. 4 */

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

static void befall_now(struct ss_broker *b)
{
    static const enum ss_fault faults[] = {SS_F_KILL, SS_F_CRASH, SS_F_FREEZE, SS_F_FREEZE,
                                           SS_F_CUT};
    if (b->up && !b->dead) {
        ss_broker_strike(b, faults[ss_below(KC_ARRAY_LEN(faults))]);
    }
}

/* What befalls a node by chance. The moments that matter are those with something unsynced. */
static void befall(struct ss_broker *b)
{
    if (!b->up || b->dead) {
        return;
    }
    uint64_t weight = trouble * (ss_client_is_dirty(b->client) ? 10 : 1);
    if (ss_below(ss_frozen(b->node) ? 40000 : 4000) < weight) {
        befall_now(b);
    }
    if (ss_chance(100)) {
        ss_client_write_back(b->client); /* the kernel's business, also while processes sleep */
    }
}

static void step(void)
{
    ss_sleep_us((int64_t)ss_below(ss_chance(2) ? 1000000 : 2000));
    ss_srv_land(false);
    if (ss_chance(1)) {
        ss_srv_full_until(ss_now_us() + (int64_t)ss_below(2000000));
    }
    if (ss_below(20000) < trouble) {
        ss_broker_strike(&brokers[0], SS_F_SERVER_CRASH);
    }
    for (int i = 0; i < SS_BROKERS; i++) {
        befall(&brokers[i]);
    }
}

static uint64_t faults_so_far(void)
{
    uint64_t n = 0;
    for (int f = 0; f < SS_FAULTS; f++) {
        n += ss_hits()->total[f];
    }
    return n;
}

static bool enough(int steps)
{
    bool done = ss_check_counts()->acks >= ACKS_MIN && faults_so_far() >= FAULTS_MIN;
    return done && steps >= STEPS_MIN && (ss_aims_left() == 0 || steps >= STEPS_AIM);
}

/* What is left of a deleted topic goes, as brokers see to again and again. */
static void remove_deleted(struct ss_broker *b)
{
    for (int t = 0; t < ss_shared.now && !ss_check_broken(); t++) {
        struct kc_err err = {0};
        char dir[KS_PATH_MAX];
        int rc = ks_topic_remove(b->e, &ss_shared.topic[t], &err);
        ks_path_topic(dir, &ss_shared.topic[t], NULL);
        if (rc || ss_srv_lookup(dir)) {
            ss_check_fail("a deleted topic cannot be removed: %s", err.msg);
        }
    }
}

/* The next auditor reads what is left. */
static void clean_all(struct ss_broker *b)
{
    struct ks_cleaner_config cfg = {.enabled = true, .backoff_ms = INT32_MAX};
    ks_engine_cleaner(b->e, &cfg);
    bool at_it = ks_clean_now(b->e);
    for (int tries = 0; at_it && !ks_clean_idle(b->e) && !ss_check_broken(); tries++) {
        ss_sleep_us(1000);
        ss_broker_turn(b);
        if (tries > 60000) {
            ss_check_fail("a cleaning does not end");
        }
    }
}

/* A broker of its own takes both partitions and reads them. */
static void audit(int id)
{
    static struct ss_broker b;
    ss_set_node(SS_BROKERS + 1);
    ss_broker_up(&b, SS_BROKERS + 1, id, true);
    if (b.up) {
        remove_deleted(&b);
    }
    for (int p = 0; b.up && p < SS_PARTS && !ss_check_broken(); p++) {
        struct ss_slot *s = &b.slot[p];
        for (int tries = 0; s->state != SS_OPEN && !ss_check_broken(); tries++) {
            if (s->state == SS_NONE) {
                ss_slot_open(s);
            }
            ss_sleep_us(1000);
            ss_broker_turn(&b);
            if (tries > 60000) {
                ss_check_fail("partition %d cannot be opened any more", s->part);
            }
        }
        for (int i = 0;
             !ss_check_broken() && (i < 3 || (i < ACKS_MIN && ss_check_counts()->acks < ACKS_MIN));
             i++) {
            ss_slot_append(s, i == 1);
            while (s->in_flight > 10 || (i >= 2 && s->in_flight)) {
                ss_sleep_us(500);
                ss_broker_turn(&b);
            }
        }
        if (!ss_check_broken()) {
            ss_slot_read_all(s);
        }
        if (!ss_check_broken() && ss_slot_is_coord(s)) {
            ss_coord_audit(s);
        }
    }
    if (b.up && !ss_check_broken() && ss_chance(400)) {
        clean_all(&b);
    }
    ss_broker_down(&b);
    ss_set_node(0);
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
    struct ss_client *client = ss_client_new(0, NULL, NULL);
    struct ks_fs fs;
    ss_client_fs(client, &fs);
    int rc = ks_fsck_on(&fs, &opts, &r, &err);
    ss_client_free(client);
    fclose(out);
    if (rc) {
        const char *line = text ? strstr(text, "ERROR") : NULL;
        ss_check_fail("fsck: %s: %.300s", err.msg, line ? line : "");
    }
    free(text);
}

/* True: it serves, or has let go. */
static bool settled(const struct ss_slot *s)
{
    switch (s->state) {
    case SS_NONE:
    case SS_WARM:
        return true;
    case SS_OPEN:
        return s->acks > 0;
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
    ss_shared.settling = true;
    for (int i = 0; i < SS_BROKERS; i++) {
        ss_thaw(brokers[i].node);
        if (brokers[i].client) {
            ss_client_cut(brokers[i].client, 0);
            ss_client_faults(brokers[i].client, false);
        }
        for (int p = 0; p < SS_PARTS; p++) {
            brokers[i].slot[p].acks = 0;
        }
    }
    bool all = false;
    for (int64_t until = ss_now_us() + SETTLE_US; !all && !ss_check_broken();) {
        all = true;
        ss_sleep_us(5000);
        for (int i = 0; i < SS_BROKERS; i++) {
            for (int p = 0; brokers[i].up && !brokers[i].dead && p < SS_PARTS; p++) {
                const struct ss_slot *s = &brokers[i].slot[p];
                bool well = settled(s);
                all = all && well;
                if (!well && ss_now_us() > until) {
                    ss_check_fail(
                        "broker %d does nothing with partition %d (%d), on a sound volume", i + 1,
                        s->part, (int)s->state);
                }
            }
        }
    }
}

static void finish(void)
{
    static const struct ss_rates none;
    ss_srv_rates(&none);
    ss_srv_full_until(0);
    ss_aims_drop();
    settle();
    bool crash = ss_chance(500);
    for (int i = 0; i < SS_BROKERS; i++) {
        struct ss_broker *b = &brokers[i];
        if (crash && b->up && !b->dead) {
            ss_broker_strike(b, ss_chance(500) ? SS_F_CRASH : SS_F_KILL);
        }
    }
    ss_shared.quit = true;
    for (int i = 0; i < SS_BROKERS; i++) {
        ss_broker_join(&brokers[i]);
    }
    if (!ss_check_broken()) {
        audit(90);
    }
    if (ss_chance(300)) {
        ss_srv_crash();
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
    if (!broken && (ss_check_counts()->acks < ACKS_MIN || faults_so_far() < FAULTS_MIN)) {
        ss_check_fail("a run of %llu acks and %llu faults shows nothing",
                      (unsigned long long)ss_check_counts()->acks,
                      (unsigned long long)faults_so_far());
        broken = ss_check_broken();
    }
    snprintf(run->broken, sizeof(run->broken), "%s", broken ? broken : "");
    run->trace = ss_trace();
    run->switches = ss_switches();
    run->virtual_ms = ss_now_us() / 1000;
    run->takeovers = ss_shared.takeovers;
    run->counts = *ss_check_counts();
    for (int e = 0; e < SS_EFFECTS; e++) {
        run->effects[e] = ss_srv_counted((enum ss_effect)e);
    }
    run->hits = *ss_hits();
}

/* What kind of run it is: what it aims at has to come by, the rest is chance. */
/* Which partitions are compacted, some of them by retention, too. */
static void choose_cleaning(uint32_t steps)
{
    bool wanted = steps & (SS_BIT(SS_S_CLEAN) | SS_BIT(SS_S_COMPACT)), any = false;
    bool *compact = ss_shared.compact;
    for (int p = 0; p < SS_PARTS; p++) {
        compact[p] = ss_chance(wanted ? 600 : 150);
    }
    compact[0] = compact[0] || (wanted && !compact[1]);
    for (int p = 0; p < SS_PARTS; p++) {
        if (compact[p] && ss_chance(700)) {
            ss_shared.retention_bytes[p] = -1;
        }
        any = any || compact[p];
    }
    ss_shared.cleanings = !any ? 0 : wanted ? 80 : 5;
    ss_shared.dirty_ratio = wanted || ss_chance(500) ? 0 : 0.3;
    ss_shared.delete_retention_ms = ss_chance(500) ? 200 : 86400000;
    if (any) {
        ss_shared.segment_bytes = KC_MIN(ss_shared.segment_bytes, 1000 + (int64_t)ss_below(3000));
    }
}

static void choose(void)
{
    uint32_t steps = ss_aims_steps();
    bool rolls = steps & SS_BIT(SS_S_ROLL);
    bool trims = steps & (SS_BIT(SS_S_TRIM) | SS_BIT(SS_S_UNLINK));
    bool moves = steps & (SS_BIT(SS_S_PREPARE) | SS_BIT(SS_S_GO) | SS_BIT(SS_S_OWN_SEAL));
    bool behind = steps & SS_BIT(SS_S_BEHIND);
    bool journals = behind || steps & (SS_BIT(SS_S_JOURNAL) | SS_BIT(SS_S_FRAMES));
    ss_shared.segment_bytes =
        rolls || trims || ss_chance(400) ? 2000 + (int64_t)ss_below(6000) : 1 << 20;
    for (int p = 0; p < SS_PARTS; p++) {
        ss_shared.retention_bytes[p] = trims || ss_chance(300) ? 5000 : -1;
    }
    ss_shared.unconfirmed =
        ss_chance(700) ? 200 + ss_below(ss_chance(500) ? 600 : 3000) : KS_UNCONFIRMED_MAX;
    ss_shared.checkpoint_bytes = ss_chance(700) ? 100 + (int64_t)ss_below(4000) : 16 << 20;
    ss_shared.direct_files = journals || ss_chance(500) ? 0 : ss_chance(500) ? 1 : KS_DIRECT_FILES;
    ss_shared.journal_bytes = behind || ss_chance(600) ? 200 + ss_below(8000) : KS_JOURNAL_BYTES;
    ss_shared.journal_ms = behind || ss_chance(500) ? 200 + (int64_t)ss_below(2000) : KS_JOURNAL_MS;
    ss_shared.condemn = ss_chance(700) ? 900 : 200;
    ss_shared.appetite = ss_chance(700) ? 700 : 200;
    ss_shared.alert = ss_chance(600) ? 1000 : 20 + (uint32_t)ss_below(200);
    ss_shared.moves = moves ? 60 : 15;
    ss_shared.cancels = steps & SS_BIT(SS_S_CANCEL) ? 40 : 3;
    ss_shared.deletions = steps & SS_BIT(SS_S_REMOVE) ? 5 : steps & SS_BIT(SS_S_TOMBSTONE) ? 2 : 0;
    choose_cleaning(steps);
    for (int p = 0; p < SS_PARTS; p++) {
        ss_shared.flush_messages[p] = ss_chance(200) ? 2 + (int64_t)ss_below(40) : 1;
    }
    ss_shared.flush_ms = ss_chance(500) ? 1 + (int64_t)ss_below(100) : 0;
    ss_shared.coord = ss_chance(400);
    if (ss_shared.coord) {
        ss_shared.retention_bytes[1] = -1;
        ss_shared.flush_messages[1] = 1;
    }
    ss_coord_begin();
    trouble = 1 + (uint32_t)ss_below(4);
    choose_rates();
}

bool ss_world_run(struct ss_run *run)
{
    kc_log_set_level(getenv("KAAS_SIM_LOG") ? KC_INFO : KC_ERROR + 1);
    ss_sched_begin(run->seed);
    memset(&ss_shared, 0, sizeof(ss_shared));
    for (int t = 0; t < SS_TOPICS; t++) {
        ss_shared.topic[t] = kc_uuid_random();
    }
    uint32_t faults = (1u << SS_FAULTS) - 1, steps = (uint32_t)((UINT64_C(1) << SS_STEPS) - 1);
    if (ss_chance(350)) {
        steps &= ~(SS_BIT(SS_S_CLEAN) | SS_BIT(SS_S_COMPACT)); /* not each run is about that */
    }
    ss_aims_draw(faults, steps);
    choose();
    ss_check_begin(ss_shared.topic);
    for (int p = 0; p < SS_PARTS; p++) {
        if (ss_shared.flush_messages[p] > 1) {
            ss_check_relaxed(p);
        }
    }
    struct ss_watch watch = ss_check_watch();
    ss_srv_start(&watch, run->lie);
    ss_mutate(run->mutant);
    for (int i = 0; i < SS_BROKERS; i++) {
        ss_broker_start(&brokers[i], i + 1, i + 1);
    }
    for (int i = 0; i < STEPS_MAX && !enough(i) && !ss_check_broken(); i++) {
        step();
    }
    while (faults_so_far() < FAULTS_MIN && !ss_check_broken()) {
        ss_sleep_us(1000);
        befall_now(&brokers[ss_below(SS_BROKERS)]);
    }
    finish();
    collect(run);
    ss_mutate(SS_SOUND);
    ss_srv_stop();
    ss_check_end();
    ss_sched_end();
    return !run->broken[0];
}
