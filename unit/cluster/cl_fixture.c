#include "cl_fixture.h"

#include <stdio.h>
#include <string.h>

struct kc_uuid clf_uuid(uint8_t n)
{
    struct kc_uuid u = {{0}};
    u.b[0] = n;
    u.b[15] = 1;
    return u;
}

void clf_init(struct clf *c, int32_t n_brokers)
{
    memset(c, 0, sizeof(*c));
    c->order = (struct kp_order){.uid = "uid-1", .term = 1};
    c->n_rows = n_brokers;
    for (int32_t i = 0; i < n_brokers; i++) {
        c->rows[i] = (struct kp_row){.id = i,
                                     .health = KP_ALIVE,
                                     .state = KP_FENCED,
                                     .protocol_version = 1,
                                     .incarnation = clf_uuid((uint8_t)(100 + i))};
    }
}

struct clf_topic *clf_topic(struct clf *c, const char *name, int32_t n_parts)
{
    struct clf_topic *t = &c->topics[c->n_topics++];
    memset(t, 0, sizeof(*t));
    t->id = clf_uuid((uint8_t)c->n_topics);
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->fresh = true;
    t->n_parts = n_parts;
    for (int32_t p = 0; p < n_parts; p++) {
        t->parts[p] = (struct kp_part){
            .home = KP_NO_BROKER, .assigned = KP_NO_BROKER, .led = KP_NO_BROKER, .led_epoch = -1};
    }
    return t;
}

struct ki_image *clf_publish(struct clf *c)
{
    c->order.generation++;
    struct ki_shard *shards[KP_SHARDS];
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        struct ki_topic mine[CLF_TOPICS_MAX];
        int32_t n = 0;
        for (int32_t i = 0; i < c->n_topics; i++) {
            const struct clf_topic *t = &c->topics[i];
            if (kp_shard_of(&t->id) == s) {
                mine[n++] = (struct ki_topic){.id = t->id,
                                              .name = t->name,
                                              .internal = t->internal,
                                              .fresh = t->fresh,
                                              .deleted = t->deleted,
                                              .n_configs = t->config.name ? 1 : 0,
                                              .configs = &t->config,
                                              .n_parts = t->deleted ? 0 : t->n_parts,
                                              .parts = t->parts,
                                              .replication_factor = 1};
            }
        }
        shards[s] = ki_shard_build(s, c->order.term, c->order.generation, mine, n);
    }
    struct ki_image proto = {.order = c->order, .n_rows = c->n_rows, .rows = c->rows};
    proto.n_configs = c->config.name ? 1 : 0;
    proto.configs = &c->config;
    snprintf(proto.cluster_id, sizeof(proto.cluster_id), "AAAAAAAAAAAAAAAAAAAAAA");
    return ki_image_build(&proto, shards);
}
