/* ko_gauges.h - what /metrics says of each cluster.
 *
 * One writer, the API loop; read on the responder's thread, which may not wait for anybody (R39): a
 * slot carries a sequence that is odd while it is written, and is read again if it changed. */
#ifndef KO_GAUGES_H
#define KO_GAUGES_H

#include <stdatomic.h>

#include "control/ko_control.h"

enum { KO_GAUGE_SLOTS = 64, KO_GAUGE_NAME_WORDS = 40 }; /* more clusters are not shown one by one */

enum ko_gauge {
    KO_G_SERVING,
    KO_G_FENCED,
    KO_G_DRAINING,
    KO_G_PARTITIONS,
    KO_G_OFFLINE,
    KO_G_LEADERLESS,
    KO_G_AWAY,
    KO_G_TERM,
    KO_G_GENERATION,
    KO_GAUGES
};

struct ko_gauges {
    struct {
        _Atomic uint32_t sequence;
        _Atomic uint64_t name[KO_GAUGE_NAME_WORDS]; /* "namespace/name"; first word 0: free */
        _Atomic int64_t values[KO_GAUGES];
    } slots[KO_GAUGE_SLOTS];
};

struct ko_gauge_sample {
    char cluster[KO_GAUGE_NAME_WORDS * 8];
    int64_t values[KO_GAUGES];
};

/* [API loop] */
void ko_gauges_set(struct ko_gauges *g, const struct ko_view *v);
void ko_gauges_drop(struct ko_gauges *g, const char *cluster);
void ko_gauges_clear(struct ko_gauges *g);
/* [any] False: the slot is free, or was being written all the while. */
bool ko_gauges_read(const struct ko_gauges *g, int slot, struct ko_gauge_sample *ret);

#endif
