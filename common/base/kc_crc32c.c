#include "base/kc_crc32c.h"

#include <isa-l/crc.h>

/* What crc32_iscsi takes at once: its length is an int. */
enum { PIECE_BYTES = 1 << 30 };

/* ISA-L chooses by the processor it finds at run time: with carry-less multiplication several streams at once,
 * with SSE4.2 alone, or a table. It takes and gives the register itself, which the checksum is the inverse of. */
uint32_t kc_crc32c(uint32_t crc, const void *data, size_t len)
{
    uint8_t *p = (uint8_t *)(uintptr_t)data; /* only read: its prototype has no const */
    crc = ~crc;
    while (len > 0) {
        size_t n = KC_MIN(len, (size_t)PIECE_BYTES);
        crc = crc32_iscsi(p, (int)n, crc);
        p += n;
        len -= n;
    }
    return ~crc;
}
