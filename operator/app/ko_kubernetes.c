/* The operator in a Kubernetes cluster. */
#include "app/ko_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/ko_host.h"
#include "app/ko_token.h"
#include "base/kc_log.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "k8s/k8s_config.h"
#include "store/ko_store_k8s.h"

enum { LEASE_CALL_MS = 1000 };

static struct ko_store *lease_store(void *ctx, struct rt_loop *loop)
{
    struct kc_err err;
    struct ko_store *s = ko_store_k8s_new(loop, ctx, LEASE_CALL_MS, &err);
    if (!s) {
        kc_log(KC_ERROR, "operator", "event=lease_client_failed error=\"%s\"", err.msg);
    }
    return s;
}

static void on_stop(void *ctx, bool again)
{
    if (!again) {
        ko_host_stop(ctx);
    }
}

/* Names this process, not the pod: a container that restarts within its Lease must not take the
 * Lease of its own past for its own, but wait for it like everybody else. */
static void identity(char *out, size_t cap)
{
    char host[64] = "unknown";
    const char *pod = getenv("POD_NAME");
    uint32_t life;
    kc_random_bytes(&life, sizeof(life));
    gethostname(host, sizeof(host) - 1);
    snprintf(out, cap, "%s_%08x", pod && *pod ? pod : host, life);
}

int ko_kubernetes(const struct ko_args *a, struct kc_err *err)
{
    static struct ko_host host;
    struct k8s_config cfg;
    char who[128];
    const char *ip = getenv("POD_IP");
    int rc = k8s_config_load(&cfg, err);
    if (rc) {
        return rc;
    }
    identity(who, sizeof(who));
    rc = ko_host_init(&host, err);
    if (!rc) {
        host.store = ko_store_k8s_new(&host.loop, &cfg, 0, err);
        rc = host.store ? 0 : (err->code ? err->code : KC_E_CONFIG);
    }
    host.on_stop = on_stop;
    host.ctx = &host;
    struct ko_host_opts o = {
        .rec = {.ns = a->ns,
                .build = {a->image, a->heartbeat_host, a->heartbeat_port},
                .component = "kaas-operator"},
        .control = {.bind = "",
                    .port = a->heartbeat_port,
                    .identity = who,
                    .lease_ns = getenv("POD_NAMESPACE") ? getenv("POD_NAMESPACE") : cfg.namespace_,
                    .lease_name = a->lease_name,
                    .advertised = ip ? ip : "",
                    .lease_store = lease_store,
                    .lease_store_ctx = &cfg,
                    .auth = ko_token_review,
                    .auth_ctx = host.store,
                    .lease_ms = 4000,
                    .renew_deadline_ms = 3000,
                    .retry_ms = 500},
        .health_bind = "",
        .health_port = a->health_port,
    };
    rc = rc ? rc : ko_host_start(&host, &o, err);
    if (!rc) {
        ko_host_run(&host);
    }
    k8s_config_fini(&cfg);
    return rc;
}
