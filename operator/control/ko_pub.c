/* ko_pub.c - publishing: changed shards side by side, then the root, each a compare-and-swap. */
#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "control/ko_pub_int.h"
#include "store/ko_object.h"

enum { BACKOFF_MIN_MS = 50, BACKOFF_MAX_MS = 2000 };

struct call {
    struct kc_list link;
    struct ko_pub *p; /* NULL: the publisher is gone */
    uint64_t attempt;
    int32_t index;
};

/* A call of the store about a document, to be its ctx (ko_pub_answer); adds to waiting. */
static void *new_call(struct ko_pub *p, int32_t index)
{
    struct call *x = kc_alloc(sizeof(*x));
    *x = (struct call){.p = p, .attempt = p->attempt, .index = index};
    kc_list_add_tail(&p->calls, &x->link);
    p->waiting++;
    return x;
}

struct ko_pub *ko_pub_answer(void *call, int32_t *ret_index)
{
    struct call *x = call;
    struct ko_pub *p = x->p && x->attempt == x->p->attempt ? x->p : NULL;
    *ret_index = x->index;
    kc_list_del(&x->link);
    kc_free(x);
    if (p) {
        p->waiting--;
    }
    return p;
}

void ko_pub_attempt(struct ko_pub *p)
{
    p->attempt++;
    p->waiting = 0;
    p->trouble = false;
}

static void on_timer(uv_timer_t *t)
{
    struct ko_pub *p = t->data;
    p->again(p);
}

void ko_pub_later(struct ko_pub *p, void (*fn)(struct ko_pub *))
{
    ko_pub_attempt(p);
    p->backoff_ms = KC_MIN(KC_MAX(p->backoff_ms * 2, BACKOFF_MIN_MS), BACKOFF_MAX_MS);
    p->again = fn;
    uv_timer_start(&p->timer, on_timer, (uint64_t)p->backoff_ms, 0);
}

/* ---- documents ---- */

void ko_pub_keep(struct ko_pub *p, int32_t index, json_t *doc, bool whole)
{
    json_t *old = p->docs[index];
    if (!doc || whole) {
        p->docs[index] = json_incref(doc);
    } else { /* what a later write needs; the payload may be large */
        p->docs[index] = json_pack("{s:O}", "metadata", json_object_get(doc, "metadata"));
    }
    json_decref(old);
}

void ko_pub_slim(struct ko_pub *p)
{
    for (int32_t i = 0; i < KO_DOCS; i++) {
        json_t *doc = json_incref(p->docs[i]);
        ko_pub_keep(p, i, doc, false);
        json_decref(doc);
    }
}

bool ko_pub_ours(const struct ko_pub *p, const json_t *doc)
{
    return !p->uid[0] || ko_owned_by(doc, p->uid);
}

void ko_pub_set(struct ki_shard **slot, struct ki_shard *s)
{
    struct ki_shard *old = *slot;
    *slot = s;
    ki_shard_unref(old);
}

static void doc_name(const struct ko_pub *p, int32_t index, char *out, size_t size)
{
    if (index == KO_ROOT) {
        snprintf(out, size, "%s-image", p->name);
    } else {
        snprintf(out, size, "%s-image-%d", p->name, (int)index);
    }
}

static json_t *metadata(const struct ko_pub *p, int32_t index)
{
    char name[KO_CLUSTER_KEY_MAX + 16];
    doc_name(p, index, name, sizeof(name));
    json_t *meta = p->docs[index] ? json_deep_copy(json_object_get(p->docs[index], "metadata"))
                                  : json_pack("{s:s, s:s}", "namespace", p->ns, "name", name);
    json_object_del(meta, "managedFields");
    json_object_set_new(meta, "labels",
                        json_pack("{s:s, s:s, s:s, s:s}", "app.kubernetes.io/name", "kaas",
                                  "app.kubernetes.io/instance", p->name,
                                  "app.kubernetes.io/managed-by", "kaas-operator",
                                  "kaas.dev/cluster", p->name));
    if (p->uid[0]) { /* also over a predecessor's: it must not be collected with that one */
        json_object_set_new(meta, "ownerReferences",
                            json_pack("[{s:s, s:s, s:s, s:s, s:b, s:b}]", "apiVersion",
                                      "kaas.dev/v1alpha1", "kind", "KaasCluster", "name", p->name,
                                      "uid", p->uid, "controller", 1, "blockOwnerDeletion", 0));
    }
    return meta;
}

void ko_pub_get(struct ko_pub *p, int32_t index, ko_done done)
{
    char name[KO_CLUSTER_KEY_MAX + 16];
    struct ko_store *s = p->c->o.store;
    doc_name(p, index, name, sizeof(name));
    s->ops->get(s, KO_CONFIGMAP, p->ns, name, done, new_call(p, index));
}

void ko_pub_put(struct ko_pub *p, int32_t index, json_t *payload, ko_done done)
{
    struct ko_store *s = p->c->o.store;
    json_t *meta = metadata(p, index);
    json_t *data = payload ? ki_configmap_data(payload) : NULL;
    KC_ASSERT(meta && data); /* out of memory: crash-only */
    json_t *doc = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "ConfigMap",
                            "metadata", meta, "data", data);
    if (p->docs[index]) {
        s->ops->update(s, KO_CONFIGMAP, doc, done, new_call(p, index));
    } else {
        s->ops->create(s, KO_CONFIGMAP, doc, done, new_call(p, index));
    }
    json_decref(doc);
    json_decref(payload);
}

struct ki_image *ko_pub_image(const struct ko_pub *p)
{
    struct ki_shard *refs[KP_SHARDS];
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        refs[s] = ki_shard_ref(p->next[s]);
    }
    return ki_image_build(p->proto, refs);
}

/* ---- one publication ---- */

static void write_shards(struct ko_pub *p);
static void write_root(struct ko_pub *p);

static void finish(struct ko_pub *p, bool deposed)
{
    struct ko_published *out = kc_zalloc(sizeof(*out));
    memcpy(out->key, p->key, sizeof(out->key));
    out->order = p->batch->proto.order;
    out->deposed = deposed;
    const char *uid = p->docs[KO_ROOT] ? ko_uid(p->docs[KO_ROOT]) : "";
    size_t n = KC_MIN(strlen(uid), sizeof(out->order.uid) - 1);
    memcpy(out->order.uid, uid, n);
    out->order.uid[n] = '\0';
    for (int32_t s = 0; s < KP_SHARDS && !deposed; s++) {
        ko_pub_set(&p->named[s], ki_shard_ref(p->next[s]));
    }
    ko_batch_free(p->batch);
    p->batch = NULL;
    p->proto = NULL;
    p->backoff_ms = 0;
    ko_to_control(p->c, ko_cc_published, out);
}

/* An operator that lost its Lease publishes nothing more; the control loop drops us presently. */
static bool halted(struct ko_pub *p)
{
    return !atomic_load(&p->c->may_publish) || !p->batch;
}

static void after_shards(struct ko_pub *p)
{
    if (p->waiting > 0) {
        return;
    }
    if (p->todo == 0) {
        write_root(p);
    } else {
        ko_pub_later(p, write_shards);
    }
}

static void on_shard_read(void *ctx, const struct ko_result *r)
{
    int32_t s;
    struct ko_pub *p = ko_pub_answer(ctx, &s);
    if (!p) {
        return;
    }
    if (r->code == 200 || r->code == 404) {
        ko_pub_keep(p, s, r->code == 200 ? r->doc : NULL, false);
    }
    after_shards(p);
}

static void on_shard_written(void *ctx, const struct ko_result *r)
{
    int32_t s;
    struct ko_pub *p = ko_pub_answer(ctx, &s);
    if (!p) {
        return;
    }
    if (r->code == 200 || r->code == 201) {
        ko_pub_keep(p, s, r->doc, false);
        p->todo &= ~(1u << s);
    } else if (r->code == 409 || r->code == 404) {
        /* Changed or removed by another hand, or by a write of ours whose answer was lost. The root
         * is what decides; a shard is simply written over. */
        ko_pub_get(p, s, on_shard_read);
    } else {
        kc_log(KC_WARN, "publisher", "event=shard_write cluster=%s shard=%d code=%d", p->key,
               (int)s, r->code);
    }
    after_shards(p);
}

static void write_shards(struct ko_pub *p)
{
    if (halted(p)) {
        return;
    }
    ko_pub_attempt(p);
    p->waiting++; /* held while sending: an answer must not finish the round early */
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        if (p->todo & 1u << s) {
            ko_pub_put(p, s, ki_shard_encode(p->next[s], p->named[s]), on_shard_written);
        }
    }
    p->waiting--;
    after_shards(p);
}

static void on_root_read(void *ctx, const struct ko_result *r)
{
    int32_t index;
    struct ko_pub *p = ko_pub_answer(ctx, &index);
    if (!p || halted(p)) {
        return;
    }
    if (r->code == 404) {
        ko_pub_keep(p, KO_ROOT, NULL, false);
    }
    if (r->code != 200) {
        ko_pub_later(p, write_root);
        return;
    }
    json_t *payload = NULL;
    struct ki_image *im = NULL;
    ko_pub_keep(p, KO_ROOT, r->doc, false);
    if (ki_configmap_parse(r->doc, &payload, NULL) == 0 &&
        ki_root_decode(payload, &im, NULL) == 0) {
        const struct kp_order *ours = &p->batch->proto.order;
        bool newer = im->order.term > ours->term;
        bool done = kp_order_cmp(&im->order, ours) == 0;
        if (newer || done) {
            finish(p, newer);
            goto out;
        }
    }
    ko_pub_later(p, write_root); /* touched by another hand: ours goes over it */
out:
    ki_image_unref(im);
    json_decref(payload);
}

static void on_root_written(void *ctx, const struct ko_result *r)
{
    int32_t index;
    struct ko_pub *p = ko_pub_answer(ctx, &index);
    if (!p || halted(p)) {
        return;
    }
    if (r->code == 200 || r->code == 201) {
        ko_pub_keep(p, KO_ROOT, r->doc, false);
        finish(p, false);
        return;
    }
    kc_log(KC_WARN, "publisher", "event=root_write cluster=%s code=%d", p->key, r->code);
    ko_pub_attempt(p);
    ko_pub_get(p, KO_ROOT, on_root_read); /* did it take place after all? did another take it? */
}

static void write_root(struct ko_pub *p)
{
    if (halted(p)) {
        return;
    }
    ko_pub_attempt(p);
    struct ki_image *im = ko_pub_image(p);
    KC_ASSERT(im);
    ko_pub_put(p, KO_ROOT, ki_root_encode(im), on_root_written);
    ki_image_unref(im);
}

void ko_pub_batch(struct ko_control *c, void *arg)
{
    struct ko_batch *b = arg;
    struct ko_pub *p = kc_map_get(&c->publishers, b->key, strlen(b->key));
    if (!p || p->batch || !p->named[0]) {
        ko_batch_free(b); /* dropped meanwhile: the control loop has forgotten it, too */
        return;
    }
    p->batch = b;
    p->proto = &b->proto;
    p->todo = 0;
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        if (!(b->shards & 1u << s)) {
            continue;
        }
        struct ki_shard *shard = ki_shard_build(s, b->proto.order.term, b->proto.order.generation,
                                                b->topics[s], b->n_topics[s]);
        KC_ASSERT(shard);
        if (strcmp(shard->hash, p->named[s]->hash) == 0 && !(p->unwritten & 1u << s)) {
            ki_shard_unref(shard); /* as it stands */
            continue;
        }
        ko_pub_set(&p->next[s], shard);
        p->unwritten &= ~(1u << s);
        p->todo |= 1u << s;
    }
    write_shards(p);
}

/* ---- life ---- */

static void on_handle_closed(uv_handle_t *h)
{
    struct ko_pub *p = h->data;
    if (--p->open_handles == 0) {
        kc_free(p);
    }
}

void ko_pub_free(void *arg)
{
    struct ko_pub *p = arg;
    KC_LIST_EACH(it, nx, &p->calls)
    {
        KC_LIST_ENTRY(it, struct call, link)->p = NULL;
        kc_list_del(it);
    }
    for (int32_t i = 0; i < KO_DOCS; i++) {
        json_decref(p->docs[i]);
    }
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        ki_shard_unref(p->named[s]);
        ki_shard_unref(p->next[s]);
    }
    if (!p->batch && p->proto) {
        ki_image_unref(p->proto); /* of a load under way; a batch's own belongs to the batch */
    }
    ko_batch_free(p->batch);
    kc_free(p->uid);
    uv_close((uv_handle_t *)&p->timer, on_handle_closed);
    uv_close((uv_handle_t *)&p->check, on_handle_closed);
}

void ko_pub_drop(struct ko_control *c, void *key)
{
    struct ko_pub *p = kc_map_del(&c->publishers, key, strlen(key));
    if (p) {
        ko_pub_free(p);
    }
    kc_free(key);
}

void ko_load_free(void *arg)
{
    struct ko_load *l = arg;
    kc_free(l->uid);
    kc_free(l);
}

void ko_pub_load(struct ko_control *c, void *arg)
{
    struct ko_load *l = arg;
    ko_pub_drop(c, kc_strdup(l->key));
    const char *slash = strchr(l->key, '/');
    if (slash) {
        struct ko_pub *p = kc_zalloc(sizeof(*p));
        p->c = c;
        p->ticket = l->ticket;
        memcpy(p->key, l->key, sizeof(p->key));
        memcpy(p->ns, l->key, (size_t)(slash - l->key));
        memcpy(p->name, slash + 1, strlen(slash + 1) + 1);
        p->uid = kc_strdup(l->uid);
        kc_list_init(&p->calls);
        uv_timer_init(&c->api->uv, &p->timer);
        uv_timer_init(&c->api->uv, &p->check);
        p->timer.data = p->check.data = p;
        p->open_handles = 2;
        kc_map_put(&c->publishers, p->key, strlen(p->key), p);
        ko_pub_load_begin(p);
    }
    ko_load_free(l);
}
