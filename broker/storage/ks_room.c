#include "storage/ks_room.h"

#include <errno.h>

void ks_room_init(struct ks_room *r, int64_t now)
{
    *r = (struct ks_room){
        .state = KS_VOLUME_OK, .since_ms = now - KS_ROOM_WAIT_MAX_MS, .wait_ms = KS_ROOM_WAIT_MS};
}

enum ks_volume ks_room_of(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT ? KS_VOLUME_FULL
           : rc == -EROFS                 ? KS_VOLUME_READ_ONLY
                                          : KS_VOLUME_OK;
}

uint32_t ks_room_want(int64_t bytes, int64_t n_logs)
{
    int64_t least = (int64_t)KS_RESERVE_LEAST * KS_RESERVE_PIECE;
    int64_t most = (int64_t)KS_RESERVE_PIECES * KS_RESERVE_PIECE;
    if (bytes < 0) {
        bytes = KC_MAX(KC_MIN(n_logs, most / KS_RESERVE_LOG) * KS_RESERVE_LOG, least);
    }
    return (uint32_t)((KC_MIN(bytes, most) + KS_RESERVE_PIECE - 1) / KS_RESERVE_PIECE);
}

bool ks_room_error(struct ks_room *r, int rc, int64_t now)
{
    enum ks_volume says = ks_room_of(rc);
    if (says == KS_VOLUME_OK) {
        return false;
    }
    r->errors++;
    if (r->state == says) {
        return false;
    }
    if (r->state != KS_VOLUME_OK || now - r->since_ms >= KS_ROOM_WAIT_MAX_MS) {
        r->wait_ms = KS_ROOM_WAIT_MS;
        r->next_ms = now; /* the first trial at once: it may be over */
    } else {
        /* So soon again: what the volume says of its room is not to be trusted (a quota). */
        r->next_ms = now + r->wait_ms;
    }
    r->state = says;
    r->since_ms = now;
    return true;
}

bool ks_room_due(const struct ks_room *r, uint32_t have, uint32_t want, int64_t now)
{
    return (r->state != KS_VOLUME_OK || have < want) && now >= r->next_ms;
}

bool ks_room_worth(struct ks_room *r, uint32_t missing, uint64_t free, int64_t now)
{
    uint64_t need = (uint64_t)missing * KS_RESERVE_PIECE + KS_ROOM_MARGIN;
    if (r->state == KS_VOLUME_OK || free >= need) {
        return true;
    }
    r->next_ms = now + KS_ROOM_WAIT_MS;
    return false;
}

bool ks_room_tried(struct ks_room *r, int rc, uint64_t errors, int64_t now)
{
    bool well = rc == 0 && r->errors == errors;
    bool changed = well && r->state != KS_VOLUME_OK;
    r->next_ms = now + r->wait_ms;
    if (rc) {
        r->wait_ms = KC_MIN(r->wait_ms * 2, (int64_t)KS_ROOM_WAIT_MAX_MS);
    }
    if (changed) {
        r->state = KS_VOLUME_OK;
        r->since_ms = now;
    }
    return changed;
}

bool ks_room_may_retry(struct ks_room *r, uint32_t have, int64_t now)
{
    if (r->state == KS_VOLUME_OK || (r->state == KS_VOLUME_FULL && have > 0)) {
        return true;
    }
    if (r->state == KS_VOLUME_READ_ONLY || now < r->retry_ms) {
        return false;
    }
    r->retry_ms = now + KS_ROOM_RETRY_MS; /* a few bytes may have become free */
    return true;
}
