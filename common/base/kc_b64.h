/* kc_b64.h - standard base64 with padding (Kubernetes secrets, compressed ConfigMaps). */
#ifndef KC_B64_H
#define KC_B64_H

#include "base/kc_base.h"

/* Returns owned (kc_free), terminated; NULL when memory is out. */
char *kc_b64_encode(const void *data, size_t len, size_t *ret_len) KC_MUST_CHECK;
/* Returns owned; NULL for bad input or no memory. */
uint8_t *kc_b64_decode(struct kc_str s, size_t *ret_len) KC_MUST_CHECK;

#endif
