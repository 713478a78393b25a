/* rig.h - a control thread over an in-memory store, and brokers that are a socket each.
 *
 * The test is the third thread: it talks to the control thread as brokers and as the API loop do,
 * and waits for conditions with a deadline, never for time. */
#ifndef RIG_H
#define RIG_H

#include <pthread.h>

#include "control/ko_control.h"
#include "hb/hb_convert.h"
#include "stores.h"

#define RIG_CLUSTER "ns/demo"
enum { RIG_RENEW_DEADLINE_MS = 3000 };

struct rig_admin {
    uint64_t ticket;
    enum ko_admin_kind kind;
    char topic[256];
    struct kc_uuid topic_id;
    int32_t partitions, n_configs;
};

struct rig {
    struct rt_loop *api; /* owned by the shared part, when there are two operators on one store */
    struct rt_loop own_api;
    struct ko_store *store; /* of all objects; shared by the rigs of one test */
    struct rt_loop *lease_loop, own_lease_loop; /* what serves the Lease, shared likewise */
    struct ko_store *lease_store;
    struct flaky flaky; /* the same as the publisher sees it */
    _Atomic bool cut; /* Lease calls fail */
    const char *identity, *advertised;
    int64_t check_ms; /* set before a restart */
    struct ko_control *c;
    uint16_t port;
    pthread_mutex_t lock; /* guards what callbacks left here */
    struct ko_view *view;
    int32_t views, events[16], adopted, gone, refusals;
    char refused[200];
    char adopted_name[256];
    struct kc_uuid adopted_id, gone_id, refused_id;
    struct rig_admin admins[64];
    int32_t n_admins;
    bool leader;
    bool hold_admin; /* the test answers itself */
    int32_t admin_error;
    char token[64];
};

void rig_start(struct rig *r);
/* A second operator over the first one's objects; stop it before the first. */
void rig_start_second(struct rig *r, struct rig *first);
/* Another operator process over the same objects. */
void rig_restart(struct rig *r);
void rig_halt(struct rig *r); /* ends the process alone; rig_stop or rig_restart goes on */
void rig_stop(struct rig *r);
/* The KaasCluster, its slice with brokers 0..n-1 ready, and synced. */
void rig_cluster(struct rig *r, int32_t n);
void rig_slice(struct rig *r, int32_t n, bool ready);
/* The KaasCluster alone, as it is told before its slices are; and that everything has been told. */
void rig_spec(struct rig *r, int32_t desired);
void rig_synced(struct rig *r);
/* Waits until cond(r, arg) holds under the lock; false after 10 s. */
bool rig_await(struct rig *r, bool (*cond)(struct rig *r, void *arg), void *arg);
/* Conditions for it: this operator leads; it holds the cluster, whose image is in the store. */
bool rig_is_leader(struct rig *r, void *arg);
bool rig_is_held(struct rig *r, void *arg);
/* The usual: an operator that leads and holds a cluster of n brokers. The test fails otherwise. */
void rig_begin(struct rig *r, int32_t n);
/* Removes a ConfigMap, or replaces its data. */
void rig_remove_configmap(struct rig *r, const char *name);
void rig_set_configmap(struct rig *r, const char *name, json_t *data);
/* A ConfigMap of the store as it is (new reference), NULL: none. */
json_t *rig_configmap(struct rig *r, const char *name);
/* The image as a broker would read it; NULL: not whole. Unref. */
struct ki_image *rig_image(struct rig *r);
bool rig_await_image(struct rig *r, bool (*cond)(const struct ki_image *im, void *arg), void *arg);
/* A condition for it: the image has a topic of that name. */
bool rig_image_names(const struct ki_image *im, void *name);

/* ---- a broker ---- */

struct peer {
    int fd;
    int32_t id;
    struct kc_uuid incarnation, process;
    struct hb_reader reader;
    struct kc_arena arena;
    char volume[KC_UUID_B64_LEN + 1];
    uint64_t sequence;
    /* what it was told */
    bool accepted, active, want_inventory, condemned;
    char reason[256];
    char active_host[256];
    uint64_t term, generation;
    char uid[64];
    struct kp_row rows[16];
    bool row_there[16];
    int32_t n_orders;
    struct kp_relay orders[64];
    bool order_seal[64];
    int32_t n_results;
    struct {
        uint64_t sequence, generation;
        int32_t error;
        char message[256];
        struct kc_uuid topic_id;
    } results[64];
    bool closed;
    /* what it says */
    bool healthy, draining, serving;
    uint32_t protocol; /* 0 = an image older than protocol versions */
    int said, answered; /* statuses */
    const char *trouble; /* why it is not healthy */
    int32_t n_leads; /* told, ever */
    struct kp_lead leads[64];
    struct kp_led led[256];
    int32_t n_led;
};

void peer_init(struct peer *p, int32_t id);
void peer_fini(struct peer *p);
/* Connects and says hello with token; returns after the answer. */
bool peer_dial(struct peer *p, struct rig *r, const char *token);
void peer_hangup(struct peer *p);
void peer_send(struct peer *p, const Kaas__Heartbeat__BrokerMessage *m);
void peer_status(struct peer *p); /* full */
void peer_inventory(struct peer *p, const Kaas__Heartbeat__Inventory *inv);
/* sequence 0: the next one. Returns the sequence. */
uint64_t peer_admin(struct peer *p, Kaas__Heartbeat__AdminRequest *a, uint64_t sequence);
/* Reads what comes within ms, or until cond holds; sends a status each 500 ms meanwhile. */
bool peer_await(struct peer *p, bool (*cond)(struct peer *p, void *arg), void *arg);
bool peer_result(struct peer *p, uint64_t sequence, int *ret_index);
/* Conditions for peer_await: the operator decides; every status is answered; arg, a peer_wanted, has
 * its result. */
bool peer_is_active(struct peer *p, void *arg);
bool peer_all_answered(struct peer *p, void *arg);
struct peer_wanted {
    uint64_t sequence;
    int index; /* of its result */
};
bool peer_has_result(struct peer *p, void *arg);
/* Dials, says that the volume is empty, and waits until the operator decides. The test fails otherwise. */
void peer_begin(struct peer *p, struct rig *r);
/* A request for peer_admin; borrows name. */
Kaas__Heartbeat__AdminRequest peer_create_topic(const char *name, int32_t partitions);

#endif
