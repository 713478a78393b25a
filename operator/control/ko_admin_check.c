/* ko_admin_check.c - admin requests against the topics of now, with Kafka's codes and words. What
 * config values mean, and who may ask, the broker has checked. */
#include <stdio.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "control/ko_admin_int.h"

#define SAY(r, code, ...) (snprintf((r)->message, sizeof((r)->message), __VA_ARGS__), (code))

static int32_t count_data_parts(const struct ko_cc *cc, int32_t *ret_topics)
{
    int32_t parts = 0, topics = 0;
    struct kc_map_iter it = {0};
    for (struct kc_map_entry *e; (e = kc_map_next(&cc->topics.by_name, &it));) {
        const struct ko_ct *t = e->value;
        if (!t->internal) {
            topics++;
            parts += t->n_parts;
        }
    }
    *ret_topics = topics;
    return parts;
}

bool ko_over_limits(const struct ko_cc *cc, int32_t more_topics, int32_t more_parts, char *why,
                    size_t room)
{
    int32_t topics, parts = count_data_parts(cc, &topics);
    if (topics + more_topics > cc->spec.max_topics) {
        snprintf(why, room, "The cluster's limit of %d topics is reached",
                 (int)cc->spec.max_topics);
        return true;
    }
    if (more_parts > cc->spec.max_partitions - parts) {
        snprintf(why, room, "The cluster's limit of %d partitions would be exceeded: it has %d",
                 (int)cc->spec.max_partitions, (int)parts);
        return true;
    }
    return false;
}

static int32_t check_limits(const struct ko_cc *cc, struct ko_req *r, int32_t more_topics,
                            int32_t more_parts)
{
    return ko_over_limits(cc, more_topics, more_parts, r->message, sizeof(r->message))
               ? KO_KAFKA_POLICY_VIOLATION
               : 0;
}

static int32_t check_configs(struct ko_req *r, const struct ko_ct *t)
{
    int32_t max = r->n_entries + (t ? t->n_configs : 0), n = 0;
    struct ki_config *all = kc_arena_zalloc(&r->arena, (size_t)max + 1, sizeof(*all));
    if (!all) {
        return SAY(r, KO_KAFKA_INVALID_REQUEST, "The request is too large");
    }
    for (int32_t i = 0; t && i < t->n_configs; i++) { /* copied: t may change before the answer */
        all[n].name = kc_arena_strndup(&r->arena, t->configs[i].name, strlen(t->configs[i].name));
        all[n].value =
            kc_arena_strndup(&r->arena, t->configs[i].value, strlen(t->configs[i].value));
        if (!all[n].name || !all[n].value) {
            return SAY(r, KO_KAFKA_INVALID_REQUEST, "The request is too large");
        }
        n++;
    }
    for (int32_t i = 0; i < r->n_entries; i++) {
        int32_t at = 0;
        while (at < n && strcmp(all[at].name, r->entries[i].name) != 0) {
            at++;
        }
        if (r->entries[i].value) {
            all[at] = r->entries[i];
            n = KC_MAX(n, at + 1);
        } else if (at < n) {
            all[at] = all[--n];
        }
    }
    r->change.configs = all;
    r->change.n_configs = n;
    return 0;
}

static int32_t check_create(struct ko_cc *cc, struct ko_req *r)
{
    const char *why = ki_topic_name_fault(kc_str_of(r->change.topic));
    if (why) {
        return SAY(r, KO_KAFKA_INVALID_TOPIC_EXCEPTION, "Topic name is invalid: %s", why);
    }
    if (ko_cts_name(&cc->topics, r->change.topic)) {
        return SAY(r, KO_KAFKA_TOPIC_ALREADY_EXISTS, "Topic '%s' already exists.", r->change.topic);
    }
    const char *other = ko_cts_collision(&cc->topics, r->change.topic);
    if (other) {
        return SAY(r, KO_KAFKA_INVALID_TOPIC_EXCEPTION,
                   "Topic '%s' collides with existing topic: %s", r->change.topic, other);
    }
    if (r->change.partitions <= 0) {
        return SAY(r, KO_KAFKA_INVALID_PARTITIONS, "Number of partitions must be larger than 0.");
    }
    if (r->change.replication_factor == -1) {
        r->change.replication_factor = 1;
    }
    if (r->change.replication_factor <= 0) {
        return SAY(r, KO_KAFKA_INVALID_REPLICATION_FACTOR,
                   "Replication factor must be larger than 0.");
    }
    const struct kp_row *rows;
    int32_t brokers = kp_ctl_rows(cc->ctl, &rows);
    if (r->change.replication_factor > brokers) {
        return SAY(r, KO_KAFKA_INVALID_REPLICATION_FACTOR,
                   "Unable to replicate the partition %d time(s): The target replication factor "
                   "of %d cannot be reached because only %d broker(s) are registered.",
                   (int)r->change.replication_factor, (int)r->change.replication_factor,
                   (int)brokers);
    }
    int32_t error = check_limits(cc, r, 1, r->change.partitions);
    error = error ? error : check_configs(r, NULL);
    if (error == 0) {
        r->change.topic_id = kc_uuid_random();
    }
    return error;
}

/* Names the topic of a request by id or name; NULL with the error set. */
static struct ko_ct *existing(struct ko_cc *cc, struct ko_req *r, int32_t *ret_error)
{
    bool by_id = !kc_uuid_is_zero(&r->change.topic_id);
    struct ko_ct *t = by_id ? ko_cts_id(&cc->topics, &r->change.topic_id)
                            : ko_cts_name(&cc->topics, r->change.topic);
    if (!t || t->deleted) {
        *ret_error =
            by_id ? SAY(r, KO_KAFKA_UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
                  : SAY(r, KO_KAFKA_UNKNOWN_TOPIC_OR_PARTITION,
                        "This server does not host this topic-partition.");
        return NULL;
    }
    r->change.topic_id = t->id;
    r->change.topic = kc_arena_strndup(&r->arena, t->name, strlen(t->name));
    r->change.replication_factor = t->replication_factor;
    r->change.internal = t->internal;
    if (!r->change.topic) {
        *ret_error = SAY(r, KO_KAFKA_INVALID_REQUEST, "The request is too large");
        return NULL;
    }
    return t;
}

static int32_t check_partitions(struct ko_cc *cc, struct ko_req *r, const struct ko_ct *t)
{
    if (t->internal) {
        return SAY(r, KO_KAFKA_INVALID_REQUEST, "The partitions of internal topics are fixed.");
    }
    if (r->change.partitions < t->n_parts) {
        return SAY(r, KO_KAFKA_INVALID_PARTITIONS,
                   "The topic %s currently has %d partition(s); %d would not be an increase.",
                   t->name, (int)t->n_parts, (int)r->change.partitions);
    }
    if (r->change.partitions == t->n_parts) {
        return SAY(r, KO_KAFKA_INVALID_PARTITIONS, "Topic already has %d partition(s).",
                   (int)t->n_parts);
    }
    return check_limits(cc, r, 0, r->change.partitions - t->n_parts);
}

int32_t ko_req_check(struct ko_cc *cc, struct ko_req *r)
{
    int32_t error = 0;
    if (r->change.kind == KO_CREATE_TOPIC) {
        return check_create(cc, r);
    }
    struct ko_ct *t = existing(cc, r, &error);
    if (!t) {
        return error;
    }
    switch (r->change.kind) {
    case KO_DELETE_TOPIC:
        if (t->internal) {
            return SAY(r, KO_KAFKA_TOPIC_DELETION_DISABLED, "Internal topics cannot be deleted.");
        }
        r->change.partitions = t->n_parts;
        return 0;
    case KO_CREATE_PARTITIONS:
        error = check_partitions(cc, r, t);
        return error ? error : check_configs(r, t);
    case KO_ALTER_TOPIC_CONFIG:
        r->change.partitions = t->n_parts;
        return check_configs(r, t);
    case KO_CREATE_TOPIC:
        break;
    }
    return SAY(r, KO_KAFKA_INVALID_REQUEST, "Unknown kind of change %d", (int)r->change.kind);
}

static int32_t apply_create(struct ko_cc *cc, struct ko_req *r)
{
    if (ko_cts_id(&cc->topics, &r->change.topic_id)) {
        return 0; /* the KaasTopic's own event came first */
    }
    struct ki_topic t = {.id = r->change.topic_id,
                         .name = r->change.topic,
                         .internal = r->change.internal,
                         .fresh = true,
                         .n_configs = r->change.n_configs,
                         .configs = r->change.configs,
                         .n_parts = r->change.partitions,
                         .replication_factor = r->change.replication_factor};
    struct ko_ct *ct;
    switch (ko_topic_add(cc, &t, &ct)) {
    case 0:
        ct->told = true;
        return 0;
    case KC_E_EXISTS:
        return SAY(r, KO_KAFKA_TOPIC_ALREADY_EXISTS, "Topic '%s' already exists.", t.name);
    case KC_E_TOO_LARGE:
        return SAY(r, KO_KAFKA_POLICY_VIOLATION,
                   "The cluster's limits of topics or partitions are reached");
    default:
        return SAY(r, KO_KAFKA_UNKNOWN_SERVER_ERROR, "The operator is out of memory");
    }
}

static int32_t apply_partitions(struct ko_cc *cc, struct ko_req *r, struct ko_ct *t)
{
    if (r->change.partitions <= t->n_parts) {
        return 0; /* the KaasTopic's own event came first */
    }
    if (kp_ctl_topic(cc->ctl, &t->id, false, KP_NOT_SLOTS, r->change.partitions, true)) {
        return SAY(r, KO_KAFKA_POLICY_VIOLATION, "The cluster's limit of partitions is reached");
    }
    t->n_parts = r->change.partitions;
    ko_dirty_topic(cc, &t->id);
    return 0;
}

int32_t ko_req_apply(struct ko_cc *cc, struct ko_req *r)
{
    if (r->change.kind == KO_CREATE_TOPIC) {
        return apply_create(cc, r);
    }
    struct ko_ct *t = ko_cts_id(&cc->topics, &r->change.topic_id);
    if (r->change.kind == KO_DELETE_TOPIC) {
        if (t && !t->deleted) {
            ko_topic_delete(cc, t);
        }
        return 0;
    }
    if (!t || t->deleted) {
        return SAY(r, KO_KAFKA_UNKNOWN_TOPIC_OR_PARTITION,
                   "This server does not host this topic-partition.");
    }
    if (r->change.kind == KO_CREATE_PARTITIONS) {
        return apply_partitions(cc, r, t);
    }
    if (ko_ct_set_configs(t, r->change.configs, r->change.n_configs)) {
        ko_dirty_topic(cc, &t->id);
    }
    return 0;
}
