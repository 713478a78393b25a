/* Logs with a relaxed flush.messages: acked without a sync, synced behind before the bound that claimants
 * count on is reached (ADR 10), and written to beside that sync (ADR 13, J7). */
#include "jn.h"

#include <sched.h>

/* ---- relaxed jn_logs: flush.messages is more than one ---- */

enum { W = 64 * 1024, PIECE = W / 8 };

static void begin(bool network, int64_t flush_messages)
{
    struct st_open o;
    jn_begin(network, NULL);
    struct ks_log_config cfg = st_args(&jn_b1, &jn_topic, 0, &o).config;
    cfg.flush_messages = flush_messages;
    ks_log_configure(jn_logs[0], &cfg);
    jn_b1.e->unconfirmed = W;
}

static struct kc_slice piece(void)
{
    return st_make(&(struct st_batch){.value_len = PIECE - 100}); /* a little less than PIECE */
}

/* Appends until a sync behind has begun, which waits in the jn_trap; returns how many. */
static int put_until_synced_behind(void)
{
    int n = 0;
    jn_set_trap(".log", 0, true);
    do {
        KT_EQ(st_append(&jn_b1, jn_logs[0], piece()).error,
              0); /* without a sync: it would wait for ever */
        n++;
    } while (!jn_logs[0]->c_syncing && n < 16);
    jn_await(jn_somebody_waits);
    return n;
}

/* ADR 10: a sync begins at half of the bound; what fits goes on beside it, and no more than fits. */
static void a_relaxed_log_goes_on_beside_its_sync_up_to_the_bound(void)
{
    begin(true, 1000000);
    int n = put_until_synced_behind();
    KT_TRUE(n == 4 || n == 5);
    uint64_t confirmed = jn_logs[0]->c_durable;
    for (; jn_logs[0]->c_pos - confirmed + PIECE <= W; n++) {
        KT_EQ(st_append(&jn_b1, jn_logs[0], piece()).error, 0);
    }
    KT_TRUE(n >= 7);
    struct st_append a;
    st_append_start(jn_logs[0], piece(), KS_FROM_CLIENT, &a);
    KT_TRUE(st_put(&jn_b1, jn_logs[1], 1) >= 0); /* others do not wait */
    for (int i = 0; i < 50; i++) {
        st_turn(&jn_b1);
        sched_yield();
        KT_FALSE(a.done);
        KT_TRUE(jn_logs[0]->c_pos - confirmed <= W);
    }
    atomic_store(&jn_trap.hold, false);
    st_until(&jn_b1, &a.done);
    KT_EQ(a.r.error, 0);
    KT_EQ(st_count(&jn_b1, jn_logs[0]), 1 + n + 1);
    jn_end();
}

static bool nothing_is_synced_behind(void)
{
    KT_EQ(st_put(&jn_b1, jn_logs[1], 1) < 0,
          0); /* so that what the commit thread wrote is seen here */
    return !jn_logs[0]->c_syncing;
}

/* The sync confirms what was written before it began, not what was written beside it. */
static void a_sync_behind_confirms_what_was_there_when_it_began(void)
{
    begin(true, 1000000);
    put_until_synced_behind();
    uint64_t covered = jn_logs[0]->c_pos;
    KT_EQ(st_append(&jn_b1, jn_logs[0], piece()).error, 0);
    KT_EQ(st_put(&jn_b1, jn_logs[0], 3), ks_log_offsets(jn_logs[0]).high_watermark - 3);
    KT_TRUE(jn_logs[0]->c_durable < covered);
    atomic_store(&jn_trap.hold, false);
    jn_await(nothing_is_synced_behind);
    KT_EQ(jn_logs[0]->c_synced, covered);
    KT_EQ(jn_logs[0]->c_durable, covered);
    KT_EQ(jn_logs[0]->c_unsynced, 4);
    KT_TRUE(jn_logs[0]->c_pos > covered);
    jn_end();
}

/* Kafka's flush.messages: the record that makes it full is acked after a sync that covers it. */
static void flush_messages_counts_what_is_written_beside_a_sync(void)
{
    begin(true, 8);
    int n = put_until_synced_behind();
    KT_TRUE(n < 7);
    for (; n < 7; n++) {
        KT_TRUE(st_put(&jn_b1, jn_logs[0], 1) >= 0);
    }
    struct st_append a;
    st_append_start(jn_logs[0], st_make(&(struct st_batch){0}), KS_FROM_CLIENT, &a);
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

/* The error is told to the sync behind, once; nothing that was written beside it is believed durable, and
 * the log goes on in a new epoch with what it had acked. */
static void an_error_of_a_relaxed_sync_behind_starts_a_new_epoch(void)
{
    begin(true, 1000000);
    int n = put_until_synced_behind();
    KT_EQ(st_append(&jn_b1, jn_logs[0], piece()).error, 0);
    atomic_store(&jn_trap.fail, 1);
    atomic_store(&jn_trap.hold, false);
    jn_resumed = jn_logs[0];
    while (jn_logs[0]->epoch == 0) {
        int64_t rc = st_put(&jn_b1, jn_logs[0], 1);
        KT_TRUE(rc >= 0 || rc == -56);
        n += rc >= 0;
        st_turn(&jn_b1);
    }
    jn_await(jn_acks_again);
    KT_EQ(st_count(&jn_b1, jn_logs[0]), ks_log_offsets(jn_logs[0]).high_watermark);
    KT_TRUE(ks_log_offsets(jn_logs[0]).high_watermark >= 1 + n + 1);
    jn_end();
}

KT_MAIN("relaxed", KT(a_relaxed_log_goes_on_beside_its_sync_up_to_the_bound),
        KT(a_sync_behind_confirms_what_was_there_when_it_began),
        KT(flush_messages_counts_what_is_written_beside_a_sync),
        KT(an_error_of_a_relaxed_sync_behind_starts_a_new_epoch))
