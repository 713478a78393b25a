/* k8s_path.c - the addresses of API resources. Names come from objects and so from outside: they
 * are encoded, and what could climb out of its place is refused. */
#include <stdio.h>
#include <string.h>

#include "k8s/k8s_client.h"

struct text {
    char *out;
    size_t cap, len;
    bool failed;
};

static void put(struct text *t, const char *s, size_t n)
{
    if (t->failed || t->cap - t->len <= n) {
        t->failed = true;
        return;
    }
    memcpy(t->out + t->len, s, n);
    t->len += n;
    t->out[t->len] = '\0';
}

static void put_encoded(struct text *t, const char *s)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char hex[] = "0123456789ABCDEF";
    for (; *s; s++) {
        if (strchr(plain, *s)) {
            put(t, s, 1);
        } else {
            unsigned char b = (unsigned char)*s;
            char enc[3] = {'%', hex[b >> 4], hex[b & 15]};
            put(t, enc, 3);
        }
    }
}

static int put_segment(struct text *t, const char *s)
{
    if (!*s || strcmp(s, ".") == 0 || strcmp(s, "..") == 0 || strchr(s, '/')) {
        return KC_E_MALFORMED;
    }
    put(t, "/", 1);
    put_encoded(t, s);
    return 0;
}

int k8s_query_add(char *out, size_t cap, const char *key, const char *value)
{
    struct text t = {out, cap, strlen(out), false};
    if (t.len) {
        put(&t, "&", 1);
    }
    put_encoded(&t, key);
    put(&t, "=", 1);
    put_encoded(&t, value);
    return t.failed ? KC_E_TOO_LARGE : 0;
}

int k8s_request_path(const struct k8s_request *req, char *out, size_t cap)
{
    struct text t = {out, cap, 0, cap == 0};
    const char *api = req->resource.api;
    const char *root = strchr(api, '/') ? "/apis/" : "/api/";
    put(&t, root, strlen(root));
    put(&t, api, strlen(api)); /* ours, not from outside */
    int rc = 0;
    if (req->ns) {
        put(&t, "/namespaces", 11);
        rc = put_segment(&t, req->ns);
    }
    if (rc == 0) {
        rc = put_segment(&t, req->resource.plural);
    }
    if (rc == 0 && req->name) {
        rc = put_segment(&t, req->name);
    }
    if (rc == 0 && req->subresource) {
        rc = put_segment(&t, req->subresource);
    }
    if (rc == 0 && req->query && *req->query) {
        put(&t, "?", 1);
        put(&t, req->query, strlen(req->query));
    }
    return rc ? rc : t.failed ? KC_E_TOO_LARGE : 0;
}
