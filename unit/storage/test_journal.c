/* Journals (ADR 13): an owner whose turns touch many partitions makes them durable by one, and syncs
 * their files behind. What the file does not have is played by cutting it down to what was synced. */
#include "st.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "storage/ks_scan.h"

enum { PARTS = 3, PATH = 256 };

static struct st_vol vol;
static struct st_broker b1, b2; /* b1's operations pass the hooks; its turns go into journals */
static struct kc_uuid topic;
static struct ks_fs other;
static struct ks_log *logs[PARTS];

/* What happens to syncs of files whose names have this in them. */
static struct {
    char part[64];
    _Atomic int fail; /* so many fail */
    _Atomic bool hold; /* they wait until it is over */
    _Atomic int waiting, hits;
    char first[KS_PATH_MAX]; /* the file of the first hit */
    _Atomic bool full; /* no write finds room, to whatever file */
} trap;

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (op == ST_PWRITE && atomic_load(&trap.full)) {
        return -ENOSPC;
    }
    if (op != ST_DATASYNC || !trap.part[0] || !strstr(path, trap.part)) {
        return 0;
    }
    if (atomic_fetch_add(&trap.hits, 1) == 0) {
        snprintf(trap.first, sizeof(trap.first), "%s", path);
    }
    atomic_fetch_add(&trap.waiting, 1);
    while (atomic_load(&trap.hold)) {
        sched_yield();
    }
    atomic_fetch_sub(&trap.waiting, 1);
    return atomic_load(&trap.fail) > 0 && atomic_fetch_sub(&trap.fail, 1) > 0 ? -EIO : 0;
}

static void set_trap(const char *part, int fail, bool hold)
{
    trap.hits = 0;
    atomic_store(&trap.fail, fail);
    atomic_store(&trap.hold, hold);
    snprintf(trap.part, sizeof(trap.part), "%s", part);
}

/* ---- a volume, two brokers, three partitions of the first ---- */

static void await(bool (*fn)(void))
{
    int64_t end = kc_mono_ms() + 30000;
    while (!fn()) {
        KT_REQUIRE(kc_mono_ms() < end);
        st_turn(&b1);
        sched_yield();
    }
}

static bool journal_made(void)
{
    return atomic_load(&b1.e->m_journals) > 0;
}

struct listed {
    int all;
    bool first;
};

static bool on_name(void *arg, const char *name)
{
    struct listed *l = arg;
    struct kc_uuid inc;
    uint32_t n;
    if (ks_journal_named(name, &inc, &n) && kc_uuid_eq(&inc, &b1.inc)) {
        l->all++;
        l->first = l->first || n == 0;
    }
    return true;
}

/* Journals of b1 that lie on the volume. */
static struct listed journals(void)
{
    char dir[KS_PATH_MAX];
    struct listed l = {0};
    ks_path_inc_dir(dir, 1);
    KT_EQ(ks_fs_list(&other, dir, on_name, &l), 0);
    return l;
}

static bool first_journal_gone(void)
{
    return !journals().first;
}

static bool somebody_waits(void)
{
    return atomic_load(&trap.waiting) > 0;
}

static void begin(bool network, const struct ks_log_config *cfg)
{
    static struct st_hooks hooks;
    struct ks_fs fs;
    st_vol_make(&vol);
    set_trap("", 0, false);
    hooks = (struct st_hooks){.before = before, .network = network};
    st_fault_fs(&fs, &vol, &hooks);
    st_broker_start_on(&b1, &fs, 1);
    st_broker_start(&b2, &vol, 2);
    KT_REQUIRE(ks_fs_posix(&other, vol.dir, NULL) == 0);
    topic = kc_uuid_random();
    b1.e->direct_files = 0;
    for (int i = 0; i < PARTS; i++) {
        struct st_open o;
        struct ks_open_args args = st_args(&b1, &topic, i, &o);
        args.config = cfg ? *cfg : args.config;
        KT_REQUIRE(st_open_rc(&b1, &args, &o) == 0);
        logs[i] = o.log;
        ks_log_own(o.log, &b1.loop);
        KT_EQ(st_put(&b1, logs[i], 1), 0); /* the first of them asks for a journal */
    }
    await(journal_made);
}

static void end(void)
{
    for (int i = 0; i < PARTS; i++) {
        if (logs[i]) {
            st_close(&b1, logs[i]);
        }
    }
    st_broker_stop(&b1);
    st_broker_stop(&b2);
    ks_fs_fini(&other);
    struct ks_fsck_result r;
    st_vol_check(&vol, &r);
    st_vol_remove(&vol);
}

static uint64_t framed(void)
{
    return atomic_load(&b1.e->m_frames);
}

/* Everything is in the journal now: turns of small batches. */
static void put_framed(int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t was = framed();
        KT_TRUE(st_put(&b1, logs[i % PARTS], 2) >= 0);
        KT_EQ(framed(), was + 1);
    }
}

/* The machine loses what no sync of the files themselves has covered. */
static void lose_unsynced(void)
{
    for (int i = 0; i < PARTS; i++) {
        char path[PATH];
        st_data_path(&vol, logs[i], path);
        KT_TRUE(logs[i]->c_synced < logs[i]->c_acked);
        KT_EQ(truncate(path, (off_t)logs[i]->c_synced), 0);
    }
}

/* b2 takes all over: the records that were there, and it goes on behind them. */
static void take_over(const int64_t want[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        struct ks_log *log = st_log(&b2, &topic, i);
        KT_EQ(ks_log_offsets(log).high_watermark, want[i]);
        KT_EQ(st_count(&b2, log), want[i]);
        KT_EQ(st_put(&b2, log, 1), want[i]);
        st_close(&b2, log);
    }
}

static void ends(int64_t ret[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        ret[i] = ks_log_offsets(logs[i]).high_watermark;
    }
}

/* ---- the duty of a journal ---- */

static void what_only_the_journal_has_is_taken_over(void)
{
    for (int network = 0; network < 2; network++) {
        int64_t want[PARTS];
        begin(network, NULL);
        put_framed(20);
        ends(want);
        lose_unsynced();
        take_over(want);
        /* It stands in files of the claimants now: nobody needs the journal any more. */
        KT_EQ(journals().all, 1);
        KT_EQ(ks_frames_remove(&other, 1, &b1.inc), 0);
        KT_EQ(journals().all, 0);
        for (int i = 0; i < PARTS; i++) {
            want[i]++;
        }
        take_over(want);
        end();
    }
}

static void a_fenced_owner_acks_no_more_from_its_journal(void)
{
    begin(true, NULL);
    put_framed(6);
    st_close(&b2, st_log(&b2, &topic, 0));
    KT_TRUE(st_put(&b1, logs[1], 1) < 0);
    end();
}

static void a_journal_goes_after_the_syncs_behind_it(void)
{
    begin(false, NULL);
    put_framed(7);
    set_trap(".log", 0, true);
    atomic_store(&b1.e->journal_ms, 0); /* it is old now */
    await(somebody_waits);
    atomic_store(&b1.e->journal_ms, KS_JOURNAL_MS);
    for (int i = 0; i < 50; i++) {
        st_turn(&b1);
        sched_yield();
        KT_TRUE(journals().first); /* its files are not synced: it stays */
    }
    atomic_store(&trap.hold, false);
    await(first_journal_gone);
    int64_t want[PARTS];
    ends(want);
    KT_EQ(ks_frames_remove(&other, 1, &b1.inc), 0); /* the files have it all */
    take_over(want);
    end();
}

/* J7. */
static void turns_go_on_while_a_file_is_synced_behind(void)
{
    begin(false, NULL);
    put_framed(3);
    set_trap(".log", 0, true);
    atomic_store(&b1.e->journal_ms, 0);
    await(somebody_waits);
    atomic_store(&b1.e->journal_ms, KS_JOURNAL_MS);
    for (int i = 0; i < 10; i++) {
        KT_TRUE(st_put(&b1, logs[0], 2) >= 0); /* small ones: into a journal, or they would wait */
    }
    /* A large one has to be synced where it is: not beside the sync that is under way. */
    struct st_append a;
    st_append_start(logs[0], st_make(&(struct st_batch){.value_len = 2 * KS_FRAME_MAX}),
                    KS_FROM_CLIENT, &a);
    for (int i = 0; i < 50; i++) {
        st_turn(&b1);
        sched_yield();
        KT_FALSE(a.done);
    }
    atomic_store(&trap.hold, false);
    st_until(&b1, &a.done);
    KT_EQ(a.r.error, 0);
    KT_EQ(st_count(&b1, logs[0]), 1 + 2 + 20 + 1);
    end();
}

/* ---- errors ---- */

static struct ks_log *resumed;

/* Asked again until it is acked: the log recovers meanwhile. */
static bool acks_again(void)
{
    int64_t rc = st_put(&b1, resumed, 1);
    KT_TRUE(rc >= 0 || rc == -56);
    return rc >= 0;
}

/* J4. */
static void an_error_ends_the_journal(void)
{
    begin(false, NULL);
    put_framed(6);
    set_trap(".j0", 1, false);
    KT_EQ(st_put(&b1, logs[0], 2), -56);
    KT_EQ(trap.hits, 1);
    int64_t end0 = ks_log_offsets(logs[0]).high_watermark;
    resumed = logs[0];
    await(acks_again);
    KT_EQ(ks_log_offsets(logs[0]).high_watermark, end0 + 1); /* the refused batch is not there */
    KT_TRUE(logs[0]->c_epoch > 0);
    KT_TRUE(st_put(&b1, logs[1], 1) >= 0); /* the others were in no turn that failed */
    KT_EQ(logs[1]->c_epoch, 0);
    KT_EQ(trap.hits, 1); /* nothing more went into it */
    KT_EQ(st_count(&b1, logs[0]), end0 + 1);
    int64_t want[PARTS];
    ends(want);
    take_over(want);
    end();
}

/* J5: the file lies from what was confirmed on; its acked end comes from the journal. */
static void an_error_of_a_sync_behind_loses_nothing(void)
{
    begin(false, NULL);
    put_framed(6);
    char path[PATH], name[KS_FILE_NAME_LEN];
    int64_t end0 = ks_log_offsets(logs[0]).high_watermark;
    st_data_path(&vol, logs[0], path);
    ks_file_name(logs[0]->c_file->id, name);
    KT_EQ(truncate(path, (off_t)logs[0]->c_synced), 0); /* the bytes did not get there */
    set_trap(name, 1, false);
    atomic_store(&b1.e->journal_ms, 0);
    resumed = logs[0];
    while (trap.hits == 0) {
        st_turn(&b1);
        sched_yield();
    }
    atomic_store(&b1.e->journal_ms, KS_JOURNAL_MS);
    await(acks_again);
    while (logs[0]->epoch == 0) { /* it was acked before the error came back */
        st_turn(&b1);
        sched_yield();
    }
    await(acks_again);
    KT_TRUE(ks_log_offsets(logs[0]).high_watermark >= end0 + 1);
    KT_EQ(trap.hits, 1); /* it was not synced again */
    KT_EQ(st_count(&b1, logs[0]), ks_log_offsets(logs[0]).high_watermark);
    int64_t want[PARTS];
    ends(want);
    take_over(want);
    end();
}

/* ---- planned ends ---- */

static void a_planned_seal_syncs_the_file_first(void)
{
    begin(true, NULL);
    put_framed(9);
    char name[KS_FILE_NAME_LEN];
    int64_t end0 = ks_log_offsets(logs[0]).high_watermark;
    ks_file_name(logs[0]->c_file->id, name);
    set_trap(name, 0, false);
    struct st_seal s;
    st_seal(&b1, logs[0], &s);
    logs[0] = NULL;
    KT_EQ(s.rc, 0);
    KT_EQ(s.end, end0);
    KT_EQ(trap.hits, 1);
    KT_EQ(ks_frames_remove(&other, 1, &b1.inc), 0); /* it needs no journal */
    struct ks_log *log = st_log(&b2, &topic, 0);
    KT_EQ(st_count(&b2, log), end0);
    st_close(&b2, log);
    end();
}

static void a_seal_whose_file_cannot_be_synced_leaves_it_to_the_claimant(void)
{
    begin(true, NULL);
    put_framed(9);
    char name[KS_FILE_NAME_LEN], path[PATH];
    int64_t end0 = ks_log_offsets(logs[0]).high_watermark;
    ks_file_name(logs[0]->c_file->id, name);
    st_data_path(&vol, logs[0], path);
    KT_EQ(truncate(path, (off_t)logs[0]->c_synced), 0);
    set_trap(name, 1, false);
    struct st_seal s;
    st_seal(&b1, logs[0], &s);
    KT_TRUE(s.rc != 0);
    logs[0] = st_log(&b1, &topic, 0); /* by ourselves, from our own journal */
    KT_EQ(ks_log_offsets(logs[0]).high_watermark, end0);
    KT_EQ(st_count(&b1, logs[0]), end0);
    KT_EQ(trap.hits, 1);
    end();
}

/* Who lets go of a log lets go of the journal: it would stay for an epoch that others seal. */
static void a_log_that_is_closed_holds_no_journal(void)
{
    begin(true, NULL);
    put_framed(9);
    for (int i = 0; i < PARTS; i++) {
        st_close(&b1, logs[i]);
        logs[i] = NULL;
    }
    atomic_store(&b1.e->journal_ms, 0);
    await(first_journal_gone);
    int64_t want[PARTS] = {7, 7, 7};
    take_over(want);
    end();
}

/* ---- what shares the file ---- */

static void a_roll_syncs_the_file_before_it(void)
{
    struct st_open o;
    struct ks_log_config cfg = st_args(&b1, &topic, 0, &o).config;
    cfg.segment_bytes = 250;
    begin(true, &cfg);
    for (int i = 0; i < 30; i++) {
        KT_TRUE(st_put(&b1, logs[i % PARTS], 2) >= 0);
    }
    KT_TRUE(logs[0]->st.n_segs > 3);
    int64_t want[PARTS];
    ends(want);
    take_over(want);
    end();
}

/* A snapshot says that what is before it is in the file (ADR 14): frames are not enough, and the sync
 * behind is. */
static bool a_snapshot(void)
{
    return atomic_load(&b1.e->m_ckpts) > 0;
}

static void snapshots_wait_for_the_sync_behind(void)
{
    begin(true, NULL);
    b1.e->checkpoint_bytes = 500;
    put_framed(60);
    KT_FALSE(a_snapshot());
    atomic_store(&b1.e->journal_ms, 0);
    await(a_snapshot);
    end();
}

/* The log whose file is synced behind first. */
static struct ks_log *first_synced(void)
{
    for (int i = 0; i < PARTS; i++) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &topic, i, logs[i]->c_file->id);
        if (strcmp(path, trap.first) == 0) {
            return logs[i];
        }
    }
    return NULL;
}

/* The owner was told of the syncs of all files but that of `resumed`. */
static bool the_others_are_synced(void)
{
    for (int i = 0; i < PARTS; i++) {
        if (logs[i] != resumed && logs[i]->ckpt.unsynced) {
            return false;
        }
    }
    return true;
}

/* J7: the error of a file is told once. It was told to a write while the file was synced behind; that sync
 * answers 0, and proves nothing. */
static void a_sync_behind_after_an_error_makes_no_snapshot(void)
{
    begin(true, NULL);
    b1.e->checkpoint_bytes = 500;
    put_framed(60);
    set_trap(".log", 0, true);
    atomic_store(&b1.e->journal_ms, 0);
    await(somebody_waits);
    atomic_store(&b1.e->journal_ms, KS_JOURNAL_MS);
    resumed = first_synced();
    KT_REQUIRE(resumed != NULL);
    atomic_store(&trap.full, true);
    KT_EQ(st_put(&b1, resumed, 2), -56);
    /* The files of a journal are synced one after another, and told of in that order: what would be said
     * of the first has come when the others' has. */
    KT_FALSE(the_others_are_synced());
    atomic_store(&trap.hold, false);
    await(the_others_are_synced);
    KT_TRUE(resumed->ckpt.unsynced); /* no snapshot may say that it is in the file */
    atomic_store(&trap.full, false);
    await(acks_again);
    end();
}

static void relaxed_logs_are_not_framed(void)
{
    struct st_open o;
    struct ks_log_config cfg = st_args(&b1, &topic, 0, &o).config;
    cfg.flush_messages = 1000;
    begin(false, NULL);
    ks_log_configure(logs[0], &cfg);
    uint64_t was = framed();
    for (int i = 0; i < 5; i++) {
        KT_TRUE(st_put(&b1, logs[0], 2) >= 0);
    }
    KT_EQ(framed(), was);
    KT_TRUE(logs[0]->c_unsynced > 0);
    end();
}

static void few_files_are_synced_where_they_are(void)
{
    begin(false, NULL);
    b1.e->direct_files = KS_DIRECT_FILES;
    uint64_t was = framed();
    for (int i = 0; i < 6; i++) {
        KT_TRUE(st_put(&b1, logs[i % PARTS], 2) >= 0);
        KT_EQ(logs[i % PARTS]->c_synced, logs[i % PARTS]->c_acked);
    }
    KT_EQ(framed(), was);
    end();
}

KT_MAIN("journal", KT(what_only_the_journal_has_is_taken_over),
        KT(a_fenced_owner_acks_no_more_from_its_journal),
        KT(a_journal_goes_after_the_syncs_behind_it), KT(turns_go_on_while_a_file_is_synced_behind),
        KT(an_error_ends_the_journal), KT(an_error_of_a_sync_behind_loses_nothing),
        KT(a_planned_seal_syncs_the_file_first),
        KT(a_seal_whose_file_cannot_be_synced_leaves_it_to_the_claimant),
        KT(a_log_that_is_closed_holds_no_journal), KT(a_roll_syncs_the_file_before_it),
        KT(snapshots_wait_for_the_sync_behind), KT(a_sync_behind_after_an_error_makes_no_snapshot),
        KT(relaxed_logs_are_not_framed), KT(few_files_are_synced_where_they_are))
