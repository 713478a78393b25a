/* Log compaction when something fails: every operation of the file system in turn, a lost race for the
 * record, a crash between record and removal, a batch that does not verify. Whatever happens, each key
 * keeps its last value, and no file that counts is gone. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "sk.h"
#include "storage/ks_fsck.h"

enum { KEYS = 5, RECORDS = 80 };

static struct st_vol vol;
static struct kc_uuid topic;

/* Fails the nth operation once armed; or holds the first link of a chain record. */
struct fault {
    _Atomic bool armed;
    _Atomic int countdown; /* 0 = never */
    _Atomic int failed;
    _Atomic int op; /* only this one; -1 = any */
    int rc;
    bool after; /* performed, but the answer is lost */
    /* holding */
    _Atomic bool hold, held;
};
static struct fault fault;

static bool hit(enum st_op op, const char *path)
{
    if (!atomic_load(&fault.armed) || (atomic_load(&fault.op) >= 0 && (int)op != fault.op) ||
        strncmp(path, "topics/", 7) != 0) {
        return false;
    }
    return atomic_load(&fault.countdown) > 0 && atomic_fetch_sub(&fault.countdown, 1) == 1;
}

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (op == ST_LINK && strstr(path, "/ctl.") && atomic_exchange(&fault.hold, false)) {
        atomic_store(&fault.held, true);
        while (atomic_load(&fault.held)) {
            sched_yield();
        }
    }
    if (!fault.after && hit(op, path)) {
        atomic_fetch_add(&fault.failed, 1);
        return fault.rc;
    }
    return 0;
}

static int after(void *ctx, enum st_op op, const char *path, int rc)
{
    (void)ctx;
    if (fault.after && rc == 0 && hit(op, path)) {
        atomic_fetch_add(&fault.failed, 1);
        return fault.rc;
    }
    return rc;
}

static const struct st_hooks hooks = {.before = before, .after = after};

static void start(struct st_broker *b, int32_t id)
{
    st_broker_start_hooked(b, &vol, id, &hooks);
}

static void begin(struct st_broker *b)
{
    memset(&fault, 0, sizeof(fault));
    fault.op = -1;
    fault.rc = -EIO;
    st_begin(&vol, b, 0, &hooks, &topic);
}

static uint64_t leftovers(void)
{
    struct ks_fsck_result r;
    st_vol_check(&vol, &r);
    return r.leftovers;
}

static void end(struct st_broker *b)
{
    st_end_checked(&vol, b);
}

static struct ks_log *open_log(struct st_broker *b)
{
    struct st_open o;
    struct ks_open_args a = sk_args(b, &topic, &o);
    return sk_log(b, &topic, &a, &o);
}

static void fill(struct st_broker *b, struct ks_log *log)
{
    for (int32_t i = 0; i < RECORDS; i++) {
        KT_EQ(sk_put(b, log, i % KEYS, i), i);
    }
}

/* Nothing was lost: the last value of each key is there at its offset, and what else is there is what
 * was appended. */
static size_t check(struct st_broker *b, struct ks_log *log)
{
    struct sk_view v;
    int64_t last[KEYS] = {0};
    sk_read_all(b, log, &v);
    for (size_t i = 0; i < v.n; i++) {
        KT_EQ(v.v[i].value, v.v[i].offset);
        KT_EQ(v.v[i].key, v.v[i].offset % KEYS);
        last[v.v[i].key] = v.v[i].offset;
    }
    for (int32_t k = 0; k < KEYS; k++) {
        KT_TRUE(last[k] >= RECORDS - KEYS);
    }
    KT_EQ(v.next, RECORDS);
    size_t n = v.n;
    sk_view_free(&v);
    return n;
}

static void until_open(struct st_broker *b, struct ks_log *log)
{
    int64_t deadline = kc_mono_ms() + 30000;
    while (log->state != KS_OPEN && log->state != KS_STOPPED && kc_mono_ms() < deadline) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(log->state, KS_OPEN);
}

static void any_failed_operation_loses_nothing(void)
{
    for (int lost = 0; lost < 2; lost++) { /* not performed; performed, and the answer lost */
        int n = 1, most = 0;
        do {
            struct st_broker b;
            begin(&b);
            struct ks_log *log = open_log(&b);
            fill(&b, log);
            fault.after = lost;
            atomic_store(&fault.countdown, n);
            atomic_store(&fault.armed, true);
            sk_clean(&b);
            atomic_store(&fault.armed, false);
            most = atomic_load(&fault.failed);
            until_open(&b, log);
            check(&b, log);
            st_close(&b, log);
            log = open_log(&b);
            check(&b, log);
            sk_clean(&b); /* and the next cleaning, under another owner, ends well */
            KT_TRUE(check(&b, log) < RECORDS / 2);
            st_close(&b, log);
            end(&b);
            n++;
        } while (most > 0 && n < 200);
        KT_TRUE(n > 8 && n < 200);
    }
}

static void a_deposed_owner_removes_only_what_it_wrote(void)
{
    struct st_broker a, b;
    begin(&a);
    struct ks_log *log = open_log(&a);
    fill(&a, log);
    atomic_store(&fault.hold, true);
    KT_TRUE(ks_clean_now(a.e));
    int64_t deadline = kc_mono_ms() + 30000;
    while (!atomic_load(&fault.held) && kc_mono_ms() < deadline) {
        st_turn(&a);
    }
    KT_REQUIRE(atomic_load(&fault.held)); /* its COMPACT is about to be linked */
    start(&b, 1);
    struct ks_log *taken = open_log(&b); /* fences it, claims */
    atomic_store(&fault.held, false);
    while (!ks_clean_idle(a.e) && kc_mono_ms() < deadline) {
        uv_run(&a.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(log->state, KS_STOPPED);
    KT_EQ(check(&b, taken), RECORDS); /* nothing was replaced */
    st_close(&a, log);
    st_broker_stop(&a);
    KT_EQ(leftovers(), 0); /* and what it had written is gone */
    sk_clean(&b);
    KT_TRUE(check(&b, taken) < RECORDS / 2);
    st_close(&b, taken);
    end(&b);
}

/* The record stands, and the owner ends before it removed the files that the record replaced. */
static void a_crash_before_the_removal_leaves_files_for_the_next_owner(void)
{
    struct st_broker b;
    begin(&b);
    struct ks_log *log = open_log(&b);
    fill(&b, log);
    char old[256];
    struct ks_file_id first = log->st.segs[0].file->id;
    char path[KS_PATH_MAX];
    ks_path_file(path, &topic, 0, first);
    snprintf(old, sizeof(old), "%s/%s", vol.dir, path);
    char kept[300];
    snprintf(kept, sizeof(kept), "%s.kept", old);
    KT_EQ(link(old, kept), 0);
    sk_clean(&b);
    KT_EQ(access(old, F_OK), -1);
    KT_EQ(rename(kept, old), 0); /* as if it had never been removed */
    st_close(&b, log);
    KT_EQ(leftovers(), 1);
    log = open_log(&b);
    KT_TRUE(check(&b, log) < RECORDS / 2);
    sk_clean(&b);
    st_close(&b, log);
    st_broker_stop(&b); /* waits for the sweep */
    KT_EQ(access(old, F_OK), -1);
    KT_EQ(leftovers(), 0);
    st_vol_remove(&vol);
}

static void a_batch_that_does_not_verify_stops_the_cleaning_of_its_log(void)
{
    struct st_broker b;
    struct ks_metrics m;
    begin(&b);
    struct ks_log *log = open_log(&b);
    fill(&b, log);
    char path[KS_PATH_MAX], full[256];
    ks_path_file(path, &topic, 0, log->st.segs[1].file->id);
    snprintf(full, sizeof(full), "%s/%s", vol.dir, path);
    int fd = open(full, O_WRONLY);
    KT_REQUIRE(fd >= 0);
    uint8_t junk = 0xff;
    KT_EQ(pwrite(fd, &junk, 1, (off_t)log->st.segs[1].len - 3), 1);
    close(fd);
    uint32_t files = log->st.n_segs;
    sk_clean(&b);
    ks_metrics_read(b.e, &m);
    KT_EQ(m.uncleanable, 1);
    KT_EQ(m.clean_errors, 1);
    KT_EQ(log->st.n_segs, files); /* nothing was replaced */
    sk_clean(&b);
    ks_metrics_read(b.e, &m);
    KT_EQ(m.clean_errors, 1); /* nor is it tried for ever */
    struct st_read r = st_read(&b, log, 0, RECORDS, 100);
    KT_EQ(r.r.error, 0);
    st_close(&b, log);
    int64_t until = kc_mono_ms() + 30000; /* the last work of the log may hold it for a moment */
    do {
        st_turn(&b);
        ks_metrics_read(b.e, &m);
    } while (m.uncleanable && kc_mono_ms() < until);
    KT_EQ(m.uncleanable, 0);
    st_broker_stop(&b);
    st_vol_remove(&vol);
}

KT_MAIN("compact_fault", KT(any_failed_operation_loses_nothing),
        KT(a_deposed_owner_removes_only_what_it_wrote),
        KT(a_crash_before_the_removal_leaves_files_for_the_next_owner),
        KT(a_batch_that_does_not_verify_stops_the_cleaning_of_its_log))
