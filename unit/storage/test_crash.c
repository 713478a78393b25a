/* Crash states: every scenario is recorded, operation by operation, on a file system in memory; then the
 * volume is built as a crash may leave it, at every place of the record, and an engine that knows
 * nothing of it takes the partitions over. Everything acked before the crash is there (I1), at its
 * offset (I4), under one seal an epoch and a chain without a gap (I2, I6, I7, by fsck); the open
 * succeeds, a repeat is told as a repeat, appends go on. A part of the states is left by a second
 * crash, within the takeover after the first. The engine is another broker, the same broker again, and
 * for a part of the states one that boots on it.
 *
 * KAAS_SOAK=1: some 300,000. The choice differs from run to run (KAAS_SEED). */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "cr.h"

enum {
    PATIENCE_S = 120, /* with one state, before it counts as hanging */
    TABLE = 1 << 22,
    BOOT_EVERY = 61,
    NUMBERS = 4096 /* of the files that a stage's own engine makes */
};

/* States that were looked at: image and answers. */
static uint64_t *table;
static uint64_t n_states, n_seen, n_second, n_boots;

static bool is_new(uint64_t hash)
{
    uint64_t at = hash % TABLE;
    hash |= 1;
    while (table[at]) {
        if (table[at] == hash) {
            return false;
        }
        at = (at + 1) % TABLE;
    }
    table[at] = hash;
    return true;
}

/* What the volume says of itself. */
struct told {
    bool network, ordered;
};

static const struct told honest[] = {
    [CR_LOCAL] = {false, false}, [CR_JOURNALED] = {false, true}, [CR_NETWORK] = {true, false}};
static const char *const models[] = {
    [CR_LOCAL] = "local", [CR_JOURNALED] = "journaled", [CR_NETWORK] = "network"};

static void tell(struct sc *s, const struct told *t)
{
    st_mem_network(s->mem, t->network);
    st_mem_ordered(s->mem, t->ordered);
}

struct walk {
    const struct sc_scenario *scenario;
    const struct told *told;
    enum cr_mutant mutant;
    uint32_t samples, every; /* random subsets a crash point; one state in `every` */
    uint32_t second_every,
        second_share; /* one of those is crashed again; one state in `share` then */
    int errors;
};

/* ---- stages: where states are put up and looked at ---- */

struct stage {
    struct sc s;
    char keep[KS_PATH_MAX]; /* the claim file of its engine */
};
/* Broker 7; broker 1 of the scenarios again; broker 8 for second crashes; one that has no engine. */
static struct stage other, same, second, bare;

static void stage_up(struct stage *g, int32_t number, const struct told *t,
                     int64_t checkpoint_bytes)
{
    sc_begin(&g->s, true, NULL);
    g->s.checkpoint_bytes = checkpoint_bytes;
    tell(&g->s, t);
    st_mem_number_from(g->s.mem, NUMBERS);
    KT_REQUIRE(sc_up_as(&g->s, 0, number));
    ks_path_inc(g->keep, number, &g->s.b[0].inc);
}

static void stage_down(struct stage *g)
{
    sc_end(&g->s);
    sc_free(&g->s);
    KT_EQ(g->s.errors, 0);
}

static uint64_t answers_at(const struct cr_trace *t, size_t at, uint64_t first)
{
    for (size_t i = t->from; i < at; i++) {
        first = t->v[i].op == SM_MARK ? KC_MAX(first, t->v[i].pos) : first;
    }
    return first;
}

/* The ledger of `of` as it was after its first n answers. */
static void know(struct sc *s, const struct sc *of, int n)
{
    s->topic = of->topic;
    s->first_stamp = of->first_stamp;
    s->stamp = of->stamp;
    s->cfg = of->cfg;
    sc_config(s, of->cfg.segment_bytes, -1);
    memcpy(s->acks, of->acks, sizeof(s->acks[0]) * (size_t)n);
    memcpy(s->trimmed, of->trimmed, sizeof(s->trimmed));
    memcpy(s->topics, of->topics, sizeof(s->topics));
    memset(s->producers, 0, sizeof(s->producers));
    memset(s->written, 0, sizeof(s->written));
    memset(s->removed, 0, sizeof(s->removed));
    s->n_pids = 0;
    s->n_acks = n;
    for (int i = 0; i < n; i++) {
        if (s->acks[i].part < 0) {
            sc_learn(s, &s->acks[i]);
            continue;
        }
        struct sc_producer *p = &s->producers[s->acks[i].part];
        p->seq = KC_MAX(p->seq, s->acks[i].seq + 1);
    }
}

static void audit(const struct walk *w, struct sc *s, int broker)
{
    static const char *const dirs[] = {"inc", "topics", "deleted", "pids"};
    struct ks_engine *e = s->b[broker].e;
    ks_framed_expire(e, INT64_MAX); /* what it read was of another state, */
    kc_map_fini(&e->condemned, kc_free); /* and so was whom it fenced */
    kc_map_init(&e->condemned);
    for (size_t i = 0; i < KC_ARRAY_LEN(dirs); i++) {
        ks_fs_mkdir(&e->fs, dirs[i]); /* as a start does */
    }
    ks_fs_syncdir(&e->fs, ".");
    for (int32_t part = 0; part < 2; part++) {
        struct ks_log *log = sc_open(s, broker, part);
        if (log) {
            sc_audit_log(s, log);
            sc_close(s, log);
        }
    }
    if (w->scenario->check) {
        w->scenario->check(s, broker);
    }
    sc_fsck(s);
}

/* ---- the states of a trace ---- */

static void complain(struct walk *w, struct sc *s, const struct cr_state *c, const char *what)
{
    w->errors += s->errors;
    if (s->errors && w->mutant == CR_HONEST) {
        fprintf(stderr, "%s (%s, %s), crash before record %zu:\n", w->scenario->name,
                models[c->model], what, c->at);
        cr_print(c, stderr);
    }
    s->errors = 0;
}

/* A boot on the state: nothing is there but the files. */
static void boot(struct walk *w, const struct cr_state *c, const struct sc *of, int n)
{
    struct sc *s = &bare.s;
    sc_begin(s, true, NULL);
    s->checkpoint_bytes = of->checkpoint_bytes;
    tell(s, w->told);
    cr_build(c, s->mem, "");
    know(s, of, n);
    if (sc_up_as(s, 0, 9)) {
        audit(w, s, 0);
    }
    sc_end(s);
    sc_free(s);
    n_boots++;
    complain(w, s, c, "a boot");
}

static void states_of(struct walk *w, const struct cr_trace *t, enum cr_model model,
                      const struct sc *of, int n_first, int level);

/* The takeover after the crash is recorded, and crashed. ended: the first crash was none, the
 * processes ended there; everything is there, and what was volatile still is. */
static void crash_again(struct walk *w, const struct cr_state *c, struct stage *g, int n,
                        bool ended)
{
    struct sc *s = &g->s;
    size_t settled;
    struct cr_trace t;
    static struct cr_state all;
    if (ended) {
        all = *c;
        memset(all.kept, true, sizeof(all.kept));
        cr_build(&all, s->mem, g->keep);
    }
    st_mem_number_from(s->mem, 2 * NUMBERS);
    st_mem_record(s->mem, true);
    if (!ended) {
        st_mem_dump(s->mem);
    }
    st_mem_records(s->mem, &settled);
    audit(w, s, 0);
    st_mem_record(s->mem, false);
    if (ended) {
        cr_trace_join(&t, c->trace, c->at, s->mem);
    } else {
        cr_trace_take(&t, s->mem, settled);
    }
    states_of(w, &t, c->model, s, n, 1);
    cr_trace_free(&t);
}

static void look(struct walk *w, struct cr_state *c, const struct sc *of, int n, int level)
{
    uint64_t pick = kc_hash64_mix(kt_seed(), ++n_seen);
    struct stage *g = level ? &second : pick & 1 ? &other : &same;
    struct sc *s = &g->s;
    cr_build(c, s->mem, g->keep);
    if (!is_new(kc_hash64_mix(st_mem_hash(s->mem), (uint64_t)n * 4 + (uint64_t)c->model))) {
        return;
    }
    alarm(PATIENCE_S);
    n_states++;
    n_second += level > 0;
    know(s, of, n);
    if (level == 0 && w->second_every && pick / 2 % w->second_every == 0) {
        crash_again(w, c, g, n, pick / 256 & 1);
    } else {
        audit(w, s, 0);
    }
    complain(w, s, c, level ? "a second crash" : "another engine");
    if (pick % BOOT_EVERY == 0) {
        boot(w, c, of, n);
    }
}

static void states_of(struct walk *w, const struct cr_trace *t, enum cr_model model,
                      const struct sc *of, int n_first, int level)
{
    struct cr_state *c = malloc(sizeof(*c));
    KT_REQUIRE(c != NULL);
    for (size_t at = t->from; at <= t->n && w->errors < 4; at++) {
        cr_pieces(c, t, model, at);
        int n = (int)answers_at(t, at, (uint64_t)n_first);
        uint32_t count = cr_count(c, level ? 0 : w->samples);
        for (uint32_t i = 0; i < count && w->errors < 4; i++) {
            uint64_t pick = kc_hash64_mix(kt_seed(), at * 4096 + i);
            if (pick % (level ? w->second_share : w->every) == 0) {
                cr_choose(c, i, pick);
                look(w, c, of, n, level);
            }
        }
    }
    free(c);
}

/* Records a scenario and looks at its states. Returns the violations. */
static int crash(const struct sc_scenario *sc, enum cr_model model, const struct told *told,
                 enum cr_mutant mutant, uint32_t every)
{
    static struct sc s;
    struct cr_trace t;
    bool soak = getenv("KAAS_SOAK") != NULL;
    struct walk w = {.scenario = sc,
                     .told = told,
                     .mutant = mutant,
                     .every = every,
                     .samples = soak ? 400 : 60,
                     .second_every = mutant ? 0
                                     : soak ? 3
                                            : 40,
                     .second_share = soak ? 3 : 40};
    sc_begin(&s, true, NULL);
    tell(&s, told);
    st_mem_record(s.mem, true);
    if (sc->setup) {
        sc->setup(&s);
    }
    sc->run(&s);
    st_mem_record(s.mem, false);
    sc_end(&s);
    w.errors = s.errors;
    cr_trace_take(&t, s.mem, 0);
    cr_mutate(&t, mutant);
    stage_up(&other, 7, told, s.checkpoint_bytes);
    stage_up(&same, 1, told, s.checkpoint_bytes);
    stage_up(&second, 8, told, s.checkpoint_bytes);
    states_of(&w, &t, model, &s, 0, 0);
    stage_down(&second);
    stage_down(&same);
    stage_down(&other);
    cr_trace_free(&t);
    sc_free(&s);
    return w.errors;
}

static const struct sc_scenario *named(const char *name)
{
    for (int i = 0; i < sc_n_scenarios; i++) {
        if (strcmp(sc_scenarios[i].name, name) == 0) {
            return &sc_scenarios[i];
        }
    }
    KT_REQUIRE(false);
    return NULL;
}

static const char *const recorded[] = {
    "append", "roll",     "retention", "compact", "hints",    "recovery",
    "boot",   "register", "move",      "cancel",  "takeover", "orphan",
    "node",   "topics",   "pids",      "journal", "behind",   "journal-takeover"};

static void on_alarm(int sig)
{
    (void)sig;
    abort();
}

static void begin(void)
{
    table = calloc(TABLE, sizeof(*table));
    KT_REQUIRE(table != NULL);
    n_states = n_seen = n_second = n_boots = 0;
    signal(SIGALRM, on_alarm);
    alarm(PATIENCE_S);
}

static void end(void)
{
    alarm(0);
    free(table);
}

static void every_crash(enum cr_model model)
{
    bool soak = getenv("KAAS_SOAK") != NULL;
    begin();
    for (size_t i = 0; i < KC_ARRAY_LEN(recorded); i++) {
        uint64_t before = n_states;
        KT_EQ(crash(named(recorded[i]), model, &honest[model], CR_HONEST,
                    soak                  ? 1
                    : model == CR_NETWORK ? 4
                                          : 20),
              0);
        printf("  %-16s %llu states\n", recorded[i], (unsigned long long)(n_states - before));
    }
    printf("%llu states, %llu of them after a second crash, %llu boots (%s)\n",
           (unsigned long long)n_states, (unsigned long long)n_second, (unsigned long long)n_boots,
           models[model]);
    KT_TRUE(n_states >= (soak ? 50000 : 1000));
    end();
}

static void nothing_acked_is_lost_with_the_machine(void)
{
    every_crash(CR_LOCAL);
}

/* And no claim without the directories it stands in, though nobody synced those above it (ADR 23). */
static void nothing_acked_is_lost_where_names_keep_their_order(void)
{
    every_crash(CR_JOURNALED);
}

static void nothing_acked_is_lost_with_the_server(void)
{
    every_crash(CR_NETWORK);
}

/* The test can fail. */
static void broken_rules_are_found(void)
{
    static const struct {
        const char *scenario;
        enum cr_model model;
        enum cr_mutant mutant;
        struct told told;
    } m[] = {
        {"append", CR_LOCAL, CR_ACK_BEFORE_SYNC, {false, false}},
        {"append", CR_NETWORK, CR_ACK_BEFORE_SYNC, {true, false}},
        {"append", CR_LOCAL, CR_NO_RECORD_SYNC, {false, false}},
        {"move", CR_NETWORK, CR_NO_RECORD_SYNC, {true, false}},
        {"append", CR_LOCAL, CR_NO_DIR_SYNC, {false, false}},
        {"move", CR_LOCAL, CR_NO_DIR_SYNC, {false, false}},
        {"retention", CR_LOCAL, CR_UNLINK_FIRST, {false, false}},
        {"retention", CR_NETWORK, CR_UNLINK_FIRST, {true, false}},
        {"compact", CR_LOCAL, CR_UNLINK_FIRST, {false, false}},
        {"compact", CR_NETWORK, CR_UNLINK_FIRST, {true, false}},
        {"topics", CR_LOCAL, CR_NO_RECORD_SYNC, {false, false}},
        {"pids", CR_LOCAL, CR_NO_DIR_SYNC, {false, false}},
        {"node", CR_NETWORK, CR_HONEST, {false, false}}, /* no copy of the tail (ADR 10) */
        {"journal", CR_LOCAL, CR_ACK_BEFORE_JOURNAL, {false, false}},
        {"journal-takeover", CR_NETWORK, CR_ACK_BEFORE_JOURNAL, {true, false}},
        {"journal",
         CR_LOCAL,
         CR_ACK_BEFORE_SYNC,
         {false, false}}, /* it goes, its files are not synced */
        /* It says that names keep their order, and they do not. */
        {"append", CR_LOCAL, CR_HONEST, {false, true}},
        {"topics", CR_LOCAL, CR_HONEST, {false, true}},
        {"append", CR_JOURNALED, CR_NO_DIR_SYNC, {false, true}},
        {"retention", CR_JOURNALED, CR_UNLINK_FIRST, {false, true}},
    };
    begin();
    for (size_t i = 0; i < KC_ARRAY_LEN(m); i++) {
        fprintf(stderr, "(mutant %zu)\n", i);
        KT_TRUE(crash(named(m[i].scenario), m[i].model, &m[i].told, m[i].mutant, 1) > 0);
    }
    end();
}

KT_MAIN("crash", KT(nothing_acked_is_lost_with_the_machine),
        KT(nothing_acked_is_lost_where_names_keep_their_order),
        KT(nothing_acked_is_lost_with_the_server), KT(broken_rules_are_found))
