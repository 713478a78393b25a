/* Checkpoints: what an opening reads, and that a hint which is missing, torn, foreign or stale only
 * costs time. */
#include "st_ckpt.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "storage/ks_bytes.h"
#include "storage/ks_fsck.h"
#include "storage/ks_hint.h"

static void an_opening_reads_what_came_after_the_checkpoint(void)
{
    cp_begin();
    struct ks_log *log = cp_open(1 << 30);
    cp_put(log, 200); /* some 130 KB */
    KT_TRUE(cp_each(".snap", NULL) >= 1);
    KT_TRUE(cp_each(".snap", NULL) <= 2); /* older ones go */
    log = cp_reopen(log, 1 << 30);
    uint64_t most = atomic_load(&cp_b.e->m_open_read_max);
    /* Twice what came since (scan and rebuild), twice the snapshot, and headers. */
    KT_TRUE(most < 2 * (CP_BYTES + 1400) + 2 * 4096);
    KT_TRUE(most > 0);
    KT_EQ(ks_log_offsets(log).high_watermark, 400);
    KT_EQ(st_count(&cp_b, log), 400);
    KT_EQ(cp_each(".tmp", NULL), 0);
    st_close(&cp_b, log);
    cp_end();
}

static void a_small_log_has_no_checkpoint(void)
{
    cp_begin();
    cp_b.e->checkpoint_bytes = KS_CKPT_BYTES;
    struct ks_log *log = cp_open(1 << 30);
    cp_put(log, 20);
    struct st_seal s;
    st_seal(&cp_b, log, &s);
    KT_EQ(s.rc, 0);
    KT_EQ(cp_each(".snap", NULL) + cp_each(".idx", NULL), 0);
    cp_end();
}

static void a_planned_stop_leaves_nothing_to_read(void)
{
    cp_begin();
    struct ks_log *log = cp_open(1 << 30);
    cp_put(log, 33);
    struct st_seal s;
    st_seal(&cp_b, log, &s);
    st_broker_stop(&cp_b);
    cp_start_broker();
    log = cp_open(1 << 30);
    KT_TRUE(atomic_load(&cp_b.e->m_open_read_max) < 2 * 4096);
    KT_EQ(st_count(&cp_b, log), 66);
    st_close(&cp_b, log);
    cp_end();
}

/* ---- bad hints ---- */

static void cut(const char *path)
{
    struct stat st;
    KT_REQUIRE(stat(path, &st) == 0 && st.st_size > 10);
    KT_EQ(truncate(path, st.st_size / 2), 0);
}

static void empty(const char *path)
{
    KT_EQ(truncate(path, 0), 0);
}

/* Changes one byte; the checksum at the end is made to fit if good. */
static void change(const char *path, off_t at, uint8_t with, bool good)
{
    static uint8_t buf[1 << 20];
    int fd = open(path, O_RDWR);
    KT_REQUIRE(fd >= 0);
    ssize_t n = pread(fd, buf, sizeof(buf), 0);
    KT_REQUIRE(n > 8);
    buf[at] ^= with;
    if (good) {
        ks_put32(buf + n - 4, kc_crc32c(0, buf, (size_t)n - 4));
    }
    KT_EQ(pwrite(fd, buf, (size_t)n, 0), n);
    close(fd);
}

static void flip(const char *path)
{
    change(path, 140, 0xff, false);
}
static void foreign_topic(const char *path)
{
    change(path, 8, 1, true);
}
static void foreign_partition(const char *path)
{
    change(path, 27, 1, true);
}
static void foreign_writer(const char *path)
{
    change(path, 28, 1, true);
}
static void other_epoch(const char *path)
{
    change(path, 55, 1, true);
}
static void longer_than_the_file(const char *path)
{
    change(path, 76, 1, true); /* the length, by 16 MiB and more */
}
static void other_crc(const char *path)
{
    change(path, 91, 1, true);
}
static void more_entries_than_bytes(const char *path)
{
    change(path, 116, 0x7f, true);
}
static void bad_hints_are_ignored(void)
{
    static void (*const harm[])(const char *) = {cp_gone,
                                                 cut,
                                                 empty,
                                                 flip,
                                                 foreign_topic,
                                                 foreign_partition,
                                                 foreign_writer,
                                                 other_epoch,
                                                 longer_than_the_file,
                                                 other_crc,
                                                 more_entries_than_bytes};
    for (size_t i = 0; i < KC_ARRAY_LEN(harm); i++) {
        cp_begin();
        struct ks_log *log = cp_open(20000);
        cp_put(log, 100);
        cp_settle(log);
        st_close(&cp_b, log);
        st_broker_stop(&cp_b);
        KT_TRUE(cp_each(".snap", harm[i]) > 0);
        KT_TRUE(cp_each(".idx", harm[i]) > 0);
        struct ks_fsck_result r;
        struct ks_fsck_opts o = {.dir = cp_vol.dir, .out = stderr};
        KT_EQ(ks_fsck(&o, &r, NULL), 0); /* no error: nobody believes them */
        KT_EQ(r.bad_hints > 0, harm[i] != cp_gone);
        cp_start_broker();
        log = cp_open(20000);
        KT_TRUE(atomic_load(&cp_b.e->m_open_read_max) >
                100 * 2 * CP_VALUE); /* everything was read */
        KT_EQ(ks_log_offsets(log).high_watermark, 200);
        KT_EQ(st_count(&cp_b, log), 200);
        st_close(&cp_b, log);
        cp_end();
    }
}

/* The hint survived a crash of the machine, the end of its data file did not (a lying disk). */
static void cut_data(const char *path)
{
    struct stat st;
    KT_REQUIRE(stat(path, &st) == 0);
    KT_EQ(truncate(path, st.st_size / 2), 0);
}

static void a_hint_without_its_bytes_is_ignored(void)
{
    cp_begin();
    struct ks_log *log = cp_open(1 << 30);
    cp_put(log, 40);
    st_close(&cp_b, log);
    st_broker_stop(&cp_b);
    cp_each(".log", cut_data);
    cp_start_broker();
    log = cp_open(1 << 30);
    int64_t hw = ks_log_offsets(log).high_watermark;
    KT_TRUE(hw > 30 && hw <= 40);
    KT_EQ(st_count(&cp_b, log), hw);
    st_close(&cp_b, log);
    cp_end();
}

/* ---- faults while one is written ---- */

static void a_failed_checkpoint_harms_nothing(void)
{
    static const struct {
        enum st_op op;
        const char *part;
    } steps[] = {{ST_LINK, ".snap"}, {ST_LINK, ".idx"}, {ST_UNLINK, ".snap"}, {ST_UNLINK, "tmp."}};
    for (size_t i = 0; i < KC_ARRAY_LEN(steps); i++) {
        cp_begin();
        struct ks_log *log = cp_open(20000);
        cp_trap.op = steps[i].op;
        cp_trap.rc = -EIO;
        cp_trap.hits = 0;
        cp_trap.part = steps[i].part; /* armed */
        cp_put(log, 100);
        KT_TRUE(cp_trap.hits > 0);
        cp_trap.part = NULL;
        log = cp_reopen(log, 20000);
        KT_EQ(ks_log_offsets(log).high_watermark, 200);
        KT_EQ(st_count(&cp_b, log), 200);
        st_close(&cp_b, log);
        cp_end();
    }
}

/* ---- producers ---- */

static int16_t produce(struct ks_log *log, int64_t pid, int32_t seq, int64_t *ret_base)
{
    struct st_batch b = {.count = 2, .pid = pid, .seq = seq, .value_len = CP_VALUE};
    struct ks_append_result r = st_append(&cp_b, log, st_make(&b));
    *ret_base = r.base_offset;
    cp_settle(log);
    return r.error;
}

static void producers_survive_retention_and_takeover(void)
{
    cp_begin();
    struct ks_log *log = cp_open(3000);
    int64_t base, again;
    KT_EQ(produce(log, 7, 0, &base), 0);
    KT_EQ(produce(log, 7, 2, &base), 0);
    cp_put(log, 60);
    struct ks_log_config cfg = log->cfg;
    cfg.retention_bytes = 4000;
    ks_log_configure(log, &cfg);
    for (int i = 0; i < 100 && ks_log_offsets(log).start <= base; i++) {
        ks_retention_post(cp_b.e);
        st_turn(&cp_b);
        cp_put(log, 1);
    }
    KT_TRUE(ks_log_offsets(log).start > base + 1); /* its batches are cp_gone */
    for (int round = 0; round < 3; round++) {
        KT_EQ(produce(log, 7, 2, &again), 0); /* a repeat, told from the snapshot */
        KT_EQ(again, base);
        KT_EQ(produce(log, 7, 6, &again), 45);
        log = cp_reopen(log, 3000);
    }
    KT_EQ(produce(log, 7, 4, &again), 0);
    KT_TRUE(again > base);
    st_close(&cp_b, log);
    cp_end();
}

static void retention_waits_for_the_snapshot_of_an_idle_log(void)
{
    cp_begin();
    struct ks_log *log = cp_open(700);
    int64_t base, again;
    KT_EQ(produce(log, 7, 0, &base), 0);
    KT_EQ(produce(log, 7, 2, &base), 0);
    KT_EQ(produce(log, 7, 4, &base), 0);
    KT_EQ(cp_each(".snap", NULL), 0);
    struct ks_log_config cfg = log->cfg;
    cfg.retention_bytes = 0;
    ks_log_configure(log, &cfg);
    for (int64_t until = kc_mono_ms() + 20000; ks_log_offsets(log).start == 0;) {
        KT_REQUIRE(kc_mono_ms() < until);
        ks_retention_post(cp_b.e);
        st_turn(&cp_b);
        cp_settle(log);
    }
    KT_EQ(cp_each(".snap", NULL), 1);
    log = cp_reopen(log, 700);
    KT_EQ(produce(log, 7, 4, &again), 0);
    KT_EQ(again, base);
    st_close(&cp_b, log);
    cp_end();
}

static void what_is_not_synced_is_not_checkpointed(void)
{
    cp_begin();
    struct ks_log *log = cp_open(1 << 30);
    struct ks_log_config cfg = log->cfg;
    cfg.flush_messages = 60; /* records */
    ks_log_configure(log, &cfg);
    cp_put(log, 29); /* far more than the interval */
    KT_EQ(cp_each(".snap", NULL), 0);
    cp_put(log, 1);
    KT_EQ(cp_each(".snap", NULL), 1);
    st_close(&cp_b, log);
    cp_end();
}

KT_MAIN("ckpt", KT(an_opening_reads_what_came_after_the_checkpoint),
        KT(a_small_log_has_no_checkpoint), KT(a_planned_stop_leaves_nothing_to_read),
        KT(bad_hints_are_ignored), KT(a_hint_without_its_bytes_is_ignored),
        KT(a_failed_checkpoint_harms_nothing), KT(producers_survive_retention_and_takeover),
        KT(retention_waits_for_the_snapshot_of_an_idle_log),
        KT(what_is_not_synced_is_not_checkpointed))
