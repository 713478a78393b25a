#include "groups/kg_group.h"

#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"

const char *kg_state_name(enum kg_state s)
{
    static const char *const names[] = {"Empty", "PreparingRebalance", "CompletingRebalance",
                                        "Stable", "Dead"};
    return names[s];
}

bool kg_str_set(struct kc_str *field, struct kc_str value)
{
    char *copy = NULL;
    if (value.ptr) {
        copy = kc_try_alloc((size_t)value.len + 1);
        if (!copy) {
            return false;
        }
        memcpy(copy, value.ptr, (size_t)value.len);
        copy[value.len] = '\0';
    }
    kg_str_clear(field);
    *field = (struct kc_str){copy, copy ? value.len : 0};
    return true;
}

void kg_str_clear(struct kc_str *field)
{
    kc_free((char *)(uintptr_t)field->ptr);
    *field = KC_STR_NULL;
}

static void bytes_clear(struct kc_bytes *b)
{
    kc_free((uint8_t *)(uintptr_t)b->ptr);
    *b = KC_BYTES_NULL;
}

/* ---- protocols of a member: one block for the array, the names and the metadata ---- */

static struct kg_protocol *protocols_copy(const struct kg_protocol *from, int32_t n,
                                          size_t *ret_bytes)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < n; i++) {
        bytes += (size_t)from[i].name.len + 1 + (size_t)from[i].metadata.len;
    }
    struct kg_protocol *to = kc_try_alloc((size_t)n * sizeof(*to) + bytes);
    if (!to) {
        return NULL;
    }
    char *at = (char *)(to + n);
    for (int32_t i = 0; i < n; i++) {
        size_t name_len = (size_t)from[i].name.len, meta_len = (size_t)from[i].metadata.len;
        if (name_len) {
            memcpy(at, from[i].name.ptr, name_len);
        }
        at[name_len] = '\0';
        to[i].name = (struct kc_str){at, from[i].name.len};
        at += name_len + 1;
        if (meta_len) {
            memcpy(at, from[i].metadata.ptr, meta_len);
        }
        to[i].metadata = (struct kc_bytes){(const uint8_t *)at, from[i].metadata.len};
        at += meta_len;
    }
    *ret_bytes = bytes;
    return to;
}

static bool member_supports(const struct kg_member *m, struct kc_str name)
{
    for (int32_t i = 0; i < m->n_protocols; i++) {
        if (kc_str_eq(m->protocols[i].name, name)) {
            return true;
        }
    }
    return false;
}

static bool all_support(const struct kg_group *g, struct kc_str name)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        if (!member_supports(g->members[i], name)) {
            return false;
        }
    }
    return true;
}

bool kg_member_matches(const struct kg_member *m, const struct kg_protocol *protocols, int32_t n)
{
    if (m->n_protocols != n) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        const struct kg_protocol *a = &m->protocols[i], *b = &protocols[i];
        if (!kc_str_eq(a->name, b->name) || a->metadata.len != b->metadata.len ||
            (a->metadata.len &&
             memcmp(a->metadata.ptr, b->metadata.ptr, (size_t)a->metadata.len))) {
            return false;
        }
    }
    return true;
}

struct kc_bytes kg_member_metadata(const struct kg_group *g, const struct kg_member *m)
{
    for (int32_t i = 0; i < m->n_protocols; i++) {
        if (kc_str_eq(m->protocols[i].name, g->protocol_name)) {
            return m->protocols[i].metadata;
        }
    }
    return (struct kc_bytes){(const uint8_t *)"", 0};
}

/* ---- the group ---- */

void kg_group_init(struct kg_group *g, struct kc_str id, int64_t wall_ms)
{
    *g = (struct kg_group){.state = KG_EMPTY,
                           .state_wall_ms = wall_ms,
                           .join_deadline_ms = INT64_MAX,
                           .sync_deadline_ms = INT64_MAX,
                           .wake_ms = INT64_MAX};
    g->id = (struct kc_str){kc_strndup(id.ptr ? id.ptr : "", (size_t)id.len), id.len};
    kc_map_init(&g->by_id);
    kc_map_init(&g->by_instance);
    kc_map_init(&g->pending_at);
}

static void member_free(struct kg_member *m)
{
    KC_ASSERT(!m->join_req && !m->sync_req);
    kg_str_clear(&m->id);
    kg_str_clear(&m->prior_id);
    kg_str_clear(&m->instance_id);
    kg_str_clear(&m->client_id);
    kg_str_clear(&m->client_host);
    kc_free(m->protocols);
    bytes_clear(&m->assignment);
    bytes_clear(&m->staged);
    kc_free(m);
}

void kg_group_fini(struct kg_group *g)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        member_free(g->members[i]);
    }
    for (int32_t i = 0; i < g->n_pending; i++) {
        kg_str_clear(&g->pending[i].id);
    }
    kc_free(g->members);
    kc_free(g->pending);
    kc_map_fini(&g->by_id, NULL);
    kc_map_fini(&g->by_instance, NULL);
    kc_map_fini(&g->pending_at, NULL);
    kg_str_clear(&g->id);
    kg_str_clear(&g->protocol_type);
    kg_str_clear(&g->protocol_name);
    kg_str_clear(&g->leader);
}

struct kg_member *kg_member_find(const struct kg_group *g, struct kc_str id)
{
    return id.ptr ? kc_map_gets(&g->by_id, id) : NULL;
}

struct kg_member *kg_member_by_instance(const struct kg_group *g, struct kc_str instance_id)
{
    return instance_id.ptr ? kc_map_gets(&g->by_instance, instance_id) : NULL;
}

bool kg_group_is_leader(const struct kg_group *g, struct kc_str id)
{
    return g->leader.ptr && kc_str_eq(g->leader, id);
}

static struct kg_member *member_make(const struct kg_member_spec *spec)
{
    struct kg_member *m = kc_try_zalloc(1, sizeof(*m));
    if (!m) {
        return NULL;
    }
    m->protocols = protocols_copy(spec->protocols, spec->n_protocols, &m->protocol_bytes);
    if (!m->protocols || !kg_str_set(&m->id, spec->id) ||
        !kg_str_set(&m->instance_id, spec->instance_id) ||
        !kg_str_set(&m->client_id, spec->client_id) ||
        !kg_str_set(&m->client_host, spec->client_host)) {
        member_free(m);
        return NULL;
    }
    m->n_protocols = spec->n_protocols;
    m->session_timeout_ms = spec->session_timeout_ms;
    m->rebalance_timeout_ms = spec->rebalance_timeout_ms;
    m->deadline_ms = INT64_MAX;
    return m;
}

struct kg_member *kg_member_add(struct kg_group *g, const struct kg_member_spec *spec)
{
    struct kg_member *m = member_make(spec);
    if (!m) {
        return NULL;
    }
    if (g->n_members == g->room_members) {
        int32_t room = g->room_members ? g->room_members * 2 : 4;
        struct kg_member **members =
            kc_try_realloc(g->members, (size_t)room * sizeof(struct kg_member *));
        if (!members) {
            member_free(m);
            return NULL;
        }
        g->members = members;
        g->room_members = room;
    }
    if (!g->leader.ptr && !kg_str_set(&g->leader, m->id)) {
        member_free(m);
        return NULL;
    }
    g->members[g->n_members++] = m;
    kc_map_put(&g->by_id, m->id.ptr, (size_t)m->id.len, m);
    if (m->instance_id.ptr) {
        kc_map_put(&g->by_instance, m->instance_id.ptr, (size_t)m->instance_id.len, m);
    }
    g->bytes += m->protocol_bytes;
    return m;
}

void kg_member_remove(struct kg_group *g, struct kg_member *m)
{
    int32_t at = 0;
    while (g->members[at] != m) {
        at++;
    }
    memmove(&g->members[at], &g->members[at + 1],
            (size_t)(g->n_members - at - 1) * sizeof(struct kg_member *));
    g->n_members--;
    kc_map_del(&g->by_id, m->id.ptr, (size_t)m->id.len);
    if (m->instance_id.ptr) {
        kc_map_del(&g->by_instance, m->instance_id.ptr, (size_t)m->instance_id.len);
    }
    g->bytes -= m->protocol_bytes + (size_t)m->assignment.len + (size_t)m->staged.len;
    if (kg_group_is_leader(g, m->id)) {
        kg_str_clear(&g->leader);
        if (g->n_members) {
            /* Ids are small: this is not the allocation that fails. */
            const struct kg_member *next = g->members[0];
            g->leader =
                (struct kc_str){kc_strndup(next->id.ptr, (size_t)next->id.len), next->id.len};
        }
    }
    member_free(m);
}

bool kg_member_update(struct kg_group *g, struct kg_member *m, const struct kg_member_spec *spec)
{
    size_t bytes = 0;
    struct kg_protocol *copy = protocols_copy(spec->protocols, spec->n_protocols, &bytes);
    if (!copy) {
        return false;
    }
    kc_free(m->protocols);
    g->bytes = g->bytes - m->protocol_bytes + bytes;
    m->protocols = copy;
    m->protocol_bytes = bytes;
    m->n_protocols = spec->n_protocols;
    m->session_timeout_ms = spec->session_timeout_ms;
    m->rebalance_timeout_ms = spec->rebalance_timeout_ms;
    return true;
}

void kg_member_rename(struct kg_group *g, struct kg_member *m, struct kc_str new_id)
{
    char *copy = kc_strndup(new_id.ptr, (size_t)new_id.len);
    kc_map_del(&g->by_id, m->id.ptr, (size_t)m->id.len);
    if (kg_group_is_leader(g, m->id)) {
        kg_str_clear(&g->leader);
        g->leader = (struct kc_str){kc_strndup(new_id.ptr, (size_t)new_id.len), new_id.len};
    }
    kg_str_clear(&m->prior_id);
    m->prior_id = m->id;
    m->id = (struct kc_str){copy, new_id.len};
    kc_map_put(&g->by_id, m->id.ptr, (size_t)m->id.len, m);
}

bool kg_member_set(struct kg_group *g, struct kc_bytes *field, struct kc_bytes value)
{
    uint8_t *copy = kc_try_alloc((size_t)value.len + 1);
    if (!copy) {
        return false;
    }
    if (value.len) {
        memcpy(copy, value.ptr, (size_t)value.len);
    }
    g->bytes = g->bytes - (size_t)field->len + (size_t)value.len;
    bytes_clear(field);
    *field = (struct kc_bytes){copy, value.len};
    return true;
}

void kg_member_promote(struct kg_group *g, struct kg_member *m)
{
    g->bytes -= (size_t)m->assignment.len;
    bytes_clear(&m->assignment);
    m->assignment = m->staged;
    m->staged = KC_BYTES_NULL;
}

/* ---- pending ids (KIP-394) ---- */

static int32_t pending_at(const struct kg_group *g, struct kc_str id)
{
    return id.ptr ? (int32_t)(intptr_t)kc_map_gets(&g->pending_at, id) - 1 : -1;
}

static void pending_note(struct kg_group *g, int32_t at)
{
    struct kc_str id = g->pending[at].id;
    kc_map_put(&g->pending_at, id.ptr, (size_t)id.len, (void *)((intptr_t)at + 1));
}

bool kg_pending_has(const struct kg_group *g, struct kc_str id)
{
    return pending_at(g, id) >= 0;
}

bool kg_pending_add(struct kg_group *g, struct kc_str id, int64_t deadline_ms)
{
    int32_t at = pending_at(g, id);
    if (at >= 0) {
        g->pending[at].deadline_ms = deadline_ms;
        return true;
    }
    struct kg_pending p = {.deadline_ms = deadline_ms};
    if (g->n_pending == KG_PENDING_MAX || !kg_str_set(&p.id, id)) {
        return false;
    }
    if (g->n_pending == g->room_pending) {
        int32_t room = g->room_pending ? g->room_pending * 2 : 4;
        struct kg_pending *pending =
            kc_try_realloc(g->pending, (size_t)room * sizeof(struct kg_pending));
        if (!pending) {
            kg_str_clear(&p.id);
            return false;
        }
        g->pending = pending;
        g->room_pending = room;
    }
    g->pending[g->n_pending++] = p;
    pending_note(g, g->n_pending - 1);
    return true;
}

bool kg_pending_remove(struct kg_group *g, struct kc_str id)
{
    int32_t at = pending_at(g, id);
    if (at < 0) {
        return false;
    }
    kc_map_del(&g->pending_at, id.ptr, (size_t)id.len);
    kg_str_clear(&g->pending[at].id); /* id may be this very text: not read any more */
    g->pending[at] = g->pending[--g->n_pending];
    if (at < g->n_pending) {
        pending_note(g, at);
    }
    return true;
}

/* ---- questions ---- */

bool kg_group_supports(const struct kg_group *g, struct kc_str type,
                       const struct kg_protocol *protocols, int32_t n)
{
    if (type.len == 0 || n == 0) {
        return false;
    }
    if (g->n_members == 0) {
        return true;
    }
    if (!kc_str_eq(g->protocol_type, type)) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        if (all_support(g, protocols[i].name)) {
            return true;
        }
    }
    return false;
}

struct kc_str kg_group_vote(const struct kg_group *g)
{
    if (g->n_members == 0) {
        return KC_STR_NULL;
    }
    const struct kg_member *first = g->members[0];
    struct kc_str best = KC_STR_NULL;
    int32_t best_votes = -1;
    for (int32_t p = 0; p < first->n_protocols; p++) {
        struct kc_str name = first->protocols[p].name;
        if (!all_support(g, name)) {
            continue;
        }
        int32_t votes = 0;
        for (int32_t i = 0; i < g->n_members; i++) {
            const struct kg_member *m = g->members[i];
            int32_t k = 0;
            while (!all_support(g, m->protocols[k].name)) {
                k++; /* ends: name itself is supported by all, so by m */
            }
            votes += kc_str_eq(m->protocols[k].name, name);
        }
        if (votes > best_votes) {
            best = name;
            best_votes = votes;
        }
    }
    return best;
}

int32_t kg_group_rebalance_timeout_ms(const struct kg_group *g)
{
    int32_t max = 0;
    for (int32_t i = 0; i < g->n_members; i++) {
        max = KC_MAX(max, g->members[i]->rebalance_timeout_ms);
    }
    return max;
}

bool kg_group_all_joined(const struct kg_group *g)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        if (!g->members[i]->join_req) {
            return false;
        }
    }
    return g->n_pending == 0;
}

/* A cursor over ConsumerProtocolSubscription (version, topics, …), which clients define. */
static int32_t be_int(struct kc_bytes *b, int32_t width)
{
    if (b->len < width) {
        return -1;
    }
    uint32_t v = 0;
    for (int32_t i = 0; i < width; i++) {
        v = v << 8 | b->ptr[i];
    }
    b->ptr += width;
    b->len -= width;
    return width == 2 ? (int16_t)v : (int32_t)v;
}

/* -1: it cannot be read. */
static int subscription_has(struct kc_bytes b, struct kc_str topic)
{
    int32_t version = be_int(&b, 2);
    int32_t n = be_int(&b, 4);
    if (version < 0 || n < 0) {
        return -1;
    }
    int found = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t len = be_int(&b, 2);
        if (len < 0 || len > b.len) {
            return -1;
        }
        if (kc_str_eq((struct kc_str){(const char *)b.ptr, len}, topic)) {
            found = 1;
        }
        b.ptr += len;
        b.len -= len;
    }
    return found;
}

bool kg_group_subscribed(const struct kg_group *g, struct kc_str topic)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        if (subscription_has(kg_member_metadata(g, g->members[i]), topic) != 0) {
            return true;
        }
    }
    return false;
}
