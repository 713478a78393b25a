/* What the control thread tells of topics: gone, refused, or there without an object. */
#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "reconcile/ko_rec.h"

static struct ko_topic_name *name_of_id(struct ko_rec *r, const char *cluster,
                                        const struct kc_uuid *id)
{
    char text[KC_UUID_B64_LEN + 1];
    struct kc_map_iter it = {0};
    kc_uuid_to_b64(id, text);
    for (struct kc_map_entry *e; (e = kc_map_next(&r->names, &it));) {
        struct ko_topic_name *n = e->value;
        if (strcmp(n->id, text) == 0 && strcmp(n->cluster, cluster) == 0) {
            return n;
        }
    }
    return NULL;
}

void ko_rec_topic_gone(struct ko_rec *r, const char *cluster, const struct kc_uuid *id)
{
    struct ko_topic_name *n = name_of_id(r, cluster, id);
    if (!n) {
        return;
    }
    struct ko_to *owner = ko_rec_owner(n);
    if (owner && ko_deleting(owner->doc)) {
        owner->gone = true;
    }
    if (owner && !ko_rec_going(owner)) {
        /* Its data were deleted, the object says that there is to be such a topic: a new one. */
        kc_log(KC_WARN, "reconcile", "event=topic_id_dead topic=%s id=%s", n->key, n->id);
    }
    memcpy(n->dead, n->id, sizeof(n->dead));
    n->id[0] = n->refused[0] = '\0';
    n->deleting = n->told = false;
    ko_rec_queue_claimants(r, n);
    ko_rec_queue(r, 'n', n->key, 0);
}

void ko_rec_topic_refused(struct ko_rec *r, const char *cluster, const struct kc_uuid *id,
                          const char *why)
{
    struct ko_topic_name *n = name_of_id(r, cluster, id);
    if (n) {
        snprintf(n->refused, sizeof(n->refused), "%s", why);
        ko_rec_queue_claimants(r, n);
    }
}

/* What a KaasTopic would say of the topic. */
static json_t *spec_of(const struct ki_topic *t)
{
    json_t *config = json_object();
    for (int32_t i = 0; i < t->n_configs; i++) {
        json_object_set_new(config, t->configs[i].name, json_string(t->configs[i].value));
    }
    return json_pack("{s:i, s:i, s:o}", "partitions", (int)t->n_parts, "replicationFactor",
                     (int)KC_MAX(t->replication_factor, 1), "config", config);
}

void ko_rec_adopt(struct ko_rec *r, const char *cluster, const struct ki_topic *topics, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const struct ki_topic *t = &topics[i];
        char id[KC_UUID_B64_LEN + 1];
        if (t->internal) {
            ko_control_topic(r->control, cluster, t); /* internal topics have no object */
            continue;
        }
        kc_uuid_to_b64(&t->id, id);
        struct ko_topic_name *name = ko_rec_name(r, cluster, t->name, true);
        if (!name || name->deleting || name->creating) {
            continue;
        }
        name->told = false;
        name->refused[0] = '\0';
        snprintf(name->id, sizeof(name->id), "%s", id); /* the volume's id wins */
        if (!kc_list_empty(&name->claimants)) {
            ko_rec_queue_claimants(r, name);
        } else {
            json_decref(name->lost);
            name->lost = spec_of(t);
            ko_rec_queue(r, 'n', name->key, 0);
        }
    }
}
