#include "storage/ks_frames.h"
#include "storage/ks_vol.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"

enum { LINK_TRIES = 3 };

void ks_path_topic(char out[KS_PATH_MAX], const struct kc_uuid *topic, const char *leaf)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(topic, id);
    snprintf(out, KS_PATH_MAX, "topics/%s%s%s", id, leaf ? "/" : "", leaf ? leaf : "");
}

void ks_path_part(char out[KS_PATH_MAX], const struct kc_uuid *topic, int32_t partition,
                  const char *leaf)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(topic, id);
    snprintf(out, KS_PATH_MAX, "topics/%s/%d%s%s", id, partition, leaf ? "/" : "",
             leaf ? leaf : "");
}

void ks_path_file(char out[KS_PATH_MAX], const struct kc_uuid *topic, int32_t partition,
                  struct ks_file_id id)
{
    char name[KS_FILE_NAME_LEN];
    ks_file_name(id, name);
    ks_path_part(out, topic, partition, name);
}

void ks_path_inc_dir(char out[KS_PATH_MAX], int32_t broker)
{
    snprintf(out, KS_PATH_MAX, "inc/%d", broker);
}

void ks_path_inc(char out[KS_PATH_MAX], int32_t broker, const struct kc_uuid *incarnation)
{
    char hex[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(incarnation, hex);
    snprintf(out, KS_PATH_MAX, "inc/%d/%s", broker, hex);
}

ssize_t ks_vol_read(struct ks_fs *fs, const char *path, void *buf, size_t cap)
{
    int fd = ks_fs_open(fs, path, KS_READ);
    if (fd < 0) {
        return fd;
    }
    ssize_t n = ks_fs_pread(fs, fd, buf, cap, 0);
    if (n == (ssize_t)cap) {
        uint8_t more;
        ssize_t m = ks_fs_pread(fs, fd, &more, 1, cap);
        n = m > 0 ? -EFBIG : m < 0 ? m : n;
    }
    ks_fs_close(fs, fd);
    return n;
}

/* The name exists: does it hold our bytes? 1, 0 or -errno. */
static int holds(struct ks_fs *fs, const char *path, const void *data, size_t len)
{
    uint8_t *there = kc_alloc(len + 1);
    ssize_t n = ks_vol_read(fs, path, there, len + 1);
    int rc = n < 0 && n != -EFBIG ? (int)n : n == (ssize_t)len && memcmp(there, data, len) == 0;
    kc_free(there);
    return rc;
}

/* Links tmp to path. The outcome is what stands under the name, whatever the answer was (ADR 12): a
 * server without a reply cache answers EEXIST to the retry of a link that it did, and a link without
 * an answer may be done, or not, or later. A name that is not known to exist is never looked up (an
 * NFS client would remember its absence): the link count of our own file tells, or the same link
 * again. */
static int link_checked(struct ks_fs *fs, int fd, const char *tmp, const char *path,
                        const void *data, size_t len)
{
    int rc = 0;
    for (int tries = 0; tries < LINK_TRIES; tries++) {
        rc = ks_fs_link(fs, tmp, path);
        if (rc == 0) {
            return 0;
        }
        if (rc == -EEXIST) {
            int ours = holds(fs, path, data, len);
            return ours == 1 ? 0 : ours == 0 ? KC_E_EXISTS : ours;
        }
        struct ks_stat st;
        if (ks_fs_stat(fs, fd, &st) == 0 && st.nlink == 2) {
            return 0;
        }
    }
    return rc;
}

struct publication {
    const char *dir, *name;
    struct kc_bytes data;
    bool vital; /* room is made for it */
    bool issued; /* out: the link was sent */
};

static int write_and_link(struct ks_fs *fs, struct publication *p)
{
    char tmp[KS_PATH_MAX], path[KS_PATH_MAX];
    uint64_t random;
    kc_random_bytes(&random, sizeof(random));
    snprintf(tmp, sizeof(tmp), "%s%stmp.%016" PRIx64, p->dir, *p->dir ? "/" : "", random);
    snprintf(path, sizeof(path), "%s%s%s", p->dir, *p->dir ? "/" : "", p->name);
    int fd = ks_fs_open(fs, tmp, KS_CREATE);
    if (fd < 0) {
        return fd;
    }
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p->data.ptr, .iov_len = (size_t)p->data.len};
    int rc = ks_fs_pwritev(fs, fd, &iov, p->data.len ? 1 : 0, 0);
    rc = rc ? rc : ks_fs_datasync(fs, fd);
    p->issued = rc == 0;
    if (rc == 0) {
        do {
            rc = link_checked(fs, fd, tmp, path, p->data.ptr, (size_t)p->data.len);
        } while (p->vital && ks_fs_make_room(fs, rc));
    }
    ks_fs_close(fs, fd);
    /* The temporary name may go once the outcome is known; else it stays as evidence. */
    if (!p->issued || rc == 0 || rc == KC_E_EXISTS) {
        ks_fs_unlink(fs, tmp);
    }
    return rc;
}

static int publish(struct ks_fs *fs, struct publication *p)
{
    int rc;
    p->issued = false;
    do {
        rc = write_and_link(fs, p);
    } while (p->vital && !p->issued && ks_fs_make_room(fs, rc));
    return rc;
}

int ks_vol_publish(struct ks_fs *fs, const char *dir, const char *name, const void *data,
                   size_t len)
{
    struct publication p = {.dir = dir, .name = name, .data = {data, (int32_t)len}};
    return publish(fs, &p);
}

int ks_vol_publish_vital(struct ks_fs *fs, const char *dir, const char *name, const void *data,
                         size_t len)
{
    struct publication p = {.dir = dir, .name = name, .data = {data, (int32_t)len}, .vital = true};
    return publish(fs, &p);
}

/* ---- incarnations ---- */

int ks_inc_publish(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                   struct kc_err *err)
{
    char path[KS_PATH_MAX], dir[KS_PATH_MAX], hex[KC_UUID_HEX_LEN + 1], text[128];
    kc_uuid_to_hex(incarnation, hex);
    ks_path_inc(path, broker, incarnation);
    ks_path_inc_dir(dir, broker);
    int len = snprintf(text, sizeof(text), "kaas incarnation %s of broker %d\n", hex, broker);
    int rc = ks_fs_mkdir(fs, dir);
    if (rc >= 0) {
        rc = rc == 0 ? ks_fs_syncdir(fs, "inc") : 0;
        rc = rc ? rc : ks_vol_publish_vital(fs, dir, hex, text, (size_t)len);
        rc = rc ? rc : ks_fs_syncdir(fs, dir);
    }
    if (rc) {
        return kc_fail(err, rc, "claim file %s: %s", path, kc_strerror(rc));
    }
    int fd = ks_fs_open(fs, path, KS_HANDLE);
    if (fd < 0) {
        return kc_fail(err, fd, "claim file %s: %s", path, kc_strerror(fd));
    }
    return fd;
}

int ks_inc_check(struct ks_fs *fs, int fd, const char **why)
{
    struct ks_stat st;
    int rc = ks_fs_stat(fs, fd, &st);
    if (rc) {
        *why = "the claim file cannot be checked";
    } else if (st.nlink < 1) {
        *why = "the claim file is gone";
    } else if (st.size >= KS_FENCE_SIZE) {
        *why = "fenced by another broker";
    } else {
        return 0;
    }
    return KC_E_FENCED;
}

int ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation)
{
    char path[KS_PATH_MAX], dir[KS_PATH_MAX], hex[KC_UUID_HEX_LEN + 1];
    kc_uuid_to_hex(incarnation, hex);
    ks_path_inc(path, broker, incarnation);
    ks_path_inc_dir(dir, broker);
    for (int i = 0; i < 3; i++) {
        int rc;
        do {
            rc = ks_fs_extend(fs, path, KS_FENCE_SIZE);
        } while (ks_fs_make_room(fs, rc));
        if (rc != -ENOENT) {
            return rc;
        }
        /* ENOENT proves nothing (a stale negative entry): put a fenced file there. */
        static const uint8_t fenced[KS_FENCE_SIZE];
        rc = ks_fs_mkdir(fs, dir);
        rc = rc < 0 ? rc : ks_vol_publish_vital(fs, dir, hex, fenced, sizeof(fenced));
        if (rc != KC_E_EXISTS) {
            return rc;
        }
    }
    return -ENOENT;
}

bool ks_inc_parse(const char *name, struct kc_uuid *ret, bool *ret_journal)
{
    char hex[KC_UUID_HEX_LEN + 1] = "";
    size_t len = strlen(name);
    int64_t n;
    bool journal = len > KC_UUID_HEX_LEN + 2 && memcmp(name + KC_UUID_HEX_LEN, ".j", 2) == 0 &&
                   kc_parse_i64(kc_str_of(name + KC_UUID_HEX_LEN + 2), &n) == 0 && n >= 0;
    if (len != KC_UUID_HEX_LEN && !journal) {
        return false;
    }
    memcpy(hex, name, KC_UUID_HEX_LEN);
    if (ret_journal) {
        *ret_journal = journal;
    }
    return kc_uuid_from_hex(kc_str_of(hex), ret) == 0;
}

int ks_inc_remove(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation)
{
    char path[KS_PATH_MAX];
    ks_path_inc(path, broker, incarnation);
    int rc = ks_frames_remove(fs, broker, incarnation);
    rc = rc ? rc : ks_fs_unlink(fs, path);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- chains ---- */

struct listing {
    uint64_t end; /* behind the largest number */
};

static bool on_name(void *arg, const char *name)
{
    struct listing *l = arg;
    int64_t k;
    if (strncmp(name, "ctl.", 4) == 0 && kc_parse_i64(kc_str_of(name + 4), &k) == 0 && k >= 0) {
        l->end = KC_MAX(l->end, (uint64_t)k + 1);
    }
    return true;
}

static int load_one(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                    struct ks_chain *c, uint8_t *buf, struct kc_err *err)
{
    char leaf[32], path[KS_PATH_MAX];
    snprintf(leaf, sizeof(leaf), "ctl.%" PRIu64, c->next_k);
    ks_path_part(path, topic, partition, leaf);
    ssize_t n = ks_vol_read(fs, path, buf, KS_REC_MAX);
    if (n < 0 && n != -EFBIG) {
        return kc_fail(err, (int)n, "%s: %s", path, kc_strerror((int)n));
    }
    struct ks_rec r;
    int rc = n < 0 ? KC_E_CORRUPT : ks_rec_decode(buf, (size_t)n, &r);
    if (rc) {
        return kc_fail(err, rc, "%s: %s", path, kc_strerror(rc));
    }
    rc = ks_chain_apply(c, &r, err);
    ks_rec_fini(&r);
    return rc;
}

int ks_chain_load(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                  uint64_t known_k, struct ks_chain *c, struct kc_err *err)
{
    char dir[KS_PATH_MAX];
    struct listing l = {0};
    ks_path_part(dir, topic, partition, NULL);
    int rc = ks_fs_list(fs, dir, on_name, &l);
    if (rc == -ENOENT) {
        return kc_fail(err, KC_E_NOT_FOUND, "%s does not exist", dir);
    }
    if (rc) {
        return kc_fail(err, rc, "%s: %s", dir, kc_strerror(rc));
    }
    /* A listing that is read while the chain grows may have a later record without an earlier one
     * (readdir promises nothing of what is added meanwhile), so only the file itself tells a gap. */
    uint64_t end = KC_MAX(l.end, known_k);
    uint8_t *buf = c->next_k < end ? kc_try_alloc(KS_REC_MAX) : NULL;
    if (c->next_k < end && !buf) {
        return kc_fail(err, -ENOMEM, "%s: %s", dir, kc_strerror(-ENOMEM));
    }
    while (!rc && c->next_k < end) {
        rc = load_one(fs, topic, partition, c, buf, err);
    }
    if (rc == -ENOENT && c->next_k < l.end) {
        rc = kc_fail(err, KC_E_CORRUPT, "%s: the chain has a gap at ctl.%" PRIu64, dir, c->next_k);
    }
    kc_free(buf);
    return rc;
}

int ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                    struct ks_rec *r, uint8_t *out, size_t *ret_len)
{
    char dir[KS_PATH_MAX], name[32];
    uint8_t *buf = out ? out : kc_try_alloc(KS_REC_MAX);
    if (!buf) {
        return -ENOMEM;
    }
    kc_random_bytes(r->nonce, sizeof(r->nonce));
    size_t len = ks_rec_encode(r, buf);
    ks_path_part(dir, topic, partition, NULL);
    snprintf(name, sizeof(name), "ctl.%" PRIu64, r->k);
    struct publication p = {.dir = dir, .name = name, .data = {buf, (int32_t)len}, .vital = true};
    int rc = publish(fs, &p);
    r->issued = p.issued;
    if (ret_len) {
        *ret_len = len;
    }
    if (!out) {
        kc_free(buf);
    }
    return rc;
}
