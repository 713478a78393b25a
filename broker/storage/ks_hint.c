#include "storage/ks_hint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_error.h"
#include "base/kc_mem.h"
#include "storage/ks_cursor.h"

enum {
    MAGIC = 0x4b484e32 /* "KHN2" */,
    TYPE_IDX = 1,
    TYPE_SNAP = 2,
    HEAD = 132,
    MARK_LEN = 24,
    FILE_LEN = 32,
    PROD_LEN = 28 + KS_PROD_WINDOW * 24,
    ABORT_LEN = 32,
    TAIL = 4
};

/* ---- encoding ---- */

static bool keeps(const struct ks_prod_entry *e, int64_t now)
{
    return e->producer_id >= 0 && !ks_prod_expired(e, now);
}

static uint32_t count_prods(const struct ks_prods *t, int64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        n += keeps(&t->slots[i], now);
    }
    return n;
}

static uint32_t count_aborts(const struct ks_hint_args *a)
{
    uint32_t n = a->st->aborts.n;
    while (n > 0 && a->st->aborts.v[n - 1].last >= a->seg->end) {
        n--; /* appended after the position */
    }
    return n;
}

static uint32_t count_files(const struct ks_state *st)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i + 1 < st->n_segs; i++) {
        n += st->segs[i].ts_known;
    }
    return n;
}

static void put_prods(struct ks_out *o, const struct ks_prods *t, int64_t now)
{
    for (uint32_t i = 0; i < t->n_slots; i++) {
        const struct ks_prod_entry *e = &t->slots[i];
        if (!keeps(e, now)) {
            continue;
        }
        ks_out_u64(o, (uint64_t)e->producer_id);
        ks_out_u64(o, (uint64_t)e->last_ts);
        ks_out_u64(o, (uint64_t)e->txn_first);
        ks_out_u32(o, (uint32_t)(uint16_t)e->epoch << 16 | e->n);
        for (int b = 0; b < KS_PROD_WINDOW; b++) {
            struct ks_prod_batch none = {0};
            const struct ks_prod_batch *pb = b < e->n ? &e->batches[b] : &none;
            ks_out_u32(o, (uint32_t)pb->first_seq);
            ks_out_u32(o, (uint32_t)pb->last_seq);
            ks_out_u64(o, (uint64_t)pb->last_offset);
            ks_out_u64(o, (uint64_t)pb->max_ts);
        }
    }
}

static void put_lists(struct ks_out *o, const struct ks_hint_args *a, uint32_t n_aborts)
{
    for (uint32_t i = 0; i < a->seg->n_marks; i++) {
        ks_out_u64(o, (uint64_t)a->seg->marks[i].offset);
        ks_out_u64(o, a->seg->marks[i].pos);
        ks_out_u64(o, (uint64_t)a->seg->marks[i].max_ts);
    }
    if (!a->st) {
        return;
    }
    for (uint32_t i = 0; i + 1 < a->st->n_segs; i++) {
        const struct ks_seg *s = &a->st->segs[i];
        if (s->ts_known) {
            ks_out_file(o, s->file->id);
            ks_out_u64(o, s->len);
            ks_out_u64(o, (uint64_t)s->max_ts);
            ks_out_u64(o, (uint64_t)s->max_ts_base);
        }
    }
    put_prods(o, a->prods, a->now_wall_ms);
    for (uint32_t i = 0; i < n_aborts; i++) {
        const struct ks_abort *b = &a->st->aborts.v[i];
        ks_out_u64(o, (uint64_t)b->producer_id);
        ks_out_u64(o, (uint64_t)b->first);
        ks_out_u64(o, (uint64_t)b->last);
        ks_out_u64(o, (uint64_t)b->stable);
    }
}

int ks_hint_encode(const struct ks_hint_args *a, uint8_t **ret, size_t *ret_len)
{
    const struct ks_seg *s = a->seg;
    uint32_t n_files = a->st ? count_files(a->st) : 0;
    uint32_t n_prods = a->st ? count_prods(a->prods, a->now_wall_ms) : 0;
    uint32_t n_aborts = a->st ? count_aborts(a) : 0;
    size_t len = HEAD + (size_t)s->n_marks * MARK_LEN + (size_t)n_files * FILE_LEN +
                 (size_t)n_prods * PROD_LEN + (size_t)n_aborts * ABORT_LEN + TAIL;
    if (len > KS_HINT_MAX) {
        return -EFBIG;
    }
    uint8_t *p = kc_try_alloc(len);
    if (!p) {
        return -ENOMEM;
    }
    struct ks_out o = {p};
    ks_out_u32(&o, MAGIC);
    ks_out_u32(&o, a->st ? TYPE_SNAP : TYPE_IDX);
    ks_out_uuid(&o, &a->topic);
    ks_out_u32(&o, (uint32_t)a->partition);
    ks_out_uuid(&o, &a->writer);
    ks_out_file(&o, s->file->id);
    ks_out_u32(&o, (uint32_t)s->epoch);
    ks_out_u64(&o, (uint64_t)s->base);
    ks_out_u64(&o, (uint64_t)s->end);
    ks_out_u64(&o, s->len);
    ks_out_u64(&o, s->last_pos);
    ks_out_u32(&o, s->last_crc);
    ks_out_u64(&o, (uint64_t)s->max_ts);
    ks_out_u64(&o, (uint64_t)s->max_ts_base);
    ks_out_u64(&o, s->gap);
    ks_out_u32(&o, s->n_marks);
    ks_out_u32(&o, n_files);
    ks_out_u32(&o, n_prods);
    ks_out_u32(&o, n_aborts);
    KC_ASSERT(o.p - p == HEAD);
    put_lists(&o, a, n_aborts);
    ks_out_u32(&o, kc_crc32c(0, p, len - TAIL));
    KC_ASSERT((size_t)(o.p - p) == len);
    *ret = p;
    *ret_len = len;
    return 0;
}

/* ---- decoding ---- */

static int get_marks(struct ks_in *i, struct ks_seg *s, uint32_t n)
{
    s->marks = n ? kc_try_alloc(n * sizeof(*s->marks)) : NULL;
    if (n && !s->marks) {
        return -ENOMEM;
    }
    s->marks_room = s->n_marks = n;
    struct ks_mark last = {.offset = s->base, .pos = 0};
    for (uint32_t m = 0; m < n; m++) {
        struct ks_mark *k = &s->marks[m];
        k->offset = (int64_t)ks_in_u64(i);
        k->pos = ks_in_u64(i);
        k->max_ts = (int64_t)ks_in_u64(i);
        if (k->offset <= last.offset || k->pos <= last.pos || k->offset >= s->end ||
            k->pos >= s->len || k->max_ts > s->max_ts) {
            return KC_E_CORRUPT;
        }
        last = *k;
    }
    return 0;
}

static int get_files(struct ks_in *i, struct ks_hint *h, uint32_t n)
{
    h->files = n ? kc_try_alloc(n * sizeof(*h->files)) : NULL;
    if (n && !h->files) {
        return -ENOMEM;
    }
    h->n_files = n;
    for (uint32_t f = 0; f < n; f++) {
        struct ks_file_id id = ks_in_file(i);
        uint64_t len = ks_in_u64(i);
        int64_t max_ts = (int64_t)ks_in_u64(i);
        h->files[f] = (struct ks_hint_file){
            .id = id, .len = len, .max_ts = max_ts, .max_ts_base = (int64_t)ks_in_u64(i)};
    }
    return 0;
}

static int get_prods(struct ks_in *i, struct ks_hint *h, uint32_t n)
{
    int rc = n ? ks_prods_reserve(&h->prods, n, INT64_MAX) : 0;
    for (uint32_t k = 0; !rc && k < n; k++) {
        struct ks_prod_entry e = {.producer_id = (int64_t)ks_in_u64(i)};
        e.last_ts = (int64_t)ks_in_u64(i);
        e.txn_first = (int64_t)ks_in_u64(i);
        uint32_t v = ks_in_u32(i);
        e.epoch = (int16_t)(v >> 16);
        e.n = (uint8_t)v;
        for (int b = 0; b < KS_PROD_WINDOW; b++) {
            e.batches[b].first_seq = (int32_t)ks_in_u32(i);
            e.batches[b].last_seq = (int32_t)ks_in_u32(i);
            e.batches[b].last_offset = (int64_t)ks_in_u64(i);
            e.batches[b].max_ts = (int64_t)ks_in_u64(i);
        }
        if ((v & 0xffff) > KS_PROD_WINDOW || e.producer_id < 0 || e.txn_first < -1 ||
            e.txn_first >= h->seg.end) {
            return KC_E_CORRUPT;
        }
        rc = ks_prods_put(&h->prods, &e);
    }
    return rc;
}

static int get_aborts(struct ks_in *i, struct ks_hint *h, uint32_t n)
{
    int rc = ks_aborts_reserve(&h->aborts, n);
    for (uint32_t k = 0; !rc && k < n; k++) {
        struct ks_abort a = {.producer_id = (int64_t)ks_in_u64(i)};
        a.first = (int64_t)ks_in_u64(i);
        a.last = (int64_t)ks_in_u64(i);
        a.stable = (int64_t)ks_in_u64(i);
        if (a.first > a.last || a.last >= h->seg.end || (k && a.last <= h->aborts.v[k - 1].last)) {
            return KC_E_CORRUPT;
        }
        h->aborts.v[h->aborts.n++] = a;
    }
    return rc;
}

static bool head_ok(const struct ks_hint *h)
{
    const struct ks_seg *s = &h->seg;
    return s->base >= 0 && s->end >= s->base && (s->len > 0) == (s->end > s->base) &&
           (s->len == 0 || s->last_pos < s->len) && s->gap >= KS_MARK_GAP && s->epoch >= 0;
}

int ks_hint_decode(const uint8_t *p, size_t len, struct ks_hint *ret)
{
    if (len < HEAD + TAIL || len > KS_HINT_MAX ||
        kc_crc32c(0, p, len - TAIL) != ks_get32(p + len - TAIL)) {
        return KC_E_CORRUPT;
    }
    struct ks_in i = {.p = p, .end = p + len - TAIL};
    struct ks_hint h = {0};
    ks_prods_init(&h.prods);
    bool magic = ks_in_u32(&i) == MAGIC;
    uint32_t type = ks_in_u32(&i);
    h.snap = type == TYPE_SNAP;
    ks_in_uuid(&i, &h.topic);
    h.partition = (int32_t)ks_in_u32(&i);
    ks_in_uuid(&i, &h.writer);
    h.file = ks_in_file(&i);
    struct ks_seg *s = &h.seg;
    s->epoch = (int32_t)ks_in_u32(&i);
    s->base = (int64_t)ks_in_u64(&i);
    s->end = (int64_t)ks_in_u64(&i);
    s->len = ks_in_u64(&i);
    s->last_pos = ks_in_u64(&i);
    s->last_crc = ks_in_u32(&i);
    s->max_ts = (int64_t)ks_in_u64(&i);
    s->max_ts_base = (int64_t)ks_in_u64(&i);
    s->gap = ks_in_u64(&i);
    s->damaged_from = INT64_MAX;
    s->indexed = s->ts_known = true;
    uint32_t n_marks = ks_in_u32(&i), n_files = ks_in_u32(&i), n_prods = ks_in_u32(&i),
             n_aborts = ks_in_u32(&i);
    uint64_t want = HEAD + (uint64_t)n_marks * MARK_LEN + (uint64_t)n_files * FILE_LEN +
                    (uint64_t)n_prods * PROD_LEN + (uint64_t)n_aborts * ABORT_LEN + TAIL;
    if (!magic || (type != TYPE_SNAP && type != TYPE_IDX) || want != len || !head_ok(&h) ||
        n_marks > KS_MARKS_MAX || n_prods > KS_PROD_MAX) {
        return KC_E_CORRUPT;
    }
    int rc = get_marks(&i, s, n_marks);
    rc = rc ? rc : get_files(&i, &h, n_files);
    rc = rc ? rc : get_prods(&i, &h, n_prods);
    rc = rc ? rc : get_aborts(&i, &h, n_aborts);
    KC_ASSERT(rc || (!i.bad && i.p == i.end)); /* the counts add up to the length */
    if (rc) {
        ks_hint_fini(&h);
        return rc;
    }
    *ret = h;
    return 0;
}

void ks_hint_fini(struct ks_hint *h)
{
    kc_free(h->seg.marks);
    kc_free(h->files);
    ks_prods_fini(&h->prods);
    ks_aborts_fini(&h->aborts);
    *h = (struct ks_hint){0};
}

/* ---- names ---- */

void ks_idx_name(struct ks_file_id id, char out[KS_HINT_NAME])
{
    snprintf(out, KS_HINT_NAME, "%08x-%u.idx", id.inc8, id.seq);
}

void ks_snap_name(const struct ks_snap_name *n, char out[KS_HINT_NAME])
{
    snprintf(out, KS_HINT_NAME, "%08x-%u.%lld.snap", n->file.inc8, n->file.seq,
             (long long)n->offset);
}

bool ks_snap_name_parse(const char *name, struct ks_snap_name *ret)
{
    char again[KS_HINT_NAME];
    unsigned inc8, seq;
    long long offset;
    if (strlen(name) >= sizeof(again) ||
        sscanf(name, "%8x-%10u.%19lld.snap", &inc8, &seq, &offset) != 3) {
        return false;
    }
    *ret = (struct ks_snap_name){.file = {.inc8 = inc8, .seq = seq}, .offset = offset};
    ks_snap_name(ret, again);
    return offset >= 0 && strcmp(again, name) == 0;
}

bool ks_hint_name_parse(const char *name, struct ks_file_id *ret)
{
    struct ks_snap_name n;
    if (ks_snap_name_parse(name, &n)) {
        *ret = n.file;
        return true;
    }
    char again[KS_HINT_NAME];
    unsigned inc8, seq;
    if (strlen(name) >= sizeof(again) || sscanf(name, "%8x-%10u.idx", &inc8, &seq) != 2) {
        return false;
    }
    *ret = (struct ks_file_id){.inc8 = inc8, .seq = seq};
    ks_idx_name(*ret, again);
    return strcmp(again, name) == 0;
}

void ks_snaps_add(struct ks_snaps *s, const struct ks_snap_name *n)
{
    uint32_t at = 0;
    while (at < s->n && s->v[at].offset >= n->offset) {
        if (s->v[at].offset == n->offset && ks_file_eq(s->v[at].file, n->file)) {
            return;
        }
        at++;
    }
    if (at == KS_SNAPS_MAX) {
        return;
    }
    s->n = KC_MIN(s->n + 1, (uint32_t)KS_SNAPS_MAX);
    memmove(&s->v[at + 1], &s->v[at], (s->n - 1 - at) * sizeof(s->v[0]));
    s->v[at] = *n;
}
