/* Journals (ADR 13): an owner whose turns touch many partitions makes them durable by one, and syncs
 * their files behind. What the file does not have is played by cutting it down to what was synced. */
#include "jn.h"

#include <errno.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "storage/ks_scan.h"

struct listed {
    int all;
    bool first;
};

static bool on_name(void *arg, const char *name)
{
    struct listed *l = arg;
    struct kc_uuid inc;
    uint32_t n;
    if (ks_journal_named(name, &inc, &n) && kc_uuid_eq(&inc, &jn_b1.inc)) {
        l->all++;
        l->first = l->first || n == 0;
    }
    return true;
}

/* Journals of jn_b1 that lie on the volume. */
static struct listed journals(void)
{
    char dir[KS_PATH_MAX];
    struct listed l = {0};
    ks_path_inc_dir(dir, 1);
    KT_EQ(ks_fs_list(&jn_other, dir, on_name, &l), 0);
    return l;
}

static bool first_journal_gone(void)
{
    return !journals().first;
}

static uint64_t framed(void)
{
    return atomic_load(&jn_b1.e->m_frames);
}

/* Everything is in the journal now: turns of small batches. */
static void put_framed(int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t was = framed();
        KT_TRUE(st_put(&jn_b1, jn_logs[i % JN_PARTS], 2) >= 0);
        KT_EQ(framed(), was + 1);
    }
}

/* The machine loses what no sync of the files themselves has covered. */
static void lose_unsynced(void)
{
    for (int i = 0; i < JN_PARTS; i++) {
        char path[JN_PATH];
        st_data_path(&jn_vol, jn_logs[i], path);
        KT_TRUE(jn_logs[i]->c_synced < jn_logs[i]->c_acked);
        KT_EQ(truncate(path, (off_t)jn_logs[i]->c_synced), 0);
    }
}

/* jn_b2 takes all over: the records that were there, and it goes on behind them. */
static void take_over(const int64_t want[JN_PARTS])
{
    for (int i = 0; i < JN_PARTS; i++) {
        struct ks_log *log = st_log(&jn_b2, &jn_topic, i);
        KT_EQ(ks_log_offsets(log).high_watermark, want[i]);
        KT_EQ(st_count(&jn_b2, log), want[i]);
        KT_EQ(st_put(&jn_b2, log, 1), want[i]);
        st_close(&jn_b2, log);
    }
}

static void ends(int64_t ret[JN_PARTS])
{
    for (int i = 0; i < JN_PARTS; i++) {
        ret[i] = ks_log_offsets(jn_logs[i]).high_watermark;
    }
}

/* ---- the duty of a journal ---- */

static void what_only_the_journal_has_is_taken_over(void)
{
    for (int network = 0; network < 2; network++) {
        int64_t want[JN_PARTS];
        jn_begin(network, NULL);
        put_framed(20);
        ends(want);
        lose_unsynced();
        take_over(want);
        /* It stands in files of the claimants now: nobody needs the journal any more. */
        KT_EQ(journals().all, 1);
        KT_EQ(ks_frames_remove(&jn_other, 1, &jn_b1.inc), 0);
        KT_EQ(journals().all, 0);
        for (int i = 0; i < JN_PARTS; i++) {
            want[i]++;
        }
        take_over(want);
        jn_end();
    }
}

static void a_fenced_owner_acks_no_more_from_its_journal(void)
{
    jn_begin(true, NULL);
    put_framed(6);
    st_close(&jn_b2, st_log(&jn_b2, &jn_topic, 0));
    KT_TRUE(st_put(&jn_b1, jn_logs[1], 1) < 0);
    jn_end();
}

static void a_journal_goes_after_the_syncs_behind_it(void)
{
    jn_begin(false, NULL);
    put_framed(7);
    jn_set_trap(".log", 0, true);
    atomic_store(&jn_b1.e->journal_ms, 0); /* it is old now */
    jn_await(jn_somebody_waits);
    atomic_store(&jn_b1.e->journal_ms, KS_JOURNAL_MS);
    for (int i = 0; i < 50; i++) {
        st_turn(&jn_b1);
        sched_yield();
        KT_TRUE(journals().first); /* its files are not synced: it stays */
    }
    atomic_store(&jn_trap.hold, false);
    jn_await(first_journal_gone);
    int64_t want[JN_PARTS];
    ends(want);
    KT_EQ(ks_frames_remove(&jn_other, 1, &jn_b1.inc), 0); /* the files have it all */
    take_over(want);
    jn_end();
}

/* J7. */
static void turns_go_on_while_a_file_is_synced_behind(void)
{
    jn_begin(false, NULL);
    put_framed(3);
    jn_set_trap(".log", 0, true);
    atomic_store(&jn_b1.e->journal_ms, 0);
    jn_await(jn_somebody_waits);
    atomic_store(&jn_b1.e->journal_ms, KS_JOURNAL_MS);
    for (int i = 0; i < 10; i++) {
        KT_TRUE(st_put(&jn_b1, jn_logs[0], 2) >=
                0); /* small ones: into a journal, or they would wait */
    }
    /* A large one has to be synced where it is: not beside the sync that is under way. */
    struct st_append a;
    st_append_start(jn_logs[0], st_make(&(struct st_batch){.value_len = 2 * KS_FRAME_MAX}),
                    KS_FROM_CLIENT, &a);
    for (int i = 0; i < 50; i++) {
        st_turn(&jn_b1);
        sched_yield();
        KT_FALSE(a.done);
    }
    atomic_store(&jn_trap.hold, false);
    st_until(&jn_b1, &a.done);
    KT_EQ(a.r.error, 0);
    KT_EQ(st_count(&jn_b1, jn_logs[0]), 1 + 2 + 20 + 1);
    jn_end();
}

/* The log whose file is synced behind first. */
static struct ks_log *first_synced(void)
{
    for (int i = 0; i < JN_PARTS; i++) {
        char path[KS_PATH_MAX];
        ks_path_file(path, &jn_topic, i, jn_logs[i]->c_file->id);
        if (strcmp(path, jn_trap.first) == 0) {
            return jn_logs[i];
        }
    }
    return NULL;
}

/* A repeat has nothing to write, so it may run; what is queued behind it may still be too large. */
static void a_repeat_takes_no_large_batch_along(void)
{
    jn_begin(false, NULL);
    struct st_batch once = {.pid = 7, .seq = 0}, large = {.value_len = 2 * KS_FRAME_MAX};
    KT_EQ(st_append(&jn_b1, jn_logs[0], st_make(&once)).error, 0);
    put_framed(3);
    jn_set_trap(".log", 0, true);
    atomic_store(&jn_b1.e->journal_ms, 0);
    jn_await(jn_somebody_waits);
    atomic_store(&jn_b1.e->journal_ms, KS_JOURNAL_MS);
    while (!first_synced()) {
        st_turn(&jn_b1);
    }
    struct ks_log *log = first_synced();
    KT_EQ(st_append(&jn_b1, log, st_make(&once)).error, 0); /* of that log the first one */
    struct st_append again, a;
    pthread_mutex_lock(
        &jn_b1.e->q_lock); /* both in one turn: the commit thread cannot look in between */
    st_append_start(log, st_make(&once), KS_FROM_CLIENT, &again);
    st_append_start(log, st_make(&large), KS_FROM_CLIENT, &a);
    pthread_mutex_unlock(&jn_b1.e->q_lock);
    st_until(&jn_b1, &again.done);
    KT_EQ(again.r.error, 0);
    for (int i = 0; i < 50; i++) {
        st_turn(&jn_b1);
        sched_yield();
        KT_FALSE(a.done);
    }
    atomic_store(&jn_trap.hold, false);
    st_until(&jn_b1, &a.done);
    KT_EQ(a.r.error, 0);
    jn_end();
}

/* ---- errors ---- */

/* J4. */
static void an_error_ends_the_journal(void)
{
    jn_begin(false, NULL);
    put_framed(6);
    jn_set_trap(".j0", 1, false);
    KT_EQ(st_put(&jn_b1, jn_logs[0], 2), -56);
    KT_EQ(jn_trap.hits, 1);
    int64_t end0 = ks_log_offsets(jn_logs[0]).high_watermark;
    jn_resumed = jn_logs[0];
    jn_await(jn_acks_again);
    KT_EQ(ks_log_offsets(jn_logs[0]).high_watermark, end0 + 1); /* the refused batch is not there */
    KT_TRUE(jn_logs[0]->c_epoch > 0);
    KT_TRUE(st_put(&jn_b1, jn_logs[1], 1) >= 0); /* the others were in no turn that failed */
    KT_EQ(jn_logs[1]->c_epoch, 0);
    KT_EQ(jn_trap.hits, 1); /* nothing more went into it */
    KT_EQ(st_count(&jn_b1, jn_logs[0]), end0 + 1);
    int64_t want[JN_PARTS];
    ends(want);
    take_over(want);
    jn_end();
}

/* J5: the file lies from what was confirmed on; its acked end comes from the journal. */
static void an_error_of_a_sync_behind_loses_nothing(void)
{
    jn_begin(false, NULL);
    put_framed(6);
    char path[JN_PATH], name[KS_FILE_NAME_LEN];
    int64_t end0 = ks_log_offsets(jn_logs[0]).high_watermark;
    st_data_path(&jn_vol, jn_logs[0], path);
    ks_file_name(jn_logs[0]->c_file->id, name);
    KT_EQ(truncate(path, (off_t)jn_logs[0]->c_synced), 0); /* the bytes did not get there */
    jn_set_trap(name, 1, false);
    atomic_store(&jn_b1.e->journal_ms, 0);
    jn_resumed = jn_logs[0];
    while (jn_trap.hits == 0) {
        st_turn(&jn_b1);
        sched_yield();
    }
    atomic_store(&jn_b1.e->journal_ms, KS_JOURNAL_MS);
    jn_await(jn_acks_again);
    while (jn_logs[0]->epoch == 0) { /* it was acked before the error came back */
        st_turn(&jn_b1);
        sched_yield();
    }
    jn_await(jn_acks_again);
    KT_TRUE(ks_log_offsets(jn_logs[0]).high_watermark >= end0 + 1);
    KT_EQ(jn_trap.hits, 1); /* it was not synced again */
    KT_EQ(st_count(&jn_b1, jn_logs[0]), ks_log_offsets(jn_logs[0]).high_watermark);
    int64_t want[JN_PARTS];
    ends(want);
    take_over(want);
    jn_end();
}

/* ---- planned ends ---- */

static void a_planned_seal_syncs_the_file_first(void)
{
    jn_begin(true, NULL);
    put_framed(9);
    char name[KS_FILE_NAME_LEN];
    int64_t end0 = ks_log_offsets(jn_logs[0]).high_watermark;
    ks_file_name(jn_logs[0]->c_file->id, name);
    jn_set_trap(name, 0, false);
    struct st_seal s;
    st_seal(&jn_b1, jn_logs[0], &s);
    jn_logs[0] = NULL;
    KT_EQ(s.rc, 0);
    KT_EQ(s.end, end0);
    KT_EQ(jn_trap.hits, 1);
    KT_EQ(ks_frames_remove(&jn_other, 1, &jn_b1.inc), 0); /* it needs no journal */
    struct ks_log *log = st_log(&jn_b2, &jn_topic, 0);
    KT_EQ(st_count(&jn_b2, log), end0);
    st_close(&jn_b2, log);
    jn_end();
}

static void a_seal_whose_file_cannot_be_synced_leaves_it_to_the_claimant(void)
{
    jn_begin(true, NULL);
    put_framed(9);
    char name[KS_FILE_NAME_LEN], path[JN_PATH];
    int64_t end0 = ks_log_offsets(jn_logs[0]).high_watermark;
    ks_file_name(jn_logs[0]->c_file->id, name);
    st_data_path(&jn_vol, jn_logs[0], path);
    KT_EQ(truncate(path, (off_t)jn_logs[0]->c_synced), 0);
    jn_set_trap(name, 1, false);
    struct st_seal s;
    st_seal(&jn_b1, jn_logs[0], &s);
    KT_TRUE(s.rc != 0);
    jn_logs[0] = st_log(&jn_b1, &jn_topic, 0); /* by ourselves, from our own journal */
    KT_EQ(ks_log_offsets(jn_logs[0]).high_watermark, end0);
    KT_EQ(st_count(&jn_b1, jn_logs[0]), end0);
    KT_EQ(jn_trap.hits, 1);
    jn_end();
}

/* Who lets go of a log lets go of the journal: it would stay for an epoch that others seal. */
static void a_log_that_is_closed_holds_no_journal(void)
{
    jn_begin(true, NULL);
    put_framed(9);
    for (int i = 0; i < JN_PARTS; i++) {
        st_close(&jn_b1, jn_logs[i]);
        jn_logs[i] = NULL;
    }
    atomic_store(&jn_b1.e->journal_ms, 0);
    jn_await(first_journal_gone);
    int64_t want[JN_PARTS] = {7, 7, 7};
    take_over(want);
    jn_end();
}

/* ---- what shares the file ---- */

static void a_roll_syncs_the_file_before_it(void)
{
    struct st_open o;
    struct ks_log_config cfg = st_args(&jn_b1, &jn_topic, 0, &o).config;
    cfg.segment_bytes = 250;
    jn_begin(true, &cfg);
    for (int i = 0; i < 30; i++) {
        KT_TRUE(st_put(&jn_b1, jn_logs[i % JN_PARTS], 2) >= 0);
    }
    KT_TRUE(jn_logs[0]->st.n_segs > 3);
    int64_t want[JN_PARTS];
    ends(want);
    take_over(want);
    jn_end();
}

/* A snapshot says that what is before it is in the file (ADR 14): frames are not enough, and the sync
 * behind is. */
static bool a_snapshot(void)
{
    return atomic_load(&jn_b1.e->m_ckpts) > 0;
}

static void snapshots_wait_for_the_sync_behind(void)
{
    jn_begin(true, NULL);
    jn_b1.e->checkpoint_bytes = 500;
    put_framed(60);
    KT_FALSE(a_snapshot());
    atomic_store(&jn_b1.e->journal_ms, 0);
    jn_await(a_snapshot);
    jn_end();
}

/* The owner was told of the syncs of all files but that of `jn_resumed`. */
static bool the_others_are_synced(void)
{
    for (int i = 0; i < JN_PARTS; i++) {
        if (jn_logs[i] != jn_resumed && jn_logs[i]->ckpt.unsynced) {
            return false;
        }
    }
    return true;
}

/* J7: the error of a file is told once. It was told to a write while the file was synced behind; that sync
 * answers 0, and proves nothing. */
static void a_sync_behind_after_an_error_makes_no_snapshot(void)
{
    jn_begin(true, NULL);
    jn_b1.e->checkpoint_bytes = 500;
    put_framed(60);
    jn_set_trap(".log", 0, true);
    atomic_store(&jn_b1.e->journal_ms, 0);
    jn_await(jn_somebody_waits);
    atomic_store(&jn_b1.e->journal_ms, KS_JOURNAL_MS);
    jn_resumed = first_synced();
    KT_REQUIRE(jn_resumed != NULL);
    atomic_store(&jn_trap.full, true);
    KT_EQ(st_put(&jn_b1, jn_resumed, 2), -56);
    /* The files of a journal are synced one after another, and told of in that order: what would be said
     * of the first has come when the others' has. */
    KT_FALSE(the_others_are_synced());
    atomic_store(&jn_trap.hold, false);
    jn_await(the_others_are_synced);
    KT_TRUE(jn_resumed->ckpt.unsynced); /* no snapshot may say that it is in the file */
    atomic_store(&jn_trap.full, false);
    jn_await(jn_acks_again);
    jn_end();
}

static void relaxed_logs_are_not_framed(void)
{
    struct st_open o;
    struct ks_log_config cfg = st_args(&jn_b1, &jn_topic, 0, &o).config;
    cfg.flush_messages = 1000;
    jn_begin(false, NULL);
    ks_log_configure(jn_logs[0], &cfg);
    uint64_t was = framed();
    for (int i = 0; i < 5; i++) {
        KT_TRUE(st_put(&jn_b1, jn_logs[0], 2) >= 0);
    }
    KT_EQ(framed(), was);
    KT_TRUE(jn_logs[0]->c_unsynced > 0);
    jn_end();
}

static void few_files_are_synced_where_they_are(void)
{
    jn_begin(false, NULL);
    jn_b1.e->direct_files = KS_DIRECT_FILES;
    uint64_t was = framed();
    for (int i = 0; i < 6; i++) {
        KT_TRUE(st_put(&jn_b1, jn_logs[i % JN_PARTS], 2) >= 0);
        KT_EQ(jn_logs[i % JN_PARTS]->c_synced, jn_logs[i % JN_PARTS]->c_acked);
    }
    KT_EQ(framed(), was);
    jn_end();
}

KT_MAIN("journal", KT(what_only_the_journal_has_is_taken_over),
        KT(a_fenced_owner_acks_no_more_from_its_journal),
        KT(a_journal_goes_after_the_syncs_behind_it), KT(turns_go_on_while_a_file_is_synced_behind),
        KT(a_repeat_takes_no_large_batch_along), KT(an_error_ends_the_journal),
        KT(an_error_of_a_sync_behind_loses_nothing), KT(a_planned_seal_syncs_the_file_first),
        KT(a_seal_whose_file_cannot_be_synced_leaves_it_to_the_claimant),
        KT(a_log_that_is_closed_holds_no_journal), KT(a_roll_syncs_the_file_before_it),
        KT(snapshots_wait_for_the_sync_behind), KT(a_sync_behind_after_an_error_makes_no_snapshot),
        KT(relaxed_logs_are_not_framed), KT(few_files_are_synced_where_they_are))
