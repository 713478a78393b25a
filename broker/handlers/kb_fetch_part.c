/* kb_fetch_part.c - what a Fetch does with a partition: reads it, or waits for it.
 *
 * On the partition's loop, except for kb_fetch_drop_read. Reads need a fence check no older than a
 * second (storage.md), so that a deposed leader that was paused serves nothing stale. */
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "handlers/kb_fetch.h"
#include "wire/kw_errors.h"

enum { FENCE_AGE_MS = 1000 /* oldest check a read may rely on */ };

static struct kb_fetch *fetch_of(struct kb_item *item)
{
    return KC_CONTAINER_OF(item->fan, struct kb_fetch, fan);
}

/* ---- reading ---- */

/* What a consumer must know to leave out aborted data before `limit`. It is asked for before the read,
 * in the same turn as the file is chosen: a cleaning that takes the data away also takes the knowledge
 * of it. */
static bool note_aborted(struct kb_fetch_part *p, const struct ks_log *log, int64_t limit)
{
    struct ks_aborted none;
    int32_t n = ks_log_aborted(log, p->in->fetch_offset, limit, &none, 0);
    if (n == 0) {
        return true;
    }
    struct ks_aborted *all = kc_try_alloc((size_t)n * sizeof(*all));
    p->aborted = all ? kc_try_alloc((size_t)n * sizeof(*p->aborted)) : NULL;
    if (p->aborted) {
        p->n_aborted = ks_log_aborted(log, p->in->fetch_offset, limit, all, n);
        for (int32_t i = 0; i < n; i++) {
            p->aborted[i] = (struct kw_fetch_response_aborted_transaction){
                .producer_id = all[i].producer_id, .first_offset = all[i].first_offset};
        }
    }
    kc_free(all);
    return p->aborted && p->n_aborted == n; /* an incomplete list would deliver aborted records */
}

/* Of those, the ones that began in what was read or before it. */
static void keep_aborted(struct kb_fetch_part *p, int64_t next_offset)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_aborted; i++) {
        if (p->aborted[i].first_offset < next_offset) {
            p->aborted[n++] = p->aborted[i];
        }
    }
    p->n_aborted = n;
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct kb_fetch_part *p = ctx;
    struct kb_fetch *f = fetch_of(&p->item);
    p->item.error = r->error;
    keep_aborted(p, r->n_slices > 0 ? r->next_offset : p->in->fetch_offset);
    if (!r->error && r->n_slices > 0) {
        p->slices = kc_try_zalloc((size_t)r->n_slices, sizeof(*p->slices));
        for (int32_t i = 0; !p->slices && i < r->n_slices; i++) {
            p->item.error = KAFKA_KAFKA_STORAGE_ERROR;
            kc_buf_unref(r->slices[i].buf);
        }
    }
    if (p->slices) {
        memcpy(p->slices, r->slices, (size_t)r->n_slices * sizeof(*p->slices));
        p->n_slices = r->n_slices;
        for (int32_t i = 0; i < r->n_slices; i++) {
            p->bytes += (int64_t)r->slices[i].len;
        }
    }
    if (p->grant < 0) {
        f->left -= p->bytes;
    }
    p->wants = !p->item.error && p->n_slices == 0; /* a batch larger than the room */
    kb_fan_done(&p->item);
}

static bool diverges(struct kb_fetch_part *p, struct ks_log *log)
{
    if (p->in->last_fetched_epoch < 0) {
        return false;
    }
    int32_t epoch;
    int64_t end;
    ks_log_epoch_end(log, p->in->last_fetched_epoch, &epoch, &end);
    if (epoch < 0 || (epoch == p->in->last_fetched_epoch && end >= p->in->fetch_offset)) {
        return false;
    }
    p->diverging_epoch = epoch;
    p->diverging_end = end;
    return true;
}

/* Whether there is something to read at all; errors and offsets are set. */
static bool look(struct kb_fetch_part *p, struct ks_log *log)
{
    p->item.error = kb_check_epoch(p->in->current_leader_epoch, log);
    if (p->item.error) {
        return false;
    }
    struct ks_offsets o = ks_log_offsets(log);
    if (p->in->fetch_offset < o.start || p->in->fetch_offset > o.end) {
        p->item.error = KAFKA_OFFSET_OUT_OF_RANGE;
        return false;
    }
    p->high_watermark = o.high_watermark;
    p->last_stable = o.last_stable;
    p->log_start = o.start;
    return !diverges(p, log);
}

void kb_fetch_read_part(struct kb_item *item)
{
    struct kb_fetch_part *p = KC_CONTAINER_OF(item, struct kb_fetch_part, item);
    struct kb_fetch *f = fetch_of(item);
    struct kb_req *req = item->fan->req;
    const struct kw_fetch_request *in = req->body;
    kd_unwait(&p->waiter);
    p->stale = p->wants = false;
    p->diverging_epoch = -1;
    struct kd_part *open = kb_item_part(item);
    if (!open && !item->error) {
        return;
    }
    if (!open || !look(p, kd_part_log(open))) {
        kb_fan_done(item);
        return;
    }
    if (ks_fence_age_ms(req->app->engine, kc_mono_ms()) > FENCE_AGE_MS) {
        p->stale = true;
        kb_fan_done(item);
        return;
    }
    int64_t limit = in->isolation_level == 1 ? p->last_stable : p->high_watermark;
    int64_t room = p->grant < 0 ? KC_MIN((int64_t)p->in->partition_max_bytes, f->left) : p->grant;
    p->wants = p->in->fetch_offset < limit;
    if (!p->wants || (room <= 0 && !p->at_least_one)) {
        kb_fan_done(item);
        return;
    }
    if (in->isolation_level == 1 && !note_aborted(p, kd_part_log(open), limit)) {
        item->error = KAFKA_KAFKA_STORAGE_ERROR;
        kb_fan_done(item);
        return;
    }
    struct ks_read_args args = {.offset = p->in->fetch_offset,
                                .limit_offset = limit,
                                .max_bytes = (int32_t)KC_MAX(room, (int64_t)0),
                                .at_least_one = p->at_least_one,
                                .ranges = true};
    ks_log_read(kd_part_log(open), &args, on_read, p);
}

void kb_fetch_drop_read(struct kb_fetch_part *p)
{
    for (int32_t i = 0; i < p->n_slices; i++) {
        kc_buf_unref(p->slices[i].buf);
    }
    kc_free(p->slices);
    p->slices = NULL;
    p->n_slices = 0;
    p->bytes = 0;
    kc_free(p->aborted);
    p->aborted = NULL;
    p->n_aborted = 0;
}

/* ---- parking ---- */

static void wake(struct kb_fetch *f)
{
    if (!atomic_exchange(&f->woken, true)) {
        f->wake_msg.fn = kb_fetch_on_wake;
        rt_post(f->fan.req->home, &f->wake_msg);
    }
}

static void on_moved(struct kd_waiter *w, bool gone)
{
    (void)gone; /* either way the next pass finds out */
    struct kb_fetch_part *p = KC_CONTAINER_OF(w, struct kb_fetch_part, waiter);
    wake(fetch_of(&p->item));
}

void kb_fetch_park_part(struct kb_item *item)
{
    struct kb_fetch_part *p = KC_CONTAINER_OF(item, struct kb_fetch_part, item);
    struct kd_part *open = kd_find(item->fan->req->app->data, &item->topic_id, item->partition);
    struct ks_offsets o = open ? ks_log_offsets(kd_part_log(open)) : (struct ks_offsets){0};
    if (!open || o.high_watermark != p->high_watermark || o.last_stable != p->last_stable ||
        o.start != p->log_start) {
        wake(fetch_of(item)); /* moved between the pass and now */
    } else {
        p->waiter.fn = on_moved;
        kd_wait(open, &p->waiter);
    }
    kb_fan_done(item);
}
