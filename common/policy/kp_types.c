/* kp_types.c - names, orders and the derived "condemned" (kp_types.h). Pure. */
#include "policy/kp_types.h"

#include <string.h>

static const char *const reason_names[] = {
    [KP_REASON_NONE] = "",
    [KP_REASON_BOOTING] = "booting",
    [KP_REASON_WEDGED] = "wedged",
    [KP_REASON_STALLED] = "stalled",
    [KP_REASON_DRAINED] = "drained",
    [KP_REASON_LOST] = "lost",
    [KP_REASON_NEVER_SEEN] = "never seen",
};

int32_t kp_shard_of(const struct kc_uuid *topic_id)
{
    return (int32_t)(kc_uuid_hash(topic_id) % KP_SHARDS);
}

int kp_order_cmp(const struct kp_order *a, const struct kp_order *b)
{
    if (a->term != b->term) {
        return a->term < b->term ? -1 : 1;
    }
    if (a->generation != b->generation) {
        return a->generation < b->generation ? -1 : 1;
    }
    return 0;
}

const char *kp_health_name(enum kp_health h)
{
    switch (h) {
    case KP_ALIVE:
        return "Alive";
    case KP_DRAINING:
        return "Draining";
    case KP_DEAD:
        break;
    }
    return "Dead";
}

const char *kp_state_name(enum kp_state s)
{
    switch (s) {
    case KP_SERVING:
        return "Serving";
    case KP_STATE_DRAINING:
        return "Draining";
    case KP_FENCED:
        break;
    }
    return "Fenced";
}

const char *kp_volume_name(enum kp_volume v)
{
    return v == KP_VOLUME_FULL ? "volume full" : v == KP_VOLUME_READ_ONLY ? "volume read-only" : "";
}

const char *kp_reason_name(enum kp_reason r)
{
    size_t i = (size_t)r;
    return i < KC_ARRAY_LEN(reason_names) ? reason_names[i] : "";
}

/* A reason of a newer operator that this build does not know reads as none: it is only shown. */
enum kp_reason kp_reason_parse(const char *name)
{
    for (size_t i = 0; name && i < KC_ARRAY_LEN(reason_names); i++) {
        if (strcmp(name, reason_names[i]) == 0) {
            return (enum kp_reason)i;
        }
    }
    return KP_REASON_NONE;
}

bool kp_condemned(const struct kp_row *rows, int32_t n_rows, int32_t broker,
                  const struct kc_uuid *incarnation)
{
    int32_t lo = 0, hi = n_rows;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (rows[mid].id < broker) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    if (lo == n_rows || rows[lo].id != broker) {
        return true; /* gone: no process of it may write any more */
    }
    return rows[lo].condemned || !kc_uuid_eq(&rows[lo].incarnation, incarnation);
}
