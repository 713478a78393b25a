/* kb_self_admin.c - admin changes of the self-led broker: the volume first, then the image.
 *
 * One at a time, in order: each is checked against the topics as they are, written to the volume on
 * the pool, applied on the control loop and settled with the order of the image that shows it. A
 * crash in between leaves a topic that the next start adopts, or a tombstone that is final. */
#include "app/kb_self_int.h"

#include <errno.h>
#include <string.h>

#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "wire/kw_errors.h"

struct change {
    struct kc_list node;
    struct rt_work work;
    struct rt_msg msg;
    struct kb_self *self;
    struct kb_admin_ticket *ticket; /* NULL: our own */
    const struct kb_admin_change *c;
    struct kc_uuid topic_id;
    struct ks_topic_meta meta; /* what is to be written */
    int rc;
    struct kc_err err;
};

static void pump(struct kb_self *s);

static void settle(struct change *ch, int16_t error, const char *message, uint64_t generation)
{
    struct kb_self *s = ch->self;
    struct kb_admin_result r = {.error = error,
                                .message = message,
                                .topic_id = ch->topic_id,
                                .partitions = ch->meta.partitions,
                                .order = s->order};
    r.order.generation = generation;
    if (ch->ticket) {
        kb_admin_settle(ch->ticket, &r);
    } else {
        s->making = false; /* after an error the next turn tries again */
    }
    kc_free(ch->meta.configs_json);
    kc_free(ch);
    s->changing = false;
    pump(s);
}

static void refuse(struct change *ch, int16_t error, const char *message)
{
    settle(ch, error, message, 0);
}

/* ---- on the control loop, when the volume has it ---- */

static int set_configs(struct kb_self *s, struct kb_self_topic *t, const char *json)
{
    struct ki_config *configs;
    int32_t n;
    int rc = kb_self_configs_parse(json, &configs, &n);
    if (!rc) {
        kb_self_configs_free(t->configs, t->n_configs);
        t->configs = configs;
        t->n_configs = n;
        s->reconfigure = true;
    }
    return rc;
}

static int change_topic(struct change *ch)
{
    struct kb_self *s = ch->self;
    struct kb_self_topic *t = kb_self_topic_find(s, &ch->topic_id);
    int rc = 0;
    if (ch->c->kind == KB_CREATE_TOPIC) {
        rc = kb_self_topic_add(s, &ch->meta, true, &t);
        if (!rc) {
            t->replication_factor = ch->c->replication_factor;
        }
    } else if (ch->c->kind == KB_CREATE_PARTITIONS) {
        rc = kb_self_topic_grow(s, t, ch->meta.partitions, true);
    } else if (ch->c->kind == KB_ALTER_TOPIC_CONFIG) {
        rc = set_configs(s, t, ch->meta.configs_json);
    }
    return rc;
}

/* The volume has the change: without memory it waits, together with those behind it, and is not
 * refused, for the next start would find it. */
static void apply(struct change *ch)
{
    struct kb_self *s = ch->self;
    int rc = change_topic(ch);
    if (rc == -ENOMEM) {
        s->late = ch;
        kb_self_soon(s);
        return;
    }
    if (rc) {
        refuse(ch, KAFKA_INVALID_PARTITIONS, "The limit of topics or partitions is reached.");
        return;
    }
    s->touched |= 1U << kp_shard_of(&ch->topic_id);
    kb_self_soon(s);
    settle(ch, KAFKA_NONE, "", s->order.generation + 1); /* which the turn asked for publishes */
}

bool kb_self_apply_late(struct kb_self *s)
{
    struct change *ch = s->late;
    s->late = NULL;
    if (ch) {
        apply(ch);
    }
    return !s->late;
}

static void on_written(struct rt_msg *msg)
{
    struct change *ch = KC_CONTAINER_OF(msg, struct change, msg);
    if (ch->rc) {
        kc_log(KC_ERROR, "self", "event=topic_write_failed topic=%s error=\"%s\"", ch->meta.name,
               ch->err.msg);
        refuse(ch, KAFKA_KAFKA_STORAGE_ERROR, "The volume refused the change.");
        return;
    }
    apply(ch);
}

static void write_work(struct rt_work *w)
{
    struct change *ch = KC_CONTAINER_OF(w, struct change, work);
    ch->rc = ks_topic_write(ch->self->o.app->engine, &ch->meta, &ch->err);
    ch->msg.fn = on_written;
    rt_post(ch->self->o.loop, &ch->msg);
}

/* ---- checks ---- */

/* The overrides after the change, as text: the present ones, set and removed as asked. NULL: no
 * memory. */
static char *merged_configs(const struct kb_self_topic *t, const struct kb_admin_change *c)
{
    int32_t have = t ? t->n_configs : 0;
    struct ki_config *list = kc_try_zalloc((size_t)have + (size_t)c->n_configs + 1, sizeof(*list));
    int32_t n = 0;
    if (!list) {
        return NULL;
    }
    for (int32_t i = 0; i < have; i++) {
        bool replaced = false;
        for (int32_t j = 0; j < c->n_configs; j++) {
            replaced |= strcmp(c->configs[j].name, t->configs[i].name) == 0;
        }
        if (!replaced) {
            list[n++] = t->configs[i];
        }
    }
    for (int32_t j = 0; j < c->n_configs; j++) {
        if (c->configs[j].value) {
            list[n++] = (struct ki_config){c->configs[j].name, c->configs[j].value};
        }
    }
    char *text = kb_self_configs_print(list, n);
    kc_free(list);
    return text;
}

static int16_t check(const struct kb_self *s, const struct kb_self_topic *t,
                     const struct kb_admin_change *c, const char **ret_message)
{
    if (c->kind == KB_CREATE_TOPIC) {
        *ret_message = "The topic exists already.";
        return t ? KAFKA_TOPIC_ALREADY_EXISTS : KAFKA_NONE;
    }
    if (!t || t->deleted) {
        *ret_message = "There is no such topic.";
        return KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    }
    if (c->kind == KB_CREATE_PARTITIONS && c->partitions <= t->n_parts) {
        *ret_message = "The topic has as many partitions already.";
        return KAFKA_INVALID_PARTITIONS;
    }
    if (s->mode != KB_SELF_RUN) {
        *ret_message = "The broker is shutting down.";
        return KAFKA_COORDINATOR_NOT_AVAILABLE;
    }
    return KAFKA_NONE;
}

static void delete_topic(struct change *ch, struct kb_self_topic *t)
{
    struct kb_self *s = ch->self;
    t->deleted = true;
    kp_ctl_topic_delete(s->ctl, &t->id);
    s->touched |= 1U << kp_shard_of(&t->id);
    apply(ch);
}

static void begin(struct change *ch)
{
    struct kb_self *s = ch->self;
    const struct kb_admin_change *c = ch->c;
    struct kb_self_topic *t = kc_uuid_is_zero(&c->topic_id) ? kb_self_topic_named(s, c->topic)
                                                            : kb_self_topic_find(s, &c->topic_id);
    const char *message = "";
    int16_t error = check(s, t, c, &message);
    bool counts = c->kind == KB_CREATE_TOPIC || c->kind == KB_CREATE_PARTITIONS;
    ch->topic_id = t ? t->id : kc_uuid_random();
    ch->meta.partitions = counts ? c->partitions : t ? t->n_parts : 0;
    if (error || c->validate_only) {
        refuse(ch, error, error ? message : "");
        return;
    }
    if (c->kind == KB_DELETE_TOPIC) {
        delete_topic(ch, t);
        return;
    }
    ch->meta.id = ch->topic_id;
    ch->meta.internal = t ? t->internal : c->internal;
    size_t len = strnlen(t ? t->name : c->topic, KP_NAME_MAX);
    memcpy(ch->meta.name, t ? t->name : c->topic, len);
    ch->meta.configs_json = merged_configs(t, c);
    if (!ch->meta.configs_json) {
        refuse(ch, KAFKA_KAFKA_STORAGE_ERROR, "There is no memory for the change.");
        return;
    }
    ch->work.fn = write_work;
    rt_pool_post(s->o.pool, &ch->work);
}

static void pump(struct kb_self *s)
{
    if (s->changing || kc_list_empty(&s->changes)) {
        return;
    }
    struct change *ch = KC_LIST_ENTRY(s->changes.next, struct change, node);
    kc_list_del(&ch->node);
    s->changing = true;
    begin(ch);
}

static void enqueue(struct kb_self *s, struct change *ch)
{
    kc_list_add_tail(&s->changes, &ch->node);
    pump(s);
}

static void on_submitted(struct rt_msg *msg)
{
    struct change *ch = KC_CONTAINER_OF(msg, struct change, msg);
    enqueue(ch->self, ch);
}

void kb_self_make_internal(struct kb_self *s, const char *name)
{
    static struct kb_admin_config compact = {"cleanup.policy", "compact"};
    if (s->making || kb_self_topic_named(s, name)) {
        return;
    }
    struct internal {
        struct change ch;
        struct kb_admin_change c;
    } *in = kc_zalloc(sizeof(*in));
    in->c = (struct kb_admin_change){.kind = KB_CREATE_TOPIC,
                                     .principal = "",
                                     .topic = name,
                                     .partitions = KP_SLOTS,
                                     .replication_factor = 1,
                                     .n_configs = 1,
                                     .configs = &compact,
                                     .internal = true};
    s->making = true;
    in->ch.self = s;
    in->ch.c = &in->c; /* freed with the change, whose address it shares */
    enqueue(s, &in->ch);
}

static void submit(void *ctx, struct kb_admin_ticket *ticket, const struct kb_admin_change *change,
                   int64_t deadline_ms)
{
    struct kb_self *s = ctx;
    (void)deadline_ms; /* the volume answers or it does not; the ticket has its own deadline */
    struct change *ch = kc_zalloc(sizeof(*ch));
    ch->self = s;
    ch->ticket = ticket;
    ch->c = change;
    ch->msg.fn = on_submitted;
    rt_post(s->o.loop, &ch->msg);
}

struct kb_admin_port kb_self_admin_port(struct kb_self *s)
{
    return (struct kb_admin_port){.submit = submit, .ctx = s};
}

/* ---- tombstones ---- */

struct removal {
    struct rt_work work;
    struct rt_msg msg;
    struct kb_self *self;
    struct kc_uuid topic_id;
    int rc;
    struct kc_err err;
};

static void on_removed(struct rt_msg *msg)
{
    struct removal *r = KC_CONTAINER_OF(msg, struct removal, msg);
    struct kb_self *s = r->self;
    struct kb_self_topic *t = kb_self_topic_find(s, &r->topic_id);
    if (r->rc && t) {
        kc_log(KC_WARN, "self", "event=topic_remove_failed topic=%s error=\"%s\"", t->name,
               r->err.msg);
        t->removing = false; /* the next turn tries again */
    } else if (t) {
        kp_ctl_topic_forget(s->ctl, &t->id);
        kb_self_topic_drop(s, t);
        kb_self_soon(s);
    }
    kc_free(r);
}

static void remove_work(struct rt_work *w)
{
    struct removal *r = KC_CONTAINER_OF(w, struct removal, work);
    r->rc = ks_topic_remove(r->self->o.app->engine, &r->topic_id, &r->err);
    r->msg.fn = on_removed;
    rt_post(r->self->o.loop, &r->msg);
}

void kb_self_sweep_tombstones(struct kb_self *s)
{
    for (int32_t i = 0; i < s->n_topics; i++) {
        struct kb_self_topic *t = s->topics[i];
        bool idle = t->deleted && !t->removing;
        for (int32_t p = 0; idle && p < t->n_parts; p++) {
            idle = t->parts[p]->state == KB_PART_IDLE;
        }
        if (!idle) {
            continue;
        }
        t->removing = true;
        struct removal *r = kc_zalloc(sizeof(*r));
        r->self = s;
        r->topic_id = t->id;
        r->work.fn = remove_work;
        rt_pool_post(s->o.pool, &r->work);
    }
}
