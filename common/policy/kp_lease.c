#include "policy/kp_lease.h"

#include <string.h>

void kp_lease_init(struct kp_lease *l, const struct kp_lease_opts *o, const char *me)
{
    memset(l, 0, sizeof(*l));
    l->o = *o;
    size_t n = KC_MIN(strlen(me), (size_t)KP_HOLDER_MAX);
    memcpy(l->me, me, n);
    l->stale = true;
}

bool kp_lease_held(const struct kp_lease *l, int64_t now_ms)
{
    return l->leader && now_ms - l->renewed_ms < l->o.renew_deadline_ms;
}

static bool takeable(const struct kp_lease *l, int64_t now_ms)
{
    if (!l->exists || l->doc.holder[0] == '\0' || strcmp(l->doc.holder, l->me) == 0) {
        return true;
    }
    int64_t lasts = l->doc.duration_ms > 0 ? l->doc.duration_ms : l->o.lease_ms;
    return now_ms - l->changed_ms >= lasts;
}

enum kp_lease_do kp_lease_step(struct kp_lease *l, int64_t now_ms, int64_t *ret_next_ms)
{
    if (l->leader && !kp_lease_held(l, now_ms)) {
        l->leader = false; /* even while a renewal hangs: it may have been lost on the way */
        l->stale = true;
    }
    if (l->busy || now_ms < l->next_ms) {
        int64_t ends = l->leader ? l->renewed_ms + l->o.renew_deadline_ms : INT64_MAX;
        *ret_next_ms = KC_MIN(ends, l->busy ? now_ms + l->o.retry_ms : l->next_ms);
        return KP_LEASE_WAIT;
    }
    enum kp_lease_do what = KP_LEASE_READ;
    /* A candidate writes only over what it read just now; a leader over its own last write. */
    if (l->leader && !l->stale) {
        what = KP_LEASE_UPDATE;
    } else if (l->seen && !l->stale && takeable(l, now_ms)) {
        what = l->exists ? KP_LEASE_UPDATE : KP_LEASE_CREATE;
    }
    l->busy = true;
    l->next_ms = now_ms + l->o.retry_ms;
    *ret_next_ms = l->next_ms;
    return what;
}

int64_t kp_lease_transitions(const struct kp_lease *l)
{
    if (!l->exists) {
        return 0;
    }
    return l->doc.transitions + (strcmp(l->doc.holder, l->me) != 0);
}

static void take(struct kp_lease *l, const struct kp_lease_doc *doc, int64_t now_ms)
{
    bool same = l->seen && l->exists && doc && strcmp(l->doc.holder, doc->holder) == 0 &&
                strcmp(l->doc.renewed, doc->renewed) == 0 && l->doc.transitions == doc->transitions;
    if (!same) {
        l->changed_ms = now_ms;
    }
    l->seen = true;
    l->exists = doc != NULL;
    if (doc) {
        l->doc = *doc;
    }
}

void kp_lease_seen(struct kp_lease *l, const struct kp_lease_doc *doc, int64_t now_ms)
{
    take(l, doc, now_ms);
    l->busy = false;
    l->stale = false;
    if (l->leader && (!doc || strcmp(doc->holder, l->me) != 0)) {
        l->leader = false; /* taken, or deleted by hand: start over */
    }
    if (takeable(l, now_ms)) {
        l->next_ms = now_ms;
    } else {
        l->stale = true; /* read again before the next decision */
    }
}

void kp_lease_wrote(struct kp_lease *l, const struct kp_lease_doc *doc, int64_t started_ms,
                    int64_t now_ms)
{
    take(l, doc, now_ms);
    l->busy = false;
    l->stale = false;
    l->leader = strcmp(doc->holder, l->me) == 0;
    l->renewed_ms = started_ms;
}

void kp_lease_failed(struct kp_lease *l, int64_t now_ms)
{
    l->busy = false;
    l->stale = true;
    l->next_ms = KC_MIN(l->next_ms, now_ms + l->o.retry_ms);
}

void kp_lease_hurry(struct kp_lease *l, int64_t now_ms)
{
    l->next_ms = now_ms;
}
