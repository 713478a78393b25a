/* kp_registry.c - who is registered: the union of the slices and the desired replicas (A, W1).
 *
 * Every slice that lists an ordinal holds one bit of it, so an update of one slice can never remove
 * what another lists (R5, R6). Leaving needs two witnesses: no slice lists the ordinal, and it is
 * outside the desired replicas (W1). */
#include "policy/kp_internal.h"

#include <string.h>

static int32_t row_index(const struct kp_ctl *c, int32_t broker)
{
    int32_t lo = 0, hi = c->n_rows;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (c->rows[mid].id < broker) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

struct kp_row *kp_row_of(struct kp_ctl *c, int32_t broker)
{
    int32_t i = row_index(c, broker);
    return i < c->n_rows && c->rows[i].id == broker ? &c->rows[i] : NULL;
}

void kp_registry_add(struct kp_ctl *c, int32_t broker)
{
    struct kp_peer *p = &c->peers[broker];
    int32_t i = row_index(c, broker);
    KC_ASSERT(!p->registered && c->n_rows < KP_BROKERS_MAX);
    memmove(&c->rows[i + 1], &c->rows[i], (size_t)(c->n_rows - i) * sizeof(c->rows[0]));
    c->n_rows++;
    c->rows[i] = (struct kp_row){
        .id = broker, .health = KP_DEAD, .state = KP_FENCED, .reason = KP_REASON_NEVER_SEEN};
    p->registered = true;
    c->registry_dirty = true;
    c->rows_dirty = true;
    kp_event_add(c, KP_EV_REGISTERED, broker, KP_REASON_NONE, 0);
}

/* R9: out of every list at once, and its stream with it. Partition loads stay counted: they are
 * what the next layout takes away from it. */
static void registry_remove(struct kp_ctl *c, int32_t broker)
{
    struct kp_peer *p = &c->peers[broker];
    int32_t i = row_index(c, broker);
    memmove(&c->rows[i], &c->rows[i + 1], (size_t)(c->n_rows - i - 1) * sizeof(c->rows[0]));
    c->n_rows--;
    struct kp_peer left = {.n_home = p->n_home, .n_led = p->n_led, .n_led_slots = p->n_led_slots};
    memcpy(left.n_assigned, p->n_assigned, sizeof(left.n_assigned));
    left.close_ms = left.drain_ms = left.stall_ms = left.serving_ms = left.alive_ms = left.life_ms =
        -1;
    *p = left;
    c->registry_dirty = true;
    c->assign_dirty = true;
    c->rows_dirty = true;
    kp_event_add(c, KP_EV_DEREGISTERED, broker, KP_REASON_NONE, 0);
}

/* A newer pod of the ordinal was admitted: the older one's stream no longer speaks for it. */
static void take_pod(struct kp_peer *p, struct kp_row *row)
{
    if (strcmp(row->pod_uid, p->pod_uid) != 0) {
        memcpy(row->pod_uid, p->pod_uid, sizeof(row->pod_uid));
        row->ever_healthy = false; /* a new process: W5 keys it by pod uid */
        if (p->open) {
            p->open = false;
            p->stream = 0;
            p->close_ms = p->last_ms;
        }
    }
    memcpy(row->host, p->host, sizeof(row->host));
}

void kp_registry_sync(struct kp_ctl *c)
{
    for (int32_t id = 0; id < KP_BROKERS_MAX; id++) {
        struct kp_peer *p = &c->peers[id];
        if (id == c->o.self_id) {
            continue; /* R7: pinned */
        }
        if (p->registered && !p->listed && id >= c->desired) {
            registry_remove(c, id); /* R4 and W1 agree */
        } else if (!p->registered && p->listed) {
            kp_registry_add(c, id);
        }
        struct kp_row *row = p->registered ? kp_row_of(c, id) : NULL;
        if (!row) {
            continue;
        }
        /* Absent endpoints are not ready; the pod that was admitted last stays the admitted one. */
        bool ready = p->listed && p->ready;
        bool pod_new =
            p->listed && (strcmp(row->pod_uid, p->pod_uid) != 0 || strcmp(row->host, p->host) != 0);
        if (pod_new) {
            take_pod(p, row);
        }
        if (pod_new || row->slice_ready != ready) {
            row->slice_ready = ready;
            c->rows_dirty = true;
        }
    }
}

void kp_ctl_set_desired(struct kp_ctl *c, int32_t desired)
{
    c->desired = desired;
    kp_registry_sync(c);
}

static int32_t slice_index(struct kp_ctl *c, const char *key, bool make)
{
    if (strlen(key) >= KP_SLICE_KEY_MAX || key[0] == '\0') {
        return -1;
    }
    int32_t vacant = -1;
    for (int32_t i = 0; i < KP_SLICES_MAX; i++) {
        if (strcmp(c->slices[i], key) == 0) {
            return i;
        }
        if (vacant < 0 && c->slices[i][0] == '\0') {
            vacant = i;
        }
    }
    if (!make || vacant < 0) {
        return -1;
    }
    memcpy(c->slices[vacant], key, strlen(key) + 1);
    return vacant;
}

/* One endpoint of slice bit. Among several pods of an ordinal the newest stands; of the same pod the
 * last lister speaks. */
static void take_endpoint(struct kp_peer *p, uint64_t bit, const struct kp_endpoint *e)
{
    bool known = p->pod_uid[0] != '\0' && (p->listed != 0 || p->registered);
    bool same = strcmp(p->pod_uid, e->pod_uid) == 0;
    bool older = known && !same && e->created_ms < p->created_ms;
    p->listed |= bit;
    if (older) {
        return;
    }
    p->ready = e->ready;
    p->created_ms = e->created_ms;
    p->grace_s = e->grace_s;
    memcpy(p->pod_uid, e->pod_uid, sizeof(p->pod_uid));
    memcpy(p->host, e->host, sizeof(p->host));
    p->pod_uid[sizeof(p->pod_uid) - 1] = '\0';
    p->host[sizeof(p->host) - 1] = '\0';
}

void kp_ctl_slice(struct kp_ctl *c, const char *slice_key, const struct kp_endpoint *eps, int32_t n,
                  int64_t now_ms)
{
    (void)now_ms;
    int32_t s = slice_index(c, slice_key, n > 0);
    if (s < 0) {
        return;
    }
    uint64_t bit = 1ull << s;
    for (int32_t id = 0; id < KP_BROKERS_MAX; id++) {
        c->peers[id].listed &= ~bit;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t id = eps[i].ordinal;
        if (id < 0 || id >= c->o.max_brokers || id == c->o.self_id) {
            continue; /* R10, R7 */
        }
        take_endpoint(&c->peers[id], bit, &eps[i]);
    }
    if (n == 0) {
        c->slices[s][0] = '\0'; /* one that lists nobody needs no bit */
    }
    kp_registry_sync(c);
}

void kp_ctl_slice_deleted(struct kp_ctl *c, const char *slice_key, int64_t now_ms)
{
    kp_ctl_slice(c, slice_key, NULL, 0, now_ms);
}
