/* kb_metrics.h - counters that handlers keep; relaxed atomics, read by the health thread. */
#ifndef KB_METRICS_H
#define KB_METRICS_H

#include <stdatomic.h>

#include "base/kc_base.h"

enum { KB_API_KEYS_MAX = 96 };

struct kb_api_counters {
    _Atomic uint64_t requests;
    _Atomic uint64_t us; /* from arrival to answer, sum */
    _Atomic uint64_t dropped; /* connections closed instead of an answer */
};

struct kb_metrics {
    struct kb_api_counters api[KB_API_KEYS_MAX];
    _Atomic uint64_t unsupported; /* unknown key or version */
    _Atomic uint64_t produced_bytes, fetched_bytes;
    _Atomic uint64_t produce_errors, fetch_errors; /* partitions answered with an error */
    _Atomic int64_t under_way;
    _Atomic int64_t fetch_sessions, fetch_session_partitions; /* KIP-227 */
    _Atomic uint64_t fetch_session_evictions;
};

static inline void kb_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

#endif
