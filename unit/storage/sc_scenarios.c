#include <stdlib.h>

#include "sc.h"
#include "storage/ks_probe.h"

/* ---- one broker ---- */

static void up_one(struct sc *s)
{
    sc_up(s, 0);
}

/* Two partitions that nobody had before; single appends, group commits, reads, a lookup. */
static void run_append(struct sc *s)
{
    struct ks_log *a = sc_open(s, 0, 0), *b = sc_open(s, 0, 1);
    sc_put_idem(s, a);
    sc_put(s, b, 3);
    sc_put_group(s, a, b, 3);
    sc_put_idem(s, a);
    sc_put_idem(s, b);
    sc_read(s, a);
    sc_put_group(s, a, b, 2);
    sc_read(s, b);
}

static void setup_roll(struct sc *s)
{
    sc_config(s, 3000, -1);
    sc_up(s, 0);
    sc_put(s, sc_open(s, 0, 0), 1);
}

static void run_roll(struct sc *s)
{
    struct ks_log *log = s->logs[0].log;
    for (int i = 0; i < 5; i++) {
        sc_put(s, log, 2);
        sc_put_idem(s, log);
    }
    sc_read(s, log);
}

/* Small files, and only the last two are kept. */
static void setup_retention(struct sc *s)
{
    sc_config(s, 1700, 2500);
    sc_up(s, 0);
    struct ks_log *log = sc_open(s, 0, 0);
    for (int i = 0; i < 6; i++) {
        sc_put(s, log, 2);
    }
    s->trimmed[0] = 10000; /* any of them may go now */
}

static void run_retention(struct sc *s)
{
    struct ks_log *log = s->logs[0].log;
    for (int round = 0; round < 2; round++) {
        ks_retention_post(s->b[0].e);
        st_turn(&s->b[0]);
        sc_put(s, log, 2);
        sc_put(s, log, 2);
    }
    sc_read(s, log);
    sc_close(s, log);
    sc_open(s, 0, 0);
}

/* Small files of few keys, cleaned while the log goes on, and again by the next owner. */
static void setup_compact(struct sc *s)
{
    sc_config(s, 1700, -1);
    s->cfg.compact = s->cfg.compact_only = true;
    s->cfg.max_compaction_lag_ms = INT64_MAX;
    s->cfg.delete_retention_ms = 86400000;
    sc_up(s, 0);
    struct ks_log *log = sc_open(s, 0, 0);
    for (int i = 0; i < 4; i++) {
        sc_put(s, log, 1);
        sc_put_idem(s, log);
    }
}

static void run_compact(struct sc *s)
{
    struct ks_log *log = s->logs[0].log;
    sc_clean(s, 0);
    sc_put(s, log, 1);
    sc_put_idem(s, log);
    sc_read(s, log);
    sc_down(s, 0);
    sc_up(s, 0);
    log = sc_open(s, 0, 0);
    sc_put(s, log, 1);
    sc_put(s, log, 1);
    sc_clean(s, 0);
    sc_put_idem(s, log);
}

/* Snapshots and indexes are written as the log goes on; two owners after the first one start from them,
 * one where no seal was written. */
static void setup_hints(struct sc *s)
{
    s->checkpoint_bytes = 2500;
    sc_config(s, 4000, -1);
    sc_up(s, 0);
    sc_up(s, 1);
    sc_put_idem(s, sc_open(s, 0, 0));
}

static void put_settled(struct sc *s, struct ks_log *log, int n)
{
    for (int i = 0; i < n; i++) {
        sc_put(s, log, 1);
        sc_put_idem(s, log);
        sc_settle(log);
    }
}

static void run_hints(struct sc *s)
{
    struct st_seal seal;
    struct ks_log *log = s->logs[0].log;
    put_settled(s, log, 6);
    sc_down(s, 0);
    log = sc_open(s, 1, 0);
    put_settled(s, log, 2);
    if (log) {
        sc_seal(s, log, &seal);
    }
    sc_up(s, 0);
    log = sc_open(s, 0, 0);
    sc_put_idem(s, log);
    sc_read(s, log);
}

/* An error on the data file: the epoch ends, another begins. */
static void run_recovery(struct sc *s)
{
    struct ks_log *log = s->logs[0].log;
    sc_put_idem(s, log);
    sc_poison(s);
    sc_put_refused(s, log, false);
    if (s->faults) {
        sc_try(s, log, 100);
    } else {
        sc_resume(s, log);
    }
    sc_put(s, log, 2);
    sc_read(s, log);
    sc_close(s, log);
    log = sc_open(s, 0, 0);
    sc_put_idem(s, log);
}

static void setup_one_log(struct sc *s)
{
    sc_up(s, 0);
    struct ks_log *log = sc_open(s, 0, 0);
    sc_put_idem(s, log);
    sc_put(s, log, 2);
}

/* The first start on a volume: probe, directories, cluster.json, registration. */
static void run_boot(struct sc *s)
{
    sc_up(s, 0);
    struct ks_log *log = sc_open(s, 0, 0);
    sc_put(s, log, 1);
    sc_down(s, 0);
    sc_up(s, 0);
    sc_put(s, sc_open(s, 0, 0), 1);
}

/* Fenced by somebody, noticed, registered anew. */
static void run_register(struct sc *s)
{
    struct st_broker *b = &s->b[0];
    struct ks_log *log = s->logs[0].log;
    struct kc_err err;
    sc_put_idem(s, log);
    int rc = ks_inc_fence(&b->e->fs, b->id, &b->inc);
    sc_put_refused(s, log, rc != 0);
    sc_close(s, log);
    st_turn(b);
    struct kc_uuid next = kc_uuid_random();
    if (ks_register(b->e, &next, &err) == 0) {
        b->inc = next;
    }
    log = sc_open(s, 0, 0);
    sc_put_idem(s, log);
    sc_put(s, log, 2);
}

/* ---- two brokers ---- */

static void setup_pair(struct sc *s)
{
    sc_config(s, 3500, -1);
    sc_up(s, 0);
    sc_up(s, 1);
    struct ks_log *log = sc_open(s, 0, 0);
    for (int i = 0; i < 3; i++) {
        sc_put_idem(s, log);
        sc_put(s, log, 2);
    }
}

static struct ks_open *prepare(struct sc *s, int i, struct st_open *o)
{
    struct ks_open_args args = st_args(&s->b[i], &s->topic, 0, o);
    args.config = s->cfg;
    struct ks_open *h = ks_log_prepare(s->b[i].e, &args);
    st_until(&s->b[i], &o->done);
    return o->rc ? NULL : h;
}

/* Warm open, seal, go: the planned move, there and back. */
static void run_move(struct sc *s)
{
    for (int to = 1; to >= 0; to--) {
        struct st_open o;
        struct st_seal seal;
        struct ks_log *log = s->logs[0].log;
        if (!log) {
            return;
        }
        struct ks_open *h = prepare(s, to, &o);
        sc_put_idem(s, log);
        sc_seal(s, log, &seal);
        if (!h) {
            sc_open(s, to, 0);
        } else {
            o.done = false;
            ks_open_go(h, seal.rc ? KC_BYTES_NULL : seal.bytes);
            st_until(&s->b[to], &o.done);
            if (o.rc == 0) {
                sc_own(s, to, 0, o.log);
            }
        }
        sc_put_idem(s, s->logs[0].log);
        sc_put(s, s->logs[0].log, 1);
        sc_read(s, s->logs[0].log);
    }
}

/* The move is called off: the old owner goes on, or claims again. */
static void run_cancel(struct sc *s)
{
    struct st_open o;
    struct st_seal seal;
    struct ks_log *log = s->logs[0].log;
    struct ks_open *h = prepare(s, 1, &o);
    sc_put_idem(s, log);
    if (h) {
        ks_open_cancel(h);
    }
    sc_put(s, log, 1);
    sc_seal(s, log, &seal);
    log = sc_open(s, 0, 0);
    sc_put_idem(s, log);
    sc_put(s, log, 2);
    sc_read(s, log);
}

/* The owner is condemned, but alive: fence, scan, seal. It must notice, and ack nothing more. */
static void run_takeover(struct sc *s)
{
    struct ks_log *old = s->logs[0].log;
    sc_put(s, old, 3);
    struct ks_log *now = sc_open(s, 1, 0);
    sc_put_idem(s, now);
    sc_put_refused(s, old, !now);
    sc_put(s, now, 1);
    sc_read(s, now);
    sc_close(s, old);
}

/* The owner's process is gone without a seal, files rolled; two claimants one after the other. */
static void run_orphan(struct sc *s)
{
    sc_down(s, 0);
    struct ks_log *log = sc_open(s, 1, 0);
    sc_put_idem(s, log);
    sc_put(s, log, 2);
    sc_put(s, log, 2);
    sc_down(s, 1);
    sc_up(s, 0);
    log = sc_open(s, 0, 0);
    sc_put_idem(s, log);
}

/* The owner's node dies with a batch that is written and not synced. Whoever takes over finds it, and
 * the producer, which sends it again, is told that it is there (ADR 10). */
static void run_node(struct sc *s)
{
    struct ks_log *log = s->logs[0].log;
    bool faults = s->faults;
    sc_kill(s, 0);
    s->faults = true; /* refused is right */
    if (sc_put_idem(s, log) && !faults) {
        sc_bad(s, "a dead node acks");
    }
    s->faults = faults;
    struct ks_log *now = sc_open(s, 1, 0);
    sc_put_idem(s, now);
    sc_read(s, now);
    sc_put(s, now, 1);
    sc_close(s, log);
}

/* ---- journals (ADR 13) ---- */

static void setup_journal(struct sc *s)
{
    sc_config(s, 9000, -1);
    sc_up(s, 0);
    sc_up(s, 1);
    struct ks_log *a = sc_open(s, 0, 0), *b = sc_open(s, 0, 1);
    sc_put_idem(s, a);
    sc_journal(s, 0, 4000, a, b);
}

/* Turns of two partitions; journals fill up and are retired, files roll; a seal and a close with frames
 * that no file's sync has confirmed. */
static void run_journal(struct sc *s)
{
    struct ks_log *a = s->logs[0].log, *b = s->logs[1].log;
    struct st_seal seal;
    for (int i = 0; i < 4; i++) {
        sc_put_group(s, a, b, 2);
        sc_put_idem(s, a);
    }
    sc_read(s, a);
    sc_seal(s, a, &seal);
    sc_put(s, b, 1);
    sc_close(s, b);
    a = sc_open(s, 1, 0);
    b = sc_open(s, 0, 1);
    sc_put_idem(s, a);
    sc_put(s, b, 1);
    sc_read(s, b);
}

/* A sync behind fails: what was acked stands in the journal only, and goes on there. */
static void run_behind(struct sc *s)
{
    struct ks_log *a = s->logs[0].log, *b = s->logs[1].log;
    sc_poison(s);
    for (int i = 0; i < 8; i++) {
        sc_try(s, a, 2);
        sc_try(s, b, 2);
    }
    if (!s->faults) {
        sc_resume(s, a);
        sc_resume(s, b);
    }
    sc_read(s, a);
    sc_read(s, b);
}

/* The owner is condemned while its newest batches stand in its journal; the other log's goes on there. */
static void run_journal_takeover(struct sc *s)
{
    struct ks_log *old = s->logs[0].log, *b = s->logs[1].log;
    sc_put_group(s, old, b, 2);
    sc_put_idem(s, old);
    struct ks_log *now = sc_open(s, 1, 0);
    sc_put_idem(s, now);
    sc_put_refused(s, old, !now);
    sc_put_refused(s, b, !now);
    sc_read(s, now);
    sc_close(s, b);
    b = sc_open(s, 1, 1);
    sc_read(s, b);
    sc_put(s, b, 2);
    sc_close(s, old);
}

/* ---- the volume ---- */

static struct ks_topic_meta meta_of(const struct kc_uuid *id, int32_t partitions)
{
    struct ks_topic_meta m = {.id = *id, .partitions = partitions};
    snprintf(m.name, sizeof(m.name), "t%08x", (unsigned)id->b[0]);
    m.configs_json = (char *)(uintptr_t) "{\"retention.ms\":\"7\"}";
    return m;
}

static void look(struct sc *s, int broker)
{
    struct ks_inventory *inv;
    struct kc_err err = {0};
    if (ks_inventory_read(s->b[broker].e, &inv, &err)) {
        if (!s->faults) {
            sc_bad(s, "inventory: %s", err.msg);
        }
        return;
    }
    for (int t = 0; t < 2; t++) {
        const struct ks_topic_meta *m = NULL;
        for (int32_t i = 0; i < inv->n; i++) {
            m = kc_uuid_eq(&inv->topics[i].id, &s->topics[t]) ? &inv->topics[i] : m;
        }
        if (s->removed[t] && m) {
            sc_bad(s, "a removed topic is listed");
        }
        if (!s->removed[t] && s->written[t] > 0 && (!m || m->partitions < s->written[t])) {
            sc_bad(s, "a written topic is not listed, or is older");
        }
    }
    ks_inventory_free(inv);
}

static void write_topic(struct sc *s, int t, int32_t partitions)
{
    struct kc_err err;
    struct ks_topic_meta m = meta_of(&s->topics[t], partitions);
    if (ks_topic_write(s->b[0].e, &m, &err) == 0) {
        if (s->removed[t]) {
            sc_bad(s, "a removed topic is written again");
        }
        sc_tell(s, SC_TOPIC, t, partitions);
    } else if (s->removed[t] || s->written[t]) {
        s->written[t] = KC_MIN(s->written[t], partitions); /* what stands there, one of the two */
    }
}

/* A topic that was removed is never opened again (ADR 11). */
static void open_removed(struct sc *s, int broker)
{
    struct st_open o;
    struct ks_open_args args = st_args(&s->b[broker], &s->topics[1], 0, &o);
    if (st_open_rc(&s->b[broker], &args, &o) == 0) {
        if (s->removed[1]) {
            sc_bad(s, "a removed topic is opened");
        }
        sc_own(s, broker, 0, o.log);
        sc_close(s, o.log);
    }
}

/* From its first try on a removal may have happened. */
static void remove_second(struct sc *s, int broker)
{
    struct kc_err err = {0};
    if (!s->removed[1]) {
        sc_tell(s, SC_TOPIC, 1, 0);
    }
    if (ks_topic_remove(s->b[broker].e, &s->topics[1], &err) == 0) {
        sc_tell(s, SC_TOPIC, 1, SC_GONE);
    } else if (!s->faults) {
        sc_bad(s, "a topic cannot be removed: %s", err.msg);
    }
}

static void run_topics(struct sc *s)
{
    s->topics[0] = s->topic;
    s->topics[1] = kc_uuid_random();
    write_topic(s, 0, 2);
    write_topic(s, 1, 1);
    look(s, 0);
    write_topic(s, 0, 5);
    sc_put(s, sc_open(s, 0, 0), 1);
    sc_tidied(s, 0); /* what follows are the same calls in every run */
    look(s, 0);
    remove_second(s, 0);
    look(s, 0);
    remove_second(s, 0);
    look(s, 0);
    write_topic(s, 1, 3);
    open_removed(s, 0);
}

static void check_topics(struct sc *s, int broker)
{
    look(s, broker);
    remove_second(s, broker);
    look(s, broker);
    open_removed(s, broker);
}

static void block(struct sc *s, int broker)
{
    int64_t first;
    int32_t count;
    struct kc_err err;
    if (s->up[broker] && ks_pid_block(s->b[broker].e, &first, &count, &err) == 0) {
        for (int i = 0; i < s->n_pids; i++) {
            if (s->pids[i] == first) {
                sc_bad(s, "producer ids from %lld on are given twice", (long long)first);
            }
        }
        sc_tell(s, SC_PIDS, first, count);
    }
}

static void run_pids(struct sc *s)
{
    for (int i = 0; i < 4; i++) {
        block(s, 0);
    }
}

static void check_pids(struct sc *s, int broker)
{
    block(s, broker);
    block(s, broker);
}

/* A volume with a bad batch under a seal: fsck may fail, but never calls it whole. */
static void setup_fsck(struct sc *s)
{
    struct st_seal seal;
    sc_config(s, 3500, -1);
    sc_up(s, 0);
    struct ks_log *log = sc_open(s, 0, 0);
    for (int i = 0; i < 5; i++) {
        sc_put(s, log, 2);
    }
    sc_seal(s, log, &seal);
    sc_put(s, sc_open(s, 0, 1), 1);
    sc_down(s, 0);
}

static void run_fsck(struct sc *s)
{
    struct ks_fsck_result r;
    struct kc_err err = {0};
    struct ks_fs fs;
    char *text;
    sc_fs(s, 9, &fs);
    int rc = st_fsck(&s->vol, &fs, &r, &text);
    bool whole = r.topics == 1 && r.partitions == 2 && r.epochs == 2 && r.batches == 6 &&
                 r.live + r.fenced == 1 && r.open_epochs == 1;
    if (rc == 0 && !whole) {
        sc_bad(s, "fsck is content with what it could not read: %s", text);
    }
    struct ks_probe p;
    ks_probe_run(&fs, &p, &err);
    ks_fs_fini(&fs);
    free(text);
}

const struct sc_scenario sc_scenarios[] = {
    {"append", up_one, run_append, NULL},
    {"roll", setup_roll, run_roll, NULL},
    {"retention", setup_retention, run_retention, NULL},
    {"compact", setup_compact, run_compact, NULL},
    {"hints", setup_hints, run_hints, NULL},
    {"recovery", setup_one_log, run_recovery, NULL},
    {"boot", NULL, run_boot, NULL},
    {"register", setup_one_log, run_register, NULL},
    {"move", setup_pair, run_move, NULL},
    {"cancel", setup_pair, run_cancel, NULL},
    {"takeover", setup_pair, run_takeover, NULL},
    {"orphan", setup_pair, run_orphan, NULL},
    {"node", setup_pair, run_node, NULL},
    {"journal", setup_journal, run_journal, NULL},
    {"behind", setup_journal, run_behind, NULL},
    {"journal-takeover", setup_journal, run_journal_takeover, NULL},
    {"topics", up_one, run_topics, check_topics},
    {"pids", up_one, run_pids, check_pids},
    {"fsck", setup_fsck, run_fsck, NULL},
};
const int sc_n_scenarios = (int)KC_ARRAY_LEN(sc_scenarios);
