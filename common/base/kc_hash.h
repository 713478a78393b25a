/* kc_hash.h - hash functions with fixed, documented results. */
#ifndef KC_HASH_H
#define KC_HASH_H

#include "base/kc_base.h"

/* 64-bit mix of bytes for tables and rendezvous hashing; stable across builds and machines. */
uint64_t kc_hash64(const void *data, size_t len);
uint64_t kc_hash64_mix(uint64_t a, uint64_t b);

/* Java's String.hashCode of a UTF-8 string, taken over UTF-16 code units (invalid bytes count as
 * U+FFFD). Kafka picks a coordinator slot as abs(hash) % 50 with abs(INT32_MIN) = 0
 * (kafka.coordinator, Utils.abs). */
int32_t kc_java_hash(struct kc_str s);
int32_t kc_coordinator_slot(struct kc_str id, int32_t slots);

#endif
