#include "step_fix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_str.h"
#include "kt.h"

static void copy(char out[64], struct kc_str s)
{
    snprintf(out, 64, "%.*s", KC_STR_ARG(s));
}

static void copy_bytes(char out[64], struct kc_bytes b)
{
    copy(out, (struct kc_str){(const char *)b.ptr, b.len});
}

static void keep_join(struct fx_answer *a, const struct kg_join_out *o)
{
    a->join = true;
    a->error = o->error;
    a->generation = o->generation;
    a->skip = o->skip_assignment;
    a->n_members = o->n_members;
    copy(a->leader, o->leader);
    copy(a->member, o->member_id);
    copy(a->protocol, o->protocol_name);
    if (o->n_members) {
        copy(a->first_member, o->members[0].id);
        copy_bytes(a->first_metadata, o->members[0].metadata);
    }
}

/* Performs what the step asked for. */
static void perform(struct fx *f)
{
    bool persisted = false;
    for (int32_t i = 0; i < f->step.n_actions; i++) {
        struct kg_action *act = &f->step.actions[i];
        struct fx_answer *a = act->req;
        switch (act->kind) {
        case KG_DO_JOIN_REPLY:
            a->count++;
            keep_join(a, &act->join);
            break;
        case KG_DO_SYNC_REPLY:
            a->count++;
            a->error = act->sync.error;
            copy_bytes(a->assignment, act->sync.assignment);
            copy(a->protocol, act->sync.protocol_name);
            break;
        case KG_DO_PERSIST:
            persisted = true;
            f->n_persists++;
            f->persist = act->persist.what;
            f->persist_generation = act->persist.generation;
            copy(f->persist_member, act->persist.member);
            break;
        }
    }
    kg_step_fini(&f->step);
    kg_step_init(&f->step, &f->cfg);
    if (persisted && f->auto_persist) {
        fx_persisted(f, 0);
    }
}

static void begin(struct fx *f)
{
    f->step.now_ms = f->now;
    f->step.wall_ms = f->now + 1000000;
}

/* Due deadlines run before anything else happens, as in the coordinator. */
static void finish(struct fx *f)
{
    perform(f);
    while (f->group.wake_ms <= f->now) {
        begin(f);
        kg_tick(&f->group, &f->step);
        perform(f);
    }
}

void fx_init(struct fx *f)
{
    memset(f, 0, sizeof(*f));
    f->cfg = (struct kg_config)KG_CONFIG_DEFAULTS;
    f->cfg.initial_delay_ms = 0;
    f->now = 1000;
    f->auto_persist = true;
    kg_step_init(&f->step, &f->cfg);
    kg_group_init(&f->group, KC_STR_LIT("g"), 0);
}

void fx_fini(struct fx *f)
{
    begin(f);
    kg_group_abandon(&f->group, &f->step, KAFKA_NOT_COORDINATOR);
    perform(f);
    for (int i = 0; i < f->n_reqs; i++) {
        KT_EQ(f->answers[i].count, 1); /* every request is answered exactly once */
    }
    kg_group_fini(&f->group);
    kg_step_fini(&f->step);
}

/* "a:b,c:d" → pairs that point into text, which is cut up. */
static int32_t split(char *text, char sep, struct kc_str *left, struct kc_bytes *right, int32_t cap)
{
    int32_t n = 0;
    char *save = NULL;
    for (char *p = strtok_r(text, ",", &save); p && n < cap; p = strtok_r(NULL, ",", &save), n++) {
        char *at = strchr(p, sep);
        *at = '\0';
        left[n] = kc_str_of(p);
        right[n] = (struct kc_bytes){(const uint8_t *)at + 1, (int32_t)strlen(at + 1)};
    }
    return n;
}

int fx_join(struct fx *f, struct fx_join j)
{
    char text[256];
    struct kc_str names[8];
    struct kc_bytes metas[8];
    struct kg_protocol protocols[8];
    snprintf(text, sizeof(text), "%s", j.protocols ? j.protocols : "range:x");
    int32_t n = split(text, ':', names, metas, 8);
    for (int32_t i = 0; i < n; i++) {
        protocols[i] = (struct kg_protocol){names[i], metas[i]};
    }
    int req = f->n_reqs++;
    struct kg_join_in in = {
        .req = &f->answers[req],
        .spec = {.id = kc_str_of(j.id ? j.id : ""),
                 .instance_id = kc_str_of(j.instance),
                 .client_id = KC_STR_LIT("client"),
                 .client_host = KC_STR_LIT("/127.0.0.1"),
                 .session_timeout_ms = j.session_ms ? j.session_ms : 10000,
                 .rebalance_timeout_ms = j.rebalance_ms ? j.rebalance_ms : 60000,
                 .n_protocols = n,
                 .protocols = protocols},
        .new_id = kc_str_of(j.new_id),
        .protocol_type = kc_str_of(j.type ? j.type : "consumer"),
        .require_known_id = j.two_step,
        .can_skip = j.can_skip,
    };
    begin(f);
    kg_join(&f->group, &f->step, &in);
    finish(f);
    return req;
}

int fx_sync(struct fx *f, const char *id, int32_t generation, const char *assignments)
{
    char text[256];
    struct kc_str ids[8];
    struct kc_bytes bytes[8];
    struct kg_assignment list[8];
    snprintf(text, sizeof(text), "%s", assignments ? assignments : "");
    int32_t n = split(text, '=', ids, bytes, 8);
    for (int32_t i = 0; i < n; i++) {
        list[i] = (struct kg_assignment){ids[i], bytes[i]};
    }
    int req = f->n_reqs++;
    struct kg_sync_in in = {.req = &f->answers[req],
                            .who = {.member_id = kc_str_of(id), .generation = generation},
                            .n_assignments = n,
                            .assignments = list};
    begin(f);
    kg_sync(&f->group, &f->step, &in);
    finish(f);
    return req;
}

int16_t fx_beat(struct fx *f, const char *id, int32_t generation)
{
    struct kg_who who = {.member_id = kc_str_of(id), .generation = generation};
    begin(f);
    int16_t error = kg_heartbeat(&f->group, &f->step, &who);
    finish(f);
    return error;
}

int16_t fx_leave(struct fx *f, const char *id, const char *instance)
{
    struct kg_who who = {.member_id = kc_str_of(id), .instance_id = kc_str_of(instance)};
    begin(f);
    int16_t error = kg_leave(&f->group, &f->step, &who);
    finish(f);
    return error;
}

int16_t fx_commit(struct fx *f, const char *id, int32_t generation)
{
    struct kg_who who = {.member_id = kc_str_of(id), .generation = generation};
    begin(f);
    int16_t error = kg_may_commit(&f->group, &f->step, &who);
    finish(f);
    return error;
}

void fx_persisted(struct fx *f, int16_t error)
{
    begin(f);
    kg_persisted(&f->group, &f->step, f->persist, f->persist_generation,
                 kc_str_of(f->persist_member), error);
    finish(f);
}

void fx_pass(struct fx *f, int64_t ms)
{
    int64_t until = f->now + ms;
    while (f->group.wake_ms <= until) {
        f->now = KC_MAX(f->now, f->group.wake_ms);
        begin(f);
        kg_tick(&f->group, &f->step);
        perform(f);
    }
    f->now = until;
}

struct fx_answer *fx_at(struct fx *f, int req)
{
    return &f->answers[req];
}

void fx_two_joined(struct fx *f)
{
    f->cfg.initial_delay_ms = 3000;
    int a = fx_join(f, (struct fx_join){.new_id = "a"});
    int b = fx_join(f, (struct fx_join){.new_id = "b"});
    fx_pass(f, 6000);
    KT_EQ(fx_at(f, a)->generation, 1);
    KT_EQ(fx_at(f, b)->generation, 1);
}

void fx_two_stable(struct fx *f)
{
    fx_two_joined(f);
    int sb = fx_sync(f, "b", 1, NULL);
    int sa = fx_sync(f, "a", 1, "a=1,b=2");
    KT_STR(fx_at(f, sa)->assignment, "1");
    KT_STR(fx_at(f, sb)->assignment, "2");
    KT_EQ(f->group.state, KG_STABLE);
}
