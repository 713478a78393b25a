#include "image/ki_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ki_key table[] = {
#define C(scope, name, type, dflt, fallback, twin, valid, doc)                                     \
    {KI_##scope##_KEY, name, KI_##type, dflt, fallback, twin, valid, doc},
#include "image/ki_keys.def"
#undef C
};

const struct ki_key *ki_keys(size_t *ret_n)
{
    *ret_n = KC_ARRAY_LEN(table);
    return table;
}

const struct ki_key *ki_key_find(enum ki_key_scope scope, struct kc_str name)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(table); i++) {
        if (table[i].scope == scope && kc_str_eqz(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}

bool ki_key_at_start(const char *name)
{
    /* In Kafka they are read-only, too. */
    static const char *const keys[] = {
        "connections.max.idle.ms",      "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms", "group.max.size",
        "group.min.session.timeout.ms", "max.incremental.fetch.session.cache.slots",
        "offset.metadata.max.bytes",    "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",    "queued.max.request.bytes",
        "socket.request.max.bytes",     "socket.send.buffer.bytes"};
    for (size_t i = 0; i < KC_ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- checking ---- */

enum { SHOWN_MAX = 60 };

/* What somebody wrote, for a message: cut short, and plain enough for a JSON text. */
static const char *show(struct kc_str s, char out[SHOWN_MAX + 1])
{
    int32_t n = s.ptr ? KC_MIN(s.len, (int32_t)SHOWN_MAX) : 0;
    for (int32_t i = 0; i < n; i++) {
        out[i] = s.ptr[i] < ' ' || s.ptr[i] > '~' ? '?' : s.ptr[i];
    }
    out[n] = '\0';
    return out;
}

static bool one_of(struct kc_str v, const char *list)
{
    for (const char *p = list; *p;) {
        const char *end = strchr(p, '|');
        size_t n = end ? (size_t)(end - p) : strlen(p);
        if (n == (size_t)v.len && memcmp(p, v.ptr, n) == 0) {
            return true;
        }
        p += n + (end ? 1 : 0);
    }
    return false;
}

static bool list_valid(struct kc_str v, const char *valid)
{
    int32_t at = 0;
    while (*valid && at <= v.len) {
        const char *comma = memchr(v.ptr + at, ',', (size_t)(v.len - at));
        int32_t end = comma ? (int32_t)(comma - v.ptr) : v.len;
        struct kc_str item = {v.ptr + at, end - at};
        while (item.len && *item.ptr == ' ') {
            item.ptr++;
            item.len--;
        }
        if (!one_of(item, valid)) {
            return false;
        }
        at = end + 1;
    }
    return true;
}

static bool in_range(double n, const char *valid)
{
    const char *dots = strstr(valid, "..");
    return !dots || (n >= strtod(valid, NULL) && (!dots[2] || n <= strtod(dots + 2, NULL)));
}

static bool number_valid(const struct ki_key *def, struct kc_str v)
{
    int64_t n;
    double d;
    if (def->type == KI_DOUBLE) {
        return kc_parse_double(v, &d) == 0 && in_range(d, def->valid);
    }
    if (kc_parse_i64(v, &n) || (def->type == KI_INT && (n < INT32_MIN || n > INT32_MAX))) {
        return false;
    }
    return in_range((double)n, def->valid);
}

bool ki_key_check(const struct ki_key *def, struct kc_str value, char *why, size_t cap)
{
    static const char *const names[] = {[KI_BOOLEAN] = "true or false",   [KI_STRING] = "a text",
                                        [KI_INT] = "a 32-bit number",     [KI_LONG] = "a number",
                                        [KI_DOUBLE] = "a decimal number", [KI_LIST] = "a list"};
    bool flag, ok = true;
    if (!value.ptr) {
        ok = false;
    } else if (def->type == KI_BOOLEAN) {
        ok = kc_parse_bool(value, &flag) == 0 && (!*def->valid || one_of(value, def->valid));
    } else if (def->type == KI_STRING) {
        ok = !*def->valid || one_of(value, def->valid);
    } else if (def->type == KI_LIST) {
        ok = list_valid(value, def->valid);
    } else {
        ok = number_valid(def, value);
    }
    if (!ok) {
        char shown[SHOWN_MAX + 1];
        snprintf(why, cap, "must be %s%s%s, is \"%s\"", names[def->type],
                 *def->valid ? ", valid: " : "", def->valid, show(value, shown));
    }
    return ok;
}

const struct ki_key *ki_key_take(enum ki_key_scope scope, struct kc_str name, struct kc_str value,
                                 char *why, size_t cap)
{
    const struct ki_key *def = ki_key_find(scope, name);
    char text[KI_WHY_MAX], shown[SHOWN_MAX + 1];
    if (!def) {
        snprintf(why, cap, "Unknown %s config name: %s", scope == KI_TOPIC_KEY ? "topic" : "broker",
                 show(name, shown));
        return NULL;
    }
    if (!ki_key_check(def, value, text, sizeof(text))) {
        snprintf(why, cap, "%s %s", def->name, text);
        return NULL;
    }
    return def;
}
