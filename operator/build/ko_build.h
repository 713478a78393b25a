/* ko_build.h - the documents a KaasCluster asks for.
 *
 * Pure and deterministic: equal clusters and options give equal documents, so that a reconciler
 * compares a hash. Each document is meant for server-side apply: it names only what the operator
 * decides. All returned references are new. */
#ifndef KO_BUILD_H
#define KO_BUILD_H

#include "crd/ko_crd.h"

struct ko_build_opts {
    const char *image; /* for clusters that name none */
    const char *heartbeat_host; /* of the operator's headless heartbeat Service */
    uint16_t heartbeat_port;
};

enum { KO_HEALTH_PORT = 8080 };

json_t *ko_build_service_account(const struct ko_cluster *c);
json_t *ko_build_role(const struct ko_cluster *c);
json_t *ko_build_role_binding(const struct ko_cluster *c);
json_t *ko_build_headless_service(const struct ko_cluster *c);
json_t *ko_build_bootstrap_service(const struct ko_cluster *c);
/* The Service <cluster>-broker-<id> of one broker: the address that it advertises (ADR 18). */
json_t *ko_build_broker_service(const struct ko_cluster *c, int32_t id);
void ko_build_broker_service_name(const struct ko_cluster *c, int32_t id, char *out, size_t cap);
json_t *ko_build_config(const struct ko_cluster *c, const struct ko_build_opts *o);
/* NULL unless the storage is a claim template. Owned by the cluster only if deleteClaim says so:
 * the volume outlives its KaasCluster otherwise. */
json_t *ko_build_claim(const struct ko_cluster *c);
json_t *ko_build_pdb(const struct ko_cluster *c);
/* partition: the rollout's gate (design.md 7); 0 = no gate. The annotation KO_TEMPLATE_HASH tells a
 * newer pod template from the one that is being rolled out. */
#define KO_TEMPLATE_HASH "kaas.dev/template-hash"
json_t *ko_build_statefulset(const struct ko_cluster *c, const struct ko_build_opts *o,
                             int32_t partition);
json_t *ko_build_broker(const struct ko_cluster *c, int32_t id); /* the KaasBroker object */

/* The configuration file of brokers (docs/architecture.md), for pods and for local children. */
struct ko_broker_file {
    const char *data_dir;
    const char *bind;
    const char *advertised_host; /* may hold {pod} */
    uint16_t ports[KO_LISTENERS_MAX]; /* of the cluster's listeners */
    uint16_t health_port;
    const char *operator_host;
    uint16_t operator_port;
    const char *token_file;
    const char *image_dir; /* local: folder of ConfigMap files; NULL = Kubernetes */
    bool unsafe_storage;
};
/* YAML text, owned (kc_free). */
char *ko_build_broker_yaml(const struct ko_cluster *c, const struct ko_broker_file *f);

/* 16 hex digits of a document's content; equal documents, equal hashes. */
void ko_doc_hash(const json_t *doc, char out[17]);
/* The selector of a cluster's pods as a string (status.selector, /scale). */
void ko_build_selector(const struct ko_cluster *c, char *out, size_t cap);

#endif
