/* kc_uuid.h - 128-bit ids: topic ids, incarnations, cluster ids. */
#ifndef KC_UUID_H
#define KC_UUID_H

#include "base/kc_base.h"

struct kc_uuid {
    uint8_t b[16];
};

#define KC_UUID_B64_LEN 22 /* Kafka's text form: url-safe base64 without padding */
#define KC_UUID_HEX_LEN 32

/* A random (version 4) id from the kernel; never all zero, never starting with '-' in base64. */
struct kc_uuid kc_uuid_random(void);
bool kc_uuid_eq(const struct kc_uuid *a, const struct kc_uuid *b);
bool kc_uuid_is_zero(const struct kc_uuid *u);
uint64_t kc_uuid_hash(const struct kc_uuid *u);
/* Writes the text and a terminator. */
void kc_uuid_to_b64(const struct kc_uuid *u, char out[KC_UUID_B64_LEN + 1]);
void kc_uuid_to_hex(const struct kc_uuid *u, char out[KC_UUID_HEX_LEN + 1]);
int kc_uuid_from_b64(struct kc_str s, struct kc_uuid *ret) KC_MUST_CHECK; /* 0 or -EINVAL */
int kc_uuid_from_hex(struct kc_str s, struct kc_uuid *ret) KC_MUST_CHECK; /* 0 or -EINVAL */

#endif
