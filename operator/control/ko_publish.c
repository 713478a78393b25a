/* ko_publish.c - batches of decisions for the publisher: one under way at a time, then a rest, so that
 * a burst of changes becomes few writes. The rest grows with what a publication takes: whatever the
 * store and the size of the image, most of the time is left to others. A planned move does not wait for
 * it, its phases go over the streams. */
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "control/ko_pub.h"

static struct ko_batch *new_batch(const char *key)
{
    struct ko_batch *b = kc_zalloc(sizeof(*b));
    kc_arena_init(&b->arena, 64 * 1024, 0);
    memcpy(b->key, key, KC_MIN(strlen(key) + 1, sizeof(b->key)));
    return b;
}

void ko_batch_free(void *p)
{
    struct ko_batch *b = p;
    if (b) {
        kc_arena_fini(&b->arena);
        kc_free(b);
    }
}

static bool add_topic(struct ko_cc *cc, struct ko_batch *b, const struct ko_ct *ct, int32_t shard)
{
    struct ki_topic t = ko_ct_view(ct);
    t.parts = kp_ctl_parts(cc->ctl, &ct->id, &t.n_parts);
    t.fresh = kp_ctl_topic_fresh(cc->ctl, &ct->id);
    return ki_topic_copy(&b->arena, &t, &b->topics[shard][b->n_topics[shard]++]);
}

/* Deep copies of the topics of every dirty shard. */
static bool add_shards(struct ko_cc *cc, struct ko_batch *b)
{
    int32_t count[KP_SHARDS] = {0};
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->topics.by_id, &it));) {
        const struct ko_ct *ct = e->value;
        count[kp_shard_of(&ct->id)]++;
    }
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        if (!(b->shards & 1u << s)) {
            continue;
        }
        b->topics[s] = kc_arena_zalloc(&b->arena, (size_t)count[s] + 1, sizeof(*b->topics[s]));
        if (!b->topics[s]) {
            return false;
        }
    }
    it = (struct kc_map_iter){0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->topics.by_id, &it));) {
        const struct ko_ct *ct = e->value;
        int32_t s = kp_shard_of(&ct->id);
        if (b->shards & 1u << s && !add_topic(cc, b, ct, s)) {
            return false;
        }
    }
    return true;
}

static bool add_root(struct ko_cc *cc, struct ko_batch *b)
{
    struct ki_image *p = &b->proto;
    const struct kp_row *rows;
    p->order = cc->order;
    p->order.generation = cc->started + 1;
    memcpy(p->cluster_id, cc->cluster_id, sizeof(p->cluster_id));
    p->n_rows = kp_ctl_rows(cc->ctl, &rows);
    struct kp_row *copy = kc_arena_zalloc(&b->arena, (size_t)p->n_rows + 1, sizeof(*copy));
    if (!copy) {
        return false;
    }
    memcpy(copy, rows, (size_t)p->n_rows * sizeof(*copy));
    p->rows = copy;
    memcpy(p->group_homes, kp_ctl_homes(cc->ctl, KP_GROUP_SLOTS), sizeof(p->group_homes));
    memcpy(p->txn_homes, kp_ctl_homes(cc->ctl, KP_TXN_SLOTS), sizeof(p->txn_homes));
    p->n_configs = cc->spec.n_configs;
    return ki_configs_copy(&b->arena, cc->spec.configs, cc->spec.n_configs, &p->configs);
}

void ko_publish_soon(struct ko_cc *cc, int64_t now_ms)
{
    bool due = ko_cc_decides(cc) && (cc->dirty_root || cc->dirty_shards) && !cc->publishing;
    if (!due || !cc->c->keeper.leader) {
        return;
    }
    if (now_ms < cc->batch_ms) {
        cc->next_ms = KC_MIN(cc->next_ms, cc->batch_ms);
        return;
    }
    if (cc->confirm_ms >= 0 && cc->c->keeper.lease.renewed_ms < cc->confirm_ms) {
        return; /* many brokers fell silent at once: first be sure that we still lead */
    }
    cc->confirm_ms = -1;
    struct ko_batch *b = new_batch(cc->key);
    b->shards = cc->dirty_shards;
    if (!add_root(cc, b) || !add_shards(cc, b)) {
        kc_log(KC_ERROR, "control", "event=publish_no_memory cluster=%s", cc->key);
        ko_batch_free(b);
        cc->batch_ms = now_ms + 1000;
        return;
    }
    cc->dirty_shards = 0;
    cc->dirty_root = false;
    cc->publishing = true;
    cc->begun_ms = now_ms;
    cc->started++;
    ko_to_api(cc->c, ko_pub_batch, b, ko_batch_free);
}

static int64_t rest_ms(int64_t took_ms)
{
    return KC_MIN(KC_MAX(took_ms * KO_BATCH_REST, (int64_t)KO_BATCH_MS), (int64_t)KO_BATCH_MAX_MS);
}

void ko_cc_published(struct ko_control *c, void *arg)
{
    struct ko_published *p = arg;
    struct ko_cc *cc = ko_cc_find(c, p->key);
    bool ours = cc && ko_cc_held(cc) && cc->publishing && p->order.term == cc->order.term &&
                p->order.generation == cc->started;
    if (ours && p->deposed) {
        kc_log(KC_WARN, "control", "event=deposed cluster=%s", cc->key);
        ko_cc_unlead(cc);
        if (c->keeper.leader) {
            ko_cc_lead(cc); /* whoever wrote the root does not hold the Lease: take it again */
        }
    } else if (ours) {
        int64_t now = ko_now(c);
        cc->publishing = false;
        cc->order = p->order;
        cc->batch_ms = now + rest_ms(now - cc->begun_ms);
        kp_ctl_published(cc->ctl, cc->order.generation);
        cc->view_due = true;
        ko_admin_published(cc);
        ko_answer_all(cc);
        ko_publish_soon(cc, now);
        ko_step_soon(c);
    }
    kc_free(p);
}

void ko_cc_mend(struct ko_control *c, void *arg)
{
    struct ko_mend *m = arg;
    struct ko_cc *cc = ko_cc_find(c, m->key);
    if (cc && ko_cc_held(cc)) {
        cc->dirty_shards |= m->shards;
        cc->dirty_root = true;
        ko_publish_soon(cc, ko_now(c));
    }
    kc_free(m);
}
