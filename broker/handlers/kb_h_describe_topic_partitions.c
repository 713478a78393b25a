/* 75 DescribeTopicPartitions v0: topics by name, page by page (KIP-966).
 *
 * No topics named means all. The answer stops at the limit of partitions and says where to go on.
 * Eligible leader replicas do not exist here: a partition lives once. */
#include <stdlib.h>
#include <string.h>

#include "base/kc_str.h"
#include "handlers/kb_api.h"
#include "handlers/kb_context.h"
#include "handlers/kb_view.h"
#include "wire/kw_describe_topic_partitions.h"
#include "wire/kw_errors.h"

enum { LIMIT_MAX = 2000 }; /* max.request.partition.size.limit */

struct entry {
    struct kc_str name;
    const struct ki_topic *topic; /* NULL = unknown */
};

static int by_name(const void *a, const void *b)
{
    return kc_str_cmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int32_t collect_all(struct kb_req *req, struct entry **ret)
{
    const struct ki_image *im = req->image;
    struct entry *list = kb_alloc(req, (size_t)im->n_topics, sizeof(*list));
    int32_t n = 0;
    for (int32_t s = 0; list && s < KP_SHARDS; s++) {
        for (int32_t i = 0; im->shards[s] && i < im->shards[s]->n_topics; i++) {
            const struct ki_topic *t = &im->shards[s]->topics[i];
            if (!t->deleted && n < im->n_topics) {
                list[n++] = (struct entry){kc_str_of(t->name), t};
            }
        }
    }
    *ret = list;
    return list ? n : -1;
}

/* Sorted by name, each once; -1 when req was dropped. */
static int32_t collect(struct kb_req *req, struct entry **ret)
{
    const struct kw_describe_topic_partitions_request *in = req->body;
    int32_t n = in->n_topics;
    if (n == 0) {
        n = collect_all(req, ret);
    } else {
        *ret = kb_alloc(req, (size_t)n, sizeof(**ret));
        n = *ret ? n : -1;
        for (int32_t i = 0; i < n; i++) {
            struct kc_str name = in->topics[i].name;
            (*ret)[i] = (struct entry){name, ki_topic_by_name(req->image, name)};
        }
    }
    if (n <= 0) {
        return n;
    }
    qsort(*ret, (size_t)n, sizeof(**ret), by_name);
    int32_t kept = 1;
    for (int32_t i = 1; i < n; i++) {
        if (!kc_str_eq((*ret)[i].name, (*ret)[kept - 1].name)) {
            (*ret)[kept++] = (*ret)[i];
        }
    }
    return kept;
}

static bool fill_partitions(struct kb_req *req, const struct ki_topic *t, int32_t from, int32_t n,
                            struct kw_describe_topic_partitions_response_topic *out)
{
    out->partitions = kb_alloc(req, (size_t)n, sizeof(*out->partitions));
    struct kb_replicas *replicas =
        out->partitions ? kb_alloc(req, (size_t)n, sizeof(*replicas)) : NULL;
    if (!replicas) {
        return false;
    }
    out->n_partitions = n;
    for (int32_t i = 0; i < n; i++) {
        struct kw_describe_topic_partitions_response_partition *o = &out->partitions[i];
        struct kb_replicas *r = &replicas[i];
        struct kb_leader leader;
        kb_leader(req, t, from + i, &leader);
        kb_replicas(t, from + i, &leader, r);
        kw_describe_topic_partitions_response_partition_init(o);
        o->error_code = leader.error;
        o->partition_index = from + i;
        o->leader_id = leader.id;
        o->leader_epoch = leader.epoch;
        o->replica_nodes = r->all;
        o->n_replica_nodes = r->n_all;
        o->isr_nodes = r->isr;
        o->n_isr_nodes = r->n_isr;
        o->offline_replicas = r->offline;
        o->n_offline_replicas = r->n_offline;
        /* Empty and not null, which Kafka's schema allows and its own AdminClient does not survive. */
        o->n_eligible_leader_replicas = o->n_last_known_elr = 0;
    }
    return true;
}

/* One page; false when req was dropped. */
static bool fill(struct kb_req *req, const struct entry *list, int32_t n,
                 struct kw_describe_topic_partitions_response *resp)
{
    const struct kw_describe_topic_partitions_request *in = req->body;
    int32_t left = in->response_partition_limit;
    left = left < 1 || left > LIMIT_MAX ? LIMIT_MAX : left;
    for (int32_t i = 0; i < n; i++) {
        int order = in->cursor ? kc_str_cmp(list[i].name, in->cursor->topic_name) : 1;
        if (order < 0) {
            continue;
        }
        const struct ki_topic *t = list[i].topic;
        int32_t from = order == 0 ? in->cursor->partition_index : 0;
        int32_t count = t ? KC_MIN(KC_MAX(t->n_parts - from, 0), left) : 0;
        if (left == 0) {
            resp->next_cursor = kb_alloc(req, 1, sizeof(*resp->next_cursor));
            if (!resp->next_cursor) {
                return false;
            }
            resp->next_cursor->topic_name = list[i].name;
            resp->next_cursor->partition_index = from;
            return true;
        }
        struct kw_describe_topic_partitions_response_topic *out = &resp->topics[resp->n_topics++];
        kw_describe_topic_partitions_response_topic_init(out);
        out->name = list[i].name;
        if (!t) {
            out->error_code = ki_topic_name_valid(list[i].name) ? KAFKA_UNKNOWN_TOPIC_OR_PARTITION
                                                                : KAFKA_INVALID_TOPIC_EXCEPTION;
            continue;
        }
        out->topic_id = t->id;
        out->is_internal = t->internal;
        if (!fill_partitions(req, t, from, count, out)) {
            return false;
        }
        left -= count;
        if (from + count < t->n_parts) {
            resp->next_cursor = kb_alloc(req, 1, sizeof(*resp->next_cursor));
            if (!resp->next_cursor) {
                return false;
            }
            resp->next_cursor->topic_name = list[i].name;
            resp->next_cursor->partition_index = from + count;
            return true;
        }
    }
    return true;
}

void kb_handle_describe_topic_partitions(struct kb_req *req)
{
    const struct kw_describe_topic_partitions_request *in = req->body;
    struct kw_describe_topic_partitions_response resp;
    kw_describe_topic_partitions_response_init(&resp);
    if (in->cursor && in->cursor->partition_index < 0) {
        kb_drop(req, "a cursor with a negative partition");
        return;
    }
    struct entry *list;
    int32_t n = collect(req, &list);
    resp.topics = n < 0 ? NULL : kb_alloc(req, (size_t)n, sizeof(*resp.topics));
    if (resp.topics && fill(req, list, n, &resp)) {
        kb_reply(req, &resp);
    }
}
