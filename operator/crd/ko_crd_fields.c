#include "crd/ko_crd_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_str.h"

void ko_field_error(struct ko_field_errors *e, const char *field, const char *fmt, ...)
{
    int i = e->n++;
    if (i >= KO_FIELD_ERRORS_MAX) {
        return;
    }
    int len = snprintf(e->text[i], sizeof(e->text[i]), "%s: ", field);
    if (len > 0 && (size_t)len < sizeof(e->text[i])) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text[i] + len, sizeof(e->text[i]) - (size_t)len, fmt, ap);
        va_end(ap);
    }
    /* Half of a letter would be no JSON, and no status could be written with it. */
    for (char *s = e->text[i]; *s; s++) {
        *s = *s < ' ' || *s > '~' ? '?' : *s;
    }
}

const char *ko_field_errors_join(const struct ko_field_errors *e, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < KC_MIN(e->n, (int)KO_FIELD_ERRORS_MAX) && len < cap; i++) {
        int n = snprintf(out + len, cap - len, "%s%s", i ? "; " : "", e->text[i]);
        len += n > 0 ? (size_t)n : 0;
    }
    return out;
}

/* Absent and null are the same to a reader. */
static const json_t *value_at(const json_t *doc, const char *path)
{
    const json_t *v = kc_json_at(doc, path);
    return json_is_null(v) ? NULL : v;
}

int64_t ko_field_int(const json_t *doc, const char *path, int64_t dflt, int64_t min, int64_t max,
                     struct ko_field_errors *e)
{
    const json_t *v = value_at(doc, path);
    if (!v) {
        return dflt;
    }
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
        ko_field_error(e, path, "must be an integer from %lld to %lld", (long long)min,
                       (long long)max);
        return dflt;
    }
    return json_integer_value(v);
}

const char *ko_field_str(const json_t *doc, const char *path, const char *dflt,
                         struct ko_field_errors *e)
{
    const json_t *v = value_at(doc, path);
    if (!v) {
        return dflt;
    }
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v)) {
        ko_field_error(e, path, "must be a string");
        return dflt;
    }
    return json_string_value(v);
}

bool ko_field_bool(const json_t *doc, const char *path, bool dflt, struct ko_field_errors *e)
{
    const json_t *v = value_at(doc, path);
    if (v && !json_is_boolean(v)) {
        ko_field_error(e, path, "must be true or false");
    }
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

int64_t ko_field_duration_ms(const json_t *doc, const char *path, int64_t dflt, int64_t min,
                             int64_t max, struct ko_field_errors *e)
{
    const json_t *v = value_at(doc, path);
    int64_t ms = 0;
    if (!v) {
        return dflt;
    }
    if (!json_is_string(v) || kc_parse_duration_ms(kc_str_of(json_string_value(v)), &ms) ||
        ms < min || ms > max) {
        ko_field_error(e, path,
                       "must be a duration such as \"1s\" or \"500ms\", from %lldms to "
                       "%lldms",
                       (long long)min, (long long)max);
        return dflt;
    }
    return ms;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ko_setting *)a)->name, ((const struct ko_setting *)b)->name);
}

/* Numbers and booleans may be written plainly in YAML. */
static const char *scalar_text(struct kc_arena *a, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return json_string_value(v);
    case JSON_INTEGER:
        return kc_arena_printf(a, "%lld", (long long)json_integer_value(v));
    case JSON_REAL:
        return kc_arena_printf(a, "%.15g", json_real_value(v));
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return NULL;
    }
}

static bool key_valid(const char *key)
{
    size_t len = strlen(key);
    return len > 0 && len <= 128 && strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == len;
}

int32_t ko_field_settings(const json_t *doc, const char *path, struct kc_arena *a,
                          const struct ko_setting **ret, struct ko_field_errors *e)
{
    const json_t *map = value_at(doc, path);
    const char *key;
    json_t *v;
    int32_t n = 0;
    *ret = NULL;
    if (!map) {
        return 0;
    }
    if (!json_is_object(map) || json_object_size(map) > KO_CONFIGS_MAX) {
        ko_field_error(e, path, "must be a map of at most %d settings", KO_CONFIGS_MAX);
        return 0;
    }
    struct ko_setting *s = kc_arena_zalloc(a, json_object_size(map) + 1, sizeof(*s));
    json_object_foreach((json_t *)(uintptr_t)map, key, v)
    {
        const char *text = scalar_text(a, v);
        if (!s || !key_valid(key) || !text || strlen(text) > KO_SETTING_MAX) {
            ko_field_error(
                e, path,
                "\"%.80s\" must be a lower-case key with a plain value of at most %d bytes", key,
                KO_SETTING_MAX);
            continue;
        }
        s[n++] = (struct ko_setting){key, text};
    }
    if (n > 0) {
        qsort(s, (size_t)n, sizeof(*s), by_name);
    }
    *ret = s;
    return n;
}

static bool low_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool ko_dns_name(const char *s, size_t len, size_t max)
{
    for (size_t i = 0; i < len; i++) {
        bool edge = i == 0 || i + 1 == len || s[i - 1] == '.' || s[i + 1] == '.';
        if (!low_alnum(s[i]) && (edge || (s[i] != '-' && s[i] != '.'))) {
            return false;
        }
    }
    return len > 0 && len <= max;
}

void ko_field_known(const json_t *doc, const char *path, const char *const *names,
                    struct ko_field_errors *e)
{
    const json_t *map = value_at(doc, path);
    const char *key;
    json_t *v;
    if (map && !json_is_object(map)) {
        ko_field_error(e, path, "must be a map");
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)map, key, v)
    {
        bool known = false;
        for (int i = 0; names[i] && !known; i++) {
            known = strcmp(names[i], key) == 0;
        }
        if (!known) {
            ko_field_error(e, path, "has no field \"%.60s\"", key);
        }
    }
}
