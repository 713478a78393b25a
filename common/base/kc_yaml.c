#include <errno.h>
#include <math.h>
#include <string.h>
#include <yaml.h>

#include "base/kc_json.h"
#include "base/kc_str.h"

enum { MAX_DEPTH = 64, MAX_NODES = 100000 };

struct loader {
    yaml_parser_t parser;
    int nodes;
    struct kc_err *err;
};

static json_t *load_node(struct loader *l, const yaml_event_t *ev, int depth);

static int next_event(struct loader *l, yaml_event_t *ev)
{
    if (!yaml_parser_parse(&l->parser, ev)) {
        return kc_fail(l->err, KC_E_CONFIG, "YAML line %zu: %s", l->parser.problem_mark.line + 1,
                       l->parser.problem ? l->parser.problem : "syntax error");
    }
    return 0;
}

/* A plain scalar by YAML's core schema; quoted ones are strings. */
static json_t *load_scalar(const yaml_event_t *ev)
{
    struct kc_str s = {(const char *)ev->data.scalar.value, (int32_t)ev->data.scalar.length};
    if (ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        return json_stringn(s.ptr, (size_t)s.len);
    }
    if (s.len == 0 || kc_str_eqz(s, "~") || kc_str_eqz(s, "null")) {
        return json_null();
    }
    bool b;
    if (kc_parse_bool(s, &b) == 0) {
        return json_boolean(b);
    }
    int64_t i;
    if (kc_parse_i64(s, &i) == 0) {
        return json_integer(i);
    }
    double d;
    if (strchr("-.0123456789", s.ptr[0]) && kc_parse_double(s, &d) == 0 && isfinite(d)) {
        return json_real(d);
    }
    return json_stringn(s.ptr, (size_t)s.len);
}

static json_t *load_sequence(struct loader *l, int depth)
{
    json_t *arr = json_array();
    for (;;) {
        yaml_event_t ev;
        if (next_event(l, &ev)) {
            break;
        }
        if (ev.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&ev);
            return arr;
        }
        json_t *v = load_node(l, &ev, depth + 1);
        yaml_event_delete(&ev);
        if (!v || json_array_append_new(arr, v)) {
            break;
        }
    }
    json_decref(arr);
    return NULL;
}

static json_t *load_mapping(struct loader *l, int depth)
{
    json_t *obj = json_object();
    for (;;) {
        yaml_event_t key, val;
        if (next_event(l, &key)) {
            break;
        }
        if (key.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&key);
            return obj;
        }
        if (key.type != YAML_SCALAR_EVENT) {
            kc_fail(l->err, KC_E_CONFIG, "YAML line %zu: a key must be a scalar",
                    key.start_mark.line + 1);
            yaml_event_delete(&key);
            break;
        }
        json_t *v = NULL;
        if (next_event(l, &val) == 0) {
            v = load_node(l, &val, depth + 1);
            yaml_event_delete(&val);
        }
        int rc = v ? json_object_setn_new(obj, (const char *)key.data.scalar.value,
                                          key.data.scalar.length, v)
                   : -1;
        yaml_event_delete(&key);
        if (rc) {
            break;
        }
    }
    json_decref(obj);
    return NULL;
}

static json_t *load_node(struct loader *l, const yaml_event_t *ev, int depth)
{
    if (depth > MAX_DEPTH || ++l->nodes > MAX_NODES) {
        kc_fail(l->err, KC_E_TOO_LARGE, "YAML line %zu: too deep or too large",
                ev->start_mark.line + 1);
        return NULL;
    }
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return load_scalar(ev);
    case YAML_SEQUENCE_START_EVENT:
        return load_sequence(l, depth);
    case YAML_MAPPING_START_EVENT:
        return load_mapping(l, depth);
    default:
        kc_fail(l->err, KC_E_CONFIG, "YAML line %zu: aliases are not allowed",
                ev->start_mark.line + 1);
        return NULL;
    }
}

json_t *kc_yaml_load_all(const char *text, size_t len, struct kc_err *err)
{
    struct loader l = {.err = err};
    json_t *docs = json_array();
    bool ok = false, done = false;
    kc_fail(err, KC_E_CONFIG, "YAML: cannot parse");
    yaml_parser_initialize(&l.parser);
    yaml_parser_set_input_string(&l.parser, (const unsigned char *)text, len);
    while (!done) {
        yaml_event_t ev;
        if (next_event(&l, &ev)) {
            break;
        }
        if (ev.type == YAML_STREAM_END_EVENT) {
            ok = done = true;
        } else if (ev.type == YAML_SCALAR_EVENT || ev.type == YAML_MAPPING_START_EVENT ||
                   ev.type == YAML_SEQUENCE_START_EVENT || ev.type == YAML_ALIAS_EVENT) {
            json_t *doc = load_node(&l, &ev, 0);
            if (!doc || json_array_append_new(docs, doc)) {
                done = true;
            }
        }
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&l.parser);
    if (!ok) {
        json_decref(docs);
        return NULL;
    }
    return docs;
}

json_t *kc_yaml_load(const char *text, size_t len, struct kc_err *err)
{
    json_t *docs = kc_yaml_load_all(text, len, err);
    if (!docs) {
        return NULL;
    }
    json_t *first = json_array_size(docs) ? json_incref(json_array_get(docs, 0)) : NULL;
    if (!first) {
        kc_fail(err, KC_E_CONFIG, "YAML: no document");
    }
    json_decref(docs);
    return first;
}
