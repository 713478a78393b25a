#include "op_sample.h"

#include "base/kc_json.h"

json_t *op_yaml(const char *text)
{
    struct kc_err err;
    json_t *doc = kc_yaml_load(text, strlen(text), &err);
    if (!doc) {
        fprintf(stderr, "%s\n%s\n", err.msg, text);
    }
    KT_REQUIRE(doc != NULL);
    return doc;
}

const char *op_source(const char *path)
{
    static char text[256 * 1024];
    char full[1024];
    const char *slash = strrchr(__FILE__, '/');
    snprintf(full, sizeof(full), "%.*s/../../%s", (int)(slash - __FILE__), __FILE__, path);
    FILE *f = fopen(full, "r");
    KT_REQUIRE(f != NULL);
    size_t len = fread(text, 1, sizeof(text), f);
    fclose(f);
    KT_REQUIRE(len < sizeof(text));
    text[len] = '\0';
    return text;
}

json_t *op_crd(const char *file)
{
    char path[128];
    snprintf(path, sizeof(path), "crds/%s", file);
    return op_yaml(op_source(path));
}

json_t *op_cluster_doc(const char *extra)
{
    char text[4096];
    snprintf(text, sizeof(text),
             "apiVersion: kaas.dev/v1alpha1\n"
             "kind: KaasCluster\n"
             "metadata: {name: demo, namespace: ns, uid: 11111111-2222-3333-4444-555555555555,"
             " generation: 1}\n"
             "spec:\n"
             "  storage: {hostPath: /srv/kaas}\n"
             "%s",
             extra);
    return op_yaml(text);
}

struct ko_cluster *op_cluster(const char *extra)
{
    struct ko_field_errors errs;
    struct ko_cluster *c;
    json_t *doc = op_cluster_doc(extra);
    int rc = ko_cluster_parse(doc, &c, &errs);
    json_decref(doc);
    if (rc) {
        fprintf(stderr, "%s\n", errs.text[0]);
    }
    KT_REQUIRE(rc == 0);
    return c;
}
