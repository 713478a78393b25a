/* One good history, and for every class of violation a bad one that differs in what it names. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/kc_clock.h"
#include "base/kc_dyn.h"
#include "history/hist.h"
#include "kt.h"

/* Values of process 1 and 2, as text. */
#define V1(n) "109951162777" #n /* 1 << 40 = 1099511627776; n = 6 is sequence 0 */
#define V2(n) "219902325555" #n /* 2 << 40 = 2199023255552; n = 2 is sequence 0 */

static int load(struct hist *h, const char *text)
{
    struct kc_err err = {0};
    int rc = hist_load(h, text, strlen(text), &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.msg);
    }
    return rc;
}

/* Two idempotent sends acknowledged at 0 and 1, and a final read of both. */
static const char sends[] =
    "P 1 producer idempotent\n"
    "s 100 t 0 " V1(6) "\ns 110 t 0 " V1(7) "\n"
                                            "a 200 " V1(6) " 0 0\na 210 " V1(7) " 0 1\n";
static const char final_read[] = "P 9 reader\n"
                                 "r 900 t 0 0\n"
                                 "p 900 910 t 0 0:" V1(6) " 1:" V1(7) "\n"
                                                                      "e 920 t 0 0 2\n";

/* Checks the files (NULL at the end) and wants just that class, or nothing. */
static void expect(enum hist_class want, const char *const *files)
{
    struct hist *h = hist_new();
    for (; *files; files++) {
        KT_EQ(load(h, *files), 0);
    }
    hist_check(h);
    for (int c = 0; c < HIST_CLASSES; c++) {
        bool found = h->found[c] > 0;
        if (found != (c == (int)want)) {
            fprintf(stderr, "%s: %s\n", hist_class_name((enum hist_class)c),
                    found ? h->first[c][0] : "not found");
        }
        KT_EQ(found, c == (int)want);
    }
    hist_free(h);
}

#define EXPECT(want, ...) expect(want, (const char *const[]){__VA_ARGS__, NULL})

static void good_history_has_no_findings(void)
{
    EXPECT(HIST_CLASSES, sends, final_read,
           "P 3 group\nc 300 310 g t 0 1 ok\nc 320 330 g t 0 2 ok\no 3000400 3000410 g t 0 2\n",
           "P 4 watcher\nw 2000000 2000010 t 0 0 2\n");
}

static void offset_with_two_values_is_a_collision(void)
{
    EXPECT(HIST_COLLISION, sends, final_read, "P 2 other\ns 100 t 0 " V2(2) "\nu 300 " V2(2) "\n",
           "P 3 consumer\np 300 310 t 0 1:" V2(2) "\n");
}

static void two_acknowledgements_of_an_offset_collide(void)
{
    struct hist *h = hist_new();
    KT_EQ(load(h, sends), 0);
    KT_EQ(load(h, "P 2 other\ns 100 t 0 " V2(2) "\na 300 " V2(2) " 0 1\n"), 0);
    KT_EQ(load(h, final_read), 0);
    hist_check(h);
    KT_EQ(h->found[HIST_COLLISION], 1);
    KT_EQ(h->found[HIST_LOST], 1); /* it cannot be there, too */
    hist_free(h);
}

static void record_twice_is_a_duplicate_if_idempotent(void)
{
    static const char twice[] = "P 9 reader\nr 900 t 0 0\n"
                                "p 900 910 t 0 0:" V1(6) " 1:" V1(7) " 2:" V1(7) "\n"
                                                                                 "e 920 t 0 0 3\n";
    EXPECT(HIST_DUPLICATE, sends, twice);
    struct hist *h = hist_new();
    KT_EQ(load(h, "P 1 producer ordered\ns 100 t 0 " V1(6) "\ns 110 t 0 " V1(7) "\na 200 " V1(
                      6) " 0 0\na 210 " V1(7) " 0 1\n"),
          0);
    KT_EQ(load(h, twice), 0);
    hist_check(h);
    KT_EQ(hist_violations(h), 0);
    KT_EQ(h->plain_duplicates, 1);
    hist_free(h);
}

static void unacknowledged_record_in_the_wrong_place_is_reordered(void)
{
    EXPECT(HIST_REORDERED,
           "P 1 producer idempotent\ns 100 t 0 " V1(6) "\ns 110 t 0 " V1(
               7) "\n"
                  "u 200 " V1(6) "\na 210 " V1(7) " 0 0\n",
           "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V1(7) " 1:" V1(6) "\ne 920 t 0 0 2\n");
}

static void acknowledged_but_not_in_the_final_read_is_lost(void)
{
    EXPECT(HIST_LOST, sends, "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V1(6) "\ne 920 t 0 0 1\n");
    EXPECT(HIST_LOST, sends); /* nobody looked */
    EXPECT(HIST_LOST, sends, final_read, /* acknowledged without an offset, and nowhere */
           "P 2 other\ns 100 t 0 " V2(2) "\na 300 " V2(2) " 0 -1\n");
}

static void below_the_start_only_a_deleting_topic_may_lack_records(void)
{
    static const char tail[] =
        "P 9 reader\nr 900 t 0 1\np 900 910 t 0 1:" V1(7) "\ne 920 t 0 1 2\n";
    EXPECT(HIST_LOST, sends, tail);
    struct hist *h = hist_new();
    hist_topic(h, "t", 1)->deleting = true;
    KT_EQ(load(h, sends), 0);
    KT_EQ(load(h, tail), 0);
    hist_check(h);
    KT_EQ(hist_violations(h), 0);
    hist_free(h);
}

static void compacted_topic_keeps_the_last_record_of_a_key(void)
{
    for (int last_missing = 0; last_missing < 2; last_missing++) {
        struct hist *h = hist_new();
        hist_topic(h, "t", 1)->compacted = true;
        KT_EQ(load(h, "P 1 producer idempotent\ns 100 t 0 " V1(6) " 5\ns 110 t 0 " V1(
                          7) " 5\n"
                             "a 200 " V1(6) " 0 0\na 210 " V1(7) " 0 1\n"),
              0);
        KT_EQ(load(h, last_missing
                          ? "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V1(6) "\ne 920 t 0 0 2\n"
                          : "P 9 reader\nr 900 t 0 0\np 900 910 t 0 1:" V1(7) "\ne 920 t 0 0 2\n"),
              0);
        hist_check(h);
        KT_EQ(h->found[HIST_LOST], last_missing);
        KT_EQ(hist_violations(h), last_missing);
        hist_free(h);
    }
}

static void value_nobody_sent_is_found(void)
{
    EXPECT(HIST_UNSENT, sends, final_read, "P 3 consumer\np 300 310 t 0 2:77\n");
    EXPECT(HIST_UNSENT, sends, final_read, "P 3 consumer\np 300 310 t 1 0:" V1(6) "\n");
}

static void refused_and_aborted_records_must_not_be_read(void)
{
    static const char reads[] = "p 900 910 t 0 0:" V1(6) "\n";
    char reader[256];
    snprintf(reader, sizeof(reader), "P 9 reader\n%s", reads);
    EXPECT(HIST_ABORTED, "P 1 producer\ns 100 t 0 " V1(6) "\nf 200 " V1(6) "\n", reader);
    static const char txn[] =
        "P 1 producer\ns 100 t 0 " V1(6) " -1 0\nu 200 " V1(6) "\n"
                                                               "x 300 0 aborted\n";
    EXPECT(HIST_CLASSES, txn, reader); /* read_uncommitted may */
    snprintf(reader, sizeof(reader), "P 9 reader committed\n%s", reads);
    EXPECT(HIST_ABORTED, txn, reader);
}

static void acknowledged_offsets_go_back(void)
{
    EXPECT(HIST_ACK_ORDER,
           "P 1 producer ordered\ns 100 t 0 " V1(6) "\ns 110 t 0 " V1(
               7) "\n"
                  "a 200 " V1(6) " 0 1\na 210 " V1(7) " 0 0\n",
           "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V1(7) " 1:" V1(6) "\ne 920 t 0 0 2\n");
}

static void later_send_stands_before_an_earlier_acknowledgement(void)
{
    EXPECT(HIST_REAL_TIME, "P 1 producer\ns 100 t 0 " V1(6) "\na 200 " V1(6) " 0 1\n",
           "P 2 producer\ns 201 t 0 " V2(2) "\na 300 " V2(2) " 0 0\n",
           "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V2(2) " 1:" V1(6) "\ne 920 t 0 0 2\n");
    EXPECT(HIST_CLASSES, /* at once: any order will do */
           "P 1 producer\ns 100 t 0 " V1(6) "\na 200 " V1(6) " 0 1\n",
           "P 2 producer\ns 200 t 0 " V2(2) "\na 300 " V2(2) " 0 0\n",
           "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V2(2) " 1:" V1(6) "\ne 920 t 0 0 2\n");
}

static void polls_go_back(void)
{
    EXPECT(HIST_POLL_ORDER, sends, final_read,
           "P 3 consumer\np 300 310 t 0 1:" V1(7) "\np 320 330 t 0 0:" V1(6) "\n");
    EXPECT(HIST_POLL_ORDER, sends, final_read,
           "P 3 consumer\np 300 310 t 0 1:" V1(7) " 0:" V1(6) "\n");
    EXPECT(HIST_CLASSES, sends, final_read, /* begun again in between */
           "P 3 consumer\np 300 310 t 0 1:" V1(7) "\nr 315 t 0 0\np 320 330 t 0 0:" V1(6) "\n");
}

static void poll_leaves_out_a_record_that_others_saw(void)
{
    static const char three[] = "P 1 producer idempotent\ns 100 t 0 " V1(6) "\ns 110 t 0 " V1(
        7) "\ns 120 t 0 " V1(8) "\na 200 " V1(6) " 0 0\na 210 " V1(7) " 0 1\na 220 " V1(8) " 0 2\n";
    static const char all[] = "P 9 reader\nr 900 t 0 0\np 900 910 t 0 0:" V1(6) " 1:" V1(
        7) " 2:" V1(8) "\ne 920 t 0 0 3\n";
    EXPECT(HIST_POLL_SKIP, three, all, "P 3 consumer\np 300 310 t 0 0:" V1(6) " 2:" V1(8) "\n");
    EXPECT(HIST_POLL_SKIP, three, all,
           "P 3 consumer\np 300 310 t 0 0:" V1(6) "\np 320 330 t 0 2:" V1(8) "\n");
    EXPECT(HIST_POLL_SKIP, three, all, "P 3 consumer\nr 290 t 0 1\np 300 310 t 0 2:" V1(8) "\n");
    EXPECT(HIST_CLASSES, three, all, "P 3 consumer\nr 290 t 0 -1\np 300 310 t 0 2:" V1(8) "\n");
}

static void high_watermark_below_what_was_known_is_stale(void)
{
    EXPECT(HIST_STALE, sends, final_read, "P 3 watcher\nw 1000211 1000212 t 0 0 1\n");
    EXPECT(HIST_CLASSES, sends, final_read, "P 3 watcher\nw 1000209 1000300 t 0 0 1\n");
    EXPECT(HIST_STALE, sends, final_read, /* and below what was told before */
           "P 3 watcher\nw 2000000 2000010 t 0 0 5\nw 3000020 3000030 t 0 0 4\n");
}

static void committed_offset_goes_back(void)
{
    EXPECT(HIST_OFFSET_BACK, sends, final_read,
           "P 3 group\nc 300 310 g t 0 1 ok\nc 320 330 g t 0 2 ok\no 3000400 3000410 g t 0 1\n");
    EXPECT(HIST_OFFSET_BACK, sends, final_read,
           "P 3 group\nc 300 310 g t 0 1 ok\no 3000400 3000410 g t 0 -1\n");
    EXPECT(HIST_OFFSET_BACK, sends, final_read, "P 3 group\no 3000400 3000410 g t 0 1\n");
    EXPECT(
        HIST_CLASSES, sends, final_read, /* one that timed out may still arrive */
        "P 3 group\nc 300 310 g t 0 1 unknown\nc 320 330 g t 0 2 ok\no 3000400 3000410 g t 0 1\n");
}

static void commit_that_only_began_may_have_happened(void)
{
    EXPECT(HIST_CLASSES, sends, final_read, "P 3 group\nb 300 g t 0 1\n",
           "P 4 group\no 3000400 3000410 g t 0 1\no 3000500 3000510 g t 0 -1\n");
    EXPECT(HIST_OFFSET_BACK, sends, final_read, /* this one has an outcome, and was replaced */
           "P 3 group\nb 300 g t 0 1\nc 300 310 g t 0 1 ok\nb 320 g t 0 2\nc 320 330 g t 0 2 ok\n"
           "o 3000400 3000410 g t 0 1\n");
}

static void malformed_files_are_refused(void)
{
    static const char *const bad[] = {
        "",
        "s 100 t 0 " V1(6) "\n", /* no process named */
        "P 1 producer sometimes\n",
        "P 0 producer\n",
        "P 1 producer\ns 100 t 0 " V1(7) "\n", /* not the next of its values */
        "P 1 producer\na 100 " V1(6) " 0 0\n", /* never sent */
        "P 1 producer\ns 100 t 0 " V1(6) "\na 100 " V1(6) " 1 0\n", /* another partition */
        "P 1 producer\ns 100 t 0 " V1(6) "\na 100 " V1(6) " 0 0\na 100 " V1(6) " 0 0\n",
        "P 1 consumer\np 1 2 t 0 5\n",
        "P 1 consumer\np 1 2 t 0 5:x\n",
        "P 1 consumer\np 1 2 t 0 99999999999:1\n",
        "P 1 consumer\nc 1 2 g t 0 5 perhaps\n",
        "P 1 consumer\ne 1 t 0 5 4\n",
        "P 1 consumer\nz\n",
    };
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        struct hist *h = hist_new();
        struct kc_err err = {0};
        KT_EQ(hist_load(h, bad[i], strlen(bad[i]), &err), KC_E_MALFORMED);
        hist_free(h);
    }
    struct hist *h = hist_new(); /* but a line whose writer was killed is left out */
    KT_EQ(load(h, "P 1 producer\ns 100 t 0 " V1(6) "\na 20"), 0);
    KT_EQ(h->processes[1].n_sends, 1);
    KT_EQ(h->processes[1].sends[0].outcome, HIST_OPEN);
    hist_free(h);
}

/* Three million lines: what a long storm leaves. Its size is what is shown; the time is printed. */
static void a_million_records_are_checked(void)
{
    enum { N = 1000000, TEXT_MAX = 128 << 20 };
    uint64_t base = (uint64_t)1 << HIST_SEQUENCE_BITS;
    struct kc_dyn text;
    kc_dyn_init(&text, TEXT_MAX);
    kc_dyn_addf(&text, "P 1 producer idempotent\n");
    for (uint64_t i = 0; i < N; i++) {
        kc_dyn_addf(&text, "s %" PRIu64 " t %" PRIu64 " %" PRIu64 "\n", 10 * i, i % 10, base + i);
        kc_dyn_addf(&text, "a %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", 10 * i + 5,
                    base + i, i % 10, i / 10);
    }
    struct hist *h = hist_new();
    struct kc_err err = {0};
    int64_t begun = kc_mono_ms();
    KT_EQ(hist_load(h, (const char *)text.data, text.len, &err), 0);
    kc_dyn_reset(&text);
    kc_dyn_addf(&text, "P 2 reader\n");
    for (uint64_t i = 0; i < N; i++) {
        uint64_t part = i / (N / 10), offset = i % (N / 10);
        kc_dyn_addf(&text, "p 20000000 20000001 t %" PRIu64 " %" PRIu64 ":%" PRIu64 "\n", part,
                    offset, base + offset * 10 + part);
    }
    for (int i = 0; i < 10; i++) {
        kc_dyn_addf(&text, "e 30000000 t %d 0 %d\n", i, N / 10);
    }
    KT_TRUE(kc_dyn_ok(&text));
    KT_EQ(hist_load(h, (const char *)text.data, text.len, &err), 0);
    hist_check(h);
    printf("%d records loaded and checked in %lld ms\n", N, (long long)(kc_mono_ms() - begun));
    KT_EQ(hist_violations(h), 0);
    KT_EQ(h->n_records, N);
    hist_free(h);
    kc_dyn_fini(&text);
}

KT_MAIN("history", KT(good_history_has_no_findings), KT(offset_with_two_values_is_a_collision),
        KT(two_acknowledgements_of_an_offset_collide),
        KT(record_twice_is_a_duplicate_if_idempotent),
        KT(unacknowledged_record_in_the_wrong_place_is_reordered),
        KT(acknowledged_but_not_in_the_final_read_is_lost),
        KT(below_the_start_only_a_deleting_topic_may_lack_records),
        KT(compacted_topic_keeps_the_last_record_of_a_key), KT(value_nobody_sent_is_found),
        KT(refused_and_aborted_records_must_not_be_read), KT(acknowledged_offsets_go_back),
        KT(later_send_stands_before_an_earlier_acknowledgement), KT(polls_go_back),
        KT(poll_leaves_out_a_record_that_others_saw),
        KT(high_watermark_below_what_was_known_is_stale), KT(committed_offset_goes_back),
        KT(commit_that_only_began_may_have_happened), KT(malformed_files_are_refused),
        KT(a_million_records_are_checked))
