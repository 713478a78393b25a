/* hb_convert.h - between messages of the control stream and the controller's plain data.
 *
 * Messages come from hb_decode_* (already checked). Results that need memory use the arena and live
 * as long as it; what is built borrows nothing. Functions that return a pointer or -ENOMEM fail
 * only at the arena's cap. */
#ifndef HB_CONVERT_H
#define HB_CONVERT_H

#include "hb/hb_frame.h"
#include "policy/kp_ctl.h"

/* Empty bytes give the zero id. */
struct kc_uuid hb_uuid(ProtobufCBinaryData b);
/* Borrows *u, which must outlive the message. */
ProtobufCBinaryData hb_uuid_data(const struct kc_uuid *u);
ProtobufCBinaryData hb_uuid_copy(struct kc_arena *a, const struct kc_uuid *u);
struct kp_pid hb_pid(const Kaas__Heartbeat__PartitionId *p);
/* NULL: arena full. Copies the id. */
Kaas__Heartbeat__PartitionId *hb_pid_new(struct kc_arena *a, const struct kc_uuid *topic_id,
                                         int32_t partition);

/* Names too long for their fields are refused: 0 or KC_E_MALFORMED. */
int hb_hello_to_kp(const Kaas__Heartbeat__Hello *h, uint64_t stream, struct kp_hello *ret,
                   struct kc_err *err) KC_MUST_CHECK;
/* Lists of *ret live in the arena. wall_ms: the receiver's clock. 0 or -ENOMEM. */
int hb_status_to_kp(const Kaas__Heartbeat__BrokerStatus *s, uint64_t stream, int64_t wall_ms,
                    struct kc_arena *a, struct kp_status *ret) KC_MUST_CHECK;

/* A row as pushed in answers; NULL: arena full. */
Kaas__Heartbeat__Row *hb_row_new(struct kc_arena *a, const struct kp_row *row);
/* Lays what a pushed row says over *row (other fields stay): 0 or KC_E_MALFORMED. */
int hb_row_apply(const Kaas__Heartbeat__Row *r, struct kp_row *row,
                 struct kc_err *err) KC_MUST_CHECK;

/* A listener list; *ret_n pointers. NULL: arena full (or n = 0). */
Kaas__Heartbeat__Listener **hb_listeners_new(struct kc_arena *a, const struct kp_listener *l,
                                             int32_t n);

/* An order of a move; seal may be NULL (borrowed). NULL: arena full. */
Kaas__Heartbeat__MoveOrder *hb_order_new(struct kc_arena *a, const struct kp_relay *r,
                                         Kaas__Heartbeat__Seal *seal);
/* NULL: arena full. */
Kaas__Heartbeat__Lead *hb_lead_new(struct kc_arena *a, const struct kp_lead *l);
struct kp_lead hb_lead(const Kaas__Heartbeat__Lead *l);
struct kp_relay hb_order_relay(const Kaas__Heartbeat__MoveOrder *o);

#endif
