/* What comes back after an opening: indexes, aborted transactions, and that a state made from hints is
 * the one that a full read makes. */
#include "st_ckpt.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "sk.h"
#include "storage/ks_fsck.h"
#include "storage/ks_hint.h"

/* ---- transactions ---- */

static void finish_txn(struct ks_log *log, int64_t pid, bool commit)
{
    struct st_append a;
    st_append_start(log, sk_marker(pid, 0, commit), KS_FROM_COORDINATOR, &a);
    st_until(&cp_b, &a.done);
    KT_EQ(a.r.error, 0);
    cp_settle(log);
}

static void in_txn(struct ks_log *log, int64_t pid, int32_t seq)
{
    struct st_batch b = {.count = 1, .pid = pid, .seq = seq, .attrs = KS_ATTR_TRANSACTIONAL};
    KT_EQ(st_append(&cp_b, log, st_make(&b)).error, 0);
    cp_settle(log);
}

static void aborted_transactions_are_listed(void)
{
    cp_begin();
    struct ks_log *log = cp_open(2000);
    in_txn(log, 1, 0); /* 0 */
    in_txn(log, 2, 0); /* 1 */
    finish_txn(log, 1, false); /* 2 */
    cp_put(log, 20); /* 3 .. 42 */
    in_txn(log, 3, 0); /* 43 */
    KT_EQ(ks_log_offsets(log).last_stable, 1);
    finish_txn(log, 2, false); /* 44 */
    KT_EQ(ks_log_offsets(log).last_stable, 43);
    finish_txn(log, 3, true); /* 45 */
    for (int round = 0; round < 2; round++) {
        struct ks_aborted a[4];
        KT_EQ(ks_log_offsets(log).last_stable, 46);
        KT_EQ(ks_log_aborted(log, 0, 46, a, 4), 2);
        KT_EQ(a[0].producer_id, 1);
        KT_EQ(a[0].first_offset, 0);
        KT_EQ(a[1].producer_id, 2);
        KT_EQ(a[1].first_offset, 1);
        KT_EQ(ks_log_aborted(log, 3, 46, a, 4), 1);
        KT_EQ(a[0].producer_id, 2);
        KT_EQ(ks_log_aborted(log, 0, 1, a, 4), 1);
        KT_EQ(ks_log_aborted(log, 45, 46, a, 4), 0);
        KT_EQ(ks_log_aborted(log, 0, 46, a, 1), 2); /* tells how many there are */
        log = cp_reopen(log, 2000);
    }
    st_close(&cp_b, log);
    cp_end();
}

/* ---- hints and files say the same ---- */

static int by_pid(const void *a, const void *b)
{
    int64_t x = ((const struct ks_prod_entry *)a)->producer_id;
    int64_t y = ((const struct ks_prod_entry *)b)->producer_id;
    return x < y ? -1 : x > y;
}

static uint32_t list_prods(const struct ks_prods *t, struct ks_prod_entry *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        if (t->slots[i].producer_id >= 0) {
            out[n++] = t->slots[i];
        }
    }
    qsort(out, n, sizeof(*out), by_pid);
    return n;
}

static void same_prods(const struct ks_prods *a, const struct ks_prods *b)
{
    struct ks_prod_entry x[64], y[64];
    KT_EQ(a->len, b->len);
    KT_EQ(a->open_txns, b->open_txns);
    KT_REQUIRE(a->len <= 64 && list_prods(a, x) == list_prods(b, y));
    for (uint32_t i = 0; i < a->len; i++) {
        KT_EQ(x[i].producer_id, y[i].producer_id);
        KT_EQ(x[i].last_ts, y[i].last_ts);
        KT_EQ(x[i].txn_first, y[i].txn_first);
        KT_EQ(x[i].epoch, y[i].epoch);
        KT_EQ(x[i].n, y[i].n);
        KT_EQ(memcmp(x[i].batches, y[i].batches, x[i].n * sizeof(x[i].batches[0])), 0);
    }
}

/* Empty arrays are NULL, which memcmp must not be given. */
static bool same_bytes(const void *a, const void *b, size_t len)
{
    return len == 0 || memcmp(a, b, len) == 0;
}

static void same_seg(const struct ks_seg *h, const struct ks_seg *f)
{
    KT_TRUE(ks_file_eq(h->file->id, f->file->id));
    KT_EQ(h->base, f->base);
    KT_EQ(h->end, f->end);
    KT_EQ(h->len, f->len);
    KT_EQ(h->epoch, f->epoch);
    if (h->ts_known) {
        KT_EQ(h->max_ts, f->max_ts);
        KT_EQ(h->max_ts_base, f->max_ts_base);
    }
    if (h->indexed) {
        KT_EQ(h->last_pos, f->last_pos);
        KT_EQ(h->n_marks, f->n_marks);
        KT_TRUE(same_bytes(h->marks, f->marks, KC_MIN(h->n_marks, f->n_marks) * sizeof(*h->marks)));
    }
}

static void same_state(const struct ks_state *h, const struct ks_state *f)
{
    KT_EQ(h->start, f->start);
    KT_EQ(h->end, f->end);
    KT_EQ(h->bytes, f->bytes);
    same_prods(&h->prods, &f->prods);
    KT_EQ(h->aborts.n, f->aborts.n);
    KT_TRUE(same_bytes(h->aborts.v, f->aborts.v,
                       KC_MIN(h->aborts.n, f->aborts.n) * sizeof(*h->aborts.v)));
    KT_EQ(h->n_epochs, f->n_epochs);
    for (uint32_t i = 0; i < KC_MIN(h->n_epochs, f->n_epochs); i++) {
        KT_EQ(h->epochs[i].epoch, f->epochs[i].epoch);
        KT_EQ(h->epochs[i].start, f->epochs[i].start);
    }
    KT_REQUIRE(h->n_segs == f->n_segs);
    for (uint32_t i = 0; i < h->n_segs; i++) {
        same_seg(&h->segs[i], &f->segs[i]);
    }
}

/* Builds the sealed log twice; true: the first one started from a snapshot. */
static bool compare(void)
{
    struct ks_fs fs;
    struct ks_chain c;
    struct ks_fds fds;
    struct ks_build h, f;
    KT_REQUIRE(ks_fs_posix(&fs, cp_vol.dir, NULL) == 0);
    ks_fds_init(&fds, 4);
    ks_chain_init(&c);
    KT_REQUIRE(ks_chain_load(&fs, &cp_topic, 0, 0, &c, NULL) == 0);
    ks_build_init(&h, &fs, &fds, &cp_topic, 0);
    ks_build_init(&f, &fs, &fds, &cp_topic, 0);
    f.no_hints = true;
    h.hint_worth = 0;
    h.now_wall_ms = f.now_wall_ms;
    KT_EQ(ks_build_run(&h, &c, NULL), 0);
    KT_EQ(ks_build_run(&f, &c, NULL), 0);
    same_state(&h.st, &f.st);
    bool hinted = h.hint != NULL;
    KT_TRUE(!hinted || h.read_bytes < f.read_bytes + 8192);
    ks_build_fini(&h);
    ks_build_fini(&f);
    ks_chain_fini(&c);
    ks_fds_fini(&fds);
    ks_fs_fini(&fs);
    return hinted;
}

struct model {
    int32_t seq[8];
    bool open[8];
};

static void one_step(struct ks_log *log, struct kc_rng *rng, struct model *m)
{
    int p = (int)kc_rng_below(rng, 8);
    if (p >= 4 && m->open[p] && kc_rng_below(rng, 3) == 0) {
        finish_txn(log, 100 + p, kc_rng_below(rng, 2));
        m->open[p] = false;
        return;
    }
    int32_t n = 1 + (int32_t)kc_rng_below(rng, 4);
    struct st_batch b = {.count = n,
                         .pid = p ? 100 + p : 0,
                         .seq = m->seq[p],
                         .value_len = 1 + (size_t)kc_rng_below(rng, 600),
                         .ts = kc_wall_ms() - (int64_t)kc_rng_below(rng, 100000),
                         .attrs = p >= 4 ? KS_ATTR_TRANSACTIONAL : 0};
    struct st_append a;
    st_append_start(log, st_make(&b), KS_FROM_CLIENT, &a);
    if (kc_rng_below(rng, 3)) {
        st_until(&cp_b, &a.done); /* else several are on their way */
        KT_EQ(a.r.error, 0);
    } else {
        struct st_append a2;
        b.seq += n;
        b.count = 1;
        m->seq[p]++;
        st_append_start(log, st_make(&b), KS_FROM_CLIENT, &a2);
        st_until(&cp_b, &a2.done);
        KT_EQ(a2.r.error, 0);
    }
    m->seq[p] += n;
    m->open[p] = p >= 4;
}

static void state_from_hints_is_state_from_files(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    int hinted = 0;
    for (int run = 0; run < 6; run++) {
        cp_begin();
        struct model m = {0};
        int64_t segment = 3000 + (int64_t)kc_rng_below(&rng, 40000);
        struct ks_log *log = cp_open(segment);
        for (int part = 0; part < 6; part++) {
            int steps = (int)kc_rng_below(&rng, 80);
            for (int i = 0; i < steps; i++) {
                one_step(log, &rng, &m);
            }
            struct st_seal s;
            if (kc_rng_below(&rng, 2)) {
                st_seal(&cp_b, log, &s);
                KT_EQ(s.rc, 0);
                st_broker_stop(&cp_b);
                hinted += compare();
                cp_start_broker();
                log = cp_open(segment);
            } else {
                cp_settle(log);
                log = cp_reopen(log, segment);
            }
        }
        struct st_seal s;
        st_seal(&cp_b, log, &s);
        st_broker_stop(&cp_b);
        hinted += compare();
        cp_start_broker();
        struct ks_fsck_result r;
        struct ks_fsck_opts o = {.dir = cp_vol.dir, .out = stderr};
        KT_EQ(ks_fsck(&o, &r, NULL), 0);
        KT_EQ(r.bad_hints, 0);
        cp_end();
    }
    KT_TRUE(hinted > 3);
}

/* ---- indexes ---- */

static void indexes_come_back_when_needed(void)
{
    for (int with_idx = 0; with_idx < 2; with_idx++) {
        cp_begin();
        struct ks_log *log = cp_open(60000);
        int64_t ts = 1000000;
        for (int i = 0; i < 300; i++) {
            struct st_batch b = {.count = 2, .value_len = CP_VALUE, .ts = ts += 1000};
            KT_EQ(st_append(&cp_b, log, st_make(&b)).error, 0);
            cp_settle(log);
        }
        struct st_seal s;
        st_seal(&cp_b, log, &s);
        st_broker_stop(&cp_b);
        KT_TRUE(cp_each(".idx", with_idx ? NULL : cp_gone) >= 2);
        cp_start_broker();
        log = cp_open(60000);
        KT_TRUE(log->st.n_segs > 3 && !log->st.segs[0].indexed && log->st.segs[0].ts_known);
        uint64_t before_bytes = atomic_load(&cp_b.e->m_open_read);
        struct st_read r = st_read(&cp_b, log, 150, 600, 1000);
        KT_EQ(r.first, 150);
        const struct ks_seg *seg = ks_state_seg(&log->st, 150);
        KT_TRUE(seg->indexed && seg->n_marks >= 2 && !seg->loading);
        KT_EQ(st_count(&cp_b, log), 600);
        KT_EQ(atomic_load(&cp_b.e->m_open_read), before_bytes);
        KT_TRUE(log->marks_bytes > 0);
        KT_EQ(log->shard->marks_bytes, log->marks_bytes);
        st_close(&cp_b, log);
        st_broker_stop(&cp_b);
        KT_TRUE(cp_each(".idx", NULL) >= 2); /* written again when it was rebuilt */
        cp_start_broker();
        cp_end();
    }
}

static void indexes_are_forgotten_when_memory_is_short(void)
{
    cp_begin();
    cp_b.e->index_bytes = 1;
    struct ks_log *log = cp_open(30000);
    cp_put(log, 200);
    struct kc_uuid first = cp_topic;
    cp_topic = kc_uuid_random();
    struct ks_log *other = cp_open(30000);
    cp_put(other, 200);
    KT_EQ(log->marks_bytes, 0); /* the other one's came later */
    KT_FALSE(log->st.segs[0].indexed);
    KT_EQ(st_count(&cp_b, log), 400);
    KT_EQ(st_count(&cp_b, other), 400);
    st_close(&cp_b, other);
    cp_topic = first;
    st_close(&cp_b, log);
    cp_end();
}

static void timestamps_are_found_without_an_index(void)
{
    cp_begin();
    struct ks_log *log = cp_open(20000);
    for (int i = 0; i < 100; i++) {
        struct st_batch b = {.count = 2, .value_len = CP_VALUE, .ts = 1000000 + i * 1000};
        KT_EQ(st_append(&cp_b, log, st_make(&b)).error, 0);
        cp_settle(log);
    }
    st_close(&cp_b, log);
    st_broker_stop(&cp_b);
    cp_each(".idx", cp_gone);
    cp_start_broker();
    log = cp_open(20000);
    for (uint32_t i = 0; i + 1 < log->st.n_segs; i++) {
        log->st.segs[i].ts_known = log->st.segs[i].indexed =
            false; /* as if the snapshot had none */
    }
    struct st_lookup l = st_lookup(&cp_b, log, 1050500);
    KT_EQ(l.error, 0);
    KT_EQ(l.offset, 102);
    KT_EQ(l.ts, 1051000);
    l = st_lookup(&cp_b, log, KS_TS_MAX);
    KT_EQ(l.offset, 199);
    KT_EQ(l.ts, 1099001);
    l = st_lookup(&cp_b, log, 2000000);
    KT_EQ(l.offset, -1);
    st_close(&cp_b, log);
    cp_end();
}

KT_MAIN("index", KT(aborted_transactions_are_listed), KT(state_from_hints_is_state_from_files),
        KT(indexes_come_back_when_needed), KT(indexes_are_forgotten_when_memory_is_short),
        KT(timestamps_are_found_without_an_index))
