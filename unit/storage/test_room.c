/* A volume that takes no bytes: what is decided (pure), and what a broker does then. The volume here
 * is full by decree: new files and bytes are refused but for a few that each piece of a reserve that
 * is given up makes room for. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/kc_mem.h"
#include "storage/ks_room.h"

/* ---- decisions ---- */

static void errors_that_say_so_and_others(void)
{
    KT_EQ(ks_room_of(-ENOSPC), KS_VOLUME_FULL);
    KT_EQ(ks_room_of(-EDQUOT), KS_VOLUME_FULL);
    KT_EQ(ks_room_of(-EROFS), KS_VOLUME_READ_ONLY);
    KT_EQ(ks_room_of(-EIO), KS_VOLUME_OK);
    KT_EQ(ks_room_of(0), KS_VOLUME_OK);
}

static void the_reserve_grows_with_the_logs_within_bounds(void)
{
    KT_EQ(ks_room_want(0, 5000), 0);
    KT_EQ(ks_room_want(-1, 0), KS_RESERVE_LEAST);
    KT_EQ(ks_room_want(-1, 1), KS_RESERVE_LEAST);
    KT_EQ(ks_room_want(-1, 1000) * (int64_t)KS_RESERVE_PIECE >= 1000 * (int64_t)KS_RESERVE_LOG, 1);
    KT_EQ(ks_room_want(-1, INT64_MAX), KS_RESERVE_PIECES);
    KT_EQ(ks_room_want(1, 0), 1);
    KT_EQ(ks_room_want(INT64_MAX, 0), KS_RESERVE_PIECES);
}

static void a_state_ends_with_a_trial_that_no_error_overlaps(void)
{
    struct ks_room r;
    ks_room_init(&r, 1000000);
    KT_FALSE(ks_room_error(&r, -EIO, 1000000));
    KT_EQ(r.errors, 0);
    KT_TRUE(ks_room_error(&r, -ENOSPC, 1000000));
    KT_FALSE(ks_room_error(&r, -EDQUOT, 1000001)); /* the same state */
    KT_EQ(r.state, KS_VOLUME_FULL);
    KT_TRUE(ks_room_due(&r, 8, 8, 1000000)); /* the first time at once */
    uint64_t before = r.errors;
    KT_FALSE(ks_room_error(&r, -ENOSPC, 1001500)); /* somebody else's, while it ran */
    KT_FALSE(ks_room_tried(&r, 0, before, 1002000));
    KT_EQ(r.state, KS_VOLUME_FULL);
    KT_FALSE(ks_room_due(&r, 8, 8, 1002999));
    KT_TRUE(ks_room_due(&r, 8, 8, 1003000));
    KT_TRUE(ks_room_tried(&r, 0, r.errors, 1004000));
    KT_EQ(r.state, KS_VOLUME_OK);
}

static void trials_that_fail_become_rare_and_no_room_no_trial(void)
{
    struct ks_room r;
    int64_t now = 1000000;
    ks_room_init(&r, now);
    ks_room_error(&r, -EDQUOT, now);
    KT_FALSE(ks_room_worth(&r, 8, 8 * KS_RESERVE_PIECE, now + 1000));
    KT_FALSE(ks_room_due(&r, 0, 8, now + 1999));
    KT_TRUE(ks_room_due(&r, 0, 8, now + 2000));
    KT_TRUE(ks_room_worth(&r, 8, 8 * KS_RESERVE_PIECE + KS_ROOM_MARGIN, now));
    KT_TRUE(ks_room_worth(&r, 8, UINT64_MAX, now)); /* not told */
    int64_t wait = 0;
    for (int i = 0; i < 10; i++) {
        now = r.next_ms;
        ks_room_tried(&r, -EDQUOT, r.errors, now);
        KT_TRUE(r.next_ms - now >= wait);
        wait = r.next_ms - now;
    }
    KT_EQ(wait, KS_ROOM_WAIT_MAX_MS);
    /* A quota lets the reserve in and nothing else: the next try waits as long. */
    ks_room_tried(&r, 0, r.errors, now);
    ks_room_error(&r, -EDQUOT, now + 100);
    KT_EQ(r.next_ms, now + 100 + KS_ROOM_WAIT_MAX_MS);
    /* It was well for a while: the next time it is tried at once. */
    now = r.next_ms;
    ks_room_tried(&r, 0, r.errors, now);
    ks_room_error(&r, -EDQUOT, now + KS_ROOM_WAIT_MAX_MS);
    KT_EQ(r.next_ms, now + KS_ROOM_WAIT_MAX_MS);
}

static void logs_are_recovered_while_something_is_left_to_give(void)
{
    struct ks_room r;
    ks_room_init(&r, 1000);
    KT_TRUE(ks_room_may_retry(&r, 0, 1000));
    ks_room_error(&r, -ENOSPC, 1000);
    KT_TRUE(ks_room_may_retry(&r, 1, 1000));
    KT_TRUE(ks_room_may_retry(&r, 0, 1000));
    KT_FALSE(ks_room_may_retry(&r, 0, 1001));
    KT_TRUE(ks_room_may_retry(&r, 0, 1000 + KS_ROOM_RETRY_MS));
    ks_room_error(&r, -EROFS, 9000);
    KT_EQ(r.state, KS_VOLUME_READ_ONLY);
    KT_FALSE(ks_room_may_retry(&r, 8, 99000));
}

/* ---- a broker ---- */

enum { RESERVE = KS_RESERVE_LEAST * KS_RESERVE_PIECE, FILES_A_PIECE = 2 };

static struct st_vol vol;
static struct st_broker b1;
static struct kc_uuid topic;
static _Atomic int error; /* of the volume; 0 = it takes bytes */
static _Atomic int files; /* small ones that it still takes */
static _Atomic int writes; /* of records, tried */
static _Atomic int eio; /* of the next sync of a data file */

static bool is_reserve(const char *path)
{
    return strstr(path, "reserve.") != NULL;
}

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    int e = atomic_load(&error), wanted = 1;
    bool records = st_ends_with(path, ".log");
    if (op == ST_DATASYNC && records && atomic_compare_exchange_strong(&eio, &wanted, 0)) {
        return -EIO;
    }
    atomic_fetch_add(&writes, op == ST_PWRITE && records);
    if (!e) {
        return 0;
    }
    if (e == EROFS) {
        return op == ST_PREAD || op == ST_OPEN || op == ST_STAT || op == ST_LIST ||
                       op == ST_SYNCDIR || op == ST_DATASYNC
                   ? 0
                   : -EROFS;
    }
    if (op == ST_UNLINK) {
        atomic_fetch_add(&files, is_reserve(path) ? FILES_A_PIECE : 1);
        return 0;
    }
    if ((op == ST_PWRITE && records) || (op == ST_LINK && is_reserve(path))) {
        return -e; /* too many bytes */
    }
    return op == ST_CREATE && atomic_fetch_sub(&files, 1) <= 0 ? -e : 0;
}

static void start(struct st_broker *b, int32_t id, int64_t reserve)
{
    static const struct st_hooks hooks = {.before = before};
    struct ks_fs fs;
    st_fault_fs(&fs, &vol, &hooks);
    st_broker_start_reserve(b, &fs, id, reserve);
}

static void begin(int64_t reserve)
{
    atomic_store(&error, 0);
    atomic_store(&eio, 0);
    st_vol_make(&vol);
    start(&b1, 1, reserve);
    topic = kc_uuid_random();
}

static void fill(int e)
{
    atomic_store(&files, 0);
    atomic_store(&error, e);
}

static void end(void)
{
    st_end_checked(&vol, &b1);
}

/* The loop's tick turns it once a second at least. */
static void await_reserve(struct st_broker *b, uint64_t bytes)
{
    while (ks_reserve_bytes(b->e) != bytes) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
}

static int64_t put_until(struct st_broker *b, struct ks_log *log, int64_t last)
{
    int64_t r;
    while ((r = st_put(b, log, 1)) != last) {
        KT_REQUIRE(r == -56);
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
    return r;
}

struct deletion {
    struct ks_delete d;
    bool done;
    int16_t error;
};

static void on_deleted(struct ks_delete *d, int16_t e, int64_t log_start)
{
    struct deletion *m = KC_CONTAINER_OF(d, struct deletion, d);
    (void)log_start;
    m->done = true;
    m->error = e;
}

static int16_t delete_below(struct ks_log *log, int64_t offset)
{
    struct deletion m = {.d = {.offset = offset, .done = on_deleted}};
    ks_log_delete_records(log, &m.d);
    st_until(&b1, &m.done);
    return m.error;
}

/* A log whose files take one batch of ten records each. */
static struct ks_log *log_with(int batches)
{
    struct ks_log *log = st_log_small(&b1, &topic, 300);
    for (int i = 0; i < batches; i++) {
        KT_REQUIRE(st_put(&b1, log, 10) >= 0);
    }
    return log;
}

/* Refused; then the log has made the new claim that an error asks for, out of the reserve. */
static void meet(struct ks_log *log, int64_t end)
{
    int32_t epoch = ks_log_epoch(log);
    KT_EQ(st_put(&b1, log, 1), -56);
    while (ks_log_epoch(log) == epoch) {
        KT_EQ(st_put(&b1, log, 1), -56);
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(ks_log_offsets(log).high_watermark, end);
}

static void records_can_be_deleted_from_a_full_volume(void)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    for (size_t i = 0; i < KC_ARRAY_LEN(errors); i++) {
        begin(-1);
        struct ks_log *log = log_with(4);
        await_reserve(&b1, RESERVE);
        fill(errors[i]);
        meet(log, 40);
        KT_EQ(ks_volume_state(b1.e), KS_VOLUME_FULL);
        KT_TRUE(ks_reserve_bytes(b1.e) < RESERVE);
        int tried = atomic_load(&writes);
        for (int n = 0; n < 20; n++) {
            KT_EQ(st_put(&b1, log, 1), -56);
        }
        KT_EQ(atomic_load(&writes), tried); /* refused where they come in: no claim for each */
        KT_EQ(st_count(&b1, log), 40); /* reads go on */
        KT_EQ(delete_below(log, 30), 0);
        KT_EQ(ks_log_offsets(log).start, 30);
        fill(0);
        KT_EQ(put_until(&b1, log, 40), 40); /* by itself */
        KT_EQ(ks_volume_state(b1.e), KS_VOLUME_OK);
        await_reserve(&b1, RESERVE);
        KT_EQ(st_count(&b1, log), 11);
        st_close(&b1, log);
        end();
    }
}

static void retention_makes_room_on_a_full_volume(void)
{
    begin(-1);
    struct ks_log *log = log_with(6);
    await_reserve(&b1, RESERVE);
    fill(ENOSPC);
    meet(log, 60);
    struct ks_log_config cfg = log->cfg;
    cfg.retention_bytes = 700; /* half of it may go */
    cfg.retention_check_ms = INT64_MAX / 4; /* the full volume asks for it by itself */
    ks_log_configure(log, &cfg);
    while (ks_log_offsets(log).start == 0) {
        uv_run(&b1.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(ks_volume_state(b1.e), KS_VOLUME_FULL);
    st_close(&b1, log);
    end();
}

static void a_partition_moves_on_a_full_volume(void)
{
    begin(-1);
    struct st_broker b2;
    struct st_seal s;
    start(&b2, 2, -1);
    struct ks_log *log = log_with(2);
    struct ks_log *other = st_log(&b2, &topic, 1); /* for which it has a reserve, too */
    await_reserve(&b1, RESERVE);
    await_reserve(&b2, RESERVE);
    fill(ENOSPC);
    meet(log, 20);
    st_seal(&b1, log, &s);
    KT_EQ(s.rc, 0);
    KT_EQ(s.end, 20);
    log = st_log(&b2, &topic, 0);
    KT_EQ(st_count(&b2, log), 20);
    KT_EQ(st_put(&b2, log, 1), -56);
    fill(0);
    KT_EQ(put_until(&b2, log, 20), 20);
    st_close(&b2, log);
    st_close(&b2, other);
    st_broker_stop(&b2);
    end();
}

static void a_broker_starts_on_a_full_volume_with_what_it_left(void)
{
    begin(-1);
    struct ks_log *log = log_with(2);
    await_reserve(&b1, RESERVE);
    st_close(&b1, log);
    fill(ENOSPC);
    st_broker_stop(&b1);
    start(&b1, 1, -1);
    KT_EQ(ks_volume_state(b1.e), KS_VOLUME_FULL);
    log = st_log(&b1, &topic, 0);
    KT_EQ(st_count(&b1, log), 20);
    KT_EQ(st_put(&b1, log, 1), -56);
    fill(0);
    KT_EQ(put_until(&b1, log, 20), 20);
    await_reserve(&b1, RESERVE);
    st_close(&b1, log);
    end();
}

static void without_a_reserve_the_volume_is_waited_for(void)
{
    begin(0);
    struct ks_log *log = log_with(2);
    fill(ENOSPC);
    KT_EQ(st_put(&b1, log, 1), -56);
    while (atomic_load(&b1.e->n_retries) == 0) { /* a recovery has tried and failed */
        KT_EQ(st_put(&b1, log, 1), -56);
    }
    KT_EQ(delete_below(log, 10), 56);
    KT_EQ(ks_volume_state(b1.e), KS_VOLUME_FULL);
    KT_EQ(st_count(&b1, log), 20);
    fill(0);
    KT_EQ(put_until(&b1, log, 20), 20);
    KT_EQ(ks_reserve_bytes(b1.e), 0);
    st_close(&b1, log);
    end();
}

static void a_read_only_volume_refuses_and_resumes_by_itself(void)
{
    begin(-1);
    struct ks_log *log = log_with(2);
    await_reserve(&b1, RESERVE);
    fill(EROFS);
    KT_EQ(st_put(&b1, log, 1), -56);
    KT_EQ(ks_volume_state(b1.e), KS_VOLUME_READ_ONLY);
    while (atomic_load(&b1.e->n_retries) == 0) {
        KT_EQ(st_put(&b1, log, 1), -56);
    }
    KT_EQ(st_count(&b1, log), 20);
    KT_EQ(b1.n_fenced, 0); /* the check only reads */
    KT_EQ(ks_reserve_bytes(b1.e), RESERVE); /* giving it up would not help */
    fill(0);
    KT_EQ(put_until(&b1, log, 20), 20);
    KT_EQ(ks_volume_state(b1.e), KS_VOLUME_OK);
    st_close(&b1, log);
    end();
}

static void an_error_of_one_file_says_nothing_about_the_volume(void)
{
    begin(-1);
    struct ks_log *log = log_with(2);
    atomic_store(&eio, 1);
    KT_EQ(st_put(&b1, log, 1), -56);
    KT_EQ(ks_volume_state(b1.e), KS_VOLUME_OK);
    KT_EQ(put_until(&b1, log, 20), 20);
    st_close(&b1, log);
    end();
}

KT_MAIN("room", KT(errors_that_say_so_and_others),
        KT(the_reserve_grows_with_the_logs_within_bounds),
        KT(a_state_ends_with_a_trial_that_no_error_overlaps),
        KT(trials_that_fail_become_rare_and_no_room_no_trial),
        KT(logs_are_recovered_while_something_is_left_to_give),
        KT(records_can_be_deleted_from_a_full_volume), KT(retention_makes_room_on_a_full_volume),
        KT(a_partition_moves_on_a_full_volume),
        KT(a_broker_starts_on_a_full_volume_with_what_it_left),
        KT(without_a_reserve_the_volume_is_waited_for),
        KT(a_read_only_volume_refuses_and_resumes_by_itself),
        KT(an_error_of_one_file_says_nothing_about_the_volume))
