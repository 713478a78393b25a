#include "storage/ks_state.h"

#include <errno.h>
#include <string.h>

#include "base/kc_mem.h"

void ks_state_init(struct ks_state *st)
{
    *st = (struct ks_state){0};
    ks_prods_init(&st->prods);
}

void ks_state_fini(struct ks_state *st)
{
    for (uint32_t i = 0; i < st->n_segs; i++) {
        ks_file_unref(st->segs[i].file);
        kc_free(st->segs[i].marks);
    }
    kc_free(st->segs);
    kc_free(st->epochs);
    ks_prods_fini(&st->prods);
    ks_aborts_fini(&st->aborts);
    ks_state_init(st);
}

int ks_state_add_seg(struct ks_state *st, struct ks_file *file, int64_t base, int32_t epoch)
{
    if (st->n_segs == st->segs_room) {
        uint32_t room = st->segs_room + KC_MAX(st->segs_room / 2, 1u);
        struct ks_seg *segs = kc_try_realloc(st->segs, room * sizeof(*segs));
        if (!segs) {
            return -ENOMEM;
        }
        st->segs = segs;
        st->segs_room = room;
    }
    st->segs[st->n_segs++] = (struct ks_seg){
        .file = file,
        .base = base,
        .end = base,
        .epoch = epoch,
        .first_epoch = epoch,
        .gap = KS_MARK_GAP,
        .first_ts = -1,
        .max_ts = -1,
        .max_ts_base = -1,
        .damaged_from = INT64_MAX,
        .ts_known = true,
        .indexed = true,
    };
    return 0;
}

void ks_state_pop_seg(struct ks_state *st)
{
    struct ks_seg *s = &st->segs[--st->n_segs];
    ks_file_unref(s->file);
    kc_free(s->marks);
}

int ks_state_add_epoch(struct ks_state *st, int32_t epoch, int64_t start)
{
    if (st->n_epochs && st->epochs[st->n_epochs - 1].epoch == epoch) {
        return 0;
    }
    /* An epoch without content leaves no trace, as in Kafka's LeaderEpochFileCache. */
    while (st->n_epochs && st->epochs[st->n_epochs - 1].start == start) {
        st->n_epochs--;
    }
    if (st->n_epochs == st->epochs_room) {
        uint32_t room = st->epochs_room + KC_MAX(st->epochs_room / 2, 1u);
        struct ks_epoch_start *epochs = kc_try_realloc(st->epochs, room * sizeof(*epochs));
        if (!epochs) {
            return -ENOMEM;
        }
        st->epochs = epochs;
        st->epochs_room = room;
    }
    st->epochs[st->n_epochs++] = (struct ks_epoch_start){epoch, start};
    return 0;
}

/* Every second mark goes when there are too many. */
static void thin_out(struct ks_seg *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_marks; i += 2) {
        s->marks[n++] = s->marks[i];
    }
    s->n_marks = n;
    s->gap *= 2;
}

static void mark(struct ks_seg *s, const struct ks_batch *b, uint64_t pos)
{
    uint64_t last = s->n_marks ? s->marks[s->n_marks - 1].pos : 0;
    if (pos - last < s->gap) {
        return;
    }
    if (s->n_marks == KS_MARKS_MAX) {
        thin_out(s);
    }
    if (s->n_marks == s->marks_room) {
        uint32_t room = KC_MAX(s->marks_room * 2, 4u);
        struct ks_mark *marks = kc_try_realloc(s->marks, room * sizeof(*marks));
        if (!marks) {
            return; /* a longer walk for readers, nothing else */
        }
        s->marks = marks;
        s->marks_room = room;
    }
    s->marks[s->n_marks++] = (struct ks_mark){.offset = b->base, .pos = pos, .max_ts = s->max_ts};
}

void ks_seg_note(struct ks_seg *s, const struct ks_batch *b, uint64_t pos)
{
    mark(s, b, pos);
    if (s->first_ts < 0) {
        s->first_ts = b->max_ts;
    }
    if (b->max_ts > s->max_ts && !(b->attrs & KS_ATTR_CONTROL)) {
        s->max_ts = b->max_ts;
        s->max_ts_base = b->base;
    }
    s->end = ks_batch_last(b) + 1;
    s->len = pos + b->size;
    s->last_pos = pos;
    s->last_crc = b->crc;
}

void ks_state_note(struct ks_state *st, const struct ks_batch *b, uint64_t pos)
{
    struct ks_seg *s = &st->segs[st->n_segs - 1];
    ks_seg_note(s, b, pos);
    st->end = s->end;
    st->bytes += b->size;
}

/* As Kafka's LeaderEpochFileCache.truncateFromStart: the epoch that holds the start begins there. */
static void trim_epochs(struct ks_state *st)
{
    uint32_t n = 0;
    while (n + 1 < st->n_epochs && st->epochs[n + 1].start <= st->start) {
        n++;
    }
    if (n) {
        st->n_epochs -= n;
        memmove(st->epochs, st->epochs + n, st->n_epochs * sizeof(*st->epochs));
    }
    if (st->n_epochs) {
        st->epochs[0].start = KC_MAX(st->epochs[0].start, st->start);
    }
}

void ks_state_trim(struct ks_state *st, int64_t start, uint32_t n)
{
    KC_ASSERT(n == 0 || n < st->n_segs);
    for (uint32_t i = 0; i < n; i++) {
        st->bytes -= st->segs[i].len;
        ks_file_unref(st->segs[i].file);
        kc_free(st->segs[i].marks);
    }
    if (n) {
        st->n_segs -= n;
        memmove(st->segs, st->segs + n, st->n_segs * sizeof(*st->segs));
    }
    st->start = KC_MAX(st->start, start);
    trim_epochs(st);
    ks_aborts_trim(&st->aborts, st->start);
}

void ks_state_skip(struct ks_state *st, int64_t end, uint64_t len)
{
    struct ks_seg *s = &st->segs[st->n_segs - 1];
    s->end = end;
    s->len = len;
    s->ts_known = s->indexed = false;
    st->end = end;
    st->bytes += len;
}

int ks_state_produced(struct ks_state *st, const struct ks_batch *b, enum ks_marker marker,
                      int64_t now_wall_ms)
{
    int64_t first = -1;
    if (marker == KS_MARK_ABORT) {
        first = ks_prods_txn_first(&st->prods, b->producer_id);
        int rc = ks_aborts_reserve(&st->aborts, 1);
        if (rc) {
            return rc;
        }
    }
    int rc = ks_prods_apply(&st->prods, b, now_wall_ms);
    if (!rc && first >= 0) {
        int64_t open = ks_prods_first_open(&st->prods);
        ks_aborts_add(&st->aborts,
                      &(struct ks_abort){.producer_id = b->producer_id,
                                         .first = first,
                                         .last = ks_batch_last(b),
                                         .stable = KC_MIN(open, ks_batch_last(b) + 1)});
    }
    return rc;
}

struct ks_seg *ks_state_seg(const struct ks_state *st, int64_t offset)
{
    uint32_t lo = 0, hi = st->n_segs; /* first segment whose end is beyond offset */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (st->segs[mid].end > offset) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo < st->n_segs ? &st->segs[lo] : NULL;
}

struct ks_mark ks_seg_find(const struct ks_seg *s, int64_t offset)
{
    struct ks_mark m = {.offset = s->base, .pos = 0, .max_ts = -1};
    uint32_t lo = 0, hi = s->n_marks; /* first mark beyond offset */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->marks[mid].offset > offset) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo ? s->marks[lo - 1] : m;
}

struct ks_mark ks_seg_find_ts(const struct ks_seg *s, int64_t ts)
{
    struct ks_mark m = {.offset = s->base, .pos = 0, .max_ts = -1};
    for (uint32_t i = 0; i < s->n_marks && s->marks[i].max_ts < ts; i++) {
        m = s->marks[i];
    }
    return m;
}
