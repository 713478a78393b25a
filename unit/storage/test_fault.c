/* Errors of the volume: what is acked stays acked, what is not is refused, the log comes back. */
#include "st.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

static struct st_vol vol;
static struct st_broker b1;
static struct kc_uuid topic;

/* The fault of the running test: this operation on names that end so fails with this error. */
static struct {
    _Atomic int op, error, times, hits;
    _Atomic bool after; /* the operation happens, its answer is lost */
    char end[64];
} fault;

static bool meets(enum st_op op, const char *path, bool after)
{
    if (atomic_load(&fault.after) != after || atomic_load(&fault.op) != (int)op ||
        atomic_load(&fault.times) == 0 || !st_ends_with(path, fault.end)) {
        return false;
    }
    atomic_fetch_add(&fault.hits, 1);
    if (atomic_load(&fault.times) > 0) {
        atomic_fetch_sub(&fault.times, 1);
    }
    return true;
}

/* Holds the commit thread in the sync of a data file of partition 1. */
static struct {
    _Atomic bool closed;
    sem_t reached, pass;
} gate;

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (atomic_load(&gate.closed) && op == ST_DATASYNC && strstr(path, "/1/") &&
        st_ends_with(path, ".log")) {
        sem_post(&gate.reached);
        sem_wait(&gate.pass);
    }
    return meets(op, path, false) ? -atomic_load(&fault.error) : 0;
}

static int after(void *ctx, enum st_op op, const char *path, int rc)
{
    (void)ctx;
    return meets(op, path, true) ? -atomic_load(&fault.error) : rc;
}

/* times < 0: until it is lifted. */
static void inject(enum st_op op, const char *end, int error, int times, bool late)
{
    snprintf(fault.end, sizeof(fault.end), "%s", end);
    fault.op = (int)op;
    fault.error = error;
    fault.after = late;
    fault.hits = 0;
    fault.times = times;
}

static void lift(void)
{
    fault.times = 0;
}

static void begin(void)
{
    static const struct st_hooks hooks = {.before = before, .after = after};
    lift();
    st_begin(&vol, &b1, 1, &hooks, &topic);
}

static void end(void)
{
    lift();
    st_end(&vol, &b1);
}

/* Appends until one is acked: a recovery is under way. */
static int64_t put_until_acked(struct ks_log *log)
{
    for (int i = 0; i < 100000; i++) {
        int64_t r = st_put(&b1, log, 1);
        if (r >= 0) {
            return r;
        }
        KT_EQ(r, -56);
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    }
    return -1;
}

static void after_an_error_the_log_goes_on_in_a_new_epoch(void)
{
    static const struct {
        enum st_op op;
        int error;
    } t[] = {{ST_PWRITE, EIO}, {ST_DATASYNC, EIO}, {ST_DATASYNC, ENOSPC}, {ST_PWRITE, ENOSPC}};
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        begin();
        struct ks_log *log = st_log(&b1, &topic, 0);
        for (int n = 0; n < 5; n++) {
            st_put(&b1, log, 2);
        }
        inject(t[i].op, ".log", t[i].error, 1, false);
        KT_EQ(st_put(&b1, log, 3), -56);
        KT_EQ(ks_log_offsets(log).high_watermark, 10);
        KT_EQ(st_count(&b1, log), 10); /* reads go on */
        KT_EQ(put_until_acked(log), 10); /* the refused records took no offsets */
        KT_EQ(ks_log_epoch(log), 1);
        KT_EQ(st_count(&b1, log), 11);
        KT_EQ(b1.n_fenced, 0);
        st_close(&b1, log);
        log = st_log(&b1, &topic, 0);
        KT_EQ(st_count(&b1, log), 11);
        st_close(&b1, log);
        end();
    }
}

static void a_full_volume_refuses_and_resumes_by_itself(void)
{
    begin();
    struct ks_log *log = st_log(&b1, &topic, 0);
    st_put(&b1, log, 4);
    inject(ST_DATASYNC, "", ENOSPC, -1, false);
    KT_EQ(st_put(&b1, log, 1), -56);
    while (atomic_load(&b1.e->n_retries) == 0) { /* a recovery has tried and failed */
        KT_EQ(st_put(&b1, log, 1), -56);
    }
    KT_EQ(st_count(&b1, log), 4);
    lift();
    KT_EQ(put_until_acked(log), 4);
    KT_EQ(st_count(&b1, log), 5);
    st_close(&b1, log);
    end();
}

static void a_file_is_never_synced_again_after_an_error(void)
{
    begin();
    struct ks_log *log = st_log(&b1, &topic, 0);
    st_put(&b1, log, 1);
    char name[KS_FILE_NAME_LEN];
    ks_file_name(log->c_file->id, name);
    inject(ST_DATASYNC, name, EIO, -1, false);
    KT_EQ(st_put(&b1, log, 1), -56);
    KT_EQ(put_until_acked(log), 1);
    KT_EQ(fault.hits, 1);
    st_close(&b1, log);
    end();
}

static void sequences_of_refused_batches_may_be_sent_again(void)
{
    begin();
    struct ks_log *log = st_log(&b1, &topic, 0);
    struct st_batch s = {.pid = 3, .seq = 0};
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 0);
    inject(ST_DATASYNC, ".log", EIO, 1, false);
    s.seq = 1;
    KT_EQ(st_append(&b1, log, st_make(&s)).error, 56);
    struct ks_append_result r = {.error = 56};
    while (r.error == 56) {
        r = st_append(&b1, log, st_make(&s));
        uv_run(&b1.loop.uv, UV_RUN_NOWAIT);
    }
    KT_EQ(r.error, 0);
    KT_EQ(r.base_offset, 1);
    st_close(&b1, log);
    end();
}

static void a_check_that_cannot_be_made_counts_as_fenced(void)
{
    static const int errors[] = {EIO, ESTALE, EACCES};
    for (size_t i = 0; i < KC_ARRAY_LEN(errors); i++) {
        begin();
        char name[KC_UUID_HEX_LEN + 1];
        struct ks_log *log = st_log(&b1, &topic, 0);
        st_put(&b1, log, 1);
        kc_uuid_to_hex(&b1.inc, name);
        inject(ST_STAT, name, errors[i], 1, false);
        KT_EQ(st_put(&b1, log, 1), -6);
        KT_EQ(st_put(&b1, log, 1), -6); /* for good, though the error is over */
        st_until(&b1, &b1.fenced);
        KT_EQ(b1.n_fenced, 1);
        st_close(&b1, log);
        end();
    }
}

static void lost_replies_of_links_are_looked_into(void)
{
    /* The link was made, the answer says otherwise: EEXIST to a retry, or an error. */
    static const int errors[] = {EEXIST, EIO};
    for (size_t i = 0; i < KC_ARRAY_LEN(errors); i++) {
        begin();
        inject(ST_LINK, "ctl.0", errors[i], 1, true);
        struct ks_log *log = st_log(&b1, &topic, 0);
        KT_EQ(fault.hits, 1);
        KT_EQ(ks_log_epoch(log), 0);
        st_put(&b1, log, 1);
        inject(ST_LINK, "ctl.1", errors[i], 1, true);
        struct st_seal s;
        st_seal(&b1, log, &s);
        KT_EQ(fault.hits, 1);
        KT_EQ(s.rc, 0);
        KT_EQ(s.end, 1);
        end();
    }
}

static void a_failed_claim_leaves_nothing_and_may_be_tried_again(void)
{
    static const struct {
        enum st_op op;
        const char *end;
    } t[] = {{ST_LINK, "ctl.0"},
             {ST_CREATE, ".log"},
             {ST_SYNCDIR, "/0"},
             {ST_LIST, "/0"},
             {ST_MKDIR, "/0"}};
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        begin();
        struct st_open o;
        struct ks_open_args args = st_args(&b1, &topic, 0, &o);
        int times = t[i].op == ST_LINK ? 3 : 1; /* a link whose outcome is unknown is sent again */
        inject(t[i].op, t[i].end, EIO, times, false);
        KT_EQ(st_open_rc(&b1, &args, &o), -EIO);
        KT_EQ(fault.hits, times);
        struct ks_log *log = st_log(&b1, &topic, 0);
        KT_EQ(st_put(&b1, log, 1), 0);
        st_close(&b1, log);
        end();
    }
}

static void a_fence_that_fails_stops_the_takeover(void)
{
    begin();
    struct st_broker b2;
    st_broker_start(&b2, &vol, 2);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    st_put(&b2, l2, 1);
    char name[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(&b2.inc, name);
    inject(ST_EXTEND, name, EIO, -1, false);
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 0, &o);
    KT_EQ(st_open_rc(&b1, &args, &o), -EIO);
    KT_EQ(st_put(&b2, l2, 1), 1); /* not fenced, so still the writer */
    lift();
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    KT_EQ(ks_log_offsets(l1).high_watermark, 2);
    KT_EQ(ks_log_epoch(l1), 2); /* the first claim stays in the chain as an empty epoch */
    KT_EQ(st_put(&b2, l2, 1), -6);
    st_close(&b1, l1);
    st_close(&b2, l2);
    st_broker_stop(&b2);
    end();
}

static void a_fence_of_an_absent_claim_file_puts_a_fenced_one_there(void)
{
    begin();
    struct st_broker b2;
    st_broker_start(&b2, &vol, 2);
    struct ks_log *l2 = st_log(&b2, &topic, 0);
    st_put(&b2, l2, 1);
    char path[KS_PATH_MAX];
    ks_path_inc(path, 2, &b2.inc);
    KT_EQ(ks_fs_unlink(&b2.e->fs, path), 0);
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    KT_EQ(st_put(&b2, l2, 1), -6);
    int fd = ks_fs_open(&b1.e->fs, path, KS_HANDLE);
    KT_TRUE(fd >= 0);
    const char *why;
    KT_EQ(ks_inc_check(&b1.e->fs, fd, &why), KC_E_FENCED);
    ks_fs_close(&b1.e->fs, fd);
    st_close(&b1, l1);
    st_close(&b2, l2);
    st_broker_stop(&b2);
    end();
}

static void a_roll_that_fails_acks_nothing_in_the_next_file(void)
{
    begin();
    struct ks_log *log = st_log_small(&b1, &topic, 300);
    st_put(&b1, log, 3);
    st_put(&b1, log, 3);
    inject(ST_LINK, "ctl.1", EIO, 3, false);
    int64_t r = 0, next = 6;
    for (int i = 0; i < 4 && (r = st_put(&b1, log, 3)) >= 0; i++) {
        next = r + 3;
    }
    KT_EQ(r, -56);
    KT_EQ(put_until_acked(log), next);
    KT_EQ(st_count(&b1, log), next + 1);
    st_close(&b1, log);
    end();
}

/* Every allocation that may fail does so once: nothing crashes, nothing acked is lost. */
static void memory_may_run_out_anywhere(void)
{
    begin();
    int64_t acked = 0;
    struct st_batch s = {.pid = 6};
    for (uint64_t nth = 1; nth <= 60; nth++) {
        kc_mem_fail_nth(nth, false);
        struct st_open o;
        struct ks_open_args args = st_args(&b1, &topic, 0, &o);
        if (st_open_rc(&b1, &args, &o)) {
            KT_EQ(o.rc, -ENOMEM);
            kc_mem_fail_nth(0, false);
            continue;
        }
        ks_log_own(o.log, &b1.loop);
        for (int i = 0; i < 3; i++) {
            struct ks_append_result r = st_append(&b1, o.log, st_make(&s));
            if (r.error == 0) {
                KT_EQ(r.base_offset, acked);
                acked++;
                s.seq++;
            }
        }
        ks_cache_drop(o.log);
        struct st_read r = st_read(&b1, o.log, 0, acked, 10000);
        KT_TRUE(acked == 0 || r.r.error == 56 || r.first == 0);
        kc_mem_fail_nth(0, false);
        KT_TRUE(o.log->gone || ks_log_offsets(o.log).high_watermark == acked);
        st_close(&b1, o.log);
    }
    KT_TRUE(acked > 20);
    struct ks_log *log = st_log(&b1, &topic, 0);
    KT_EQ(st_count(&b1, log), acked);
    st_close(&b1, log);
    end();
}

/* Holds the commit thread in a turn; the one it was held in before ends, with its answers posted. */
static void next_turn(struct ks_log *other, struct st_append *a, bool first)
{
    st_append_start(other, st_make(&(struct st_batch){0}), KS_FROM_CLIENT, a);
    ks_commit_wake(
        b1.e); /* the loop stands still: its turn does not end, nor is it told anything */
    if (!first) {
        sem_post(&gate.pass);
    }
    sem_wait(&gate.reached);
}

/* R46: what is stuck, where and for how long: nothing while nothing is under way. */
static void R46_the_oldest_operation_under_way_is_told_with_its_thread(void)
{
    begin();
    sem_init(&gate.reached, 0, 0);
    sem_init(&gate.pass, 0, 0);
    struct ks_log *log = st_log(&b1, &topic, 1);
    struct ks_stall stall;
    struct st_append a;
    atomic_store(&gate.closed, true);
    next_turn(log, &a, true);
    int64_t now = kc_mono_ms() + 7000;
    ks_stall_read(b1.e, now, &stall);
    KT_TRUE(stall.ms >= 6999 && stall.ms < now); /* its beginning is odd, which may be rounded up */
    KT_STR(stall.operation, "datasync");
    KT_EQ(strncmp(stall.thread, "ks-", 3), 0);
    atomic_store(&gate.closed, false);
    sem_post(&gate.pass);
    st_until(&b1, &a.done);
    KT_EQ(a.r.error, 0);
    st_close(&b1, log);
    do { /* the last close may be under way */
        sched_yield();
        ks_stall_read(b1.e, INT64_MAX / 2, &stall);
    } while (stall.ms > 0);
    KT_STR(stall.operation, "");
    end();
}

static void on_seal(void *ctx, int rc, struct kc_bytes record, int64_t end, int32_t epoch)
{
    (void)record;
    (void)epoch;
    KT_EQ(rc, 0);
    KT_EQ(end, 1);
    *(bool *)ctx = true;
}

/* While the volume hangs a condemned broker answers what it has accepted: it acks nothing, and does not
 * keep anybody waiting, not even where a seal waits for the append. What was written is still there for
 * the next owner, who tells the producer so when it sends again. */
static void a_condemned_broker_answers_what_waits_for_a_volume_that_hangs(void)
{
    enum { NOT_LEADER = 6 };
    begin();
    sem_init(&gate.reached, 0, 0);
    sem_init(&gate.pass, 0, 0);
    const struct st_batch batch = {.pid = 7, .seq = 0};
    struct ks_log *stuck = st_log(&b1, &topic, 1), *sealing = st_log(&b1, &topic, 0);
    struct st_append a, b, c;
    bool sealed = false;
    atomic_store(&gate.closed, true);
    st_append_start(stuck, st_make(&batch), KS_FROM_CLIENT, &a);
    st_turn(&b1);
    sem_wait(&gate.reached);
    st_append_start(sealing, st_make(&batch), KS_FROM_CLIENT, &b);
    ks_log_seal(sealing, &b1.loop, on_seal, &sealed);
    st_turn(&b1);
    KT_FALSE(a.done || b.done);
    ks_disown(b1.e);
    st_until(&b1, &a.done);
    st_until(&b1, &b.done);
    KT_EQ(a.r.error, NOT_LEADER);
    KT_EQ(b.r.error, NOT_LEADER);
    st_append_start(stuck, st_make(&(struct st_batch){0}), KS_FROM_CLIENT, &c);
    KT_TRUE(c.done && c.r.error == NOT_LEADER);
    KT_FALSE(sealed);
    atomic_store(&gate.closed, false);
    sem_post(&gate.pass);
    st_until(&b1, &sealed);
    st_close(&b1, stuck);
    for (int32_t p = 0; p < 2; p++) {
        struct ks_log *log = st_log(&b1, &topic, p);
        KT_EQ(st_count(&b1, log), 1);
        struct ks_append_result r = st_append(&b1, log, st_make(&batch));
        KT_EQ(r.error, 0);
        KT_EQ(r.base_offset, 0);
        KT_EQ(st_count(&b1, log), 1);
        st_close(&b1, log);
    }
    end();
}

static void await_queued_recovery(void)
{
    for (bool there = false; !there; sched_yield()) {
        const struct ks_entry *newest = atomic_load(&b1.e->q_in);
        there = newest && newest->kind == KS_E_RECOVERED;
    }
}

/* A TRIM fails, which the owner hears of only when the log has a new epoch already: what it appends
 * in between waits in the queue together with what it appends after. */
static void appends_of_two_epochs_in_one_turn_are_told_apart(void)
{
    begin();
    sem_init(&gate.reached, 0, 0);
    sem_init(&gate.pass, 0, 0);
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 0, &o);
    args.config.segment_bytes = 300;
    args.config.retention_bytes = 100;
    KT_REQUIRE(st_open_rc(&b1, &args, &o) == 0);
    ks_log_own(o.log, &b1.loop);
    struct ks_log *other = st_log(&b1, &topic, 1);
    int64_t next = 0;
    for (int i = 0; i < 4; i++) {
        next = st_put(&b1, o.log, 3) + 3;
    }
    char trim[32];
    snprintf(trim, sizeof(trim), "ctl.%d", (int)o.log->c_next_k);
    struct st_append a[5], old, new;
    atomic_store(&gate.closed, true);
    next_turn(other, &a[0], true);
    inject(ST_LINK, trim, EIO, 3, false);
    ks_retention_post(b1.e);
    st_turn(&b1);
    next_turn(other, &a[1], false); /* the TRIM fails in it */
    next_turn(other, &a[2], false); /* the recovery runs meanwhile */
    KT_EQ(fault.hits, 3);
    await_queued_recovery();
    next_turn(other, &a[3], false); /* the lower half gets its new epoch */
    next_turn(other, &a[4], false);
    st_append_start(o.log, st_make(&(struct st_batch){.count = 2, .value_len = 30}), KS_FROM_CLIENT,
                    &old);
    KT_FALSE(old.done);
    st_turn(&b1); /* and the upper half */
    KT_TRUE(old.done);
    KT_EQ(old.r.error, 56);
    st_append_start(o.log, st_make(&(struct st_batch){.count = 5}), KS_FROM_CLIENT, &new);
    atomic_store(&gate.closed, false);
    sem_post(&gate.pass);
    st_until(&b1, &new.done);
    KT_EQ(new.r.error, 0);
    KT_EQ(new.r.base_offset, next);
    struct st_read r = st_read(&b1, o.log, next, next + 5, 10000);
    KT_EQ(r.last, next + 4);
    KT_EQ(r.batches, 1);
    st_close(&b1, o.log);
    st_close(&b1, other);
    end();
}

KT_MAIN("fault", KT(after_an_error_the_log_goes_on_in_a_new_epoch),
        KT(a_full_volume_refuses_and_resumes_by_itself),
        KT(a_file_is_never_synced_again_after_an_error),
        KT(sequences_of_refused_batches_may_be_sent_again),
        KT(a_check_that_cannot_be_made_counts_as_fenced), KT(lost_replies_of_links_are_looked_into),
        KT(a_failed_claim_leaves_nothing_and_may_be_tried_again),
        KT(a_fence_that_fails_stops_the_takeover),
        KT(a_fence_of_an_absent_claim_file_puts_a_fenced_one_there),
        KT(a_roll_that_fails_acks_nothing_in_the_next_file), KT(memory_may_run_out_anywhere),
        KT(R46_the_oldest_operation_under_way_is_told_with_its_thread),
        KT(a_condemned_broker_answers_what_waits_for_a_volume_that_hangs),
        KT(appends_of_two_epochs_in_one_turn_are_told_apart))
