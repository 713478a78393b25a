/* kc_crc32c.h - CRC-32C (Castagnoli), with the instructions that the processor has. */
#ifndef KC_CRC32C_H
#define KC_CRC32C_H

#include "base/kc_base.h"

/* crc: 0 to start, or the result so far. Of no bytes (data may be NULL then): crc. The value Kafka stores
 * in a v2 batch (RFC 3720, B.4). Any alignment; reads nothing beyond len bytes. */
uint32_t kc_crc32c(uint32_t crc, const void *data, size_t len);

#endif
