/* ko_pub_load.c - taking over the standing image (design.md, 4): read all documents, take the root
 * with the next term and the same hashes, adopt whole shards that are newer than the root, make what
 * is missing. Nothing is decided here: what was read goes to the control loop as one image. */
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_pub_int.h"
#include "store/ko_object.h"

static bool lost(struct ko_pub *p)
{
    return !atomic_load(&p->c->may_publish);
}

static struct ki_shard *empty_shard(int32_t s)
{
    struct ki_shard *shard = ki_shard_build(s, 0, 0, NULL, 0);
    KC_ASSERT(shard);
    return shard;
}

static struct ki_image *empty_root(void)
{
    struct ki_image proto = {0};
    struct ki_shard *shards[KP_SHARDS];
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        shards[s] = empty_shard(s);
    }
    for (int32_t s = 0; s < KP_SLOTS; s++) {
        proto.group_homes[s] = proto.txn_homes[s] = KP_NO_BROKER;
    }
    struct ki_image *im = ki_image_build(&proto, shards);
    KC_ASSERT(im);
    return im;
}

static struct ki_image *decode_root(struct ko_pub *p)
{
    json_t *payload = NULL;
    struct ki_image *im = NULL;
    struct kc_err err = {0};
    if (!p->docs[KO_ROOT]) {
        return empty_root();
    }
    if (ki_configmap_parse(p->docs[KO_ROOT], &payload, &err) == 0) {
        ki_root_decode(payload, &im, &err);
    }
    json_decref(payload);
    if (!im) {
        /* Rebuilt from the shards and from what brokers report; the volume holds the truth. */
        struct kc_log_buf lb;
        kc_log(KC_ERROR, "publisher", "event=root_unreadable cluster=%s error=%s", p->key,
               kc_log_str(kc_str_of(err.msg), &lb));
        return empty_root();
    }
    return im;
}

static struct ki_shard *decode_shard(struct ko_pub *p, int32_t s, const char *hash)
{
    json_t *payload = NULL;
    struct ki_shard *shard = NULL;
    if (p->docs[s] && ki_configmap_parse(p->docs[s], &payload, NULL) == 0 &&
        ki_shard_decode(payload, hash, &shard, NULL)) {
        shard = NULL;
    }
    json_decref(payload);
    return shard;
}

/* What the root names, and what the document has now if a predecessor wrote it after that root. */
static void assemble_shard(struct ko_pub *p, int32_t s)
{
    const char *hash = p->proto->hashes[s];
    struct ki_shard *named = hash[0] ? decode_shard(p, s, hash) : NULL;
    struct ki_shard *now = decode_shard(p, s, "");
    if (now && (now->index != s || (named && strcmp(now->hash, named->hash) == 0))) {
        ki_shard_unref(now);
        now = NULL;
    }
    const struct kp_order *root = &p->proto->order;
    bool newer = now && (now->term > root->term ||
                         (now->term == root->term && now->generation > root->generation));
    if (!named && !now && p->docs[KO_ROOT]) {
        struct ki_shard *none = empty_shard(s);
        if (strcmp(none->hash, hash) != 0) {
            kc_log(KC_ERROR, "publisher", "event=shard_lost cluster=%s shard=%d", p->key, (int)s);
            p->lost = true;
        }
        ki_shard_unref(none);
    }
    /* An unnamed shard is adopted when the root cannot be had otherwise, or was lost itself. */
    bool adopt = now && (newer || !named);
    ko_pub_set(&p->named[s], named ? named : empty_shard(s));
    ko_pub_set(&p->next[s], adopt ? ki_shard_ref(now) : ki_shard_ref(p->named[s]));
    bool foreign = p->docs[s] && !ko_pub_ours(p, p->docs[s]);
    p->unwritten |= adopt || foreign ? 1u << s : 0;
    ki_shard_unref(now);
}

static void deliver(struct ko_pub *p)
{
    struct ko_loaded *out = kc_zalloc(sizeof(*out));
    memcpy(out->key, p->key, sizeof(out->key));
    out->ticket = p->ticket;
    out->unwritten = p->unwritten;
    out->lost = p->lost;
    out->image = ko_pub_image(p);
    KC_ASSERT(out->image);
    const char *uid = ko_uid(p->docs[KO_ROOT]);
    memcpy(out->image->order.uid, uid, KC_MIN(strlen(uid) + 1, sizeof(out->image->order.uid) - 1));
    ki_image_unref(p->proto);
    p->proto = NULL;
    p->backoff_ms = 0;
    ko_pub_slim(p);
    ko_pub_check_start(p);
    ko_to_control(p->c, ko_cc_loaded, out);
}

static void on_root_taken(void *ctx, const struct ko_result *r)
{
    int32_t index;
    struct ko_pub *p = ko_pub_answer(ctx, &index);
    if (!p || lost(p)) {
        return;
    }
    if (r->code != 200 && r->code != 201) {
        kc_log(KC_WARN, "publisher", "event=root_not_taken cluster=%s code=%d", p->key, r->code);
        ko_pub_later(p, ko_pub_load_begin); /* read everything again */
        return;
    }
    ko_pub_keep(p, KO_ROOT, r->doc, true);
    deliver(p);
}

/* The root with our term and the hashes it had: from here on a predecessor's write of it fails. */
static void take_root(struct ko_pub *p)
{
    p->proto->order.term++;
    struct ki_shard *refs[KP_SHARDS];
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        refs[s] = ki_shard_ref(p->named[s]);
    }
    struct ki_image *im = ki_image_build(p->proto, refs);
    KC_ASSERT(im);
    ko_pub_put(p, KO_ROOT, ki_root_encode(im), on_root_taken);
    ki_image_unref(im);
}

static void on_shard_made(void *ctx, const struct ko_result *r)
{
    int32_t s;
    struct ko_pub *p = ko_pub_answer(ctx, &s);
    if (!p || lost(p)) {
        return;
    }
    if (r->code == 201 || r->code == 200) {
        ko_pub_keep(p, s, r->doc, true);
    } else {
        p->trouble = true;
    }
    if (p->waiting == 0 && p->trouble) {
        ko_pub_later(p, ko_pub_load_begin);
    } else if (p->waiting == 0) {
        take_root(p);
    }
}

/* All documents have been read. Shards that are missing are made before the root. */
static void assemble(struct ko_pub *p)
{
    p->proto = decode_root(p);
    p->unwritten = 0;
    p->lost = false;
    ko_pub_attempt(p);
    p->waiting++;
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        assemble_shard(p, s);
        if (!p->docs[s]) {
            ko_pub_put(p, s, ki_shard_encode(p->next[s], NULL), on_shard_made);
        }
    }
    p->waiting--;
    if (p->waiting == 0) {
        take_root(p);
    }
}

static void on_read(void *ctx, const struct ko_result *r)
{
    int32_t index;
    struct ko_pub *p = ko_pub_answer(ctx, &index);
    if (!p || lost(p)) {
        return;
    }
    if (r->code == 200 || r->code == 404) {
        ko_pub_keep(p, index, r->code == 200 ? r->doc : NULL, true);
    } else {
        kc_log(KC_WARN, "publisher", "event=image_not_read cluster=%s code=%d", p->key, r->code);
        p->trouble = true;
    }
    if (p->waiting == 0 && p->trouble) {
        ko_pub_later(p, ko_pub_load_begin);
    } else if (p->waiting == 0) {
        assemble(p);
    }
}

void ko_pub_load_begin(struct ko_pub *p)
{
    if (lost(p)) {
        return; /* the control loop drops us */
    }
    ki_image_unref(p->proto);
    p->proto = NULL;
    ko_pub_attempt(p);
    p->waiting++;
    for (int32_t i = 0; i < KO_DOCS; i++) {
        ko_pub_get(p, i, on_read);
    }
    p->waiting--;
}
