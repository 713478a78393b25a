#include "im_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"

struct kc_uuid fix_uuid(uint64_t a, uint64_t b)
{
    struct kc_uuid u;
    uint64_t x = kc_hash64_mix(a, b), y = kc_hash64_mix(x, b + 1);
    memcpy(u.b, &x, 8);
    memcpy(u.b + 8, &y, 8);
    return u;
}

struct kc_uuid fix_topic_id(uint64_t seed, int32_t i)
{
    return fix_uuid(seed + 1000, (uint64_t)i);
}

static void fill_rows(struct kp_row rows[3], uint64_t seed)
{
    memset(rows, 0, 3 * sizeof(*rows));
    for (int32_t i = 0; i < 3; i++) {
        struct kp_row *r = &rows[i];
        r->id = i;
        r->health = i == 2 ? KP_DEAD : KP_ALIVE;
        r->state = i == 2 ? KP_FENCED : KP_SERVING;
        r->reason = i == 2 ? KP_REASON_LOST : KP_REASON_NONE;
        r->condemned = i == 2;
        r->serving = i != 2;
        r->ever_healthy = true;
        r->protocol_version = 1;
        r->incarnation = fix_uuid(seed, (uint64_t)i);
        snprintf(r->pod_uid, sizeof(r->pod_uid), "pod-%d", i);
        snprintf(r->version, sizeof(r->version), "0.1.0");
        snprintf(r->rack, sizeof(r->rack), "zone-%d", i);
        snprintf(r->host, sizeof(r->host), "demo-%d", i);
        r->n_listeners = 1;
        snprintf(r->listeners[0].name, sizeof(r->listeners[0].name), "internal");
        snprintf(r->listeners[0].host, sizeof(r->listeners[0].host), "demo-%d.demo-brokers", i);
        r->listeners[0].port = (uint16_t)(9092 + i);
        r->last_seen_ms = 1700000000000 + i;
        r->partitions = 7;
        r->slots = 3;
    }
}

static void fill_parts(struct kp_part *parts, int32_t n, uint64_t seed)
{
    for (int32_t p = 0; p < n; p++) {
        int32_t b = p % 3;
        parts[p] = (struct kp_part){.home = b,
                                    .assigned = b,
                                    .assigned_generation = 41,
                                    .led = b,
                                    .led_incarnation = fix_uuid(seed, (uint64_t)b),
                                    .led_epoch = 5 + p};
    }
}

struct ki_image *fix_image(int32_t n_topics, int32_t n_parts, uint64_t seed)
{
    static const struct ki_config configs[] = {{"cleanup.policy", "compact"},
                                               {"retention.ms", "1000"}};
    static const struct ki_config broker_configs[] = {{"auto.create.topics.enable", "true"}};
    struct ki_topic *topics = calloc((size_t)n_topics + 1, sizeof(*topics));
    struct kp_part *parts = calloc((size_t)n_topics * (size_t)n_parts + 1, sizeof(*parts));
    char(*names)[32] = calloc((size_t)n_topics + 1, sizeof(*names));
    struct ki_shard *shards[KP_SHARDS];
    for (int32_t s = 0; s < KP_SHARDS; s++) {
        int32_t n = 0;
        for (int32_t i = 0; i < n_topics; i++) {
            struct kc_uuid id = fix_topic_id(seed, i);
            if (kp_shard_of(&id) != s) {
                continue;
            }
            struct kp_part *mine = parts + (ptrdiff_t)i * n_parts;
            fill_parts(mine, n_parts, seed);
            snprintf(names[i], sizeof(names[i]), "topic-%d", i);
            topics[n++] = (struct ki_topic){.id = id,
                                            .name = names[i],
                                            .internal = i % 17 == 0,
                                            .fresh = i % 5 == 0,
                                            .n_configs = i % 2 ? 2 : 0,
                                            .configs = configs,
                                            .n_parts = n_parts,
                                            .parts = mine,
                                            .replication_factor = 1 + i % 3};
        }
        shards[s] = ki_shard_build(s, 3, 41, topics, n);
    }
    struct kp_row rows[3];
    fill_rows(rows, seed);
    struct ki_image proto = {.order = {.uid = "uid-1", .term = 3, .generation = 42},
                             .n_rows = 3,
                             .rows = rows,
                             .n_configs = 1,
                             .configs = broker_configs};
    snprintf(proto.cluster_id, sizeof(proto.cluster_id), "AAAAAAAAAAAAAAAAAAAAAA");
    for (int32_t i = 0; i < KP_SLOTS; i++) {
        proto.group_homes[i] = i % 3;
        proto.txn_homes[i] = (i + 1) % 3;
    }
    struct ki_image *im = ki_image_build(&proto, shards);
    free(names);
    free(parts);
    free(topics);
    return im;
}
