/* kb_admin.h - admin changes that clients ask of this broker: topics and their configs.
 *
 * Handlers validate what the client said, then submit the change. Behind kb_admin_submit is a port:
 * broker/cluster forwards the change over the heartbeat stream to the active operator, the self-led
 * broker applies it to its own image and volume. The client is answered only when this broker's own
 * image shows the result, so that what it asks next finds it (design.md, 1). */
#ifndef KB_ADMIN_H
#define KB_ADMIN_H

#include "policy/kp_types.h"

struct kb_app;

/* The numbers of proto/heartbeat.proto's AdminKind. */
enum kb_admin_kind {
    KB_CREATE_TOPIC = 1,
    KB_DELETE_TOPIC = 2,
    KB_CREATE_PARTITIONS = 3,
    KB_ALTER_TOPIC_CONFIG = 4
};

struct kb_admin_config {
    const char *name;
    const char *value; /* NULL = remove the override */
};

struct kb_admin_change {
    enum kb_admin_kind kind;
    const char *principal;
    const char *topic; /* "" when a deletion names the id alone */
    struct kc_uuid topic_id; /* of a deletion by id, else zero */
    int32_t partitions; /* the whole number afterwards, not the difference */
    int32_t replication_factor;
    int32_t n_configs;
    const struct kb_admin_config *configs;
    bool validate_only;
    bool internal;
};

struct kb_admin_result {
    int16_t error; /* Kafka's */
    const char *message; /* "" = none; borrowed for the call */
    struct kc_uuid topic_id;
    int32_t partitions;
    struct kp_order
        order; /* the change shows in an image of this order or a newer one; uid "" = at once */
};

typedef void (*kb_admin_done)(void *ctx, const struct kb_admin_result *r);

/* Copies change. done runs exactly once, on the calling loop: with the port's result once the image
 * shows it, or with REQUEST_TIMED_OUT (7) at deadline_ms (monotonic). [any data loop] */
void kb_admin_submit(struct kb_app *app, const struct kb_admin_change *change, int64_t deadline_ms,
                     kb_admin_done done, void *ctx);

/* ---- the port ---- */

struct kb_admin_ticket; /* one change under way */

/* submit is called on any thread and must not block. `change` lives until kb_admin_settle, which is
 * called exactly once for the ticket, on any thread, whatever happens (no active operator until
 * deadline_ms: error 7 or a retriable one). */
struct kb_admin_port {
    void (*submit)(void *ctx, struct kb_admin_ticket *t, const struct kb_admin_change *change,
                   int64_t deadline_ms);
    void *ctx;
};
void kb_admin_settle(struct kb_admin_ticket *t, const struct kb_admin_result *r);

#endif
