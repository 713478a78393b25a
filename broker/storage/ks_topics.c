/* What the volume says about topics: topics/<id>/meta, tombstones, producer id blocks.
 *
 * meta is replaced by rename: readers on another client may see the older one for a while, which is
 * harmless, for nobody decides ownership by it. A tombstone outlives everything: a topic that has
 * one is never listed, whatever a late writer left in its directory. */
#include "storage/ks_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"

enum { META_MAX = 256 * 1024, PID_BLOCK = 1000 };

/* ---- meta ---- */

static int parse_meta(const char *text, size_t len, struct ks_topic_meta *ret)
{
    json_error_t why;
    json_t *doc = json_loadb(text, len, 0, &why);
    if (!doc && json_error_code(&why) == json_error_out_of_memory) {
        return -ENOMEM;
    }
    const char *name = kc_json_str(doc, "name", "");
    int64_t partitions = kc_json_int(doc, "partitions", 0);
    json_t *configs = kc_json_at(doc, "configs");
    char *text_configs = configs ? kc_json_canonical(configs) : NULL;
    int rc = json_is_object(configs) && !text_configs ? -ENOMEM : KC_E_CORRUPT;
    if (*name && strlen(name) <= KP_NAME_MAX && partitions > 0 && partitions <= INT32_MAX &&
        json_is_object(configs) && text_configs && kc_json_int(doc, "format", 0) == 1) {
        memcpy(ret->name, name, strlen(name) + 1);
        ret->partitions = (int32_t)partitions;
        ret->internal = kc_json_bool(doc, "internal", false);
        size_t room = strlen(text_configs) + 1;
        ret->configs_json = kc_try_alloc(room);
        rc = ret->configs_json ? 0 : -ENOMEM;
        if (!rc) {
            memcpy(ret->configs_json, text_configs, room);
        }
    }
    free(text_configs);
    json_decref(doc);
    return rc;
}

int ks_topic_meta_read(struct ks_fs *fs, const struct kc_uuid *id, struct ks_topic_meta *ret)
{
    char path[KS_PATH_MAX];
    ks_path_topic(path, id, "meta");
    char *text = kc_try_alloc(META_MAX);
    if (!text) {
        return -ENOMEM;
    }
    ssize_t n = ks_vol_read(fs, path, text, META_MAX);
    int rc = n < 0 ? (int)n : parse_meta(text, (size_t)n, ret);
    ret->id = *id;
    kc_free(text);
    return rc;
}

static char *meta_text(const struct ks_topic_meta *meta, struct kc_err *err)
{
    json_t *configs = json_loads(meta->configs_json ? meta->configs_json : "{}", 0, NULL);
    if (!json_is_object(configs)) {
        json_decref(configs);
        kc_fail(err, -EINVAL, "configs of a topic are not a JSON object");
        return NULL;
    }
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(&meta->id, id);
    json_t *doc =
        json_pack("{s:i, s:s, s:s, s:i, s:b, s:o}", "format", 1, "id", id, "name", meta->name,
                  "partitions", meta->partitions, "internal", meta->internal, "configs", configs);
    char *text = doc ? kc_json_canonical(doc) : NULL;
    json_decref(doc);
    if (!text) {
        kc_fail(err, -EINVAL, "the name of a topic is not valid UTF-8");
        return NULL;
    }
    /* Read back: what short memory spoilt must not stand on the volume, where it would hide every
     * topic from the inventory. */
    struct ks_topic_meta back = {0};
    int rc = parse_meta(text, strlen(text), &back);
    kc_free(back.configs_json);
    if (rc || strcmp(back.name, meta->name) != 0 || back.partitions != meta->partitions) {
        kc_fail(err, -ENOMEM, "%s", kc_strerror(-ENOMEM));
        free(text);
        return NULL;
    }
    return text;
}

/* A whole new file takes the name at once. */
static int replace(struct ks_fs *fs, const char *dir, const char *name, const char *text)
{
    char tmp[KS_PATH_MAX + 24], path[KS_PATH_MAX + 8];
    uint64_t random;
    kc_random_bytes(&random, sizeof(random));
    snprintf(tmp, sizeof(tmp), "%s/tmp.%016" PRIx64, dir, random);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = ks_fs_open(fs, tmp, KS_CREATE);
    if (fd < 0) {
        return fd;
    }
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    int rc = ks_fs_pwritev(fs, fd, &iov, 1, 0);
    rc = rc ? rc : ks_fs_datasync(fs, fd);
    int closed = ks_fs_close(fs, fd);
    rc = rc ? rc : closed;
    rc = rc ? rc : ks_fs_rename(fs, tmp, path);
    if (rc) {
        ks_fs_unlink(fs, tmp);
        return rc;
    }
    return ks_fs_syncdir(fs, dir);
}

/* ---- removal ---- */

struct names {
    struct kc_list head;
    int rc;
};
struct name {
    struct kc_list node;
    char s[];
};

static bool add_name(void *arg, const char *s)
{
    struct names *l = arg;
    struct name *n = kc_try_alloc(sizeof(*n) + strlen(s) + 1);
    if (!n) {
        l->rc = -ENOMEM;
        return false;
    }
    memcpy(n->s, s, strlen(s) + 1);
    kc_list_add_tail(&l->head, &n->node);
    return true;
}

/* Removes what is in a directory (subdirectories one level down, which hold files only), and it.
 * NFS keeps files that somebody has open as .nfs*: those make ENOTEMPTY, and a later call succeeds. */
static int remove_dir(struct ks_fs *fs, const char *dir, bool nested)
{
    struct names l = {0};
    kc_list_init(&l.head);
    int rc = ks_fs_list(fs, dir, add_name, &l);
    rc = rc ? rc : l.rc;
    KC_LIST_EACH(it, nx, &l.head)
    {
        struct name *n = KC_LIST_ENTRY(it, struct name, node);
        char path[KS_PATH_MAX];
        int len = snprintf(path, sizeof(path), "%s/%s", dir, n->s);
        if (!rc && len < (int)sizeof(path)) {
            int gone = ks_fs_unlink(fs, path);
            if ((gone == -EISDIR || gone == -EPERM) && nested) {
                gone = remove_dir(fs, path, false);
            }
            rc = gone == -ENOENT ? 0 : gone;
        }
        kc_list_del(&n->node);
        kc_free(n);
    }
    rc = rc == -ENOENT ? 0 : rc;
    if (!rc) {
        rc = ks_fs_rmdir(fs, dir);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

int ks_topic_remove(struct ks_engine *e, const struct kc_uuid *id, struct kc_err *err)
{
    char dir[KS_PATH_MAX], b64[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(id, b64);
    ks_path_topic(dir, id, NULL);
    /* The tombstone first: from here on nobody adopts or makes the topic again. */
    int rc = ks_graves_look(e, id, NULL) == KC_E_GONE
                 ? 0
                 : ks_vol_publish_vital(&e->fs, "deleted", b64, "deleted\n", 8);
    rc = rc == KC_E_EXISTS ? 0 : rc;
    rc = rc ? rc : ks_fs_syncdir(&e->fs, "deleted");
    rc = rc ? rc : remove_dir(&e->fs, dir, true);
    rc = rc ? rc : ks_fs_syncdir(&e->fs, "topics");
    return rc ? kc_fail(err, rc, "%s: %s", dir, kc_strerror(rc)) : 0;
}

/* ---- writing ---- */

static int write_meta(struct ks_fs *fs, const char *dir, const char *text)
{
    int rc = ks_fs_mkdir(fs, dir);
    rc = KC_MIN(rc, 0); /* it may be there */
    if (!rc && !ks_fs_ordered(fs)) { /* else the name of meta covers it (ADR 23) */
        rc = ks_fs_syncdir(fs, "topics"); /* also if it was there: its maker may have ended */
    }
    return rc ? rc : replace(fs, dir, "meta", text);
}

int ks_topic_write(struct ks_engine *e, const struct ks_topic_meta *meta, struct kc_err *err)
{
    char dir[KS_PATH_MAX];
    ks_path_topic(dir, &meta->id, NULL);
    struct ks_topic_meta old = {0};
    int rc = ks_graves_look(e, &meta->id, err);
    if (rc) {
        return rc;
    }
    rc = ks_topic_meta_read(&e->fs, &meta->id, &old);
    kc_free(old.configs_json);
    if (rc && rc != -ENOENT && rc != KC_E_CORRUPT) { /* what cannot be compared is not replaced */
        return kc_fail(err, rc, "%s/meta: %s", dir, kc_strerror(rc));
    }
    if (rc == 0 && old.partitions > meta->partitions) {
        return kc_fail(err, -EINVAL, "%s: %d partitions cannot become %d", dir, old.partitions,
                       meta->partitions);
    }
    char *text = meta_text(meta, err);
    if (!text) {
        return -EINVAL;
    }
    rc = write_meta(&e->fs, dir, text);
    free(text);
    if (rc) {
        return kc_fail(err, rc, "%s/meta: %s", dir, kc_strerror(rc));
    }
    /* A removal that began after the first look may have passed here before us: then we see its
     * tombstone now, and take back what we made. One that begins later finds it (ADR 11). */
    rc = ks_graves_look(e, &meta->id, err);
    if (rc == KC_E_GONE) {
        remove_dir(&e->fs, dir, true); /* what fails here is removed by a sweep */
    }
    return rc;
}

/* ---- inventory ---- */

static uint64_t revision_of(const struct ks_inventory *inv)
{
    uint64_t h = 1;
    for (int32_t i = 0; i < inv->n; i++) {
        const struct ks_topic_meta *t = &inv->topics[i];
        h = kc_hash64_mix(h, kc_hash64(t->id.b, sizeof(t->id.b)));
        h = kc_hash64_mix(h, kc_hash64(t->name, strlen(t->name)));
        h = kc_hash64_mix(h, kc_hash64(t->configs_json, strlen(t->configs_json)));
        h = kc_hash64_mix(h, (uint64_t)t->partitions * 2 + t->internal);
    }
    for (int32_t i = 0; i < inv->n_deleted; i++) {
        h = kc_hash64_mix(h, kc_hash64(inv->deleted[i].b, sizeof(inv->deleted[i].b)));
    }
    return h;
}

int ks_inventory_read(struct ks_engine *e, struct ks_inventory **ret, struct kc_err *err)
{
    struct ks_ids deleted, there;
    int rc = ks_ids_list(&e->fs, "topics", &there, err);
    if (rc) {
        return rc;
    }
    rc = ks_ids_list(&e->fs, "deleted", &deleted, err); /* after topics: none is missed (D7) */
    if (rc) {
        ks_ids_fini(&there);
        return rc;
    }
    struct ks_inventory *inv = kc_zalloc(sizeof(*inv));
    inv->deleted = deleted.v;
    inv->n_deleted = deleted.n;
    inv->topics = kc_try_zalloc((size_t)there.n + 1, sizeof(*inv->topics));
    rc = inv->topics ? 0 : kc_fail(err, -ENOMEM, "inventory: %s", kc_strerror(-ENOMEM));
    for (int32_t i = 0; !rc && i < there.n; i++) {
        if (ks_ids_have(&deleted, &there.v[i])) {
            continue;
        }
        rc = ks_topic_meta_read(&e->fs, &there.v[i], &inv->topics[inv->n]);
        if (rc == 0) {
            inv->n++;
        } else if (rc == -ENOENT) {
            rc = 0; /* being made, or being removed */
        } else {
            char path[KS_PATH_MAX];
            ks_path_topic(path, &there.v[i], "meta");
            kc_fail(err, rc, "%s: %s", path, kc_strerror(rc));
        }
    }
    ks_ids_fini(&there);
    if (rc) {
        ks_inventory_free(inv);
        return rc;
    }
    inv->revision = revision_of(inv);
    *ret = inv;
    return 0;
}

void ks_inventory_free(struct ks_inventory *inv)
{
    if (inv) {
        for (int32_t i = 0; i < inv->n; i++) {
            kc_free(inv->topics[i].configs_json);
        }
        kc_free(inv->topics);
        kc_free(inv->deleted);
        kc_free(inv);
    }
}

/* ---- producer ids ---- */

static bool on_block(void *arg, const char *name)
{
    int64_t *next = arg;
    int64_t n;
    if (kc_parse_i64(kc_str_of(name), &n) == 0 && n >= 0) {
        *next = KC_MAX(*next, n + 1);
    }
    return true;
}

int ks_pid_block(struct ks_engine *e, int64_t *ret_first, int32_t *ret_count, struct kc_err *err)
{
    int64_t next = 0;
    int rc = ks_fs_list(&e->fs, "pids", on_block, &next);
    for (int tries = 0; !rc && tries < 1000; tries++, next++) {
        char name[32], text[96];
        uint64_t nonce;
        kc_random_bytes(&nonce, sizeof(nonce));
        snprintf(name, sizeof(name), "%" PRId64, next);
        int len = snprintf(text, sizeof(text), "broker %d %016" PRIx64 "\n", e->broker_id, nonce);
        rc = ks_vol_publish(&e->fs, "pids", name, text, (size_t)len);
        if (rc == KC_E_EXISTS) {
            rc = 0;
            continue; /* somebody else's */
        }
        rc = rc ? rc : ks_fs_syncdir(&e->fs, "pids");
        if (!rc) {
            *ret_first = next * PID_BLOCK;
            *ret_count = PID_BLOCK;
            return 0;
        }
    }
    rc = rc ? rc : KC_E_BUSY;
    return kc_fail(err, rc, "producer id block: %s", kc_strerror(rc));
}
