/* libFuzzer target: frames and messages of the control stream, both directions. The first byte
 * picks the direction and how the bytes arrive. */
#include "hb/hb_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(struct kc_bytes frame, bool broker)
{
    struct kc_arena a;
    kc_arena_init(&a, 16 * 1024, 4 * 1024 * 1024);
    struct kc_err err;
    struct kc_dyn again;
    kc_dyn_init(&again, HB_FRAME_MAX + 4);
    if (broker) {
        const Kaas__Heartbeat__BrokerMessage *m;
        if (hb_decode_broker(frame, &a, &m, &err) == 0) {
            KC_ASSERT(hb_encode_broker(m, &again) == 0);
        }
    } else {
        const Kaas__Heartbeat__OperatorMessage *m;
        if (hb_decode_operator(frame, &a, &m, &err) == 0) {
            KC_ASSERT(hb_encode_operator(m, &again) == 0);
        }
    }
    kc_dyn_fini(&again);
    kc_arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    bool broker = data[0] & 1;
    if (data[0] & 2) { /* the payload of one frame */
        decode((struct kc_bytes){data + 1, (int32_t)(size - 1)}, broker);
        return 0;
    }
    struct hb_reader r;
    hb_reader_init(&r, HB_FRAME_MAX);
    size_t step = (size_t)(data[0] >> 2) + 1;
    for (size_t at = 1; at < size; at += step) {
        if (hb_reader_feed(&r, data + at, KC_MIN(step, size - at))) {
            break;
        }
        struct kc_bytes frame;
        int rc;
        while ((rc = hb_reader_next(&r, &frame, NULL)) == 1) {
            decode(frame, broker);
        }
        if (rc < 0) {
            break;
        }
    }
    hb_reader_fini(&r);
    return 0;
}
