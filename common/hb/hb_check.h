/* hb_check.h - the rules that protobuf's types cannot say. Internal to common/hb. */
#ifndef HB_CHECK_H
#define HB_CHECK_H

#include "hb/hb_frame.h"

/* Walks a decoded message (its type's descriptors; the schema's nesting is fixed and shallow). 0 or
 * KC_E_MALFORMED with the field named. */
int hb_check(const ProtobufCMessage *m, struct kc_err *err) KC_MUST_CHECK;

#endif
