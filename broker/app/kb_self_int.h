/* kb_self_int.h - what the files of the self-led host share. */
#ifndef KB_SELF_INT_H
#define KB_SELF_INT_H

#include "app/kb_self.h"
#include "base/kc_map.h"
#include "policy/kp_ctl.h"

enum {
    KB_SELF_TERM = 1,
    KB_SELF_OPENS_MAX = 64, /* takeovers under way at the same time */
    KB_SELF_RETRY_MS = 250, /* first retry of a failed open; doubles to … */
    KB_SELF_RETRY_MAX_MS = 10000
};

enum kb_self_state {
    KB_PART_IDLE,
    KB_PART_OPENING,
    KB_PART_INSTALLING,
    KB_PART_OPEN,
    KB_PART_RELEASING
};

struct kb_self_part {
    struct kb_self *self;
    struct kb_self_topic *topic;
    int32_t partition;
    enum kb_self_state state;
    bool may_create;
    bool permanent; /* failed for a permanent reason: offline (R45) */
    int32_t epoch;
    int32_t attempts;
    int64_t retry_ms;
    struct ks_log *log; /* on its way to its data loop */
};

struct kb_self_topic {
    struct kc_uuid id;
    char name[KP_NAME_MAX + 1];
    bool internal, deleted;
    bool removing; /* its directory is being removed */
    int32_t replication_factor;
    int32_t n_configs;
    struct ki_config *configs; /* owned texts, sorted by name */
    int32_t n_parts;
    struct kb_self_part **parts;
};

struct change;

enum kb_self_mode { KB_SELF_RUN, KB_SELF_REJOIN, KB_SELF_LEAVE };

struct kb_self {
    struct kb_self_opts o;
    struct kp_ctl *ctl;
    struct kp_order order;
    struct kc_uuid incarnation;
    enum kb_self_mode mode;
    int32_t n_topics, room;
    struct kb_self_topic **topics; /* sorted by id */
    struct ki_shard *shards[KP_SHARDS];
    int32_t n_opening, n_held; /* takeovers under way; partitions that are not idle */
    bool report_full; /* the next status carries everything */
    bool published;
    bool unpublished; /* there was no memory for an image: the next turn builds it */
    bool registering;
    int64_t rejoin_ms, rejoin_wait_ms;
    struct kc_list changes; /* admin changes that wait for their turn */
    bool changing;
    struct change
        *late; /* on the volume, not yet here, for there was no memory; the turn tries again */
    bool making; /* the change that makes an internal topic is under way */
    bool reconfigure; /* open logs are told their configs with the next turn */
    uint32_t touched; /* shards to publish whatever the controller says */
    _Atomic bool serving;
    uv_timer_t timer;
    struct rt_msg soon_msg;
    bool soon;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/* Decides, publishes, opens: soon, on the control loop, once for many calls. */
void kb_self_soon(struct kb_self *s);
struct kb_self_topic *kb_self_topic_find(struct kb_self *s, const struct kc_uuid *id);
struct kb_self_topic *kb_self_topic_named(struct kb_self *s, const char *name);
/* Partitions start idle. Returns 0, -ENOMEM, -EEXIST or the controller's refusal; then there is no
 * such topic here. */
int kb_self_topic_add(struct kb_self *s, const struct ks_topic_meta *meta, bool fresh,
                      struct kb_self_topic **ret);
void kb_self_topic_drop(struct kb_self *s, struct kb_self_topic *t);
/* More partitions, to n. Returns 0, the controller's refusal, or -ENOMEM: it may be called again. */
int kb_self_topic_grow(struct kb_self *s, struct kb_self_topic *t, int32_t n, bool fresh);
void kb_self_topic_free(struct kb_self_topic *t);
/* {"name": "value"} to a sorted list of owned texts and back: all of them, or -ENOMEM and NULL. A topic
 * without the retention it was given would lose records. */
int kb_self_configs_parse(const char *json, struct ki_config **ret, int32_t *ret_n);
char *kb_self_configs_print(const struct ki_config *configs, int32_t n); /* kc_free */
void kb_self_configs_free(struct ki_config *configs, int32_t n);

/* kb_self.c: a new incarnation, once nothing of the fenced one is left. */
void kb_self_rejoin(struct kb_self *s, int64_t now_ms);
/* kb_self_open.c: what the mode and the assignment ask for. */
void kb_self_reconcile(struct kb_self *s, int64_t now_ms);
void kb_self_configure_all(struct kb_self *s); /* tells open logs the configs of the image */
int64_t kb_self_next_retry(const struct kb_self *s);
void kb_self_release(struct kb_self_part *p, bool seal);
/* kb_self_admin.c: applies a change that was late. False: still no memory. */
bool kb_self_apply_late(struct kb_self *s);
/* kb_self_admin.c: an internal topic of KP_SLOTS partitions, unless the volume has it. */
void kb_self_make_internal(struct kb_self *s, const char *name);
/* kb_self_admin.c: directories of tombstones whose partitions are all let go. */
void kb_self_sweep_tombstones(struct kb_self *s);

#endif
