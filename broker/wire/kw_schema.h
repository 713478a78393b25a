/* kw_schema.h - descriptions of Kafka's messages, and the codec that runs them.
 *
 * proto/gen writes, for every message of proto/kafka, a C struct, a description (the tables below)
 * and typed inline wrappers. One decoder and one encoder walk the descriptions: there is one place
 * where lengths are checked, whatever the message. Any thread; descriptions are constant. */
#ifndef KW_SCHEMA_H
#define KW_SCHEMA_H

#include "base/kc_arena.h"
#include "wire/kw_cursor.h"
#include "wire/kw_writer.h"

enum kw_type {
    KW_BOOL,
    KW_INT8,
    KW_INT16,
    KW_UINT16,
    KW_INT32,
    KW_UINT32,
    KW_INT64,
    KW_FLOAT64,
    KW_UUID,
    KW_STRING, /* struct kc_str */
    KW_BYTES, /* struct kc_bytes */
    KW_RECORDS, /* struct kc_bytes, or linked slices beside it */
    KW_STRUCT,
};

/* Versions min..max; none when min > max. */
struct kw_range {
    int16_t min;
    int16_t max;
};

static inline bool kw_range_has(struct kw_range r, int16_t version)
{
    return version >= r.min && version <= r.max;
}

struct kw_struct;

struct kw_field {
    const char *name; /* Kafka's */
    const struct kw_struct *sub; /* of KW_STRUCT, also as the element of an array */
    int64_t dflt; /* of integers and booleans; others: zero or empty */
    struct kw_range versions; /* where the field exists */
    struct kw_range nullable; /* where null may be sent */
    uint16_t offset; /* of the value; arrays and nullable structs: of the pointer */
    uint16_t n_offset; /* arrays: of n_<name>; records: of n_<name>_slices */
    uint16_t slices_offset; /* records: of <name>_slices */
    int16_t tag; /* -1: not a tagged field */
    uint8_t type; /* enum kw_type */
    bool array;
    bool pointer; /* a nullable struct: a pointer, NULL = null */
    bool null_dflt; /* the default is null */
    bool ignorable; /* dropped silently at versions without the field, whatever its value */
};

struct kw_struct {
    const char *name; /* Kafka's */
    const struct kw_field *fields; /* wire order; tagged ones last, by tag */
    uint16_t n_fields;
    uint16_t n_tagged;
    uint32_t size;
    uint32_t min_wire; /* least bytes of one on the wire at any version; at least 1 */
};

struct kw_message {
    const char *name;
    const struct kw_struct *root;
    struct kw_range versions;
    int16_t flexible_from; /* INT16_MAX: never */
};

static inline bool kw_message_flexible(const struct kw_message *m, int16_t version)
{
    return version >= m->flexible_from;
}

/* Decodes one message at the cursor into out (m->root->size bytes, need not be initialised). Strings and
 * bytes borrow from the input; arrays come from the arena, after their count has been compared with
 * the bytes left. Fields that the version lacks get their defaults; unknown tagged fields are
 * skipped. Returns 0 or c->error: KC_E_TRUNCATED, KC_E_MALFORMED, KC_E_UNSUPPORTED (version), -ENOMEM
 * (memory or the arena's cap); out is then unspecified. Bytes after the message stay unread. */
int kw_decode(const struct kw_message *m, struct kw_cursor *c, int16_t version, struct kc_arena *a,
              void *out) KC_MUST_CHECK;

/* Encodes a message. Sticky errors of the writer: KC_E_UNSUPPORTED when the message or a field that
 * is set and not ignorable does not exist at the version, KC_E_MALFORMED for null where the version
 * does not allow it, KC_E_TOO_LARGE, -ENOMEM. */
void kw_encode(const struct kw_message *m, struct kw_writer *w, int16_t version, const void *in);

/* Sets one field of the struct `out`, or every field, to its default. */
void kw_field_init(const struct kw_field *f, void *out);
void kw_struct_init(const struct kw_struct *s, void *out);
/* n structs with defaults, in the arena; NULL when memory or the arena's cap is out. */
void *kw_struct_new(const struct kw_struct *s, struct kc_arena *a, int32_t n) KC_MUST_CHECK;
/* Whether a field of the struct `in` has its default value. */
bool kw_field_is_default(const struct kw_field *f, const void *in);
/* Bytes in memory of a value, or of an element of an array, of a field. */
size_t kw_field_size(const struct kw_field *f);

#endif
