/* Fetch sessions (KIP-227) over the wire. The codes and shapes are those measured of Apache Kafka. */
#include "fx.h"

#include <poll.h>

#include "base/kc_clock.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "wire/kw_delete_records.h"
#include "wire/kw_errors.h"

static struct hx h;
static struct hx_client c;

enum { PARTS = 6 };

static const struct hx_topic *topic(void)
{
    return &h.topics[0];
}

static void up(int32_t n_loops)
{
    hx_up_engine(&h, 1, n_loops);
    hx_row(&h, 1);
    hx_row(&h, 2);
    hx_topic(&h, "t", PARTS, 1);
    hx_publish(&h);
    for (int32_t p = 0; p < PARTS; p++) {
        hx_open_part(&h, topic(), p);
    }
    hx_dial(&h, &c, 0);
}

static void down(void)
{
    for (int32_t p = 0; p < PARTS; p++) {
        hx_close_part(&h, topic(), p, -1);
    }
    hx_end(&h, &c);
}

/* A full fetch of all partitions that wants a session. */
static struct fx_ask all(int16_t version)
{
    struct fx_ask a = fx_plain;
    a.version = version;
    a.session_epoch = 0;
    for (int32_t p = 0; p < PARTS; p++) {
        fx_add(&a, topic(), p, 0);
    }
    return a;
}

/* The next request of a session, which changes nothing. */
static struct fx_ask next(int16_t version, int32_t id, int32_t epoch)
{
    struct fx_ask a = fx_plain;
    a.version = version;
    a.session_id = id;
    a.session_epoch = epoch;
    return a;
}

static int32_t begin(int16_t version)
{
    struct fx_ask a = all(version);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(r->error_code, 0);
    KT_EQ(fx_count(r), PARTS);
    KT_TRUE(r->session_id > 0);
    return r->session_id;
}

static void expect_error(struct fx_ask a, int16_t error)
{
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(r->error_code, error);
    KT_EQ(r->session_id, 0);
    KT_EQ(r->n_responses, 0);
}

static int64_t sessions(void)
{
    return atomic_load(&h.app.metrics.fetch_sessions);
}

static void an_answer_holds_only_what_is_new(void)
{
    up(2);
    for (int16_t v = 7; v <= 18; v++) {
        int32_t id = begin(v);
        struct fx_ask a = next(v, id, 1);
        a.n = 0;
        if (v > 7) { /* earlier rounds left records: read from the end */
            for (int32_t p = 0; p < PARTS; p++) {
                fx_add(&a, topic(), p, v - 7);
            }
            fx_fetch(&c, &a);
            a = next(v, id, 2);
        }
        const struct kw_fetch_response *r = fx_fetch(&c, &a);
        KT_EQ(r->error_code, 0);
        KT_EQ(r->session_id, id);
        KT_EQ(fx_count(r), 0);
        fx_produce(&c, topic(), 4, 1, 100);
        a.session_epoch++;
        r = fx_fetch(&c, &a);
        KT_EQ(fx_count(r), 1);
        const struct kw_fetch_response_partition_data *p = fx_find(r, topic(), 4);
        KT_TRUE(p && p->records.len > 100 && p->high_watermark == v - 6);
        a.session_epoch++;
        r = fx_fetch(&c, &a); /* it did not say that it has them: they come again */
        KT_EQ(fx_count(r), 1);
        a.session_epoch++;
        fx_add(&a, topic(), 4, v - 6);
        KT_EQ(fx_count(fx_fetch(&c, &a)), 0);
        for (int32_t k = 0; k < PARTS; k++) { /* for the next version */
            if (k != 4) {
                fx_produce(&c, topic(), k, 1, 100);
            }
        }
    }
    KT_EQ(sessions(), 12);
    KT_EQ(atomic_load(&h.app.metrics.fetch_session_partitions), 12 * PARTS);
    down();
}

static void a_new_log_start_is_told_once(void)
{
    up(2);
    fx_produce(&c, topic(), 2, 3, 100);
    struct fx_ask a = all(12);
    a.want[2].offset = 3;
    int32_t id = fx_fetch(&c, &a)->session_id;
    struct kw_delete_records_request_partition p = {.partition_index = 2, .offset = 2};
    struct kw_delete_records_request_topic t = {
        .name = KC_STR_LIT("t"), .partitions = &p, .n_partitions = 1};
    struct kw_delete_records_request in = {.topics = &t, .n_topics = 1, .timeout_ms = 10000};
    KT_REQUIRE(hx_call(&c, 21, 2, &in) != NULL);
    a = next(12, id, 1);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(fx_count(r), 1);
    const struct kw_fetch_response_partition_data *out = fx_find(r, topic(), 2);
    KT_TRUE(out && out->log_start_offset == 2 && out->records.len == 0);
    a = next(12, id, 2);
    KT_EQ(fx_count(fx_fetch(&c, &a)), 0);
    down();
}

static void a_request_that_does_not_fit_the_session_is_refused(void)
{
    up(1);
    struct fx_ask a = all(12);
    a.session_epoch = -1;
    const struct kw_fetch_response *r = fx_fetch(&c, &a); /* wants none */
    KT_EQ(r->session_id, 0);
    KT_EQ(fx_count(r), PARTS);
    expect_error(next(12, 4711, 1), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    expect_error(next(12, 0, 1), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    expect_error(next(12, -5, 1), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    int32_t id = begin(12);
    expect_error(next(12, id, 2), KAFKA_INVALID_FETCH_SESSION_EPOCH);
    expect_error(next(12, id, -2), KAFKA_INVALID_FETCH_SESSION_EPOCH);
    expect_error(next(13, id, 1), KAFKA_FETCH_SESSION_TOPIC_ID_ERROR);
    a = next(12, id, 1);
    KT_EQ(fx_fetch(&c, &a)->error_code, 0); /* none of these cost it its place */
    expect_error(next(12, id, 1), KAFKA_INVALID_FETCH_SESSION_EPOCH); /* the same again */
    id = begin(13);
    expect_error(next(12, id, 1), KAFKA_FETCH_SESSION_TOPIC_ID_ERROR);
    a = all(6);
    KT_EQ(fx_fetch(&c, &a)->session_id, 0); /* before there were sessions */
    KT_EQ(sessions(), 2);
    down();
}

static void a_full_request_ends_the_session_it_names(void)
{
    up(1);
    int32_t id = begin(12);
    struct fx_ask a = all(12);
    a.session_id = id;
    int32_t other = fx_fetch(&c, &a)->session_id;
    KT_TRUE(other > 0 && other != id);
    expect_error(next(12, id, 1), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    a = next(12, other, -1);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(r->error_code, 0);
    KT_EQ(r->session_id, 0);
    expect_error(next(12, other, 1), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    KT_EQ(sessions(), 0);
    KT_EQ(atomic_load(&h.app.metrics.fetch_session_partitions), 0);
    down();
}

static void forgotten_partitions_are_not_told_of(void)
{
    up(2);
    int32_t id = begin(13);
    struct fx_ask a = next(13, id, 1);
    a.n_forget = PARTS - 1;
    for (int32_t p = 1; p < PARTS; p++) {
        a.forget[p - 1] = (struct fx_want){.topic = topic(), .partition = p};
    }
    KT_EQ(fx_count(fx_fetch(&c, &a)), 0);
    fx_produce(&c, topic(), 0, 1, 100);
    fx_produce(&c, topic(), 1, 1, 100);
    a = next(13, id, 2);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(fx_count(r), 1);
    KT_TRUE(fx_find(r, topic(), 0) != NULL);
    a = next(13, id, 3); /* one is new to it, and told with its records */
    fx_add(&a, topic(), 1, 0);
    r = fx_fetch(&c, &a);
    KT_EQ(fx_count(r), 2);
    a = next(13, id, 4);
    a.n_forget = 2;
    a.forget[0] = (struct fx_want){.topic = topic(), .partition = 0};
    a.forget[1] = (struct fx_want){.topic = topic(), .partition = 1};
    r = fx_fetch(&c, &a); /* none is left: the session ends without an error */
    KT_EQ(r->error_code, 0);
    KT_EQ(r->session_id, 0);
    KT_EQ(fx_count(r), 0);
    expect_error(next(13, id, 5), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    down();
}

static int16_t error_of_0(int16_t version, int32_t id, int32_t epoch)
{
    struct fx_ask a = next(version, id, epoch);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    const struct kw_fetch_response_partition_data *p = fx_find(r, topic(), 0);
    KT_EQ(r->error_code, 0);
    KT_EQ(fx_count(r), p ? 1 : 0);
    return p ? p->error_code : -1;
}

static void an_error_is_told_until_it_is_over(void)
{
    up(2);
    int32_t id = begin(16);
    hx_close_part(&h, topic(), 0, 2);
    KT_EQ(error_of_0(16, id, 1), KAFKA_NOT_LEADER_OR_FOLLOWER);
    KT_EQ(error_of_0(16, id, 2), KAFKA_NOT_LEADER_OR_FOLLOWER);
    hx_open_part(&h, topic(), 0);
    KT_EQ(error_of_0(16, id, 3), 0); /* nothing changed but that */
    KT_EQ(error_of_0(16, id, 4), -1);
    down();
}

/* As ReplicaManager: a session knows what an id was the id of. */
static void a_topic_that_is_made_anew_is_not_the_one_of_the_session(void)
{
    up(2);
    struct hx_topic *t = &h.topics[0], *u = hx_topic(&h, "u", 1, 1);
    struct fx_ask a = fx_plain;
    a.version = 13;
    a.session_epoch = 0;
    fx_add(&a, t, 0, 0);
    fx_add(&a, u, 0, 0);
    const struct kw_fetch_response *r = fx_fetch(&c, &a); /* u is not in the image yet */
    int32_t id = r->session_id;
    KT_TRUE(id > 0);
    KT_EQ(fx_find(r, t, 0)->error_code, 0);
    KT_EQ(fx_find(r, u, 0)->error_code, KAFKA_UNKNOWN_TOPIC_ID);
    a = next(13, id, 1);
    KT_EQ(fx_find(fx_fetch(&c, &a), u, 0)->error_code, KAFKA_UNKNOWN_TOPIC_ID);
    hx_publish(&h);
    hx_open_part(&h, u, 0);
    a.session_epoch = 2;
    r = fx_fetch(&c, &a);
    KT_EQ(fx_count(r), 1);
    KT_EQ(fx_find(r, u, 0)->error_code, 0);
    struct kc_uuid was = u->id;
    struct hx_topic old = *u;
    u->id = hx_uuid(77);
    hx_publish(&h);
    a.session_epoch = 3;
    KT_EQ(fx_find(fx_fetch(&c, &a), &old, 0)->error_code, KAFKA_INCONSISTENT_TOPIC_ID);
    snprintf(u->name, sizeof(u->name), "v");
    hx_publish(&h);
    a.session_epoch = 4;
    fx_add(&a, &old, 1, 0);
    r = fx_fetch(&c, &a);
    KT_EQ(fx_find(r, &old, 0)->error_code, KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    KT_EQ(fx_find(r, &old, 1)->error_code, KAFKA_UNKNOWN_TOPIC_ID); /* this one was never known */
    u->id = was;
    hx_close_part(&h, u, 0, -1);
    down();
}

static void a_long_poll_of_a_session_tells_of_what_woke_it(void)
{
    struct hx_client other;
    up(1);
    hx_dial(&h, &other, 0);
    int32_t id = begin(12);
    struct fx_ask a = next(12, id, 1);
    a.wait_ms = 60000;
    fx_send(&c, &a);
    fx_produce(&other, topic(), 3, 1, 100);
    const struct kw_fetch_response *r = fx_receive(&c, &a);
    KT_EQ(fx_count(r), 1);
    KT_TRUE(fx_find(r, topic(), 3)->records.len > 100);
    a = next(12, id, 2);
    a.wait_ms = 50;
    fx_add(&a, topic(), 3, 1);
    r = fx_fetch(&c, &a);
    KT_EQ(r->error_code, 0);
    KT_EQ(r->n_responses, 0);
    hx_hang_up(&other);
    down();
}

/* A client that gave up on a connection goes on over another one: the first one's answer must not count
 * as told. */
static void a_request_that_was_overtaken_takes_no_note(void)
{
    struct hx_client other;
    up(1);
    hx_dial(&h, &other, 0);
    int32_t id = begin(12);
    struct fx_ask a = next(12, id, 1);
    a.wait_ms = 60000;
    fx_send(&other, &a);
    while (atomic_load(&h.app.metrics.under_way) == 0) {
        poll(NULL, 0, 1);
    }
    struct fx_ask b = next(12, id, 2);
    while (fx_fetch(&c, &b)->error_code != 0) { /* until the first one's is noted */
        poll(NULL, 0, 1);
    }
    fx_produce(&c, topic(), 5, 1, 100);
    const struct kw_fetch_response *r = fx_receive(&other, &a);
    KT_EQ(r->error_code, KAFKA_INVALID_FETCH_SESSION_EPOCH);
    KT_EQ(r->session_id, id);
    KT_EQ(r->n_responses, 0);
    b.session_epoch = 3;
    r = fx_fetch(&c, &b);
    KT_EQ(fx_count(r), 1);
    KT_EQ(fx_find(r, topic(), 5)->high_watermark, 1);
    hx_hang_up(&other);
    down();
}

static void a_session_stays_with_the_loop_of_its_connection(void)
{
    struct hx_client other; /* connections are given to the loops in turn */
    up(2);
    hx_dial(&h, &other, 0);
    int32_t id = begin(12);
    struct fx_ask a = next(12, id, 1);
    KT_EQ(fx_fetch(&other, &a)->error_code, KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    a = next(12, id, 1);
    KT_EQ(fx_fetch(&c, &a)->error_code, 0);
    a = all(12); /* what a client does that reconnects: the old one is ended where it is */
    a.session_id = id;
    int32_t its = fx_fetch(&other, &a)->session_id;
    KT_TRUE(its > 0 && its % 2 != id % 2);
    int64_t until = kc_mono_ms() + 20000;
    while (sessions() > 1 && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_EQ(sessions(), 1);
    expect_error(next(12, id, 2), KAFKA_FETCH_SESSION_ID_NOT_FOUND);
    hx_hang_up(&other);
    down();
}

static void when_all_slots_are_taken_no_session_is_made(void)
{
    struct ki_config slots[] = {{"max.incremental.fetch.session.cache.slots", "1"}};
    up(1);
    h.app.configs = slots;
    h.app.n_configs = 1;
    kb_fetch_sessions_free(h.app.fetch_sessions);
    h.app.fetch_sessions = kb_fetch_sessions_new(&h.app);
    int32_t id = begin(12);
    struct fx_ask a = all(12);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(r->error_code, 0);
    KT_EQ(r->session_id, 0);
    KT_EQ(fx_count(r), PARTS);
    a = next(12, id, 1);
    KT_EQ(fx_fetch(&c, &a)->error_code, 0);
    KT_EQ(atomic_load(&h.app.metrics.fetch_session_evictions), 0);
    down();
}

/* What a request counts for that waits with a session of those partitions of t. */
static int64_t held_by_one_of(struct hx_client *other, const struct hx_topic *t, int32_t from,
                              int32_t n)
{
    struct fx_ask a = fx_plain;
    a.session_epoch = 0;
    for (int32_t p = from; p < from + n; p++) {
        fx_add(&a, t, p, 0);
    }
    a = next(12, fx_fetch(&c, &a)->session_id, 1);
    a.wait_ms = 60000;
    while (atomic_load(&h.app.metrics.under_way) > 0) {
        poll(NULL, 0, 1);
    }
    fx_send(&c, &a);
    while (atomic_load(&h.app.metrics.under_way) == 0) {
        poll(NULL, 0, 1);
    }
    fx_produce(other, topic(), 0, 1, 10); /* answered by the same loop: the other was counted */
    int64_t held = atomic_load(&kn_server_counters(h.app.net)->inflight_bytes);
    fx_produce(other, t, from, 1, 10);
    fx_receive(&c, &a);
    return held;
}

/* A small request may be about many partitions: they count as if it had listed them. */
static void the_partitions_of_a_session_count_against_the_budget(void)
{
    enum { MANY = 31, ENTRY = sizeof(struct kw_fetch_request_partition) };
    struct hx_client other;
    up(1);
    struct hx_topic *t = hx_topic(&h, "many", 1 + MANY, 1);
    hx_publish(&h);
    for (int32_t p = 0; p < 1 + MANY; p++) {
        hx_open_part(&h, t, p);
    }
    hx_dial(&h, &other, 0);
    int64_t one = held_by_one_of(&other, t, 0, 1);
    int64_t many = held_by_one_of(&other, t, 1, MANY);
    KT_TRUE(many - one > MANY / 2 * (int64_t)ENTRY); /* the answer to Produce may still count */
    for (int32_t p = 0; p < 1 + MANY; p++) {
        hx_close_part(&h, t, p, -1);
    }
    hx_hang_up(&other);
    down();
}

/* Twice named is once in the session, with what was said last. */
static void a_partition_named_twice_is_in_it_once(void)
{
    up(1);
    fx_produce(&c, topic(), 0, 3, 100);
    struct fx_ask a = fx_plain;
    a.session_epoch = 0;
    fx_add(&a, topic(), 0, 0);
    fx_add(&a, topic(), 0, 2);
    int32_t id = fx_fetch(&c, &a)->session_id;
    KT_EQ(atomic_load(&h.app.metrics.fetch_session_partitions), 1);
    a = next(12, id, 1);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    KT_EQ(fx_count(r), 1);
    KT_TRUE(fx_find(r, topic(), 0)->records.len < 2 * 100);
    down();
}

/* All have more than there is room for, and the client never says another order: each has its turn. */
static void a_limit_is_fair_to_the_partitions_of_a_session(void)
{
    enum { SIZE = 10000, ROUNDS = 30 };
    int32_t had[PARTS] = {0};
    up(2);
    for (int32_t p = 0; p < PARTS; p++) {
        fx_produce(&c, topic(), p, 2, SIZE);
    }
    struct fx_ask a = all(12);
    a.max_bytes = 2 * (SIZE + 100);
    int32_t id = fx_fetch(&c, &a)->session_id;
    for (int32_t round = 1; round <= ROUNDS; round++) {
        a = next(12, id, round);
        a.max_bytes = SIZE + 100;
        const struct kw_fetch_response *r = fx_fetch(&c, &a);
        for (int32_t p = 0; p < PARTS; p++) {
            const struct kw_fetch_response_partition_data *out = fx_find(r, topic(), p);
            had[p] += out && out->records.len > 0;
        }
    }
    for (int32_t p = 0; p < PARTS; p++) {
        KT_EQ(had[p], ROUNDS / PARTS);
    }
    down();
}

/* What the answers of a session add up to is what a full fetch says, whatever happens. */
static void the_answers_of_a_session_add_up_to_a_full_one(void)
{
    enum { TURNS = 300 };
    static struct kw_fetch_response_partition_data view[PARTS];
    bool open[PARTS];
    int64_t offset[PARTS] = {0}, end[PARTS] = {0};
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    up(2);
    struct fx_ask a = all(13);
    const struct kw_fetch_response *r = fx_fetch(&c, &a);
    int32_t id = r->session_id;
    for (int32_t p = 0; p < PARTS; p++) {
        view[p] = *fx_find(r, topic(), p);
        open[p] = true;
    }
    for (int32_t turn = 1; turn <= TURNS; turn++) {
        a = next(13, id, turn);
        int32_t p = (int32_t)kc_rng_below(&rng, PARTS);
        uint64_t what = kc_rng_below(&rng, 8);
        if (what == 0 && open[p]) {
            hx_close_part(&h, topic(), p, 2);
            open[p] = false;
        } else if (what == 1 && !open[p]) {
            hx_open_part(&h, topic(), p);
            open[p] = true;
        } else if (what < 4 && open[p]) {
            fx_produce(&c, topic(), p, 1, 10);
            end[p]++;
        } else if (what < 7 && offset[p] < end[p]) {
            offset[p]++;
            fx_add(&a, topic(), p, offset[p]);
        }
        r = fx_fetch(&c, &a);
        KT_EQ(r->error_code, 0);
        for (int32_t i = 0; i < PARTS; i++) {
            const struct kw_fetch_response_partition_data *out = fx_find(r, topic(), i);
            if (out) {
                view[i] = *out;
            } else {
                view[i].records.len = 0;
            }
        }
        a = all(13);
        a.session_epoch = -1;
        for (int32_t i = 0; i < PARTS; i++) {
            a.want[i].offset = offset[i];
        }
        r = fx_fetch(&c, &a);
        for (int32_t i = 0; i < PARTS; i++) {
            const struct kw_fetch_response_partition_data *out = fx_find(r, topic(), i);
            KT_EQ(view[i].error_code, out->error_code);
            KT_EQ(view[i].high_watermark, out->high_watermark);
            KT_EQ(view[i].last_stable_offset, out->last_stable_offset);
            KT_EQ(view[i].log_start_offset, out->log_start_offset);
            KT_EQ(view[i].records.len, out->records.len);
        }
    }
    for (int32_t p = 0; p < PARTS; p++) {
        if (!open[p]) {
            hx_open_part(&h, topic(), p);
        }
    }
    down();
}

KT_MAIN("fetch_session", KT(an_answer_holds_only_what_is_new), KT(a_new_log_start_is_told_once),
        KT(a_request_that_does_not_fit_the_session_is_refused),
        KT(a_full_request_ends_the_session_it_names), KT(forgotten_partitions_are_not_told_of),
        KT(an_error_is_told_until_it_is_over),
        KT(a_topic_that_is_made_anew_is_not_the_one_of_the_session),
        KT(a_long_poll_of_a_session_tells_of_what_woke_it),
        KT(a_request_that_was_overtaken_takes_no_note),
        KT(a_session_stays_with_the_loop_of_its_connection),
        KT(the_partitions_of_a_session_count_against_the_budget),
        KT(when_all_slots_are_taken_no_session_is_made), KT(a_partition_named_twice_is_in_it_once),
        KT(a_limit_is_fair_to_the_partitions_of_a_session),
        KT(the_answers_of_a_session_add_up_to_a_full_one))
