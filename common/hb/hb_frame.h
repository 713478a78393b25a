/* hb_frame.h - frames of the control stream: a 4-byte big-endian length and one protobuf message.
 *
 * Used by both ends (proto/heartbeat.proto, docs/heartbeat.md). Everything here treats the peer as
 * hostile: no frame above the limit, no allocation above the arena's cap, every identity exactly
 * 16 bytes, every text valid UTF-8 of bounded length, every list of bounded count. What a decoder
 * returns has passed all of that; users need no second look. One owner thread. */
#ifndef HB_FRAME_H
#define HB_FRAME_H

#include "base/kc_arena.h"
#include "base/kc_dyn.h"
#include "base/kc_error.h"
#include "base/kc_uuid.h"
#include "heartbeat.pb-c.h"

enum {
    HB_FRAME_MAX = 8 * 1024 * 1024,
    HB_HELLO_MAX = 64 * 1024, /* limit until the peer has been authenticated */
    HB_ARENA_CAP = 64 * 1024 * 1024, /* for kc_arena_init: bounds a decoded message */
    HB_LIST_MAX = 65536, /* entries of any repeated field */
    HB_TEXT_MAX = 4096, /* names, hosts, reasons */
    HB_TOKEN_MAX = 16 * 1024, /* a projected ServiceAccount token */
    HB_CONFIG_MAX = 32 * 1024, /* one config value */
    HB_SEAL_MAX = 64 * 1024, /* a chain record */
    HB_PROTOCOL_VERSION = 1
};

/* ---- the byte stream ---- */

struct hb_reader {
    struct kc_dyn buf;
    size_t at; /* start of the first unread frame */
    uint32_t max_frame; /* longer frames are refused */
};

void hb_reader_init(struct hb_reader *r, uint32_t max_frame);
void hb_reader_fini(struct hb_reader *r);
/* A server raises the limit from HB_HELLO_MAX to HB_FRAME_MAX once the stream is authenticated. */
void hb_reader_limit(struct hb_reader *r, uint32_t max_frame);
/* Adds bytes from the socket; drain with hb_reader_next after each call. 0, KC_E_TOO_LARGE. */
int hb_reader_feed(struct hb_reader *r, const void *data, size_t len) KC_MUST_CHECK;
/* 1: *ret is a whole frame's payload, borrowed until the next feed; 0: more bytes are needed;
 * KC_E_TOO_LARGE or KC_E_MALFORMED (empty frame): close the stream. */
int hb_reader_next(struct hb_reader *r, struct kc_bytes *ret, struct kc_err *err) KC_MUST_CHECK;

/* ---- messages ---- */

/* Appends one frame to out. 0, or KC_E_TOO_LARGE (frame limit or out's maximum). */
int hb_encode_broker(const Kaas__Heartbeat__BrokerMessage *msg, struct kc_dyn *out) KC_MUST_CHECK;
int hb_encode_operator(const Kaas__Heartbeat__OperatorMessage *msg,
                       struct kc_dyn *out) KC_MUST_CHECK;

/* Unpacks and checks a frame's payload. The message lives in the arena (nothing to free); kinds
 * this build does not know give KIND__NOT_SET, to be ignored. 0, KC_E_MALFORMED or KC_E_TOO_LARGE. */
int hb_decode_broker(struct kc_bytes frame, struct kc_arena *a,
                     const Kaas__Heartbeat__BrokerMessage **ret, struct kc_err *err) KC_MUST_CHECK;
int hb_decode_operator(struct kc_bytes frame, struct kc_arena *a,
                       const Kaas__Heartbeat__OperatorMessage **ret,
                       struct kc_err *err) KC_MUST_CHECK;

#endif
