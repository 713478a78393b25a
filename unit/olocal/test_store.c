/* The local store keeps the promises that reconcilers rely on at a real API server. */
#include <unistd.h>

#include "base/kc_json.h"
#include "kt_dir.h"
#include "ol_store.h"

#define META(name) "'metadata':{'namespace':'ns','name':'" name "'}"

static void create_stamps_identity_and_versions(void)
{
    struct ol t;
    ol_start(&t, NULL);
    KT_EQ(ol_create(&t, KO_KAASTOPIC, "{" META("a") ",'spec':{'x':1},'status':{'no':1}}"), 201);
    KT_EQ(strlen(ko_uid(t.doc)), 36);
    KT_EQ(ko_generation(t.doc), 1);
    KT_TRUE(*ko_rv(t.doc) != '\0');
    KT_TRUE(kc_json_str(t.doc, "metadata.creationTimestamp", NULL) != NULL);
    KT_TRUE(json_object_get(t.doc, "status") == NULL);
    KT_EQ(ol_create(&t, KO_KAASTOPIC, "{" META("a") "}"), 409);
    KT_STR(t.reason, "AlreadyExists");
    KT_EQ(ol_create(&t, KO_KAASTOPIC, "{" META("../a") "}"), 422);
    KT_EQ(ol_get(&t, KO_KAASTOPIC, "b"), 404);
    KT_STR(t.reason, "NotFound");
    KT_EQ(ol_create(&t, KO_TOKENREVIEW, "{" META("a") "}"), 405);
    ol_stop(&t);
}

static void stale_update_is_refused(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_create(&t, KO_CONFIGMAP, "{" META("a") ",'data':{'k':'1'}}");
    char rv[32];
    snprintf(rv, sizeof(rv), "%s", ko_rv(t.doc));
    KT_EQ(ol_update(&t, KO_CONFIGMAP, "{" META("a") ",'data':{'k':'2'}}"), 200);
    char text[200];
    snprintf(text, sizeof(text),
             "{'metadata':{'namespace':'ns','name':'a','resourceVersion':'%s'},'data':{'k':'3'}}",
             rv);
    KT_EQ(ol_update(&t, KO_CONFIGMAP, text), 409);
    KT_STR(t.reason, "Conflict");
    KT_EQ(ol_get(&t, KO_CONFIGMAP, "a"), 200);
    KT_STR(kc_json_str(t.doc, "data.k", ""), "2");
    KT_EQ(ol_update(&t, KO_CONFIGMAP, "{" META("gone") "}"), 404);
    ol_stop(&t);
}

static void writes_without_change_are_no_writes(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_apply(&t, KO_CONFIGMAP, NULL, "{" META("a") ",'data':{'k':'1'}}");
    char rv[32];
    snprintf(rv, sizeof(rv), "%s", ko_rv(t.doc));
    KT_EQ(ol_apply(&t, KO_CONFIGMAP, NULL, "{" META("a") ",'data':{'k':'1'}}"), 200);
    KT_STR(ko_rv(t.doc), rv);
    KT_EQ(ol_update(&t, KO_CONFIGMAP, "{" META("a") ",'data':{'k':'1'}}"), 200);
    KT_STR(ko_rv(t.doc), rv);
    ol_stop(&t);
}

static void generation_counts_spec_changes_only(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_create(&t, KO_KAASTOPIC, "{" META("a") ",'spec':{'x':1}}");
    KT_EQ(ol_apply_status(&t, KO_KAASTOPIC, "{" META("a") ",'spec':{'x':9},'status':{'ok':true}}"),
          200);
    KT_EQ(ko_generation(t.doc), 1);
    KT_EQ(kc_json_int(t.doc, "spec.x", 0), 1);
    KT_TRUE(kc_json_bool(t.doc, "status.ok", false));
    KT_EQ(
        ol_merge(&t, KO_KAASTOPIC, "a", "{'metadata':{'labels':{'l':'1'}},'status':{'ok':false}}"),
        200);
    KT_EQ(ko_generation(t.doc), 1);
    KT_TRUE(kc_json_bool(t.doc, "status.ok", false));
    KT_EQ(ol_merge(&t, KO_KAASTOPIC, "a", "{'spec':{'x':2}}"), 200);
    KT_EQ(ko_generation(t.doc), 2);
    ol_stop(&t);
}

static void apply_drops_what_its_manager_dropped(void)
{
    struct ol t;
    ol_start(&t, NULL);
    KT_EQ(ol_apply(&t, KO_CONFIGMAP, NULL, "{" META("a") ",'data':{'mine':'1','both':'1'}}"), 201);
    KT_EQ(ol_apply(&t, KO_CONFIGMAP, "other", "{" META("a") ",'data':{'theirs':'1','both':'1'}}"),
          200);
    KT_EQ(ol_apply(&t, KO_CONFIGMAP, NULL, "{" META("a") ",'data':{'new':'1'}}"), 200);
    KT_TRUE(kc_json_at(t.doc, "data.mine") == NULL);
    KT_STR(kc_json_str(t.doc, "data.both", ""), "1");
    KT_STR(kc_json_str(t.doc, "data.theirs", ""), "1");
    KT_STR(kc_json_str(t.doc, "data.new", ""), "1");
    ol_stop(&t);
}

static void finalizers_of_two_managers_live_together(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_apply(&t, KO_KAASTOPIC, NULL,
             "{'metadata':{'namespace':'ns','name':'a','finalizers':['f/one']}}");
    ol_apply(&t, KO_KAASTOPIC, "b",
             "{'metadata':{'namespace':'ns','name':'a','finalizers':['f/two']}}");
    KT_TRUE(ko_has_finalizer(t.doc, "f/one") && ko_has_finalizer(t.doc, "f/two"));
    ol_apply(&t, KO_KAASTOPIC, NULL, "{" META("a") "}");
    KT_FALSE(ko_has_finalizer(t.doc, "f/one"));
    KT_TRUE(ko_has_finalizer(t.doc, "f/two"));
    ol_stop(&t);
}

static void finalizer_holds_a_deletion(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_create(&t, KO_KAASTOPIC,
              "{'metadata':{'namespace':'ns','name':'a','finalizers':['kaas.dev/topic']}}");
    KT_EQ(ol_remove(&t, KO_KAASTOPIC, "a", "some-other-uid"), 409);
    KT_EQ(ol_remove(&t, KO_KAASTOPIC, "a", NULL), 200);
    KT_EQ(ol_get(&t, KO_KAASTOPIC, "a"), 200);
    KT_TRUE(ko_deleting(t.doc));
    KT_EQ(ol_merge(&t, KO_KAASTOPIC, "a", "{'metadata':{'finalizers':[]}}"), 200);
    KT_EQ(ol_get(&t, KO_KAASTOPIC, "a"), 404);
    ol_stop(&t);
}

static int create_owned(struct ol *t, enum ko_kind k, const char *name, const char *owner)
{
    char text[300];
    snprintf(text, sizeof(text),
             "{'metadata':{'namespace':'ns','name':'%s','ownerReferences':[{'uid':'%s'}]}}", name,
             owner);
    return ol_create(t, k, text);
}

static void dependents_go_with_their_owner(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_create(&t, KO_KAASCLUSTER, "{" META("a") "}");
    char uid[40];
    snprintf(uid, sizeof(uid), "%s", ko_uid(t.doc));
    create_owned(&t, KO_STATEFULSET, "a", uid);
    char sts[40];
    snprintf(sts, sizeof(sts), "%s", ko_uid(t.doc));
    create_owned(&t, KO_POD, "a-0", sts);
    ol_create(&t, KO_CONFIGMAP, "{" META("free") "}");
    KT_EQ(ol_remove(&t, KO_KAASCLUSTER, "a", NULL), 200);
    KT_EQ(ol_get(&t, KO_STATEFULSET, "a"), 404);
    KT_EQ(ol_get(&t, KO_POD, "a-0"), 404);
    KT_EQ(ol_get(&t, KO_CONFIGMAP, "free"), 200);
    KT_EQ(create_owned(&t, KO_SERVICE, "late", uid), 201);
    KT_EQ(ol_get(&t, KO_SERVICE, "late"), 404);
    ol_stop(&t);
}

static void lists_follow_selectors(void)
{
    struct ol t;
    ol_start(&t, NULL);
    ol_create(&t, KO_POD,
              "{'metadata':{'namespace':'ns','name':'b','labels':{'c/x':'1','y':'2'}}}");
    ol_create(&t, KO_POD, "{'metadata':{'namespace':'ns','name':'a','labels':{'c/x':'1'}}}");
    ol_create(&t, KO_POD, "{'metadata':{'namespace':'zz','name':'c','labels':{'c/x':'1'}}}");
    KT_EQ(ol_list(&t, KO_POD, "c/x=1"), 200);
    KT_STR(kc_json_str(t.doc, "kind", ""), "PodList");
    KT_EQ(json_array_size(json_object_get(t.doc, "items")), 2);
    KT_STR(kc_json_str(t.doc, "items.0.metadata.name", ""), "a");
    ol_list(&t, KO_POD, "c/x==1, !y");
    KT_EQ(json_array_size(json_object_get(t.doc, "items")), 1);
    ol_list(&t, KO_POD, "y!=2");
    KT_EQ(json_array_size(json_object_get(t.doc, "items")), 1);
    KT_EQ(ol_list(&t, KO_POD, "=,"), 400);
    ol_stop(&t);
}

struct seen {
    char log[256];
    bool synced;
};

static void on_event(void *ctx, enum ko_event ev, json_t *doc)
{
    struct seen *s = ctx;
    size_t len = strlen(s->log);
    s->synced = s->synced || ev == KO_SYNCED;
    snprintf(s->log + len, sizeof(s->log) - len, "%c%s ", "AMDS"[ev], doc ? ko_name(doc) : "");
}

static void watch_tells_what_is_then_what_changes(void)
{
    struct ol t;
    struct seen s = {.synced = false};
    ol_start(&t, NULL);
    ol_create(&t, KO_POD, "{'metadata':{'namespace':'ns','name':'b','labels':{'x':'1'}}}");
    ol_create(&t, KO_POD, "{'metadata':{'namespace':'ns','name':'no'}}");
    struct ko_watch *w = t.store->ops->watch(t.store, KO_POD, "ns", "x", on_event, &s);
    OL_WAIT(&t, s.synced);
    ol_create(&t, KO_POD, "{'metadata':{'namespace':'ns','name':'a','labels':{'x':'1'}}}");
    ol_merge(&t, KO_POD, "a", "{'metadata':{'labels':{'x':'2'}}}");
    ol_merge(&t, KO_POD, "a", "{'metadata':{'labels':{'x':null}}}");
    ol_merge(&t, KO_POD, "no", "{'metadata':{'labels':{'x':'1'}}}");
    ol_remove(&t, KO_POD, "b", NULL);
    ol_get(&t, KO_POD, "b");
    KT_STR(s.log, "Ab S Aa Ma Da Ano Db ");
    t.store->ops->unwatch(w);
    ol_remove(&t, KO_POD, "no", NULL);
    KT_STR(s.log, "Ab S Aa Ma Da Ano Db ");
    ol_stop(&t);
}

static void files_survive_a_restart(void)
{
    char dir[KT_DIR_MAX], path[100];
    kt_dir_make(dir);
    struct ol t;
    ol_start(&t, dir);
    ol_apply(
        &t, KO_KAASTOPIC, NULL,
        "{'apiVersion':'kaas.dev/v1alpha1','kind':'KaasTopic'," META("a") ",'spec':{'x':1,'y':1}}");
    ol_create(&t, KO_CONFIGMAP,
              "{'apiVersion':'v1','kind':'ConfigMap'," META("b") ",'data':{'k':'v'}}");
    snprintf(path, sizeof(path), "%s/configmaps/ns/b.json", dir);
    KT_EQ(access(path, R_OK), 0); /* an answered write is a file already */
    char uid[40];
    ol_get(&t, KO_KAASTOPIC, "a");
    snprintf(uid, sizeof(uid), "%s", ko_uid(t.doc));
    ol_remove(&t, KO_CONFIGMAP, "b", NULL);
    KT_TRUE(access(path, R_OK) != 0);
    ol_stop(&t);

    ol_start(&t, dir);
    KT_EQ(ol_get(&t, KO_KAASTOPIC, "a"), 200);
    KT_STR(ko_uid(t.doc), uid);
    KT_TRUE(kc_json_at(t.doc, "metadata.managedFields") == NULL);
    KT_EQ(ol_get(&t, KO_CONFIGMAP, "b"), 404);
    /* The managers' fields are remembered, too. */
    ol_apply(&t, KO_KAASTOPIC, NULL, "{" META("a") ",'spec':{'x':2}}");
    KT_TRUE(kc_json_at(t.doc, "spec.y") == NULL);
    ol_stop(&t);

    snprintf(path, sizeof(path), "%s/kaastopics/ns/a.json", dir);
    KT_EQ(truncate(path, 20), 0);
    struct rt_loop loop;
    struct ko_store *st = NULL;
    struct kc_err err = {0};
    KT_EQ(rt_loop_init(&loop, "test"), 0);
    KT_TRUE(ko_store_local_open(&loop, dir, &st, &err) < 0);
    KT_TRUE(strstr(err.msg, "kaastopics/ns/a.json") != NULL);
    rt_loop_stop(&loop);
    rt_loop_run(&loop);
    kt_dir_remove(dir);
}

static void events_are_capped(void)
{
    struct ol t;
    char text[120];
    ol_start(&t, NULL);
    for (int i = 0; i < KO_LOCAL_EVENTS_MAX + 5; i++) {
        snprintf(text, sizeof(text), "{'metadata':{'namespace':'ns','name':'e%d'}}", i);
        ol_create(&t, KO_EVENT, text);
    }
    KT_EQ(ol_get(&t, KO_EVENT, "e4"), 404);
    KT_EQ(ol_get(&t, KO_EVENT, "e5"), 200);
    ol_stop(&t);
}

static void names_are_dns_names(void)
{
    KT_TRUE(ko_name_valid("a") && ko_name_valid("a-b.c-1"));
    KT_FALSE(ko_name_valid("") || ko_name_valid("-a") || ko_name_valid("a.") || ko_name_valid("A"));
    KT_FALSE(ko_name_valid("a..b") || ko_name_valid("a.-b") || ko_name_valid("a/b"));
}

KT_MAIN("olocal/store", KT(create_stamps_identity_and_versions), KT(stale_update_is_refused),
        KT(writes_without_change_are_no_writes), KT(generation_counts_spec_changes_only),
        KT(apply_drops_what_its_manager_dropped), KT(finalizers_of_two_managers_live_together),
        KT(finalizer_holds_a_deletion), KT(dependents_go_with_their_owner),
        KT(lists_follow_selectors), KT(watch_tells_what_is_then_what_changes),
        KT(files_survive_a_restart), KT(events_are_capped), KT(names_are_dns_names))
