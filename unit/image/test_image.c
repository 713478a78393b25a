#include "kt.h"

#include <stdlib.h>

#include "base/kc_b64.h"
#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "im_fixture.h"
#include "image/ki_internal.h"

/* Out through a ConfigMap and back in. */
static int through_configmap(json_t *doc, json_t **ret)
{
    json_t *data = ki_configmap_data(doc);
    KT_REQUIRE(data != NULL);
    json_t *cm = json_pack("{s:o}", "data", data);
    int rc = ki_configmap_parse(cm, ret, NULL);
    json_decref(cm);
    return rc;
}

static struct ki_image *round_trip(const struct ki_image *im)
{
    json_t *doc = ki_root_encode(im), *back = NULL;
    KT_EQ(through_configmap(doc, &back), 0);
    struct ki_image *root = NULL;
    KT_EQ(ki_root_decode(back, &root, NULL), 0);
    KT_REQUIRE(root != NULL);
    json_decref(doc);
    json_decref(back);
    memcpy(root->order.uid, im->order.uid, sizeof(root->order.uid));
    struct ki_shard *shards[KP_SHARDS];
    for (int i = 0; i < KP_SHARDS; i++) {
        json_t *sdoc = ki_shard_encode(im->shards[i], NULL), *sback = NULL;
        KT_EQ(through_configmap(sdoc, &sback), 0);
        shards[i] = NULL;
        KT_EQ(ki_shard_decode(sback, root->hashes[i], &shards[i], NULL), 0);
        KT_REQUIRE(shards[i] != NULL);
        json_decref(sdoc);
        json_decref(sback);
    }
    struct ki_image *whole = ki_image_build(root, shards);
    ki_image_unref(root);
    return whole;
}

static bool parts_equal(const struct kp_part *a, const struct kp_part *b)
{
    return a->home == b->home && a->assigned == b->assigned &&
           a->assigned_generation == b->assigned_generation && a->led == b->led &&
           kc_uuid_eq(&a->led_incarnation, &b->led_incarnation) && a->led_epoch == b->led_epoch &&
           a->offline == b->offline && a->move.id == b->move.id && a->move.from == b->move.from &&
           a->move.to == b->move.to && a->move.phase == b->move.phase &&
           a->move.deadline_ms == b->move.deadline_ms;
}

static void documents_survive_the_round_trip(void)
{
    struct ki_image *im = fix_image(300, 4, 7), *back = round_trip(im);
    KT_EQ(back->order.term, 3);
    KT_EQ(back->order.generation, 42);
    KT_STR(back->order.uid, "uid-1");
    KT_STR(back->cluster_id, im->cluster_id);
    KT_EQ(back->n_topics, 300);
    KT_EQ(back->n_rows, 3);
    for (int i = 0; i < 3; i++) {
        const struct kp_row *a = &im->rows[i], *b = &back->rows[i];
        KT_EQ(b->id, a->id);
        KT_EQ(b->health, a->health);
        KT_EQ(b->state, a->state);
        KT_EQ(b->reason, a->reason);
        KT_EQ(b->condemned, a->condemned);
        KT_TRUE(kc_uuid_eq(&a->incarnation, &b->incarnation));
        KT_STR(b->host, a->host);
        KT_STR(b->rack, a->rack);
        KT_STR(b->listeners[0].host, a->listeners[0].host);
        KT_EQ(b->listeners[0].port, a->listeners[0].port);
        KT_EQ(b->last_seen_ms, a->last_seen_ms);
    }
    KT_TRUE(memcmp(im->group_homes, back->group_homes, sizeof(im->group_homes)) == 0);
    KT_TRUE(memcmp(im->txn_homes, back->txn_homes, sizeof(im->txn_homes)) == 0);
    KT_STR(ki_config(back, "auto.create.topics.enable"), "true");
    for (int i = 0; i < 300; i++) {
        struct kc_uuid id = fix_topic_id(7, i);
        const struct ki_topic *a = ki_topic_by_id(im, &id), *b = ki_topic_by_id(back, &id);
        KT_REQUIRE(a && b);
        KT_STR(b->name, a->name);
        KT_EQ(b->internal, a->internal);
        KT_EQ(b->fresh, a->fresh);
        KT_EQ(b->replication_factor, a->replication_factor);
        KT_EQ(b->n_configs, a->n_configs);
        for (int p = 0; p < 4; p++) {
            KT_TRUE(parts_equal(&a->parts[p], &b->parts[p]));
        }
    }
    ki_image_unref(im);
    ki_image_unref(back);
}

static void topics_are_found_by_id_and_name(void)
{
    struct ki_image *im = fix_image(500, 1, 9);
    for (int i = 0; i < 500; i++) {
        char name[32];
        snprintf(name, sizeof(name), "topic-%d", i);
        struct kc_uuid id = fix_topic_id(9, i), other = fix_topic_id(10, i);
        const struct ki_topic *t = ki_topic_by_name(im, kc_str_of(name));
        KT_REQUIRE(t != NULL);
        KT_TRUE(kc_uuid_eq(&t->id, &id));
        KT_TRUE(ki_topic_by_id(im, &id) == t);
        KT_TRUE(ki_topic_by_id(im, &other) == NULL);
        KT_TRUE(ki_part(im, &id, 0) == &t->parts[0]);
        KT_TRUE(ki_part(im, &id, 1) == NULL);
        KT_TRUE(ki_part(im, &id, -1) == NULL);
    }
    KT_TRUE(ki_topic_by_name(im, KC_STR_LIT("topic-500")) == NULL);
    KT_TRUE(ki_topic_by_name(im, KC_STR_NULL) == NULL);
    KT_TRUE(ki_row(im, 1) == &im->rows[1]);
    KT_TRUE(ki_row(im, 3) == NULL);
    struct kc_uuid id = fix_topic_id(9, 1);
    KT_STR(ki_topic_config(ki_topic_by_id(im, &id), "retention.ms"), "1000");
    KT_TRUE(ki_topic_config(ki_topic_by_id(im, &id), "flush.ms") == NULL);
    ki_image_unref(im);
}

static void a_tombstone_has_no_name(void)
{
    struct kc_uuid id = fix_topic_id(1, 1), later = fix_topic_id(1, 2);
    struct ki_topic t[2] = {{.id = id, .name = "a", .deleted = true, .replication_factor = 1},
                            {.id = later, .name = "a", .replication_factor = 1}};
    struct ki_shard *shards[KP_SHARDS];
    for (int i = 0; i < KP_SHARDS; i++) {
        struct ki_topic mine[2];
        int n = 0;
        for (int k = 0; k < 2; k++) {
            if (kp_shard_of(&t[k].id) == i) {
                mine[n++] = t[k];
            }
        }
        shards[i] = ki_shard_build(i, 1, 1, mine, n);
        KT_REQUIRE(shards[i] != NULL);
    }
    struct ki_image proto = {.n_rows = 0}, *im = ki_image_build(&proto, shards);
    KT_EQ(im->n_topics, 1);
    KT_TRUE(kc_uuid_eq(&ki_topic_by_name(im, KC_STR_LIT("a"))->id, &later));
    KT_TRUE(ki_topic_by_id(im, &id)->deleted);
    ki_image_unref(im);
}

static void a_move_and_an_offline_partition_are_kept(void)
{
    struct kc_uuid id = fix_topic_id(1, 1);
    struct kp_part part = {
        .home = 2,
        .assigned = 1,
        .led = KP_NO_BROKER,
        .led_epoch = -1,
        .offline = true,
        .move = {.id = 77, .from = 1, .to = 2, .phase = KP_MOVE_GO, .deadline_ms = 99}};
    struct ki_topic t = {
        .id = id, .name = "a", .n_parts = 1, .parts = &part, .replication_factor = 1};
    struct ki_shard *s = ki_shard_build(kp_shard_of(&id), 1, 2, &t, 1), *back = NULL;
    json_t *doc = ki_shard_encode(s, NULL);
    KT_EQ(ki_shard_decode(doc, s->hash, &back, NULL), 0);
    KT_TRUE(parts_equal(&back->topics[0].parts[0], &part));
    json_decref(doc);
    ki_shard_unref(s);
    ki_shard_unref(back);
}

/* design.md, 4: the root that stands can always be assembled. */
static void a_shard_keeps_the_content_the_standing_root_names(void)
{
    struct ki_image *im = fix_image(40, 2, 3);
    struct ki_shard *old = im->shards[5], *got = NULL;
    struct ki_shard *next = ki_shard_build(5, 3, 43, old->topics, old->n_topics - 1);
    json_t *doc = ki_shard_encode(next, old);
    KT_EQ(ki_shard_decode(doc, old->hash, &got, NULL), 0);
    KT_EQ(got->n_topics, old->n_topics);
    KT_EQ(got->generation, 41);
    ki_shard_unref(got);
    KT_EQ(ki_shard_decode(doc, next->hash, &got, NULL), 0);
    KT_EQ(got->n_topics, old->n_topics - 1);
    ki_shard_unref(got);
    KT_EQ(ki_shard_decode(doc, "", &got, NULL), 0);
    KT_STR(got->hash, next->hash);
    ki_shard_unref(got);
    KT_EQ(ki_shard_decode(doc, "0123456789abcdef", &got, NULL), KC_E_NOT_FOUND);
    json_decref(doc);
    ki_shard_unref(next);
    ki_image_unref(im);
}

static void content_must_have_the_hash_it_claims(void)
{
    struct ki_image *im = fix_image(40, 2, 3);
    json_t *doc = ki_shard_encode(im->shards[5], NULL);
    struct ki_shard *got = NULL;
    json_t *part = kc_json_at(doc, "content.topics.0.parts.0");
    KT_REQUIRE(part != NULL);
    json_array_set_new(part, 1, json_integer(0));
    json_array_set_new(part, 2, json_integer(12345));
    KT_EQ(ki_shard_decode(doc, im->shards[5]->hash, &got, NULL), KC_E_MALFORMED);
    json_decref(doc);
    ki_image_unref(im);
}

/* Sets a value of the document; the last segment of path may be an array index. */
static void set_at(json_t *doc, const char *path, const char *value)
{
    json_t *v = json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    KT_REQUIRE(v != NULL);
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
    char up[64];
    snprintf(up, sizeof(up), "%.*s", (int)(dot ? dot - path : 0), path);
    json_t *parent = dot ? kc_json_at(doc, up) : doc;
    if (json_is_array(parent)) {
        KT_EQ(json_array_set_new(parent, (size_t)strtoul(last, NULL, 10), v), 0);
    } else {
        KT_EQ(json_object_set_new(parent, last, v), 0);
    }
}

/* Replaces one value at a time by something out of range; the hash is made right again. */
static void values_out_of_range_are_refused(void)
{
    static const struct {
        const char *path, *value;
    } cases[] = {
        {"index", "16"},
        {"index", "-1"},
        {"term", "-1"},
        {"generation", "\"x\""},
        {"content.topics", "7"},
        {"content.incarnations", "[\"short\"]"},
        {"content.topics.0.id", "\"AAAA\""},
        {"content.topics.0.id", "\"AAAAAAAAAAAAAAAAAAAAAA\""},
        {"content.topics.0.name", "\"\""},
        {"content.topics.0.name", "\"a/b\""},
        {"content.topics.0.name", "\"..\""},
        {"content.topics.0.name", "\"a\\u0000b\""},
        {"content.topics.0.rf", "0"},
        {"content.topics.0.configs", "{\"a\":1}"},
        {"content.topics.0.parts", "{}"},
        {"content.topics.0.parts.0", "[0,0,0,0,0]"},
        {"content.topics.0.parts.0", "[0,0,0,0,99,0]"},
        {"content.topics.0.parts.0", "[0,-2,0,0,0,0]"},
        {"content.topics.0.parts.0", "[0,0,0,0,0,-2]"},
        {"content.topics.0.parts.0", "[0,0,0,0,0,0,{\"move\":{\"id\":0}}]"},
        {"content.topics.0.parts.0", "[0,0,0,0,0,0,1]"},
        {"content.topics.0.parts.0", "[0,0,0,0,0,1.5]"},
    };
    struct ki_image *im = fix_image(40, 2, 3);
    for (size_t i = 0; i < KC_ARRAY_LEN(cases); i++) {
        json_t *doc = ki_shard_encode(im->shards[5], NULL);
        set_at(doc, cases[i].path, cases[i].value);
        char hash[17];
        KT_TRUE(ki_content_hash(kc_json_at(doc, "content"), hash));
        json_object_set_new(doc, "hash", json_string(hash));
        struct ki_shard *got = NULL;
        struct kc_err err = {0};
        KT_EQ(ki_shard_decode(doc, "", &got, &err), KC_E_MALFORMED);
        KT_TRUE(strstr(err.msg, "hash it claims") == NULL);
        json_decref(doc);
    }
    ki_image_unref(im);
}

static void broken_roots_are_refused(void)
{
    static const struct {
        const char *path, *value;
        int rc;
    } cases[] = {
        {"version", "2", KC_E_UNSUPPORTED},
        {"term", "-1", KC_E_MALFORMED},
        {"clusterId", "\"much too long for a cluster id of ours\"", KC_E_MALFORMED},
        {"brokers", "{}", KC_E_MALFORMED},
        {"brokers.0.id", "5", KC_E_MALFORMED}, /* not sorted any more */
        {"brokers.0.health", "\"Fine\"", KC_E_MALFORMED},
        {"brokers.0.incarnation", "\"x\"", KC_E_MALFORMED},
        {"brokers.0.listeners.0.port", "0", KC_E_MALFORMED},
        {"groupHomes", "[1]", KC_E_MALFORMED},
        {"txnHomes.3", "-7", KC_E_MALFORMED},
        {"configs", "[]", KC_E_MALFORMED},
        {"shards", "[]", KC_E_MALFORMED},
        {"shards.3", "\"zz23456789abcdef\"", KC_E_MALFORMED},
    };
    struct ki_image *im = fix_image(4, 1, 3);
    for (size_t i = 0; i < KC_ARRAY_LEN(cases); i++) {
        json_t *doc = ki_root_encode(im);
        set_at(doc, cases[i].path, cases[i].value);
        struct ki_image *got = NULL;
        struct kc_err err = {0};
        KT_EQ(ki_root_decode(doc, &got, &err), cases[i].rc);
        json_decref(doc);
    }
    ki_image_unref(im);
}

static int parse_data(const char *key, const char *value)
{
    json_t *cm = json_pack("{s:{s:s}}", "data", key, value), *doc = NULL;
    int rc = ki_configmap_parse(cm, &doc, NULL);
    json_decref(cm);
    json_decref(doc);
    return rc;
}

static void broken_configmaps_are_refused(void)
{
    KT_EQ(parse_data("other", "{}"), KC_E_NOT_FOUND);
    KT_EQ(parse_data("image.json", "{"), KC_E_MALFORMED);
    KT_EQ(parse_data("image.json", "[]"), KC_E_MALFORMED);
    KT_EQ(parse_data("image.json", "{\"a\":1,\"a\":2}"), KC_E_MALFORMED);
    KT_EQ(parse_data("image.json", "{}"), 0);
    KT_EQ(parse_data("image.json.gz", "!!"), KC_E_MALFORMED);
    KT_EQ(parse_data("image.json.gz", "aGVsbG8="), KC_E_MALFORMED);
}

static void big_documents_are_compressed_and_a_cut_one_is_refused(void)
{
    struct ki_image *im = fix_image(1600, 4, 5);
    json_t *doc = ki_shard_encode(im->shards[1], im->shards[2]);
    json_t *data = ki_configmap_data(doc);
    const char *gz = json_string_value(json_object_get(data, "image.json.gz"));
    KT_REQUIRE(gz != NULL);
    char *cut = strdup(gz);
    cut[strlen(cut) / 2 & ~(size_t)3] = '\0';
    KT_EQ(parse_data("image.json.gz", cut), KC_E_MALFORMED);
    free(cut);
    json_decref(data);
    json_decref(doc);
    ki_image_unref(im);
}

static void random_documents_never_crash(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    struct ki_image *im = fix_image(20, 2, 3);
    json_t *doc = ki_root_encode(im);
    char *text = json_dumps(doc, JSON_COMPACT);
    size_t n = strlen(text);
    for (int i = 0; i < 20000; i++) {
        char *copy = strdup(text);
        for (int flips = 1 + (int)kc_rng_below(&rng, 3); flips > 0; flips--) {
            copy[kc_rng_below(&rng, n)] = (char)('0' + kc_rng_below(&rng, 10));
        }
        json_t *d = json_loads(copy, 0, NULL);
        struct ki_image *got = NULL;
        if (d && ki_root_decode(d, &got, NULL) == 0) {
            ki_image_unref(got);
        }
        json_decref(d);
        free(copy);
    }
    free(text);
    json_decref(doc);
    ki_image_unref(im);
}

static void images_share_what_did_not_change(void)
{
    struct ki_image *im = fix_image(100, 2, 3);
    struct ki_shard *shards[KP_SHARDS];
    for (int i = 0; i < KP_SHARDS; i++) {
        shards[i] = ki_shard_ref(im->shards[i]);
    }
    struct ki_image *next = ki_image_build(im, shards);
    struct kc_uuid id = fix_topic_id(3, 42);
    KT_TRUE(ki_topic_by_id(im, &id) == ki_topic_by_id(next, &id));
    KT_EQ(im->shards[0]->refs, 2);
    ki_image_unref(im);
    KT_EQ(next->shards[0]->refs, 1);
    KT_STR(ki_topic_by_id(next, &id)->name, "topic-42");
    struct ki_image *again = ki_image_ref(next);
    KT_TRUE(again == next);
    ki_image_unref(next);
    ki_image_unref(again);
}

/* design.md, 4: at least 20,000 partitions; a ConfigMap may have 1 MiB. */
static void twenty_thousand_partitions_fit_and_are_quick(void)
{
    struct ki_image *im = fix_image(2000, 10, 11);
    size_t largest = 0, total = 0;
    int64_t t0 = kc_mono_us();
    json_t *maps[KP_SHARDS];
    for (int i = 0; i < KP_SHARDS; i++) {
        json_t *doc = ki_shard_encode(im->shards[i], NULL);
        maps[i] = json_pack("{s:o}", "data", ki_configmap_data(doc));
        json_decref(doc);
        char *text = json_dumps(maps[i], JSON_COMPACT);
        largest = KC_MAX(largest, strlen(text));
        total += strlen(text);
        free(text);
    }
    int64_t t1 = kc_mono_us();
    struct ki_shard *shards[KP_SHARDS];
    for (int i = 0; i < KP_SHARDS; i++) {
        json_t *doc = NULL;
        KT_EQ(ki_configmap_parse(maps[i], &doc, NULL), 0);
        KT_EQ(ki_shard_decode(doc, im->hashes[i], &shards[i], NULL), 0);
        json_decref(doc);
    }
    int64_t t2 = kc_mono_us();
    /* One shard changed: only that one is parsed, the rest is shared. */
    struct ki_image *next = ki_image_build(im, shards);
    int64_t t3 = kc_mono_us();
    printf("\n  20000 partitions: largest ConfigMap %zu bytes, all %zu; encode %lld us, decode "
           "%lld us "
           "(a shard %lld), assemble %lld us\n",
           largest, total, (long long)(t1 - t0), (long long)(t2 - t1),
           (long long)((t2 - t1) / KP_SHARDS), (long long)(t3 - t2));
    KT_TRUE(largest < 256 * 1024);
    KT_EQ(next->n_topics, 2000);
    for (int i = 0; i < KP_SHARDS; i++) {
        json_decref(maps[i]);
    }
    ki_image_unref(next);
    ki_image_unref(im);
}

KT_MAIN("ki_image", KT(documents_survive_the_round_trip), KT(topics_are_found_by_id_and_name),
        KT(a_tombstone_has_no_name), KT(a_move_and_an_offline_partition_are_kept),
        KT(a_shard_keeps_the_content_the_standing_root_names),
        KT(content_must_have_the_hash_it_claims), KT(values_out_of_range_are_refused),
        KT(broken_roots_are_refused), KT(broken_configmaps_are_refused),
        KT(big_documents_are_compressed_and_a_cut_one_is_refused), KT(random_documents_never_crash),
        KT(images_share_what_did_not_change), KT(twenty_thousand_partitions_fit_and_are_quick))
