/* ks_bytes.h - big-endian fields at fixed places, as Kafka's formats and the chain records use them. */
#ifndef KS_BYTES_H
#define KS_BYTES_H

#include "base/kc_base.h"

static inline uint16_t ks_get16(const uint8_t *p)
{
    return (uint16_t)((uint16_t)(p[0] << 8) | p[1]);
}
static inline uint32_t ks_get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t ks_get64(const uint8_t *p)
{
    return (uint64_t)ks_get32(p) << 32 | ks_get32(p + 4);
}
static inline void ks_put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}
static inline void ks_put32(uint8_t *p, uint32_t v)
{
    ks_put16(p, (uint16_t)(v >> 16));
    ks_put16(p + 2, (uint16_t)v);
}
static inline void ks_put64(uint8_t *p, uint64_t v)
{
    ks_put32(p, (uint32_t)(v >> 32));
    ks_put32(p + 4, (uint32_t)v);
}

#endif
