/* kc_siphash.h - SipHash-2-4 with 128 bits of output: a keyed hash, so that whoever chooses the data
 * cannot choose collisions as long as the key is secret. Stable across builds and machines. */
#ifndef KC_SIPHASH_H
#define KC_SIPHASH_H

#include "base/kc_base.h"

void kc_siphash128(const uint8_t key[16], const void *data, size_t len, uint8_t out[16]);

#endif
