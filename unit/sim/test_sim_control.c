/* test_sim_control.c - the controller under random faults in virtual time.
 *
 * Brokers are killed, frozen, wedged, stalled, drained, cut off and replaced; the operator changes and
 * pauses; the cluster is scaled, slices are shuffled, topics come and go. After every tick the
 * invariants below hold; once the faults end, everybody serves and everything is at home again.
 * KAAS_SEED replays, KAAS_SOAK runs more seeds. */
#include <stdarg.h>
#include <stdlib.h>

#include "kpt.h"
#include "kt.h"

enum {
    ROUNDS = 12,
    SOAK_ROUNDS = 500,
    FAULT_MS = 15 * 60 * 1000,
    BASE = 3,
    MOST = 6,
    QUIET_MS = 25000
};

struct world {
    struct kpt k;
    struct kc_rng rng;
    int32_t round;
    int64_t fault_ms[KPT_BROKERS]; /* last fault of each broker */
    int64_t operator_ms; /* last fault of the operator */
    int64_t scaled_down_ms;
    int64_t back_ms[KPT_BROKERS]; /* when a downed broker returns; 0 = not down */
    bool ever_alive, failed;
    /* as of the last tick, to compare with */
    uint32_t registered;
    int32_t n_data;
    int32_t homes[2][KP_SLOTS];
    int32_t events[16], operators; /* over all rounds, to be shown */
};

static struct world s;

static uint64_t below(uint64_t n)
{
    return kc_rng_below(&s.rng, n);
}

KC_PRINTF(2, 3) static void check(bool ok, const char *fmt, ...)
{
    if (ok || s.failed) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    printf("round %d, %lld ms: ", (int)s.round, (long long)s.k.now);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    kpt_dump(&s.k);
    s.failed = true;
    KT_TRUE(false);
}

/* ---- faults ---- */

static bool pick_up(int32_t *ret)
{
    *ret = (int32_t)below((uint64_t)s.k.desired);
    return s.k.b[*ret].up && s.back_ms[*ret] == 0;
}

static void mark(int32_t id, int64_t until_ms)
{
    s.fault_ms[id] = until_ms;
}

static void down_for(int32_t id, int64_t ms)
{
    s.back_ms[id] = s.k.now + ms;
    mark(id, s.back_ms[id]);
}

static void fault_broker(int32_t id)
{
    struct kpt_broker *b = &s.k.b[id];
    int64_t ms = 100 + (int64_t)below(below(4) == 0 ? 40000 : 6000);
    switch (below(7)) {
    case 0:
        kpt_kill(&s.k, id);
        break;
    case 1:
        b->frozen = true;
        break;
    case 2:
        b->wedged = true;
        break;
    case 3:
        b->stalled = true;
        break;
    case 4:
        b->draining = true;
        break;
    case 5: /* pod deleted: absent from its slice until it is back (W1) */
        kpt_kill(&s.k, id);
        b->listed = false;
        kpt_slices(&s.k);
        break;
    default:
        kpt_boot(&s.k, id); /* restarts within the interval */
        break;
    }
    down_for(id, ms);
}

static void recover(int32_t id)
{
    struct kpt_broker *b = &s.k.b[id];
    s.back_ms[id] = 0;
    mark(id, s.k.now);
    b->frozen = b->wedged = b->stalled = false;
    if (!b->listed || (b->draining && below(2) == 0)) {
        kpt_new_pod(&s.k, id);
    } else if (!b->up || b->draining) {
        kpt_boot(&s.k, id);
    }
}

static void scale(void)
{
    struct kpt *w = &s.k;
    int32_t to = BASE + (int32_t)below(MOST - BASE + 1);
    int32_t from = w->desired;
    s.scaled_down_ms = to < from ? w->now : s.scaled_down_ms;
    kpt_desired(w, to);
    for (int32_t id = from; id < to; id++) {
        kpt_new_pod(w, id);
        s.back_ms[id] = 0;
        mark(id, w->now);
    }
    for (int32_t id = to; id < from; id++) { /* no grace here: the harder case */
        kpt_kill(w, id);
        w->b[id].listed = false;
        s.back_ms[id] = 0;
        mark(id, w->now);
    }
    kpt_slices(w);
}

static void topics(void)
{
    if (s.k.n_topics < KPT_TOPICS && below(2)) {
        kpt_topic(&s.k, 1 + (int32_t)below(30));
    }
}

static void shuffle_slices(void)
{
    for (int32_t id = 0; id < KPT_BROKERS; id++) {
        if (below(3) == 0) {
            s.k.b[id].slice = 1 - s.k.b[id].slice;
        }
    }
    kpt_slices(&s.k);
}

static void faults(void)
{
    int32_t id;
    for (id = 0; id < s.k.desired; id++) {
        if (s.back_ms[id] && s.k.now >= s.back_ms[id]) {
            recover(id);
        }
    }
    if (below(60) == 0 && pick_up(&id)) {
        fault_broker(id);
    }
    if (below(1200) == 0) { /* several at once */
        for (id = 0; id < s.k.desired; id++) {
            if (below(2) && s.back_ms[id] == 0 && s.k.b[id].up) {
                fault_broker(id);
            }
        }
    }
    if (below(600) == 0) {
        shuffle_slices();
    }
    if (below(900) == 0) {
        topics();
    }
    if (below(1500) == 0) {
        scale();
    }
    if (below(900) == 0) {
        kpt_operator_change(&s.k);
        s.operators++;
        s.operator_ms = s.k.now;
    } else if (below(900) == 0) {
        s.k.now += 600 + (int64_t)below(20000);
        kp_ctl_paused(s.k.c, s.k.now);
        s.operator_ms = s.k.now;
    } else if (below(300) == 0) {
        s.k.publish_delay_ms = (int64_t)below(10) * 100;
    }
}

/* ---- invariants ---- */

static void check_rows(void)
{
    const struct kp_row *rows;
    int32_t n = kp_ctl_rows(s.k.c, &rows), holding = 0, dead = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct kp_row *r = &rows[i];
        check(i == 0 || rows[i - 1].id < r->id, "rows are not sorted");
        check(!r->condemned || r->health == KP_DEAD, "broker %d condemned while %s", (int)r->id,
              kp_health_name(r->health));
        check(!r->condemned || !r->kept, "broker %d condemned though kept", (int)r->id);
        holding += r->health == KP_ALIVE || r->kept;
        dead += r->health == KP_DEAD;
        s.ever_alive = s.ever_alive || r->health == KP_ALIVE;
    }
    /* Only a scale-down that takes the whole last set away may leave nobody but the dead. */
    bool all_left = s.k.now - s.scaled_down_ms < 60000 && dead == n;
    check(!s.ever_alive || n == 0 || holding > 0 || all_left, "the alive set is empty (R15)");
}

/* A broker to which nothing happened for a while, under an operator to which nothing happened, is
 * alive: nothing else may fence it. */
static void check_innocent(void)
{
    if (s.k.now - s.operator_ms < QUIET_MS || !s.k.ch.active) {
        return;
    }
    for (int32_t id = 0; id < s.k.desired; id++) {
        const struct kp_row *r = kpt_row(&s.k, id);
        if (s.back_ms[id] == 0 && s.k.now - s.fault_ms[id] >= QUIET_MS && r) {
            check(r->health == KP_ALIVE, "broker %d is %s without a fault", (int)id,
                  kp_health_name(r->health));
        }
    }
}

static void check_partition(int32_t t, int32_t i, const struct kp_part *p)
{
    const struct kp_row *r = kpt_row(&s.k, p->assigned);
    bool fine = r && (r->health == KP_ALIVE || r->kept || (r->health == KP_DRAINING && p->move.id));
    check(fine, "%d/%d is assigned to %d, which is %s", (int)t, (int)i, (int)p->assigned,
          r ? kp_health_name(r->health) : "gone");
    check(p->move.id == 0 || (p->move.from != p->move.to), "%d/%d moves to itself", (int)t, (int)i);
}

static void check_partitions(void)
{
    if (!s.k.ch.active || kpt_alive(&s.k) == 0) {
        return;
    }
    for (int32_t t = 0; t < s.k.n_topics && !s.failed; t++) {
        int32_t n;
        const struct kp_part *p = kp_ctl_parts(s.k.c, &s.k.topics[t].id, &n);
        for (int32_t i = 0; i < n; i++) {
            check_partition(t, i, &p[i]);
        }
    }
}

/* Homes change with registration alone, and then by no more than the share that must move. */
static void check_homes(void)
{
    const struct kp_row *rows;
    int32_t n = kp_ctl_rows(s.k.c, &rows), changed = 0, lost = 0;
    uint32_t now = 0;
    for (int32_t i = 0; i < n; i++) {
        now |= 1u << rows[i].id;
    }
    if (!s.k.ch.active || n == 0) {
        return;
    }
    for (int32_t k = 0; k < 2; k++) {
        const int32_t *h = kp_ctl_homes(s.k.c, k + 1);
        for (int32_t slot = 0; slot < KP_SLOTS; slot++) {
            check(h[slot] >= 0 && now & 1u << h[slot], "slot %d has home %d", (int)slot,
                  (int)h[slot]);
            bool gone = s.registered && !(now & 1u << s.homes[k][slot]);
            lost += gone;
            changed += s.registered && h[slot] != s.homes[k][slot];
        }
        memcpy(s.homes[k], h, sizeof(s.homes[k]));
    }
    if (s.registered) {
        int32_t joined = __builtin_popcount(now & ~s.registered);
        int32_t share = joined * (KP_SLOTS / n + 1);
        check(now != s.registered || changed == 0, "%d homes changed without a registration",
              (int)changed);
        check(changed <= lost + 2 * share + 2 * MOST, "%d homes changed: %d lost, %d joined",
              (int)changed, (int)lost, (int)joined);
    }
    s.registered = now;
}

static void tick(bool with_faults)
{
    if (with_faults) {
        faults();
    }
    kpt_run(&s.k, KPT_TICK_MS);
    check_rows();
    check_innocent();
    check_partitions();
    check_homes();
}

static void heal(void)
{
    for (int32_t id = 0; id < s.k.desired; id++) {
        if (s.back_ms[id]) {
            recover(id);
        }
    }
    s.k.publish_delay_ms = 0;
}

static bool all_serve(void)
{
    for (int32_t id = 0; id < s.k.desired; id++) {
        const struct kp_row *r = kpt_row(&s.k, id);
        if (!r || r->state != KP_SERVING || r->health != KP_ALIVE) {
            return false;
        }
    }
    return true;
}

static void one_round(void)
{
    kpt_init(&s.k, BASE);
    memset(s.fault_ms, 0, sizeof(s.fault_ms));
    memset(s.back_ms, 0, sizeof(s.back_ms));
    s.ever_alive = false;
    s.registered = 0;
    s.operator_ms = s.k.now;
    s.scaled_down_ms = -1000000;
    kpt_slot_topic(&s.k, KP_GROUP_SLOTS);
    kpt_slot_topic(&s.k, KP_TXN_SLOTS);
    kpt_topic(&s.k, 40);
    kpt_start(&s.k, BASE);
    for (int64_t end = s.k.now + FAULT_MS; s.k.now < end && !s.failed;) {
        tick(true);
    }
    heal();
    int64_t healed = s.k.now;
    while (!s.failed && s.k.now - healed < 700000 && !(all_serve() && kpt_settled(&s.k))) {
        tick(false);
    }
    check(all_serve(), "not everybody serves %lld ms after the last fault",
          (long long)(s.k.now - healed));
    check(kpt_settled(&s.k), "not at home %lld ms after the last fault",
          (long long)(s.k.now - healed));
    for (int k = 0; k < 16; k++) {
        s.events[k] += s.k.events[k];
    }
    kpt_fini(&s.k);
}

static void random_faults_keep_the_invariants_and_everything_comes_home(void)
{
    const char *env = getenv("KAAS_SOAK");
    int32_t rounds = env && env[0] ? SOAK_ROUNDS : ROUNDS;
    uint64_t seed = kt_seed();
    for (s.round = 0; s.round < rounds && !s.failed; s.round++) {
        kc_rng_seed(&s.rng, seed + (uint64_t)s.round);
        one_round();
    }
    printf(
        "%d rounds: %d fenced, %d condemned, %d drained, %d moves between brokers, %d operators, "
        "%d volume stalls, %d registrations\n",
        (int)s.round, s.events[KP_EV_FENCED], s.events[KP_EV_CONDEMNED], s.events[KP_EV_DRAINING],
        s.events[KP_EV_PARTITIONS_MOVED], s.operators, s.events[KP_EV_VOLUME_STALL],
        s.events[KP_EV_REGISTERED]);
}

KT_MAIN("sim_control", KT(random_faults_keep_the_invariants_and_everything_comes_home))
