/* Images from a root and its shards, and the same from files. */
#include "cluster/kl_source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"

void kl_assembly_fini(struct kl_assembly *a)
{
    ki_image_unref(a->root);
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        ki_shard_unref(a->shards[i]);
    }
    *a = (struct kl_assembly){.missing = 0};
}

int kl_assembly_begin(struct kl_assembly *a, const json_t *configmap,
                      const struct ki_image *previous, struct kc_err *err)
{
    json_t *doc;
    *a = (struct kl_assembly){.missing = 0};
    int rc = ki_configmap_parse(configmap, &doc, err);
    if (rc) {
        return rc;
    }
    rc = ki_root_decode(doc, &a->root, err);
    json_decref(doc);
    if (rc) {
        return rc;
    }
    const char *uid = kc_json_str(configmap, "metadata.uid", "");
    if (strlen(uid) >= sizeof(a->root->order.uid)) {
        kl_assembly_fini(a);
        return kc_fail(err, KC_E_MALFORMED, "uid of the image's ConfigMap is too long");
    }
    memcpy(a->root->order.uid, uid, strlen(uid) + 1);
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        if (previous && strcmp(previous->hashes[i], a->root->hashes[i]) == 0) {
            a->shards[i] = ki_shard_ref(previous->shards[i]);
        } else {
            a->missing |= 1u << i;
        }
    }
    return 0;
}

int kl_assembly_shard(struct kl_assembly *a, int32_t shard, const json_t *configmap,
                      struct kc_err *err)
{
    json_t *doc;
    int rc = ki_configmap_parse(configmap, &doc, err);
    if (rc) {
        return rc;
    }
    struct ki_shard *s;
    rc = ki_shard_decode(doc, a->root->hashes[shard], &s, err);
    json_decref(doc);
    if (rc) {
        return rc;
    }
    if (s->index != shard) {
        rc = kc_fail(err, KC_E_MALFORMED, "shard %d holds shard %d", shard, s->index);
        ki_shard_unref(s);
        return rc;
    }
    a->shards[shard] = s;
    a->missing &= ~(1u << shard);
    return 0;
}

struct ki_image *kl_assembly_finish(struct kl_assembly *a)
{
    KC_ASSERT(a->root && a->missing == 0);
    struct ki_image *im = ki_image_build(a->root, a->shards);
    memset(a->shards, 0, sizeof(a->shards)); /* taken over */
    kl_assembly_fini(a);
    return im;
}

/* ---- files ---- */

static int read_file(const char *path, char **ret, size_t *ret_len, struct kc_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        int rc = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return kc_fail(err, rc, "%s: %s", path, kc_strerror(rc));
    }
    if (!S_ISREG(st.st_mode) || st.st_size > KI_DOC_MAX) {
        close(fd);
        return kc_fail(err, KC_E_TOO_LARGE, "%s is no file of at most %d bytes", path, KI_DOC_MAX);
    }
    size_t size = (size_t)st.st_size, have = 0;
    char *text = kc_try_alloc(size + 1);
    int rc = text ? 0 : -ENOMEM;
    while (rc == 0 && have < size) {
        ssize_t n = read(fd, text + have, size - have);
        if (n == 0) {
            break;
        }
        rc = n < 0 ? (errno == EINTR ? 0 : -errno) : 0;
        have += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (rc) {
        kc_free(text);
        return kc_fail(err, rc, "%s: %s", path, kc_strerror(rc));
    }
    text[have] = '\0';
    *ret = text;
    *ret_len = have;
    return 0;
}

static int load_object(const char *dir, const char *name, json_t **ret, struct kc_err *err)
{
    char path[PATH_MAX], *text;
    size_t len;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s.json", dir, name) >= sizeof(path)) {
        return kc_fail(err, -ENAMETOOLONG, "%s", dir);
    }
    int rc = read_file(path, &text, &len, err);
    if (rc) {
        return rc;
    }
    json_error_t je;
    *ret = json_loadb(text, len, 0, &je);
    kc_free(text);
    return *ret ? 0 : kc_fail(err, KC_E_MALFORMED, "%s: %s", path, je.text);
}

/* A projected ConfigMap: a folder with one file a key. */
static int load_folder(const char *dir, const char *name, json_t **ret, struct kc_err *err)
{
    static const char *const keys[] = {"image.json.gz", "image.json"};
    int rc = 0;
    for (size_t i = 0; i < KC_ARRAY_LEN(keys); i++) {
        char path[PATH_MAX], *text;
        size_t len;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s/%s", dir, name, keys[i]) >= sizeof(path)) {
            return kc_fail(err, -ENAMETOOLONG, "%s", dir);
        }
        rc = read_file(path, &text, &len, err);
        if (rc == 0) {
            *ret = json_pack("{s:{s:s%}}", "data", keys[i], text, len);
            kc_free(text);
            return *ret ? 0 : kc_fail(err, KC_E_MALFORMED, "%s is no text", path);
        }
    }
    return rc;
}

int kl_read_files(const char *dir, const char *name, bool nested, const struct ki_image *previous,
                  struct ki_image **ret, struct kc_err *err)
{
    int (*load)(const char *, const char *, json_t **, struct kc_err *) =
        nested ? load_folder : load_object;
    json_t *cm;
    struct kl_assembly a;
    int rc = load(dir, name, &cm, err);
    if (rc) {
        return rc;
    }
    rc = kl_assembly_begin(&a, cm, previous, err);
    json_decref(cm);
    for (int32_t i = 0; rc == 0 && i < KP_SHARDS; i++) {
        if (a.missing & 1u << i) {
            char shard[320];
            snprintf(shard, sizeof(shard), "%s-%d", name, i);
            rc = load(dir, shard, &cm, err);
            if (rc == 0) {
                rc = kl_assembly_shard(&a, i, cm, err);
                json_decref(cm);
            }
        }
    }
    if (rc == 0) {
        *ret = kl_assembly_finish(&a);
        rc = *ret ? 0 : kc_fail(err, -ENOMEM, "no memory for the image");
    }
    kl_assembly_fini(&a);
    return rc;
}
