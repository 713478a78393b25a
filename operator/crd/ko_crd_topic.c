/* KaasTopic: checks and object names (design.md 2). */
#include <stdio.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "crd/ko_crd_fields.h"
#include "image/ki_keys.h"
#include "image/ki_names.h"

enum { ARENA_CHUNK = 1024, ARENA_MAX = 256 * 1024 };

static bool low_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

void ko_topic_object_name(const char *topic, const char *salt, char out[254])
{
    enum { SLUG_MAX = 200, OBJECT_MAX = 240 };
    if (!*salt && ko_dns_name(topic, strlen(topic), OBJECT_MAX)) {
        snprintf(out, 254, "%s", topic);
        return;
    }
    size_t n = 0;
    for (const char *p = topic; *p && n < SLUG_MAX; p++) {
        char c = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
        if (low_alnum(c)) {
            out[n++] = c;
        } else if (n > 0 && out[n - 1] != '-') {
            out[n++] = '-';
        }
    }
    while (n > 0 && out[n - 1] == '-') {
        n--;
    }
    uint64_t h = kc_hash64_mix(kc_hash64(topic, strlen(topic)), kc_hash64(salt, strlen(salt)));
    snprintf(out + n, 254 - n, "%s%010llx", n ? "-" : "",
             (unsigned long long)(h & 0xffffffffffULL));
}

static void parse_fields(struct ko_topic *t, struct ko_field_errors *e)
{
    static const char *const spec[] = {"cluster",           "topicName", "partitions",
                                       "replicationFactor", "config",    NULL};
    const json_t *d = t->doc;
    ko_field_known(d, "spec", spec, e);
    t->cluster = ko_field_str(d, "spec.cluster", "", e);
    if (!*t->cluster || strchr(t->cluster, '/')) {
        ko_field_error(e, "spec.cluster", "must name a KaasCluster of this namespace");
    }
    t->topic = ko_field_str(d, "spec.topicName", t->name, e);
    if (!ki_topic_name_valid(kc_str_of(t->topic))) {
        ko_field_error(e, "spec.topicName",
                       "must be 1 to 249 letters, digits, dots, underscores or dashes");
    } else if (ki_slot_kind(kc_str_of(t->topic)) != KP_NOT_SLOTS) {
        ko_field_error(e, "spec.topicName", "is an internal topic, which the brokers manage");
    }
    t->partitions = (int32_t)ko_field_int(d, "spec.partitions", 1, 1, KP_TOPIC_PARTS_MAX, e);
    /* Virtual: nothing is replicated between brokers, clients just read the number back. */
    t->replication_factor = (int32_t)ko_field_int(d, "spec.replicationFactor", 1, 1, 32767, e);
    t->n_settings = ko_field_settings(d, "spec.config", &t->arena, &t->settings, e);
}

int ko_topic_parse(json_t *doc, struct ko_topic **ret, struct ko_field_errors *errs)
{
    struct ko_topic *t = kc_zalloc(sizeof(*t));
    errs->n = 0;
    *ret = NULL;
    kc_arena_init(&t->arena, ARENA_CHUNK, ARENA_MAX);
    t->doc = json_incref(doc);
    t->ns = kc_json_str(doc, "metadata.namespace", "default");
    t->name = kc_json_str(doc, "metadata.name", "");
    t->uid = kc_json_str(doc, "metadata.uid", "");
    t->created = kc_json_str(doc, "metadata.creationTimestamp", "");
    t->topic_id = kc_json_str(doc, "status.topicId", "");
    t->generation = kc_json_int(doc, "metadata.generation", 0);
    t->deleting = kc_json_at(doc, "metadata.deletionTimestamp") != NULL;
    parse_fields(t, errs);
    if (errs->n > 0) {
        ko_topic_free(t);
        return KC_E_CONFIG;
    }
    *ret = t;
    return 0;
}

int ko_topic_check_config(const struct ko_topic *t, struct ko_field_errors *errs)
{
    char why[KI_WHY_MAX];
    errs->n = 0;
    for (int32_t i = 0; i < t->n_settings; i++) {
        const struct ko_setting *s = &t->settings[i];
        if (!ki_key_take(KI_TOPIC_KEY, kc_str_of(s->name), kc_str_of(s->value), why, sizeof(why))) {
            ko_field_error(errs, "spec.config", "%s", why);
        }
    }
    return errs->n > 0 ? KC_E_CONFIG : 0;
}

void ko_topic_free(struct ko_topic *t)
{
    if (t) {
        json_decref(t->doc);
        kc_arena_fini(&t->arena);
        kc_free(t);
    }
}
