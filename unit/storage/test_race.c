/* The order of steps that safety rests on, caught in the act: hooks run at the moment of an
 * operation and do what another broker could do right then. Every mutant of storage.md that a single
 * broker's code can express fails one of these. */
#include "st.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/kc_mem.h"

static struct st_vol vol;
static struct st_broker b1, b2;
static struct kc_uuid topic;
static struct ks_fs other; /* the volume as somebody else reaches it */

static struct {
    enum st_op op;
    char end[64];
    void (*fn)(void);
    _Atomic bool armed; /* what is above does not change meanwhile */
    _Atomic int hits;
} trap;

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (atomic_load(&trap.armed) && op == trap.op && st_ends_with(path, trap.end) &&
        atomic_exchange(&trap.armed, false)) {
        trap.fn();
        atomic_fetch_add(&trap.hits, 1);
    }
    return 0;
}

static void set_trap(enum st_op op, const char *end, void (*fn)(void))
{
    trap.op = op;
    snprintf(trap.end, sizeof(trap.end), "%s", end);
    trap.fn = fn;
    trap.hits = 0;
    trap.armed = true;
}

/* b1's file system has the trap; b2 is an ordinary broker. */
static void begin(void)
{
    static const struct st_hooks hooks = {.before = before};
    trap.armed = false;
    st_begin(&vol, &b1, 1, &hooks, &topic);
    st_broker_start(&b2, &vol, 2);
    KT_REQUIRE(ks_fs_posix(&other, vol.dir, NULL) == 0);
}

static void end(void)
{
    ks_fs_fini(&other);
    st_end_pair(&vol, &b1, &b2);
}

static struct ks_log *victim; /* b2's log */
static char victim_path[256];

static void victim_with_5(void)
{
    victim = st_log(&b2, &topic, 0);
    st_put(&b2, victim, 5);
    st_data_path(&vol, victim, victim_path);
}

static void append_two_more(void)
{
    struct kc_slice b = st_make(&(struct st_batch){.count = 2});
    ks_batch_place(b.buf->data, 5, 0);
    st_file_append(victim_path, b.ptr, b.len);
    kc_buf_unref(b.buf);
}

static void what_lands_before_the_fence_is_counted(void) /* M1 */
{
    begin();
    victim_with_5();
    char inc[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(&b2.inc, inc);
    set_trap(ST_EXTEND, inc, append_two_more);
    struct ks_log *log = st_log(&b1, &topic, 0);
    KT_EQ(trap.hits, 1);
    KT_EQ(ks_log_offsets(log).high_watermark, 7);
    st_close(&b1, log);
    st_close(&b2, victim);
    end();
}

static void seal_at_5(void)
{
    struct ks_rec r = {.type = KS_SEAL, .k = 2, .epoch = 0};
    r.seal.end = 5;
    r.seal.file = victim->c_file->id;
    r.seal.len = victim->c_acked;
    r.seal.crc = victim->c_crc;
    KT_EQ(ks_chain_append(&other, &topic, 0, &r, NULL, NULL), 0);
}

static void a_lost_seal_race_adopts_the_winners_length(void) /* M6 */
{
    begin();
    victim_with_5();
    append_two_more(); /* our own scan would say 7 */
    set_trap(ST_LINK, "ctl.2", seal_at_5);
    struct ks_log *log = st_log(&b1, &topic, 0);
    KT_EQ(trap.hits, 1);
    KT_EQ(ks_log_offsets(log).high_watermark, 5);
    KT_EQ(st_put(&b1, log, 1), 5);
    KT_EQ(st_count(&b1, log), 6);
    st_close(&b1, log);
    st_close(&b2, victim);
    end();
}

static uint64_t claim_k;

static void claim_by_a_third(void)
{
    struct ks_rec r = {.type = KS_CLAIM, .k = claim_k, .epoch = (int32_t)claim_k};
    r.claim.broker = 3;
    r.claim.incarnation = kc_uuid_random();
    r.claim.file = (struct ks_file_id){.inc8 = 3, .seq = 0};
    char path[KS_PATH_MAX];
    ks_path_file(path, &topic, 0, r.claim.file);
    int fd = ks_fs_open(&other, path, KS_CREATE);
    KT_TRUE(fd >= 0);
    ks_fs_close(&other, fd);
    KT_EQ(ks_chain_append(&other, &topic, 0, &r, NULL, NULL), 0);
}

static void a_newer_claim_in_the_seals_place_deposes(void) /* M13 */
{
    begin();
    victim_with_5();
    claim_k = 2;
    set_trap(ST_LINK, "ctl.2", claim_by_a_third);
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 0, &o);
    KT_EQ(st_open_rc(&b1, &args, &o), KC_E_DEPOSED);
    KT_EQ(trap.hits, 1);
    st_close(&b2, victim);
    end();
}

static void a_lost_claim_race_lists_again(void)
{
    begin();
    victim_with_5();
    claim_k = 1;
    set_trap(ST_LINK, "ctl.1", claim_by_a_third);
    struct ks_log *log = st_log(&b1, &topic, 0);
    KT_EQ(trap.hits, 1);
    KT_EQ(ks_log_epoch(log), 2); /* after the third broker's, which never opened */
    KT_EQ(ks_log_offsets(log).high_watermark, 5);
    KT_EQ(st_put(&b1, log, 1), 5);
    st_close(&b1, log);
    st_close(&b2, victim);
    end();
}

static void fence_ourselves(void)
{
    KT_EQ(ks_inc_fence(&other, 1, &b1.inc), 0);
}

static void a_fence_between_sync_and_check_stops_the_ack(void) /* M2, M3 */
{
    begin();
    struct ks_log *log = st_log(&b1, &topic, 0);
    KT_EQ(st_put(&b1, log, 1), 0);
    set_trap(ST_DATASYNC, ".log", fence_ourselves);
    KT_EQ(st_put(&b1, log, 1), -6);
    KT_EQ(trap.hits, 1);
    KT_EQ(ks_log_offsets(log).high_watermark, 1);
    st_close(&b1, log);
    end();
}

static int empty_files;

static bool count_empty(void *arg, const char *name)
{
    (void)arg;
    if (st_ends_with(name, ".log")) {
        char path[KS_PATH_MAX];
        ks_path_part(path, &topic, 0, name);
        int fd = ks_fs_open(&other, path, KS_HANDLE);
        struct ks_stat st;
        KT_EQ(ks_fs_stat(&other, fd, &st), 0);
        empty_files += st.size == 0;
        ks_fs_close(&other, fd);
    }
    return true;
}

static void look_for_empty_files(void)
{
    char dir[KS_PATH_MAX];
    ks_path_part(dir, &topic, 0, NULL);
    empty_files = 0;
    KT_EQ(ks_fs_list(&other, dir, count_empty, NULL), 0);
}

static void nothing_is_written_to_the_next_file_before_its_roll(void) /* M10 */
{
    begin();
    struct ks_log *log = st_log_small(&b1, &topic, 300);
    set_trap(ST_LINK, "ctl.1", look_for_empty_files);
    for (int i = 0; i < 6; i++) {
        KT_EQ(st_put(&b1, log, 2), 2 * i);
    }
    KT_EQ(trap.hits, 1);
    KT_EQ(empty_files, 1);
    st_close(&b1, log);
    end();
}

static uint64_t log_start_in_chain;

static void read_log_start(void)
{
    struct ks_chain c;
    ks_chain_init(&c);
    KT_EQ(ks_chain_load(&other, &topic, 0, 0, &c, NULL), 0);
    log_start_in_chain = (uint64_t)c.log_start;
    ks_chain_fini(&c);
}

static void files_go_only_after_their_trim_record(void) /* M8 */
{
    begin();
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 0, &o);
    args.config.segment_bytes = 300;
    args.config.retention_bytes = 700;
    KT_REQUIRE(st_open_rc(&b1, &args, &o) == 0);
    struct ks_log *log = o.log;
    ks_log_own(log, &b1.loop);
    for (int i = 0; i < 20; i++) {
        st_put(&b1, log, 2);
    }
    log_start_in_chain = 0;
    set_trap(ST_UNLINK, ".log", read_log_start);
    ks_retention_post(b1.e);
    while (ks_log_offsets(log).start == 0) {
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    }
    while (atomic_load(&trap.hits) == 0) {
        sched_yield(); /* the files go on a pool thread */
    }
    int64_t start = ks_log_offsets(log).start;
    KT_EQ(log_start_in_chain, start);
    KT_TRUE(ks_log_size_bytes(log) >= 700);
    KT_EQ(st_read(&b1, log, start - 1, 40, 1000).r.error, 1);
    KT_EQ(st_count(&b1, log), 40 - start);
    struct ks_log *other_log = st_log(&b2, &topic, 0); /* over an open epoch with trimmed files */
    KT_EQ(ks_log_offsets(other_log).start, start);
    KT_EQ(ks_log_offsets(other_log).high_watermark, 40);
    struct st_seal s;
    st_seal(&b2, other_log, &s);
    KT_EQ(s.rc, 0);
    st_close(&b1, log);
    struct kc_uuid again = kc_uuid_random();
    KT_EQ(ks_register(b1.e, &again, NULL), 0);
    for (int i = 0; i < 2; i++) { /* the start survives, here and at another broker */
        struct st_broker *b = i ? &b2 : &b1;
        log = st_log(b, &topic, 0);
        KT_EQ(ks_log_offsets(log).start, start);
        KT_EQ(ks_log_offsets(log).high_watermark, 40);
        KT_EQ(st_count(b, log), 40 - start);
        st_close(b, log);
    }
    end();
}

/* Its state is old: a producer that was served elsewhere meanwhile would believe that it lost count. */
static void a_deposed_owner_calls_nobody_out_of_sequence(void)
{
    begin();
    struct st_batch s = {.pid = 8};
    victim = st_log(&b2, &topic, 0);
    KT_EQ(st_append(&b2, victim, st_make(&s)).error, 0);
    struct ks_log *log = st_log(&b1, &topic, 0);
    for (s.seq = 1; s.seq < 3; s.seq++) {
        KT_EQ(st_append(&b1, log, st_make(&s)).error, 0);
    }
    KT_EQ(st_append(&b2, victim, st_make(&s)).error, 6);
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 0);
    s.seq += 7;
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 45);
    st_close(&b1, log);
    st_close(&b2, victim);
    end();
}

/* The old owner seals over the claim of a third; what the chain says then (ks_chain_fini). */
static void seal_deposed(struct ks_chain *ret_chain)
{
    struct st_seal s;
    st_seal(&b2, victim, &s);
    KT_EQ(s.rc, KC_E_DEPOSED);
    ks_chain_init(ret_chain);
    KT_EQ(ks_chain_load(&other, &topic, 0, 0, ret_chain, NULL), 0);
    KT_EQ(ret_chain->next_k, 3);
}

/* A claimant stopped between its CLAIM and the fence: the old owner, alive, seals its epoch itself, and
 * the next claimant needs no fence of it. */
static void a_deposed_owner_seals_its_own_epoch(void)
{
    begin();
    victim_with_5();
    claim_k = 1;
    claim_by_a_third();
    struct ks_chain c;
    seal_deposed(&c);
    KT_TRUE(c.epochs[0].sealed);
    KT_EQ(c.epochs[0].end, 5);
    ks_chain_fini(&c);
    struct ks_log *log = st_log(&b1, &topic, 0);
    KT_EQ(ks_log_offsets(log).high_watermark, 5);
    KT_EQ(b2.n_fenced, 0);
    st_close(&b1, log);
    end();
}

static void a_deposed_owner_adopts_the_seal_that_stands(void)
{
    begin();
    victim_with_5();
    claim_k = 1;
    claim_by_a_third();
    seal_at_5();
    struct ks_chain c;
    seal_deposed(&c);
    KT_EQ(c.late_seals, 0);
    ks_chain_fini(&c);
    end();
}

KT_MAIN("race", KT(what_lands_before_the_fence_is_counted),
        KT(a_lost_seal_race_adopts_the_winners_length),
        KT(a_newer_claim_in_the_seals_place_deposes), KT(a_lost_claim_race_lists_again),
        KT(a_fence_between_sync_and_check_stops_the_ack),
        KT(nothing_is_written_to_the_next_file_before_its_roll),
        KT(files_go_only_after_their_trim_record), KT(a_deposed_owner_calls_nobody_out_of_sequence),
        KT(a_deposed_owner_seals_its_own_epoch), KT(a_deposed_owner_adopts_the_seal_that_stands))
