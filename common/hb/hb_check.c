#include "hb/hb_check.h"

#include <string.h>

enum { DEPTH_MAX = 6, PARTITION_MAX = 1 << 20, BROKER_MAX = 1 << 16, LISTENERS_MAX = 8 };

/* Strict UTF-8 (no overlong forms, no surrogates): texts go into JSON documents. Control
 * characters are refused as well; nothing that travels here has a use for them, except config
 * values (see text_limit). */
static bool utf8_ok(const char *s, bool controls)
{
    const unsigned char *p = (const unsigned char *)s;
    while (*p) {
        unsigned c = *p++;
        if (c < 0x80) {
            if (!controls && (c < 0x20 || c == 0x7f)) {
                return false;
            }
            continue;
        }
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4) {
            return false;
        }
        unsigned cp = c & (0x3fu >> more);
        for (int i = 0; i < more; i++) {
            if ((*p & 0xc0) != 0x80) { /* the terminator stops it, too */
                return false;
            }
            cp = cp << 6 | (*p++ & 0x3fu);
        }
        if ((more == 2 && cp < 0x800) || (more == 3 && cp < 0x10000) || cp > 0x10ffff ||
            (cp >= 0xd800 && cp <= 0xdfff)) {
            return false;
        }
    }
    return true;
}

static size_t text_limit(const char *field)
{
    return strcmp(field, "token") == 0   ? HB_TOKEN_MAX
           : strcmp(field, "value") == 0 ? HB_CONFIG_MAX
                                         : HB_TEXT_MAX;
}

static int check_text(const ProtobufCFieldDescriptor *f, const char *s, struct kc_err *err)
{
    size_t limit = text_limit(f->name);
    if (strnlen(s, limit + 1) > limit) {
        return kc_fail(err, KC_E_MALFORMED, "%s is longer than %zu", f->name, limit);
    }
    bool controls = strcmp(f->name, "value") == 0 || strcmp(f->name, "message") == 0;
    return utf8_ok(s, controls) ? 0 : kc_fail(err, KC_E_MALFORMED, "%s is not clean text", f->name);
}

/* Every bytes field but a seal's record is an identity; absent = empty. */
static int check_bytes(const ProtobufCFieldDescriptor *f, const ProtobufCBinaryData *b,
                       struct kc_err *err)
{
    if (strcmp(f->name, "record") == 0) {
        return b->len <= HB_SEAL_MAX ? 0
                                     : kc_fail(err, KC_E_MALFORMED, "record of %zu bytes", b->len);
    }
    return b->len == 0 || b->len == sizeof(struct kc_uuid)
               ? 0
               : kc_fail(err, KC_E_MALFORMED, "%s has %zu bytes, not 16", f->name, b->len);
}

static int bad(struct kc_err *err, const char *what)
{
    return kc_fail(err, KC_E_MALFORMED, "%s", what);
}

static bool broker_ok(int32_t id)
{
    return id >= 0 && id < BROKER_MAX;
}

static int check_hello(const Kaas__Heartbeat__Hello *h, struct kc_err *err)
{
    if (h->cluster[0] == '\0' || !broker_ok(h->broker_id) || h->incarnation.len != 16 ||
        h->process_id.len != 16) {
        return bad(err, "hello without cluster, broker, incarnation or process");
    }
    return h->n_listeners <= LISTENERS_MAX ? 0 : bad(err, "hello with too many listeners");
}

/* What single types demand beyond the generic limits. */
static int check_type(const ProtobufCMessage *m, struct kc_err *err)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    if (d == &kaas__heartbeat__partition_id__descriptor) {
        const Kaas__Heartbeat__PartitionId *p = (const Kaas__Heartbeat__PartitionId *)m;
        return p->topic_id.len == 16 && p->partition >= -1 && p->partition < PARTITION_MAX
                   ? 0
                   : bad(err, "partition id out of range");
    }
    if (d == &kaas__heartbeat__hello__descriptor) {
        return check_hello((const Kaas__Heartbeat__Hello *)m, err);
    }
    if (d == &kaas__heartbeat__broker_status__descriptor) {
        const Kaas__Heartbeat__BrokerStatus *s = (const Kaas__Heartbeat__BrokerStatus *)m;
        return broker_ok(s->broker_id) && s->incarnation.len == 16
                   ? 0
                   : bad(err, "status without broker or incarnation");
    }
    if (d == &kaas__heartbeat__blocked_report__descriptor) {
        const Kaas__Heartbeat__BlockedReport *b = (const Kaas__Heartbeat__BlockedReport *)m;
        return broker_ok(b->broker) && b->incarnation.len == 16
                   ? 0
                   : bad(err, "blocked report without owner");
    }
    if (d == &kaas__heartbeat__lead__descriptor) {
        const Kaas__Heartbeat__Lead *l = (const Kaas__Heartbeat__Lead *)m;
        return broker_ok(l->broker) && l->incarnation.len == 16 && l->epoch >= 0
                   ? 0
                   : bad(err, "lead out of range");
    }
    if (d == &kaas__heartbeat__row__descriptor) {
        const Kaas__Heartbeat__Row *r = (const Kaas__Heartbeat__Row *)m;
        return broker_ok(r->id) && r->health <= 2 && r->state <= 2 &&
                       r->n_listeners <= LISTENERS_MAX
                   ? 0
                   : bad(err, "row out of range");
    }
    if (d == &kaas__heartbeat__inventory_topic__descriptor) {
        const Kaas__Heartbeat__InventoryTopic *t = (const Kaas__Heartbeat__InventoryTopic *)m;
        return t->topic_id.len == 16 && t->name[0] && t->partitions > 0 &&
                       t->partitions < PARTITION_MAX
                   ? 0
                   : bad(err, "inventory topic out of range");
    }
    if (d == &kaas__heartbeat__listener__descriptor) {
        const Kaas__Heartbeat__Listener *l = (const Kaas__Heartbeat__Listener *)m;
        return l->port > 0 && l->port <= UINT16_MAX ? 0 : bad(err, "listener port out of range");
    }
    return 0;
}

static int check_message(const ProtobufCMessage *m, int depth, struct kc_err *err);

static int check_one(const ProtobufCFieldDescriptor *f, const void *at, int depth,
                     struct kc_err *err)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        return check_text(f, *(char *const *)at, err);
    case PROTOBUF_C_TYPE_BYTES:
        return check_bytes(f, at, err);
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *sub = *(ProtobufCMessage *const *)at;
        if (!sub) {
            return f->descriptor == &kaas__heartbeat__partition_id__descriptor
                       ? bad(err, "entry without its partition")
                       : 0;
        }
        return check_message(sub, depth + 1, err);
    }
    default:
        return 0;
    }
}

static size_t element_size(ProtobufCType t)
{
    switch (t) {
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return 0; /* numbers need no look */
    }
}

static int check_repeated(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, int depth,
                          struct kc_err *err)
{
    const char *base = (const char *)m;
    size_t n;
    memcpy(&n, base + f->quantifier_offset, sizeof(n));
    if (n > HB_LIST_MAX) {
        return kc_fail(err, KC_E_MALFORMED, "%zu entries of %s", n, f->name);
    }
    size_t step = element_size(f->type);
    if (n == 0 || step == 0) {
        return 0;
    }
    const char *elements = *(char *const *)(const void *)(base + f->offset);
    for (size_t i = 0; i < n; i++) {
        int rc = check_one(f, elements + i * step, depth, err);
        if (rc) {
            return rc;
        }
        if (f->type == PROTOBUF_C_TYPE_BYTES &&
            ((const ProtobufCBinaryData *)(const void *)(elements + i * step))->len != 16) {
            return kc_fail(err, KC_E_MALFORMED, "empty entry of %s", f->name);
        }
    }
    return 0;
}

static int check_message(const ProtobufCMessage *m, int depth, struct kc_err *err)
{
    if (depth > DEPTH_MAX) {
        return bad(err, "nested too deeply");
    }
    const char *base = (const char *)m;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        int rc;
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            rc = check_repeated(m, f, depth, err);
        } else {
            if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
                uint32_t which;
                memcpy(&which, base + f->quantifier_offset, sizeof(which));
                if (which != f->id) {
                    continue; /* another member of the union */
                }
            }
            rc = check_one(f, base + f->offset, depth, err);
        }
        if (rc) {
            return rc;
        }
    }
    return check_type(m, err);
}

int hb_check(const ProtobufCMessage *m, struct kc_err *err)
{
    return check_message(m, 0, err);
}
