/* Keys are reconciled once each, never twice at once, and failures wait longer and longer. */
#include "kt.h"
#include "reconcile/ko_queue.h"

static void a_key_is_queued_once(void)
{
    struct ko_queue *q = ko_queue_new();
    ko_queue_add(q, "a", 10);
    ko_queue_add(q, "b", 5);
    ko_queue_add(q, "a", 10);
    KT_EQ(ko_queue_next_ms(q), 5);
    KT_STR(ko_queue_pop(q, 10), "b");
    KT_STR(ko_queue_pop(q, 10), "a");
    KT_TRUE(ko_queue_pop(q, 10) == NULL);
    ko_queue_done(q, "a", true, 10);
    ko_queue_done(q, "b", true, 10);
    KT_EQ(ko_queue_len(q), 0);
    KT_EQ(ko_queue_next_ms(q), INT64_MAX);
    ko_queue_free(q);
}

static void nothing_is_due_early(void)
{
    struct ko_queue *q = ko_queue_new();
    ko_queue_add(q, "a", 10);
    KT_TRUE(ko_queue_pop(q, 9) == NULL);
    ko_queue_add(q, "a", 3);
    KT_STR(ko_queue_pop(q, 3), "a");
    ko_queue_done(q, "a", true, 3);
    ko_queue_free(q);
}

static void a_key_in_work_is_looked_at_again_afterwards(void)
{
    struct ko_queue *q = ko_queue_new();
    ko_queue_add(q, "a", 0);
    KT_STR(ko_queue_pop(q, 0), "a");
    ko_queue_add(q, "a", 1);
    KT_TRUE(ko_queue_pop(q, 5) == NULL);
    ko_queue_done(q, "a", true, 5);
    KT_STR(ko_queue_pop(q, 5), "a");
    ko_queue_done(q, "a", true, 5);
    KT_EQ(ko_queue_len(q), 0);
    ko_queue_free(q);
}

static void failures_back_off_and_success_forgets(void)
{
    struct ko_queue *q = ko_queue_new();
    int64_t now = 0, waits[14];
    ko_queue_add(q, "a", 0);
    for (int i = 0; i < 14; i++) {
        KT_STR(ko_queue_pop(q, now), "a");
        ko_queue_done(q, "a", false, now);
        waits[i] = ko_queue_next_ms(q) - now;
        now = ko_queue_next_ms(q);
    }
    KT_EQ(waits[0], KO_BACKOFF_MIN_MS);
    KT_EQ(waits[1], 2 * KO_BACKOFF_MIN_MS);
    KT_EQ(waits[13], KO_BACKOFF_MAX_MS);
    KT_STR(ko_queue_pop(q, now), "a");
    ko_queue_done(q, "a", true, now);
    ko_queue_add(q, "a", now);
    KT_STR(ko_queue_pop(q, now), "a");
    ko_queue_done(q, "a", false, now);
    KT_EQ(ko_queue_next_ms(q) - now, KO_BACKOFF_MIN_MS);
    ko_queue_free(q);
}

KT_MAIN("operator/queue", KT(a_key_is_queued_once), KT(nothing_is_due_early),
        KT(a_key_in_work_is_looked_at_again_afterwards), KT(failures_back_off_and_success_forgets))
