#include "hb/hb_frame.h"

#include <errno.h>

#include "hb/hb_check.h"

enum { PREFIX = 4, KEEP_ROOM = 64 * 1024 };

void hb_reader_init(struct hb_reader *r, uint32_t max_frame)
{
    *r = (struct hb_reader){.max_frame = max_frame};
    /* One whole frame, its prefix, and what one read of the socket brings beyond it. */
    kc_dyn_init(&r->buf, (size_t)HB_FRAME_MAX + PREFIX + 1024 * 1024);
}

void hb_reader_fini(struct hb_reader *r)
{
    kc_dyn_fini(&r->buf);
    r->at = 0;
}

void hb_reader_limit(struct hb_reader *r, uint32_t max_frame)
{
    r->max_frame = max_frame;
}

int hb_reader_feed(struct hb_reader *r, const void *data, size_t len)
{
    if (r->at) {
        kc_dyn_consume(&r->buf, r->at);
        r->at = 0;
        if (r->buf.len == 0 && r->buf.room > KEEP_ROOM) {
            kc_dyn_fini(&r->buf); /* one big report must not pin its size for the stream's life */
        }
    }
    kc_dyn_add(&r->buf, data, len);
    return kc_dyn_ok(&r->buf) ? 0 : r->buf.over ? KC_E_TOO_LARGE : -ENOMEM;
}

int hb_reader_next(struct hb_reader *r, struct kc_bytes *ret, struct kc_err *err)
{
    size_t have = r->buf.len - r->at;
    if (have < PREFIX) {
        return 0;
    }
    const uint8_t *p = r->buf.data + r->at;
    uint32_t len = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    if (len > r->max_frame) {
        return kc_fail(err, KC_E_TOO_LARGE, "frame of %u bytes, limit %u", len, r->max_frame);
    }
    if (len == 0) {
        return kc_fail(err, KC_E_MALFORMED, "empty frame");
    }
    if (have - PREFIX < len) {
        return 0;
    }
    *ret = (struct kc_bytes){p + PREFIX, (int32_t)len};
    r->at += PREFIX + len;
    return 1;
}

static int encode(const ProtobufCMessage *msg, struct kc_dyn *out)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    if (n > HB_FRAME_MAX) {
        return KC_E_TOO_LARGE;
    }
    uint8_t *p = kc_dyn_extend(out, PREFIX + n);
    if (!p) {
        return KC_E_TOO_LARGE;
    }
    p[0] = (uint8_t)(n >> 24);
    p[1] = (uint8_t)(n >> 16);
    p[2] = (uint8_t)(n >> 8);
    p[3] = (uint8_t)n;
    protobuf_c_message_pack(msg, p + PREFIX);
    return 0;
}

int hb_encode_broker(const Kaas__Heartbeat__BrokerMessage *msg, struct kc_dyn *out)
{
    return encode(&msg->base, out);
}

int hb_encode_operator(const Kaas__Heartbeat__OperatorMessage *msg, struct kc_dyn *out)
{
    return encode(&msg->base, out);
}

/* protobuf-c allocates per field; an arena with a cap turns a small frame that would unfold into
 * a huge tree into an ordinary error. */
struct arena_allocator {
    struct kc_arena *arena;
    bool exhausted;
};

static void *arena_alloc(void *ctx, size_t size)
{
    struct arena_allocator *a = ctx;
    void *p = kc_arena_alloc(a->arena, size);
    a->exhausted |= p == NULL;
    return p;
}

static void arena_free(void *ctx, void *ptr)
{
    (void)ctx;
    (void)ptr;
}

static int decode(const ProtobufCMessageDescriptor *type, struct kc_bytes frame,
                  struct kc_arena *arena, const ProtobufCMessage **ret, struct kc_err *err)
{
    struct arena_allocator a = {.arena = arena};
    ProtobufCAllocator alloc = {.alloc = arena_alloc, .free = arena_free, .allocator_data = &a};
    ProtobufCMessage *m = protobuf_c_message_unpack(type, &alloc, (size_t)frame.len, frame.ptr);
    if (!m) {
        return a.exhausted ? kc_fail(err, KC_E_TOO_LARGE, "message unfolds past its memory limit")
                           : kc_fail(err, KC_E_MALFORMED, "not a %s", type->short_name);
    }
    int rc = hb_check(m, err);
    if (rc == 0) {
        *ret = m;
    }
    return rc;
}

int hb_decode_broker(struct kc_bytes frame, struct kc_arena *a,
                     const Kaas__Heartbeat__BrokerMessage **ret, struct kc_err *err)
{
    const ProtobufCMessage *m = NULL;
    int rc = decode(&kaas__heartbeat__broker_message__descriptor, frame, a, &m, err);
    if (rc == 0) {
        *ret = (const Kaas__Heartbeat__BrokerMessage *)m;
    }
    return rc;
}

int hb_decode_operator(struct kc_bytes frame, struct kc_arena *a,
                       const Kaas__Heartbeat__OperatorMessage **ret, struct kc_err *err)
{
    const ProtobufCMessage *m = NULL;
    int rc = decode(&kaas__heartbeat__operator_message__descriptor, frame, a, &m, err);
    if (rc == 0) {
        *ret = (const Kaas__Heartbeat__OperatorMessage *)m;
    }
    return rc;
}
