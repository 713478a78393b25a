/* ko_metrics.h - the operator's /metrics, as text. Internal to operator/app. */
#ifndef KO_METRICS_H
#define KO_METRICS_H

#include "reconcile/ko_reconcile.h"

struct ko_metrics {
    struct ko_rec_metrics rec;
    const struct ko_gauges *gauges; /* of each cluster; NULL = none */
    int32_t streams;
    int64_t api_age_ms, control_age_ms;
};

/* Writes at most cap bytes in the Prometheus text format and returns how many; what does not fit is
 * cut at a line. Reads atomics only (R39). */
size_t ko_metrics_write(const struct ko_metrics *m, char *body, size_t cap);

#endif
