/* ADR 10: what a SEAL names survives a crash of the server. The volume takes itself for a network
 * file system here unless a test says otherwise; a crash is played by cutting the old owner's file
 * down to what the protocol may count on. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "storage/ks_scan.h"

static struct st_vol vol;
static struct st_broker b1, b2; /* b2's operations pass the hooks */
static struct kc_uuid topic;
static struct st_hooks hooks;
static struct ks_fs other;

/* Fails `times` operations of this kind on names that end so; counts all that match. */
static struct {
    _Atomic int times;
    enum st_op op;
    int hits;
    char end[64];
    bool late; /* performed, the answer is lost */
    void (*fn)(void); /* called at the first match, which passes */
} trap;

static int meet(enum st_op op, const char *path, bool late)
{
    if (op != trap.op || !st_ends_with(path, trap.end) || late != trap.late) {
        return 0;
    }
    trap.hits++;
    if (trap.fn) {
        void (*fn)(void) = trap.fn;
        trap.fn = NULL;
        fn();
        return 0;
    }
    return atomic_load(&trap.times) > 0 && atomic_fetch_sub(&trap.times, 1) > 0 ? -EIO : 0;
}

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    return meet(op, path, false);
}

static int after(void *ctx, enum st_op op, const char *path, int rc)
{
    (void)ctx;
    int fault = meet(op, path, true);
    return fault ? fault : rc;
}

static void set_trap(enum st_op op, const char *end, int times, bool late, void (*fn)(void))
{
    trap.op = op;
    trap.hits = 0;
    trap.late = late;
    trap.fn = fn;
    snprintf(trap.end, sizeof(trap.end), "%s", end);
    atomic_store(&trap.times, times);
}

static void begin(bool network)
{
    set_trap(ST_RENAME, "nothing", 0, false, NULL);
    hooks = (struct st_hooks){.before = before, .after = after, .network = network};
    st_begin(&vol, &b1, 1, NULL, &topic);
    st_broker_start_hooked(&b2, &vol, 2, &hooks);
    KT_REQUIRE(ks_fs_posix(&other, vol.dir, NULL) == 0);
}

static void end(void)
{
    ks_fs_fini(&other);
    st_end_pair(&vol, &b1, &b2);
}

static void window(uint64_t bytes)
{
    b1.e->unconfirmed = b2.e->unconfirmed = bytes;
}

static struct ks_chain read_chain(void)
{
    struct ks_chain c;
    ks_chain_init(&c);
    KT_EQ(ks_chain_load(&other, &topic, 0, 0, &c, NULL), 0);
    return c;
}

static bool count_logs(void *arg, const char *name)
{
    *(int *)arg += st_ends_with(name, ".log");
    return true;
}

/* Data files on the volume, named or not. */
static int data_files(void)
{
    char dir[KS_PATH_MAX];
    int n = 0;
    ks_path_part(dir, &topic, 0, NULL);
    KT_EQ(ks_fs_list(&other, dir, count_logs, &n), 0);
    return n;
}

/* Cuts the file of the chain's first epoch to what is durable for certain. */
static void crash_server(const char *path)
{
    struct ks_chain c = read_chain();
    KT_EQ(truncate(path, (off_t)c.files[0].len), 0);
    ks_chain_fini(&c);
}

static void take_over(int puts, uint64_t unconfirmed, bool expect_old_part)
{
    begin(true);
    window(unconfirmed);
    char path[256];
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    for (int i = 0; i < puts; i++) {
        struct st_batch s = {.count = 2, .pid = 5, .seq = 2 * i, .value_len = 1 + (size_t)i % 50};
        KT_EQ(st_append(&b1, l1, st_make(&s)).error, 0);
    }
    st_data_path(&vol, l1, path);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    struct ks_chain c = read_chain();
    KT_EQ(c.n_files, puts ? 3 : 2); /* the epoch's, the copy, the new owner's */
    if (puts) {
        KT_EQ(c.files[0].rescued, c.files[1].len);
        KT_EQ(c.files[1].epoch, 0);
        KT_EQ(c.files[1].end, 2 * puts);
        KT_EQ(c.files[0].len > 0, expect_old_part);
        KT_TRUE(c.files[1].len >= unconfirmed || !expect_old_part);
        KT_TRUE(c.files[1].len < unconfirmed + 300);
    }
    ks_chain_fini(&c);
    crash_server(path);
    KT_EQ(st_count(&b2, l2), 2 * puts);
    struct st_batch again = {.count = 2, .pid = 5, .seq = KC_MAX(2 * (puts - 1), 0)};
    struct ks_append_result r = st_append(&b2, l2, st_make(&again));
    KT_EQ(r.error, 0);
    KT_EQ(r.base_offset, KC_MAX(2 * (puts - 1), 0)); /* known, and still there */
    st_close(&b1, l1);
    st_close(&b2, l2);
    end();
}

static void a_crash_of_the_server_takes_nothing_that_is_sealed(void)
{
    take_over(0, 1000, false);
    take_over(1, 1000, false);
    take_over(40, 1 << 20, false);
    take_over(40, 1000, true);
    take_over(40, 1, true);
    take_over(200, 5000, true);
}

static void a_tail_larger_than_the_buffers_is_copied(void)
{
    begin(true);
    window(700000);
    char path[256];
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    for (int i = 0; i < 8; i++) {
        struct st_batch s = {.count = 2, .value_len = 20000 + 40000 * (size_t)i};
        KT_EQ(st_append(&b1, l1, st_make(&s)).error, 0);
    }
    st_data_path(&vol, l1, path);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    crash_server(path);
    KT_EQ(st_count(&b2, l2), 16);
    st_close(&b1, l1);
    st_close(&b2, l2);
    end();
}

static void a_file_system_of_this_machine_is_synced_instead(void)
{
    begin(false);
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    st_put(&b1, l1, 3);
    char name[KS_FILE_NAME_LEN];
    ks_file_name(l1->c_file->id, name);
    set_trap(ST_DATASYNC, name, 0, false, NULL);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(trap.hits, 1);
    struct ks_chain c = read_chain();
    KT_EQ(c.n_files, 2);
    ks_chain_fini(&c);
    st_close(&b1, l1);
    KT_EQ(st_put(&b2, l2, 2), 3);
    ks_file_name(l2->c_file->id, name);
    st_close(&b2, l2);
    end();
}

static void a_file_that_cannot_be_synced_is_copied(void)
{
    begin(false);
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    st_put(&b1, l1, 3);
    char name[KS_FILE_NAME_LEN], path[256];
    ks_file_name(l1->c_file->id, name);
    st_data_path(&vol, l1, path);
    set_trap(ST_DATASYNC, name, 1, false, NULL);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(trap.hits, 1);
    crash_server(path);
    KT_EQ(st_count(&b2, l2), 3);
    st_close(&b1, l1);
    st_close(&b2, l2);
    end();
}

static void nothing_is_sealed_before_its_copy_is_durable(void) /* C3 */
{
    begin(true);
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    st_put(&b1, l1, 3);
    char copy[KS_FILE_NAME_LEN];
    /* The claim's file comes first, the copy is the second that this incarnation makes. */
    ks_file_name((struct ks_file_id){.inc8 = b2.e->inc->inc8, .seq = 1}, copy);
    set_trap(ST_DATASYNC, copy, 1, false, NULL);
    struct st_open o;
    struct ks_open_args args = st_args(&b2, &topic, 0, &o);
    KT_EQ(st_open_rc(&b2, &args, &o), -EIO);
    KT_EQ(trap.hits, 1);
    struct ks_chain c = read_chain();
    KT_FALSE(c.epochs[0].sealed);
    ks_chain_fini(&c);
    KT_EQ(data_files(), 2); /* the copy was given up */
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_EQ(st_count(&b2, l2), 3);
    st_close(&b1, l1);
    st_close(&b2, l2);
    end();
}

static struct ks_log *victim;

static void seal_at_the_acked_length(void)
{
    struct ks_rec r = {.type = KS_SEAL, .k = 2, .epoch = 0};
    r.seal.end = victim->c_end;
    r.seal.file = victim->c_file->id;
    r.seal.len = victim->c_acked;
    r.seal.crc = victim->c_crc;
    KT_EQ(ks_chain_append(&other, &topic, 0, &r, NULL, NULL), 0);
}

static void the_copy_of_a_lost_race_is_removed(void)
{
    begin(true);
    victim = st_log(&b1, &topic, 0);
    st_put(&b1, victim, 3);
    set_trap(ST_LINK, "ctl.2", 0, false, seal_at_the_acked_length);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    KT_TRUE(trap.hits > 0);
    KT_EQ(data_files(), 2);
    KT_EQ(st_count(&b2, l2), 3);
    st_close(&b1, victim);
    st_close(&b2, l2);
    end();
}

static void an_owner_keeps_to_the_bound(void) /* C4 */
{
    begin(true);
    window(600);
    struct st_open o;
    struct ks_open_args args = st_args(&b2, &topic, 0, &o);
    args.config.flush_messages = INT64_MAX;
    KT_REQUIRE(st_open_rc(&b2, &args, &o) == 0);
    struct ks_log *log = o.log;
    ks_log_own(log, &b2.loop);
    for (int i = 0; i < 30; i++) {
        KT_EQ(st_put(&b2, log, 1), i);
        KT_TRUE(log->c_pos - log->c_synced <= 600);
    }
    struct ks_metrics m;
    ks_metrics_read(b2.e, &m);
    KT_TRUE(m.fsyncs > 0 && m.fsyncs < 30);
    /* One append of many batches, as coordinators make them, and one batch beyond the bound. */
    struct kc_slice one = st_make(&(struct st_batch){.count = 1, .value_len = 200});
    struct kc_buf *buf = kc_buf_new(one.len * 10);
    for (size_t i = 0; i < 10; i++) {
        memcpy(buf->data + i * one.len, one.ptr, one.len);
    }
    kc_buf_unref(one.buf);
    struct st_append a;
    uint64_t before_syncs = m.fsyncs;
    st_append_start(log, (struct kc_slice){.buf = buf, .ptr = buf->data, .len = one.len * 10},
                    KS_FROM_COORDINATOR, &a);
    st_until(&b2, &a.done);
    KT_EQ(a.r.error, 0);
    ks_metrics_read(b2.e, &m);
    KT_TRUE(m.fsyncs >= before_syncs + 4);
    KT_EQ(st_append(&b2, log, st_make(&(struct st_batch){.value_len = 5000})).error, 0);
    KT_EQ(st_put(&b2, log, 1), 41);
    KT_TRUE(log->c_pos - log->c_synced <= 600);
    KT_EQ(st_count(&b2, log), 42);
    st_close(&b2, log);
    end();
}

/* Acked without a sync, then an error: what the claim of the next epoch seals is durable. */
static void an_own_epoch_that_was_not_synced_is_copied(void)
{
    for (int fails = 0; fails < 2; fails++) {
        begin(false);
        struct st_open o;
        struct ks_open_args args = st_args(&b2, &topic, 0, &o);
        char name[KS_FILE_NAME_LEN], path[256];
        args.config.flush_messages = INT64_MAX;
        KT_REQUIRE(st_open_rc(&b2, &args, &o) == 0);
        ks_log_own(o.log, &b2.loop);
        for (int i = 0; i < 5; i++) {
            KT_EQ(st_put(&b2, o.log, 1), i);
        }
        ks_file_name(o.log->c_file->id, name);
        st_data_path(&vol, o.log, path);
        if (fails) {
            set_trap(ST_PWRITE, name, 1, false, NULL);
            KT_EQ(st_put(&b2, o.log, 1), -56);
            while (ks_log_epoch(o.log) == 0) {
                uv_run(&b2.loop.uv, UV_RUN_ONCE);
            }
        }
        st_close(&b2, o.log);
        struct ks_log *log = st_log(&b2, &topic, 0);
        struct ks_chain c = read_chain();
        KT_EQ(c.files[0].len, 0);
        KT_TRUE(c.files[0].rescued > 0);
        KT_EQ(c.epochs[0].end, 5);
        ks_chain_fini(&c);
        crash_server(path);
        KT_EQ(st_count(&b2, log), 5);
        st_close(&b2, log);
        end();
    }
}

static void fail_the_next_write(void)
{
    set_trap(ST_PWRITE, "", 1, false, NULL);
}

/* What a record would have named goes when the record was never sent. */
static void failed_attempts_leave_no_files(void)
{
    for (int step = 0; step < 3;
         step++) { /* writing the claim's record, the copy, the seal's record */
        begin(true);
        struct ks_log *l1 = st_log(&b1, &topic, 0);
        st_put(&b1, l1, 3);
        char copy[KS_FILE_NAME_LEN];
        ks_file_name((struct ks_file_id){.inc8 = b2.e->inc->inc8, .seq = 1}, copy);
        switch (step) {
        case 0:
            fail_the_next_write();
            break;
        case 1:
            set_trap(ST_PWRITE, copy, 1, false, NULL);
            break;
        default:
            set_trap(ST_DATASYNC, copy, 0, false, fail_the_next_write);
        }
        struct st_open o;
        struct ks_open_args args = st_args(&b2, &topic, 0, &o);
        KT_EQ(st_open_rc(&b2, &args, &o), -EIO);
        KT_EQ(trap.hits, 1);
        struct ks_log *l2 = st_log(&b2, &topic, 0);
        KT_EQ(st_count(&b2, l2), 3);
        st_close(&b1, l1);
        st_close(&b2, l2);
        st_broker_stop(&b2); /* and with it what was put off */
        struct ks_chain c = read_chain();
        KT_EQ(data_files(), (int)c.n_files);
        ks_chain_fini(&c);
        st_broker_start(&b2, &vol, 2);
        end();
    }
}

KT_MAIN("rescue", KT(a_crash_of_the_server_takes_nothing_that_is_sealed),
        KT(a_tail_larger_than_the_buffers_is_copied),
        KT(a_file_system_of_this_machine_is_synced_instead),
        KT(a_file_that_cannot_be_synced_is_copied),
        KT(nothing_is_sealed_before_its_copy_is_durable), KT(the_copy_of_a_lost_race_is_removed),
        KT(an_owner_keeps_to_the_bound), KT(an_own_epoch_that_was_not_synced_is_copied),
        KT(failed_attempts_leave_no_files))
