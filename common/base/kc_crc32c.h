/* kc_crc32c.h - CRC-32C (Castagnoli), SSE4.2 where the processor has it. */
#ifndef KC_CRC32C_H
#define KC_CRC32C_H

#include "base/kc_base.h"

/* crc: 0 to start, or the result so far. The value Kafka stores in a v2 batch. */
uint32_t kc_crc32c(uint32_t crc, const void *data, size_t len);

#endif
