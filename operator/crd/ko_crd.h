/* ko_crd.h - KaasCluster and KaasTopic documents as checked C structs.
 *
 * The same rules as the schemas and CEL rules of crds/, said again because the local host has no API
 * server, and because an operator may meet objects that an older schema let in. Pure; any thread.
 * Errors name the field and the fix; all of them are reported at once. */
#ifndef KO_CRD_H
#define KO_CRD_H

#include <jansson.h>

#include "base/kc_arena.h"
#include "base/kc_error.h"

enum {
    KO_FIELD_ERRORS_MAX = 12,
    KO_LISTENERS_MAX = 8,
    KO_CONFIGS_MAX = 256,
    KO_SETTING_MAX = 1024
};

struct ko_field_errors {
    int n; /* may exceed what is kept in text */
    char text[KO_FIELD_ERRORS_MAX][200];
};
void ko_field_error(struct ko_field_errors *e, const char *field, const char *fmt, ...)
    KC_PRINTF(3, 4);
/* "spec.a: …; spec.b: …" cut to cap; returns out. */
const char *ko_field_errors_join(const struct ko_field_errors *e, char *out, size_t cap);

struct ko_setting {
    const char *name, *value;
};

enum ko_listener_type {
    KO_LISTENER_INTERNAL,
    KO_LISTENER_NODEPORT,
    KO_LISTENER_LOADBALANCER,
    KO_LISTENER_ROUTE
};
struct ko_listener {
    const char *name; /* a DNS label, <= 15 */
    uint16_t port;
    enum ko_listener_type type;
    bool tls;
};

enum ko_storage_type { KO_STORAGE_CLAIM, KO_STORAGE_TEMPLATE, KO_STORAGE_HOSTPATH };
struct ko_storage {
    enum ko_storage_type type;
    const char *claim; /* name of an existing claim */
    const char *host_path;
    const json_t *claim_spec; /* PersistentVolumeClaimSpec of the template; borrowed */
    bool delete_claim;
};

/* A KaasCluster. Owns its memory and a copy of the document; strings and json borrow. */
struct ko_cluster {
    struct kc_arena arena;
    json_t *doc;
    const char *ns, *name, *uid;
    char key[320]; /* "namespace/name" */
    int64_t generation;
    bool deleting;
    int32_t replicas;
    const char *image; /* "" = the operator's default */
    int32_t min_ready_seconds; /* -1: field left out of the StatefulSet (R59) */
    int32_t grace_seconds;
    struct ko_storage storage;
    bool unsafe_storage; /* run on a volume that fails the conformance probe */
    int32_t n_listeners;
    struct ko_listener listeners[KO_LISTENERS_MAX];
    int32_t n_settings; /* Kafka broker keys, sorted */
    const struct ko_setting *settings;
    int64_t interval_ms, timeout_ms;
    int32_t max_topics, max_partitions;
    const char *rack_key; /* topology label of nodes, "" = none */
    const json_t *resources; /* ResourceRequirements or NULL */
    const json_t *pod_template; /* merge patch over the pod template, or NULL */
};

/* Sets what the schema defaults where the document has nothing. */
void ko_cluster_default(json_t *doc);
/* Copies doc and applies the defaults. 0, or KC_E_CONFIG with errs filled (and
 * *ret NULL). */
int ko_cluster_parse(json_t *doc, struct ko_cluster **ret, struct ko_field_errors *errs);
void ko_cluster_free(struct ko_cluster *c); /* NULL allowed */

/* A KaasTopic. */
struct ko_topic {
    struct kc_arena arena;
    json_t *doc;
    const char *ns, *name, *uid;
    const char *cluster; /* name of the KaasCluster, same namespace */
    const char *topic; /* spec.topicName, else the object's name */
    const char *topic_id; /* status.topicId, "" = none yet */
    const char *created; /* creationTimestamp */
    int64_t generation;
    bool deleting;
    int32_t partitions;
    int32_t replication_factor;
    int32_t n_settings;
    const struct ko_setting *settings;
};
int ko_topic_parse(json_t *doc, struct ko_topic **ret, struct ko_field_errors *errs);
/* spec.config against the table of topic configs, as brokers check what clients ask for. Apart from
 * ko_topic_parse: such a topic is well named, and what is in force of it stays. 0 or KC_E_CONFIG. */
int ko_topic_check_config(const struct ko_topic *t, struct ko_field_errors *errs);
void ko_topic_free(struct ko_topic *t);
/* The object name of a topic: its own name if that is a valid object name, else (or with a salt, when
 * that name is taken) a slug of it plus 10 hex digits of a hash of name and salt. */
void ko_topic_object_name(const char *topic, const char *salt, char out[254]);

#endif
