#include "app/ko_file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_json.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "crd/ko_crd.h"
#include "local/lo_files.h"
#include "store/ko_object.h"

enum { SETTLE_MS = 50 }; /* an editor writes in several steps */

struct ko_file {
    struct ko_store *store;
    char *path;
    char cluster[320];
    uv_fs_event_t watch;
    uv_timer_t settle;
    int open;
};

/* 0 if the document is one we take; its defaults are filled in. */
static int check(struct ko_file *f, json_t *doc, struct kc_err *err)
{
    struct ko_field_errors errs = {0};
    char text[220], key[320];
    if (!json_is_object(json_object_get(doc, "metadata"))) {
        return kc_fail(err, KC_E_CONFIG, "a document without metadata");
    }
    if (!*ko_ns(doc)) {
        kc_json_set(doc, "metadata.namespace", json_string("default"));
    }
    enum ko_kind k = ko_kind_find(kc_json_str(doc, "apiVersion", ""), kc_json_str(doc, "kind", ""));
    if (k == KO_KAASCLUSTER) {
        struct ko_cluster *c = NULL;
        snprintf(key, sizeof(key), "%.250s/%.60s", ko_ns(doc), ko_name(doc));
        if (*f->cluster && strcmp(f->cluster, key) != 0) {
            return kc_fail(err, KC_E_CONFIG,
                           "a local host runs one KaasCluster, and that is %.200s", f->cluster);
        }
        snprintf(f->cluster, sizeof(f->cluster), "%s", key);
        ko_cluster_default(doc);
        ko_cluster_parse(doc, &c, &errs);
        ko_cluster_free(c);
    } else if (k == KO_KAASTOPIC) {
        struct ko_topic *t = NULL;
        ko_topic_parse(doc, &t, &errs);
        ko_topic_free(t);
    } else {
        return kc_fail(err, KC_E_CONFIG, "%s is no KaasCluster and no KaasTopic",
                       kc_json_str(doc, "kind", "a document without kind"));
    }
    return errs.n == 0
               ? 0
               : kc_fail(err, KC_E_CONFIG, "%s", ko_field_errors_join(&errs, text, sizeof(text)));
}

static int load(struct ko_file *f, struct kc_err *err)
{
    size_t len, i;
    json_t *doc;
    char *text = lo_read_file(f->path, &len, err);
    json_t *docs = text ? kc_yaml_load_all(text, len, err) : NULL;
    kc_free(text);
    if (!docs) {
        return err->code;
    }
    int rc = 0;
    json_array_foreach(docs, i, doc)
    {
        rc = rc ? rc : check(f, doc, err);
    }
    if (!rc && !*f->cluster) {
        rc = kc_fail(err, KC_E_CONFIG, "%s: no KaasCluster in it", f->path);
    }
    json_array_foreach(docs, i, doc)
    {
        enum ko_kind k =
            ko_kind_find(kc_json_str(doc, "apiVersion", ""), kc_json_str(doc, "kind", ""));
        if (!rc) {
            f->store->ops->apply(f->store, k, doc, "file", NULL, NULL);
        }
    }
    json_decref(docs);
    return rc;
}

static void on_settled(uv_timer_t *t)
{
    struct ko_file *f = t->data;
    struct kc_err err = {0};
    struct kc_log_buf lb;
    if (load(f, &err)) {
        kc_log(KC_ERROR, "local", "event=file_refused error=%s",
               kc_log_str(kc_str_of(err.msg), &lb));
    }
}

static void on_change(uv_fs_event_t *w, const char *name, int events, int status)
{
    struct ko_file *f = w->data;
    const char *slash = strrchr(f->path, '/');
    (void)events;
    (void)status;
    if (!name || strcmp(name, slash ? slash + 1 : f->path) == 0) {
        uv_timer_start(&f->settle, on_settled, SETTLE_MS, 0);
    }
}

static void on_closed(uv_handle_t *h)
{
    struct ko_file *f = h->data;
    if (--f->open == 0) {
        kc_free(f->path);
        kc_free(f);
    }
}

int ko_file_start(struct ko_store *store, const char *path, struct ko_file **ret,
                  struct kc_err *err)
{
    char dir[PATH_MAX];
    struct ko_file *f = kc_zalloc(sizeof(*f));
    const char *slash = strrchr(path, '/');
    f->store = store;
    f->path = kc_strdup(path);
    snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    uv_fs_event_init(&store->loop->uv, &f->watch);
    uv_timer_init(&store->loop->uv, &f->settle);
    f->watch.data = f->settle.data = f;
    f->open = 2;
    int rc = uv_fs_event_start(&f->watch, on_change, dir, 0);
    if (rc) {
        kc_fail(err, rc, "%s: %s", dir, kc_strerror(rc));
    }
    rc = rc ? rc : load(f, err);
    if (rc) {
        ko_file_stop(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void ko_file_stop(struct ko_file *f)
{
    if (f) {
        uv_close((uv_handle_t *)&f->watch, on_closed);
        uv_close((uv_handle_t *)&f->settle, on_closed);
    }
}
