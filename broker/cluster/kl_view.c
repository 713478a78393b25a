#include "cluster/kl_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "hb/hb_convert.h"

void kl_view_fini(struct kl_view *v)
{
    ki_image_unref(v->document);
    ki_image_unref(v->merged);
    *v = (struct kl_view){.n_pushed = 0};
}

/* An image with the shards of `of` and everything else of `proto`. */
static struct ki_image *with(const struct ki_image *proto, const struct ki_image *of)
{
    struct ki_shard *shards[KP_SHARDS];
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        shards[i] = ki_shard_ref(of->shards[i]);
    }
    return ki_image_build(proto, shards);
}

static int by_id(const void *a, const void *b)
{
    return ((const struct kp_row *)a)->id - ((const struct kp_row *)b)->id;
}

static void merge(struct kl_view *v)
{
    ki_image_unref(v->merged);
    v->merged = NULL;
    if (!v->document) {
        return;
    }
    struct kp_row *rows =
        v->n_pushed || v->n_leads
            ? kc_try_zalloc((size_t)v->document->n_rows + (size_t)v->n_pushed + 1, sizeof(*rows))
            : NULL;
    if (!rows) { /* nothing pushed; or no memory: the document alone is true, only older */
        v->merged = ki_image_ref(v->document);
        return;
    }
    int32_t n = v->document->n_rows;
    if (n) {
        memcpy(rows, v->document->rows, (size_t)n * sizeof(*rows));
    }
    for (int32_t i = 0; i < v->n_pushed; i++) {
        const struct kl_pushed *p = &v->pushed[i];
        int32_t at = 0;
        while (at < n && rows[at].id != p->broker) {
            at++;
        }
        if (!p->gone && (at < n || n < KP_BROKERS_MAX)) {
            rows[at] = p->row;
            n = KC_MAX(n, at + 1);
        } else if (p->gone && at < n) {
            rows[at] = rows[--n];
        }
    }
    qsort(rows, (size_t)n, sizeof(*rows), by_id);
    struct ki_image proto = *v->document;
    proto.rows = rows;
    proto.n_rows = n;
    proto.leads = v->leads;
    proto.n_leads = v->n_leads;
    v->merged = with(&proto, v->document);
    kc_free(rows);
    if (!v->merged) {
        v->merged = ki_image_ref(v->document);
    }
}

/* The same to everyone who acts on rows. */
static bool agrees(const struct kl_pushed *p, const struct kp_row *row)
{
    if (p->gone || !row) {
        return p->gone && !row;
    }
    return row->health == p->row.health && row->state == p->row.state &&
           row->condemned == p->row.condemned && kc_uuid_eq(&row->incarnation, &p->row.incarnation);
}

/* A row is pushed with the newest order published so far; the next document may have been written
 * already without it, the one after that was not. */
static bool outlived(const struct kl_view *v, const struct kl_pushed *p)
{
    const struct kp_order *now = &v->document->order;
    if (strcmp(p->order.uid, now->uid) != 0 || now->term != p->order.term) {
        return strcmp(p->order.uid, now->uid) != 0 || now->term > p->order.term;
    }
    return now->generation >= p->order.generation + 2 ||
           (now->generation >= p->order.generation && agrees(p, ki_row(v->document, p->broker)));
}

static void expire_pushed(struct kl_view *v)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < v->n_pushed; i++) {
        if (!outlived(v, &v->pushed[i])) {
            v->pushed[kept++] = v->pushed[i];
        }
    }
    v->n_pushed = kept;
}

static bool newer_lead(const struct kl_view *v, const struct kp_lead *l)
{
    const struct kp_part *p = ki_part(v->document, &l->p.topic_id, l->p.partition);
    return p && l->epoch > p->led_epoch;
}

static void expire_leads(struct kl_view *v)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < v->n_leads; i++) {
        if (newer_lead(v, &v->leads[i])) {
            v->leads[kept++] = v->leads[i];
        }
    }
    v->n_leads = kept;
}

bool kl_view_document(struct kl_view *v, struct ki_image *im, bool fresh)
{
    if (v->document) {
        const struct kp_order *old = &v->document->order, *new = &im->order;
        bool same_uid = strcmp(old->uid, new->uid) == 0;
        if (new->uid[0] == '\0' || (same_uid && kp_order_cmp(new, old) <= 0)) {
            bool confirms = fresh && !v->fresh && same_uid && kp_order_cmp(new, old) == 0;
            v->fresh |= confirms;
            ki_image_unref(im);
            return confirms;
        }
    }
    if (v->document && strcmp(v->document->order.uid, im->order.uid) != 0) {
        v->n_leads = 0; /* another cluster's epochs */
    }
    ki_image_unref(v->document);
    v->document = im;
    v->fresh = fresh;
    v->answered = false;
    expire_pushed(v);
    expire_leads(v);
    merge(v);
    return true;
}

bool kl_view_current_term(const struct kl_view *v, uint64_t term)
{
    return term >= v->term;
}

void kl_view_begin(struct kl_view *v)
{
    v->due_unknown = true;
}

bool kl_view_caught_up(const struct kl_view *v)
{
    if (!v->document || v->due_unknown) {
        return false;
    }
    const char *uid = v->document->order.uid; /* "": a mounted copy, which does not know it */
    return (!*uid || strcmp(uid, v->due.uid) == 0) &&
           kp_order_cmp(&v->document->order, &v->due) >= 0;
}

/* True: the document is known to be new enough, now. */
static bool learn_due(struct kl_view *v, const struct kp_order *order)
{
    bool another = v->due.uid[0] && strcmp(v->due.uid, order->uid) != 0;
    if (!order->uid[0] || !(v->due_unknown || another)) {
        return false;
    }
    v->due = *order;
    v->due_unknown = false;
    return kl_view_caught_up(v);
}

static bool confirm(struct kl_view *v, const struct kp_order *order)
{
    v->term = KC_MAX(v->term, order->term);
    if (!v->document || v->answered || order->uid[0] == '\0' ||
        kp_order_cmp(&v->document->order, order) != 0) {
        return false;
    }
    if (v->document->order.uid[0] == '\0') { /* a mounted copy does not know its uid */
        struct ki_image proto = *v->document;
        memcpy(proto.order.uid, order->uid, sizeof(proto.order.uid));
        struct ki_image *named = with(&proto, v->document);
        if (!named) {
            return false;
        }
        ki_image_unref(v->document);
        v->document = named;
        merge(v);
    }
    v->answered = strcmp(v->document->order.uid, order->uid) == 0;
    return v->answered;
}

bool kl_view_answer(struct kl_view *v, const struct kp_order *order)
{
    bool caught_up = learn_due(v, order);
    return confirm(v, order) || caught_up;
}

static struct kl_pushed *pushed_of(struct kl_view *v, int32_t broker)
{
    for (int32_t i = 0; i < v->n_pushed; i++) {
        if (v->pushed[i].broker == broker) {
            return &v->pushed[i];
        }
    }
    return v->n_pushed < KP_BROKERS_MAX ? &v->pushed[v->n_pushed++] : NULL;
}

/* What row r makes of what we see now; false: nothing new. */
static bool push_row(struct kl_view *v, const Kaas__Heartbeat__Row *r, const struct kp_order *order)
{
    const struct kp_row *seen = v->merged ? ki_row(v->merged, r->id) : NULL;
    struct kp_row row = {.id = r->id}, before = {.id = -1};
    if (seen) {
        row = before = *seen;
    }
    if (hb_row_apply(r, &row, NULL) || memcmp(&row, &before, sizeof(row)) == 0) {
        return false;
    }
    struct kl_pushed *p = pushed_of(v, r->id);
    if (p) {
        *p = (struct kl_pushed){.broker = r->id, .order = *order, .row = row};
    }
    return p != NULL;
}

bool kl_view_push(struct kl_view *v, const Kaas__Heartbeat__StatusAnswer *a,
                  const struct kp_order *order)
{
    bool changed = false;
    for (size_t i = 0; i < a->n_rows; i++) {
        changed |= push_row(v, a->rows[i], order);
    }
    for (size_t i = 0; i < a->n_gone; i++) {
        struct kl_pushed *p =
            v->merged && ki_row(v->merged, a->gone[i]) ? pushed_of(v, a->gone[i]) : NULL;
        if (p) {
            *p = (struct kl_pushed){.broker = a->gone[i], .gone = true, .order = *order};
            changed = true;
        }
    }
    if (changed) {
        merge(v);
    }
    return changed && v->document;
}

/* True: it says something new. */
static bool take_lead(struct kl_view *v, const struct kp_lead *l)
{
    int32_t lo = 0, hi = v->n_leads;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (ki_pid_cmp(&v->leads[mid].p, &l->p) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    bool there = lo < v->n_leads && ki_pid_cmp(&v->leads[lo].p, &l->p) == 0;
    if (there ? v->leads[lo].epoch >= l->epoch : v->n_leads == KL_LEADS_MAX) {
        return false;
    }
    if (!there) {
        memmove(&v->leads[lo + 1], &v->leads[lo], (size_t)(v->n_leads - lo) * sizeof(v->leads[0]));
        v->n_leads++;
    }
    v->leads[lo] = *l;
    return true;
}

bool kl_view_leads(struct kl_view *v, const Kaas__Heartbeat__StatusAnswer *a,
                   const struct kp_order *order)
{
    bool changed = false;
    if (!v->document || strcmp(v->document->order.uid, order->uid) != 0) {
        return false;
    }
    for (size_t i = 0; i < a->n_leads; i++) {
        struct kp_lead l = hb_lead(a->leads[i]);
        changed |= newer_lead(v, &l) && take_lead(v, &l);
    }
    if (changed) {
        merge(v);
    }
    return changed;
}

bool kl_view_confirmed(const struct kl_view *v)
{
    return v->document && (v->fresh || v->answered);
}
