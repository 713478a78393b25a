/* YAML and JSON helpers. */
#include "kt.h"

#include <stdlib.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"

static json_t *yaml(const char *text, struct kc_err *err)
{
    return kc_yaml_load(text, strlen(text), err);
}

static void yaml_scalars_follow_the_core_schema(void)
{
    struct kc_err err;
    json_t *d = yaml("a: 1\nb: true\nc: \"1\"\nd: ~\ne: 1.5\nf: no\ng: [x, {h: -3}]\n", &err);
    KT_REQUIRE(d != NULL);
    KT_EQ(kc_json_int(d, "a", 0), 1);
    KT_TRUE(kc_json_bool(d, "b", false));
    KT_STR(kc_json_str(d, "c", NULL), "1");
    KT_TRUE(json_is_null(kc_json_at(d, "d")));
    KT_TRUE(json_is_real(kc_json_at(d, "e")));
    KT_STR(kc_json_str(d, "f", NULL), "no");
    KT_EQ(kc_json_int(d, "g.1.h", 0), -3);
    KT_TRUE(kc_json_at(d, "g.2") == NULL);
    json_decref(d);
}

static void bad_yaml_names_its_line(void)
{
    struct kc_err err = {0};
    KT_TRUE(yaml("a: 1\nb: [1, 2\nc: 3\n", &err) == NULL);
    KT_TRUE(strstr(err.msg, "line") != NULL);
    KT_TRUE(yaml("a: &x 1\nb: *x\n", &err) == NULL);
    KT_TRUE(strstr(err.msg, "aliases") != NULL);
    KT_TRUE(yaml("", &err) == NULL);
}

static void deep_yaml_is_refused(void)
{
    char text[400];
    struct kc_err err = {0};
    memset(text, '[', 200);
    memset(text + 200, ']', 199);
    text[399] = '\0';
    KT_TRUE(yaml(text, &err) == NULL);
    KT_EQ(err.code, KC_E_TOO_LARGE);
}

static void merge_patch_follows_rfc7386(void)
{
    json_t *d = json_loads("{\"a\":{\"b\":1,\"c\":2},\"d\":[1]}", 0, NULL);
    json_t *p = json_loads("{\"a\":{\"b\":null,\"e\":{\"f\":3}},\"d\":[2]}", 0, NULL);
    KT_EQ(kc_json_merge(d, p), 0);
    KT_EQ(kc_json_set(d, "x.y.z", json_integer(7)), 0);
    char *text = kc_json_canonical(d);
    KT_STR(text, "{\"a\":{\"c\":2,\"e\":{\"f\":3}},\"d\":[2],\"x\":{\"y\":{\"z\":7}}}");
    free(text);
    json_decref(d);
    json_decref(p);
}

/* A string of more than a few letters makes jansson's reader grow its buffer. */
static void documents_do_not_fail_for_want_of_memory(void)
{
    json_malloc_t allocate;
    kc_json_setup();
    json_get_alloc_funcs(&allocate, NULL);
    KT_TRUE(allocate != malloc); /* which may answer NULL */
    kc_mem_fail_nth(1, true);
    json_t *d =
        json_loads("{\"a name of several words\":\"and a value of several more\"}", 0, NULL);
    kc_mem_fail_nth(0, false);
    KT_STR(kc_json_str(d, "a name of several words", NULL), "and a value of several more");
    json_decref(d);
}

KT_MAIN("base documents", KT(documents_do_not_fail_for_want_of_memory),
        KT(yaml_scalars_follow_the_core_schema), KT(bad_yaml_names_its_line),
        KT(deep_yaml_is_refused), KT(merge_patch_follows_rfc7386))
