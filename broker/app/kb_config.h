/* kb_config.h - the configuration of one broker (docs/architecture.md, "Configuration of a broker").
 *
 * Read once at start and constant afterwards; any thread reads. Every value is checked here, with a
 * message that names the field and what would be right; the rest of the broker trusts it. */
#ifndef KB_CONFIG_H
#define KB_CONFIG_H

#include "base/kc_error.h"
#include "image/ki_image.h"
#include "policy/kp_types.h"

enum kb_image_source { KB_IMAGE_NONE, KB_IMAGE_KUBERNETES, KB_IMAGE_DIRECTORY };

struct kb_listener {
    char name[32];
    char bind[48];
    uint16_t port; /* 0 = pick one (tests) */
    char advertised_host[KP_HOST_MAX + 1];
    uint16_t advertised_port; /* 0 = the bound port */
};

struct kb_config {
    bool self_led; /* no `cluster` */
    char cluster_namespace[64];
    char cluster_name[254];
    int32_t id;
    char pod_name[254], pod_uid[40], rack[64];
    char *data_dir;
    int32_t n_listeners;
    struct kb_listener listeners[KP_LISTENERS_MAX];
    char health_bind[48];
    uint16_t health_port;
    char operator_host[KP_HOST_MAX + 1];
    uint16_t operator_port;
    char *token_file; /* NULL = none */
    enum kb_image_source image_source;
    char image_name[254];
    char *image_mount; /* boot-time copy; NULL = none */
    char *image_directory; /* of ConfigMap files, for KB_IMAGE_DIRECTORY */
    int64_t heartbeat_interval_ms, heartbeat_timeout_ms;
    int32_t termination_grace_s;
    bool unsafe_storage;
    int32_t data_loops; /* 0 = one a core */
    int32_t n_configs;
    struct ki_config *configs; /* Kafka broker keys, sorted by name */
};

/* What the environment and the command line add; NULL and -1 = not given. */
struct kb_config_env {
    int32_t id;
    const char *pod_name, *pod_uid;
};

/* text: YAML. Returns owned in *ret, or KC_E_CONFIG / -ENOMEM with the field named in err. */
int kb_config_parse(const char *text, size_t len, const struct kb_config_env *env,
                    struct kb_config **ret, struct kc_err *err);
int kb_config_load(const char *path, const struct kb_config_env *env, struct kb_config **ret,
                   struct kc_err *err);
void kb_config_free(struct kb_config *c);

#endif
