/* 9 OffsetFetch: what groups have committed.
 *
 * v2 a null list means everything, and errors of the group stand on top (v1: at each partition). v5
 * leader epochs. v7 RequireStable: would answer 88 while a transaction's offsets are pending; there
 * are none as long as there are no transactions. v8 many groups. v9 member and epoch, which mean
 * nothing to classic groups. v10 topic ids. Nothing committed is offset -1 without an error. */
#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_group.h"
#include "handlers/kb_view.h"
#include "wire/kw_offset_fetch.h"

/* One group's question and answer, whatever the version: v1-7 are asked as v8 with one group. */
struct fetch {
    int32_t at; /* group under way */
    int32_t n;
    const struct kw_offset_fetch_request_group *groups;
    struct kw_offset_fetch_response_group *answers;
};

/* ---- one group ---- */

typedef struct kw_offset_fetch_response_partitions answer_part;

static bool fill_part(struct kb_req *req, const struct ki_topic *topic, const struct kg_offset *o,
                      int32_t partition, answer_part *out)
{
    *out = (answer_part){partition, -1, -1, {"", 0}, 0};
    if (!o || !o->visible) {
        return true;
    }
    /* A commit to an earlier topic of the same name says nothing about this one. */
    if (topic && !kc_uuid_is_zero(&o->v.topic_id) && !kc_uuid_eq(&topic->id, &o->v.topic_id)) {
        return true;
    }
    out->committed_offset = o->v.offset;
    out->committed_leader_epoch = o->v.leader_epoch;
    return kb_copy_str(req, kb_or_empty(o->v.metadata), &out->metadata);
}

static bool fill_asked(struct kb_req *req, const struct kg_offsets *offsets,
                       const struct kw_offset_fetch_request_topics *asked,
                       struct kw_offset_fetch_response_topics *out)
{
    int16_t error = 0;
    const struct ki_topic *topic = kb_topic(req, asked->name, &asked->topic_id, &error);
    struct kc_str name = topic ? kc_str_of(topic->name) : asked->name;
    out->name = asked->name;
    out->topic_id = asked->topic_id;
    out->partitions = kb_alloc(req, (size_t)asked->n_partition_indexes, sizeof(*out->partitions));
    if (!out->partitions) {
        return false;
    }
    out->n_partitions = asked->n_partition_indexes;
    for (int32_t i = 0; i < asked->n_partition_indexes; i++) {
        int32_t p = asked->partition_indexes[i];
        const struct kg_offset *o = offsets ? kg_offset_find(offsets, name, p) : NULL;
        if (!fill_part(req, topic, o, p, &out->partitions[i])) {
            return false;
        }
        if (req->version >= 10 && !topic) {
            out->partitions[i].error_code = error;
        }
    }
    return true;
}

static bool fill_stored(struct kb_req *req, const struct ki_topic *topic, const struct kg_topic *t,
                        struct kw_offset_fetch_response_topics *out)
{
    if (topic) {
        out->topic_id = topic->id;
    }
    out->partitions = kb_alloc(req, (size_t)t->n, sizeof(*out->partitions));
    if (!out->partitions || !kb_copy_str(req, t->name, &out->name)) {
        return false;
    }
    for (int32_t i = 0; i < t->n; i++) {
        answer_part *p = &out->partitions[out->n_partitions];
        if (!fill_part(req, topic, &t->parts[i], t->parts[i].partition, p)) {
            return false;
        }
        out->n_partitions += p->committed_offset >= 0;
    }
    return true;
}

static bool fill_all(struct kb_req *req, const struct kg_offsets *offsets,
                     struct kw_offset_fetch_response_group *out)
{
    if (!offsets) {
        return true;
    }
    out->topics = kb_alloc(req, offsets->topics.len, sizeof(*out->topics));
    if (!out->topics) {
        return false;
    }
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&offsets->topics, &it));) {
        const struct kg_topic *t = e->value;
        const struct ki_topic *topic = ki_topic_by_name(req->image, t->name);
        struct kw_offset_fetch_response_topics *slot = &out->topics[out->n_topics];
        if (req->version >= 10 && !topic) {
            continue; /* it cannot be named any more */
        }
        if (!fill_stored(req, topic, t, slot)) {
            return false;
        }
        out->n_topics += slot->n_partitions > 0;
    }
    return true;
}

static bool fill_group(struct kb_req *req, const struct kw_offset_fetch_request_group *asked,
                       struct kw_offset_fetch_response_group *out)
{
    const struct kg_offsets *offsets;
    out->group_id = asked->group_id;
    out->error_code = kg_request_fetch(kg_shard_here(req->app->groups), asked->group_id, &offsets);
    if (out->error_code) {
        return true;
    }
    if (!asked->topics) {
        return fill_all(req, offsets, out);
    }
    out->topics = kb_alloc(req, (size_t)asked->n_topics, sizeof(*out->topics));
    if (!out->topics) {
        return false;
    }
    out->n_topics = asked->n_topics;
    for (int32_t i = 0; i < asked->n_topics; i++) {
        if (!fill_asked(req, offsets, &asked->topics[i], &out->topics[i])) {
            return false;
        }
    }
    return true;
}

/* ---- answers ---- */

/* v1 has no place for an error of the group but the partitions that were asked for. */
static bool spread_error(struct kb_req *req, const struct kw_offset_fetch_request_group *asked,
                         struct kw_offset_fetch_response_group *g)
{
    int16_t error = g->error_code;
    g->topics = kb_alloc(req, (size_t)asked->n_topics, sizeof(*g->topics));
    if (!g->topics) {
        return false;
    }
    g->n_topics = asked->n_topics;
    for (int32_t i = 0; i < asked->n_topics; i++) {
        if (!fill_asked(req, NULL, &asked->topics[i], &g->topics[i])) {
            return false;
        }
        for (int32_t p = 0; p < g->topics[i].n_partitions; p++) {
            g->topics[i].partitions[p].error_code = error;
        }
    }
    return true;
}

static void answer_one(struct kb_req *req, struct kw_offset_fetch_response_group *g,
                       const struct kw_offset_fetch_request_group *asked)
{
    struct kw_offset_fetch_response resp;
    kw_offset_fetch_response_init(&resp);
    resp.error_code = req->version >= 2 ? g->error_code : 0;
    if (req->version < 2 && g->error_code && !spread_error(req, asked, g)) {
        return;
    }
    resp.topics = kb_alloc(req, (size_t)g->n_topics, sizeof(*resp.topics));
    if (!resp.topics) {
        return;
    }
    resp.n_topics = g->n_topics;
    for (int32_t i = 0; i < g->n_topics; i++) {
        const struct kw_offset_fetch_response_topics *t = &g->topics[i];
        struct kw_offset_fetch_response_topic *out = &resp.topics[i];
        out->name = t->name;
        out->partitions = kb_alloc(req, (size_t)t->n_partitions, sizeof(*out->partitions));
        if (!out->partitions) {
            return;
        }
        out->n_partitions = t->n_partitions;
        for (int32_t p = 0; p < t->n_partitions; p++) {
            const answer_part *a = &t->partitions[p];
            out->partitions[p] = (struct kw_offset_fetch_response_partition){
                a->partition_index, a->committed_offset, a->committed_leader_epoch, a->metadata,
                a->error_code};
        }
    }
    kb_reply(req, &resp);
}

static void answer(struct kb_req *req, struct fetch *f)
{
    if (req->version < 8) {
        answer_one(req, &f->answers[0], &f->groups[0]);
        return;
    }
    struct kw_offset_fetch_response resp;
    kw_offset_fetch_response_init(&resp);
    resp.groups = f->answers;
    resp.n_groups = f->n;
    kb_reply(req, &resp);
}

/* Group by group, each on its own loop. */
static void run(struct kb_req *req)
{
    struct fetch *f = req->user;
    for (; f->at < f->n; f->at++) {
        if (!kb_group_here(req, f->groups[f->at].group_id, run)) {
            return;
        }
        if (!fill_group(req, &f->groups[f->at], &f->answers[f->at])) {
            return;
        }
    }
    answer(req, f);
}

/* The question of v1-7 in the words of v8. */
static const struct kw_offset_fetch_request_group *
one_group(struct kb_req *req, const struct kw_offset_fetch_request *body)
{
    struct kw_offset_fetch_request_group *g = kb_alloc(req, 1, sizeof(*g));
    if (!g) {
        return NULL;
    }
    g->group_id = body->group_id;
    if (!body->topics && req->version >= 2) {
        return g;
    }
    g->topics = kb_alloc(req, (size_t)body->n_topics, sizeof(*g->topics));
    if (!g->topics) {
        return NULL;
    }
    g->n_topics = body->n_topics;
    for (int32_t i = 0; i < body->n_topics; i++) {
        g->topics[i].name = body->topics[i].name;
        g->topics[i].partition_indexes = body->topics[i].partition_indexes;
        g->topics[i].n_partition_indexes = body->topics[i].n_partition_indexes;
    }
    return g;
}

void kb_handle_offset_fetch(struct kb_req *req)
{
    const struct kw_offset_fetch_request *body = req->body;
    struct fetch *f = kb_alloc(req, 1, sizeof(*f));
    if (!f) {
        return;
    }
    f->n = req->version >= 8 ? body->n_groups : 1;
    f->groups = req->version >= 8 ? body->groups : one_group(req, body);
    if (req->version < 8 && !f->groups) {
        return;
    }
    f->answers = kb_alloc(req, (size_t)f->n, sizeof(*f->answers));
    if (!f->answers) {
        return;
    }
    req->user = f;
    run(req);
}
