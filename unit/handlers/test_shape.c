/* Requests of topics with partitions: each is answered in its own place, whatever the others are told. */
#include "hx.h"

#include "base/kc_str.h"
#include "wire/kw_delete_records.h"
#include "wire/kw_describe_producers.h"
#include "wire/kw_errors.h"
#include "wire/kw_list_offsets.h"
#include "wire/kw_offset_for_leader_epoch.h"

enum { LIST_OFFSETS = 2, DELETE_RECORDS = 21, EPOCH_ENDS = 23, DESCRIBE_PRODUCERS = 61 };
enum { TOPICS = 3, PARTS = 3, OPEN = 3, UNKNOWN = KAFKA_UNKNOWN_TOPIC_OR_PARTITION };

/* What is asked of "t" (partitions 0 to 2), of "none", which is not there, and of "t" again. */
static const struct {
    const char *topic;
    int32_t n, parts[PARTS];
} asked[TOPICS] = {{"t", 3, {2, 0, 7}}, {"none", 1, {1}}, {"t", 2, {1, -1}}};

static struct hx h;
static struct hx_client c;

static void up(void)
{
    hx_up_engine(&h, 1, 2);
    hx_row(&h, 1);
    hx_topic(&h, "t", OPEN, 1);
    hx_publish(&h);
    for (int32_t p = 0; p < OPEN; p++) {
        hx_open_part(&h, &h.topics[0], p);
    }
    hx_dial(&h, &c, 0);
}

static void down(void)
{
    for (int32_t p = 0; p < OPEN; p++) {
        hx_close_part(&h, &h.topics[0], p, -1);
    }
    hx_end(&h, &c);
}

/* ---- what the four APIs share ----
 *
 * Each has message types of its own, so this is written as macros. */

/* Fills the request's `topics` and `parts` with all that is asked; the arguments are the initialiser of one
 * partition, which may go by its index p. */
#define ASK(...)                                                                                   \
    do {                                                                                           \
        for (int t = 0; t < TOPICS; t++) {                                                         \
            topics[t] = (__typeof__(topics[t])){kc_str_of(asked[t].topic), parts[t], asked[t].n};  \
            for (int32_t i = 0; i < asked[t].n; i++) {                                             \
                int32_t p = asked[t].parts[i];                                                     \
                parts[t][i] = (__typeof__(parts[t][i]))__VA_ARGS__;                                \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* Every topic of the response r is in its place, and so is every partition (see check_part). name, index
 * and value are how this API calls the fields. */
#define CHECK_EACH(r, name, index, value, none, errors)                                            \
    do {                                                                                           \
        KT_REQUIRE((r) != NULL && (r)->n_topics == TOPICS);                                        \
        for (int t = 0; t < TOPICS; t++) {                                                         \
            KT_TRUE(kc_str_eqz((r)->topics[t].name, asked[t].topic));                              \
            KT_REQUIRE((r)->topics[t].n_partitions == asked[t].n);                                 \
            for (int32_t i = 0; i < asked[t].n; i++) {                                             \
                __typeof__((r)->topics[t].partitions) at = &(r)->topics[t].partitions[i];          \
                struct told told = {at->index, at->error_code, at->value};                         \
                check_part(t, i, &told, none, errors);                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* What an answer says of one partition. */
struct told {
    int32_t partition;
    int16_t error;
    int64_t value;
};

/* One that is there was asked something else than the others: `there` are their errors. The value is 0
 * for an empty log, `none` where there is an error. */
static void check_part(int t, int32_t i, const struct told *told, int64_t none,
                       const int16_t there[OPEN])
{
    int32_t p = asked[t].parts[i];
    bool open = strcmp(asked[t].topic, "t") == 0 && p >= 0 && p < OPEN;
    int16_t error = open ? there[p] : UNKNOWN;
    KT_EQ(told->partition, p);
    KT_EQ(told->error, error);
    KT_EQ(told->value, error ? none : 0);
}

/* ---- the APIs ---- */

static void list_offsets_answers_each_in_its_place(void)
{
    static const int16_t errors[OPEN] = {0, KAFKA_UNKNOWN_LEADER_EPOCH, KAFKA_UNSUPPORTED_VERSION};
    struct kw_list_offsets_request_partition parts[TOPICS][PARTS];
    struct kw_list_offsets_request_topic topics[TOPICS];
    struct kw_list_offsets_request in = {.replica_id = -1, .topics = topics, .n_topics = TOPICS};
    up();
    ASK({.partition_index = p,
         .max_num_offsets = 1, /* as every version but the first assumes */
         .current_leader_epoch = p == 1 ? 99 : -1,
         .timestamp = p == 2 ? -9 /* there is no such special one */ : -1});
    const struct kw_list_offsets_response *r = hx_call(&c, LIST_OFFSETS, 7, &in);
    CHECK_EACH(r, name, partition_index, offset, -1, errors);
    down();
}

static void delete_records_answers_each_in_its_place(void)
{
    static const int16_t errors[OPEN] = {0, KAFKA_OFFSET_OUT_OF_RANGE, 0};
    struct kw_delete_records_request_partition parts[TOPICS][PARTS];
    struct kw_delete_records_request_topic topics[TOPICS];
    struct kw_delete_records_request in = {
        .topics = topics, .n_topics = TOPICS, .timeout_ms = 10000};
    up();
    ASK({p, p == 1 ? 5 : -1});
    const struct kw_delete_records_response *r = hx_call(&c, DELETE_RECORDS, 2, &in);
    CHECK_EACH(r, name, partition_index, low_watermark, -1, errors);
    down();
}

static void epoch_ends_are_answered_each_in_its_place(void)
{
    static const int16_t errors[OPEN] = {0, KAFKA_UNKNOWN_LEADER_EPOCH, 0};
    struct kw_offset_for_leader_epoch_request_offset_for_leader_partition parts[TOPICS][PARTS];
    struct kw_offset_for_leader_epoch_request_offset_for_leader_topic topics[TOPICS];
    struct kw_offset_for_leader_epoch_request in = {
        .replica_id = -1, .topics = topics, .n_topics = TOPICS};
    up();
    ASK({.partition = p, .current_leader_epoch = p == 1 ? 99 : -1, .leader_epoch = 0});
    const struct kw_offset_for_leader_epoch_response *r = hx_call(&c, EPOCH_ENDS, 4, &in);
    CHECK_EACH(r, topic, partition, end_offset, -1, errors);
    down();
}

static void producers_are_described_each_in_their_place(void)
{
    static const int16_t errors[OPEN] = {0, 0, 0};
    int32_t parts[TOPICS][PARTS];
    struct kw_describe_producers_request_topic_request topics[TOPICS];
    struct kw_describe_producers_request in = {.topics = topics, .n_topics = TOPICS};
    up();
    ASK({p});
    const struct kw_describe_producers_response *r = hx_call(&c, DESCRIBE_PRODUCERS, 0, &in);
    CHECK_EACH(r, name, partition_index, n_active_producers, 0, errors);
    down();
}

KT_MAIN("shape", KT(list_offsets_answers_each_in_its_place),
        KT(delete_records_answers_each_in_its_place), KT(epoch_ends_are_answered_each_in_its_place),
        KT(producers_are_described_each_in_their_place))
