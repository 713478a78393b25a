#include "kt.h"

#include <stdlib.h>

#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "hb/hb_frame.h"

typedef Kaas__Heartbeat__BrokerMessage broker_message;
typedef Kaas__Heartbeat__OperatorMessage operator_message;

static uint8_t id16[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static Kaas__Heartbeat__Hello sample_hello(void)
{
    Kaas__Heartbeat__Hello h = KAAS__HEARTBEAT__HELLO__INIT;
    h.cluster = (char *)"default/demo";
    h.broker_id = 2;
    h.incarnation = (ProtobufCBinaryData){16, id16};
    h.process_id = (ProtobufCBinaryData){16, id16};
    h.token = (char *)"secret";
    h.protocol_version = HB_PROTOCOL_VERSION;
    return h;
}

static void encode_hello(Kaas__Heartbeat__Hello *h, struct kc_dyn *out)
{
    broker_message m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO;
    m.hello = h;
    KT_EQ(hb_encode_broker(&m, out), 0);
}

/* Decodes the first frame of `bytes`; the error code, 0 = decoded. */
static int decode_broker(const struct kc_dyn *bytes, struct kc_arena *a, const broker_message **ret)
{
    struct hb_reader r;
    hb_reader_init(&r, HB_FRAME_MAX);
    struct kc_bytes frame;
    struct kc_err err;
    KT_EQ(hb_reader_feed(&r, bytes->data, bytes->len), 0);
    int rc = hb_reader_next(&r, &frame, &err);
    KT_EQ(rc, 1);
    rc = hb_decode_broker(frame, a, ret, &err);
    hb_reader_fini(&r);
    return rc;
}

static int decode_hello(Kaas__Heartbeat__Hello *h)
{
    struct kc_dyn out;
    kc_dyn_init(&out, HB_FRAME_MAX);
    encode_hello(h, &out);
    struct kc_arena a;
    kc_arena_init(&a, 0, HB_ARENA_CAP);
    const broker_message *m;
    int rc = decode_broker(&out, &a, &m);
    kc_arena_fini(&a);
    kc_dyn_fini(&out);
    return rc;
}

static void hello_survives_the_round_trip(void)
{
    Kaas__Heartbeat__Hello h = sample_hello();
    struct kc_dyn out;
    kc_dyn_init(&out, HB_FRAME_MAX);
    encode_hello(&h, &out);
    struct kc_arena a;
    kc_arena_init(&a, 0, HB_ARENA_CAP);
    const broker_message *m = NULL;
    KT_EQ(decode_broker(&out, &a, &m), 0);
    KT_REQUIRE(m != NULL);
    KT_EQ(m->kind_case, KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO);
    KT_STR(m->hello->cluster, "default/demo");
    KT_STR(m->hello->token, "secret");
    KT_EQ(m->hello->broker_id, 2);
    KT_TRUE(memcmp(m->hello->incarnation.data, id16, 16) == 0);
    kc_arena_fini(&a);
    kc_dyn_fini(&out);
}

static void frames_arrive_in_any_pieces(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    Kaas__Heartbeat__Hello h = sample_hello();
    struct kc_dyn out;
    kc_dyn_init(&out, HB_FRAME_MAX);
    for (int i = 0; i < 200; i++) {
        h.broker_id = i;
        encode_hello(&h, &out);
    }
    struct hb_reader r;
    hb_reader_init(&r, HB_FRAME_MAX);
    struct kc_arena a;
    kc_arena_init(&a, 0, HB_ARENA_CAP);
    int seen = 0;
    for (size_t at = 0; at < out.len;) {
        size_t n = KC_MIN(out.len - at, (size_t)kc_rng_below(&rng, 300) + 1);
        KT_EQ(hb_reader_feed(&r, out.data + at, n), 0);
        at += n;
        struct kc_bytes frame;
        while (hb_reader_next(&r, &frame, NULL) == 1) {
            const broker_message *m;
            KT_EQ(hb_decode_broker(frame, &a, &m, NULL), 0);
            KT_EQ(m->hello->broker_id, seen++);
            kc_arena_reset(&a);
        }
    }
    KT_EQ(seen, 200);
    hb_reader_fini(&r);
    kc_arena_fini(&a);
    kc_dyn_fini(&out);
}

static void lengths_past_the_limit_are_refused_before_memory_is_taken(void)
{
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff}, empty[4], big[] = {0, 1, 0, 1};
    struct hb_reader r;
    struct kc_bytes frame;
    hb_reader_init(&r, HB_FRAME_MAX);
    KT_EQ(hb_reader_feed(&r, huge, 4), 0);
    KT_EQ(hb_reader_next(&r, &frame, NULL), KC_E_TOO_LARGE);
    KT_TRUE(r.buf.room < 1024);
    hb_reader_fini(&r);
    hb_reader_init(&r, HB_FRAME_MAX);
    KT_EQ(hb_reader_feed(&r, empty, 4), 0);
    KT_EQ(hb_reader_next(&r, &frame, NULL), KC_E_MALFORMED);
    hb_reader_fini(&r);
    hb_reader_init(&r, HB_HELLO_MAX); /* before authentication */
    KT_EQ(hb_reader_feed(&r, big, 4), 0);
    KT_EQ(hb_reader_next(&r, &frame, NULL), KC_E_TOO_LARGE);
    hb_reader_limit(&r, HB_FRAME_MAX);
    KT_EQ(hb_reader_next(&r, &frame, NULL), 0);
    hb_reader_fini(&r);
}

static void identities_have_exactly_16_bytes(void)
{
    uint8_t seventeen[17] = {0};
    Kaas__Heartbeat__Hello h = sample_hello();
    for (size_t n = 0; n <= 17; n++) {
        h.incarnation = (ProtobufCBinaryData){n, seventeen};
        KT_EQ(decode_hello(&h), n == 16 ? 0 : KC_E_MALFORMED);
    }
}

static void texts_are_bounded_and_clean(void)
{
    Kaas__Heartbeat__Hello h = sample_hello();
    char *text = malloc(HB_TOKEN_MAX + 2);
    memset(text, 'a', HB_TOKEN_MAX + 1);
    text[HB_TOKEN_MAX + 1] = '\0';
    h.token = text;
    KT_EQ(decode_hello(&h), KC_E_MALFORMED);
    h.token = text + 1;
    KT_EQ(decode_hello(&h), 0);
    h.token = (char *)"x";
    static const char *const unclean[] = {
        "a\nb", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "half\xe2\x82", "\x7f"};
    for (size_t i = 0; i < KC_ARRAY_LEN(unclean); i++) {
        h.pod_name = (char *)(uintptr_t)unclean[i];
        KT_EQ(decode_hello(&h), KC_E_MALFORMED);
    }
    h.pod_name = (char *)"größe-\xf0\x9f\x8e\x88";
    KT_EQ(decode_hello(&h), 0);
    free(text);
}

static void entries_need_their_partition(void)
{
    Kaas__Heartbeat__LedReport led = KAAS__HEARTBEAT__LED_REPORT__INIT, *list[] = {&led};
    Kaas__Heartbeat__PartitionId pid = KAAS__HEARTBEAT__PARTITION_ID__INIT;
    Kaas__Heartbeat__BrokerStatus s = KAAS__HEARTBEAT__BROKER_STATUS__INIT;
    s.incarnation = (ProtobufCBinaryData){16, id16};
    s.n_led = 1;
    s.led = list;
    broker_message m = KAAS__HEARTBEAT__BROKER_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS;
    m.status = &s;
    for (int turn = 0; turn < 4; turn++) {
        struct kc_dyn out;
        kc_dyn_init(&out, HB_FRAME_MAX);
        KT_EQ(hb_encode_broker(&m, &out), 0);
        struct kc_arena a;
        kc_arena_init(&a, 0, HB_ARENA_CAP);
        const broker_message *got;
        KT_EQ(decode_broker(&out, &a, &got), turn == 2 ? 0 : KC_E_MALFORMED);
        kc_arena_fini(&a);
        kc_dyn_fini(&out);
        led.partition = &pid; /* turn 1: an empty topic id */
        if (turn == 1) {
            pid.topic_id = (ProtobufCBinaryData){16, id16};
        }
        if (turn == 2) {
            pid.partition = -2;
        }
    }
}

/* 8 MiB of two-byte entries would unfold to hundreds of MiB. */
static void a_message_cannot_unfold_past_the_arena(void)
{
    size_t n = 4 * 1024 * 1024, at = 0;
    uint8_t *bytes = malloc(n + 16);
    bytes[at++] = 0x12; /* BrokerMessage.status */
    for (size_t v = n; v; v >>= 7) {
        bytes[at++] = (uint8_t)(v & 0x7f) | (v >> 7 ? 0x80 : 0);
    }
    for (size_t i = 0; i < n; i += 2) {
        bytes[at + i] = 0x6a; /* led, length 0 */
        bytes[at + i + 1] = 0;
    }
    struct kc_arena a;
    kc_arena_init(&a, 64 * 1024, HB_ARENA_CAP);
    const broker_message *m;
    struct kc_err err;
    KT_EQ(hb_decode_broker((struct kc_bytes){bytes, (int32_t)(at + n)}, &a, &m, &err),
          KC_E_TOO_LARGE);
    KT_TRUE(a.used <= HB_ARENA_CAP);
    kc_arena_fini(&a);
    free(bytes);
}

static void lists_are_bounded(void)
{
    int32_t *gone = calloc(HB_LIST_MAX + 1, sizeof(*gone));
    Kaas__Heartbeat__StatusAnswer s = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    s.gone = gone;
    operator_message m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS;
    m.status = &s;
    for (size_t n = HB_LIST_MAX; n <= HB_LIST_MAX + 1; n++) {
        s.n_gone = n;
        struct kc_dyn out;
        kc_dyn_init(&out, HB_FRAME_MAX);
        KT_EQ(hb_encode_operator(&m, &out), 0);
        struct kc_arena a;
        kc_arena_init(&a, 0, HB_ARENA_CAP);
        const operator_message *got;
        int rc = hb_decode_operator((struct kc_bytes){out.data + 4, (int32_t)out.len - 4}, &a, &got,
                                    NULL);
        KT_EQ(rc, n == HB_LIST_MAX ? 0 : KC_E_MALFORMED);
        kc_arena_fini(&a);
        kc_dyn_fini(&out);
    }
    free(gone);
}

static void random_bytes_never_pass_unchecked(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    Kaas__Heartbeat__Hello h = sample_hello();
    struct kc_dyn good;
    kc_dyn_init(&good, HB_FRAME_MAX);
    encode_hello(&h, &good);
    struct kc_arena a;
    kc_arena_init(&a, 4096, 1024 * 1024);
    for (int i = 0; i < 200000; i++) {
        uint8_t bytes[256];
        size_t n = good.len - 4;
        memcpy(bytes, good.data + 4, n);
        for (int flips = 1 + (int)kc_rng_below(&rng, 4); flips > 0; flips--) {
            bytes[kc_rng_below(&rng, n)] = (uint8_t)kc_rng_next(&rng);
        }
        const broker_message *m;
        if (hb_decode_broker((struct kc_bytes){bytes, (int32_t)n}, &a, &m, NULL) == 0 &&
            m->kind_case == KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO) {
            KT_EQ(m->hello->incarnation.len, 16);
            KT_TRUE(m->hello->cluster[0] != '\0');
        }
        kc_arena_reset(&a);
    }
    kc_arena_fini(&a);
    kc_dyn_fini(&good);
}

static void leaders_are_brokers_with_an_incarnation_and_an_epoch(void)
{
    uint8_t short_id[3] = {0};
    for (int turn = 0; turn < 5; turn++) {
        Kaas__Heartbeat__Lead lead = KAAS__HEARTBEAT__LEAD__INIT, *list[] = {&lead};
        Kaas__Heartbeat__PartitionId pid = KAAS__HEARTBEAT__PARTITION_ID__INIT;
        Kaas__Heartbeat__StatusAnswer s = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
        Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
        pid.topic_id = lead.incarnation = (ProtobufCBinaryData){16, id16};
        lead.partition = turn == 1 ? NULL : &pid;
        lead.broker = turn == 2 ? -1 : 1;
        lead.epoch = turn == 3 ? -1 : 0;
        if (turn == 4) {
            lead.incarnation = (ProtobufCBinaryData){sizeof(short_id), short_id};
        }
        s.n_leads = 1;
        s.leads = list;
        m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS;
        m.status = &s;
        struct kc_dyn out;
        kc_dyn_init(&out, HB_FRAME_MAX);
        KT_EQ(hb_encode_operator(&m, &out), 0);
        struct kc_arena a;
        kc_arena_init(&a, 0, HB_ARENA_CAP);
        const Kaas__Heartbeat__OperatorMessage *got;
        struct kc_bytes frame = {out.data + 4, (int32_t)out.len - 4};
        KT_EQ(hb_decode_operator(frame, &a, &got, NULL), turn == 0 ? 0 : KC_E_MALFORMED);
        kc_arena_fini(&a);
        kc_dyn_fini(&out);
    }
}

KT_MAIN("hb_frame", KT(hello_survives_the_round_trip), KT(frames_arrive_in_any_pieces),
        KT(lengths_past_the_limit_are_refused_before_memory_is_taken),
        KT(identities_have_exactly_16_bytes), KT(texts_are_bounded_and_clean),
        KT(entries_need_their_partition), KT(a_message_cannot_unfold_past_the_arena),
        KT(leaders_are_brokers_with_an_incarnation_and_an_epoch), KT(lists_are_bounded),
        KT(random_bytes_never_pass_unchecked))
