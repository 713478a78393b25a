#include "local/lo_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "build/ko_build.h"

enum { FILE_MAX_BYTES = 1024 * 1024, TOKEN_BYTES = 32 };

uint16_t lo_port_listener(const struct lo_ports *p, int32_t broker, int32_t listener)
{
    int32_t block = listener == 0 ? 0 : 200 + 100 * listener; /* 0, 300, 400, … */
    return (uint16_t)(p->base + block + broker);
}

uint16_t lo_port_health(const struct lo_ports *p, int32_t broker)
{
    return (uint16_t)(p->base + 100 + broker);
}

uint16_t lo_port_heartbeat(const struct lo_ports *p)
{
    return (uint16_t)(p->base + 200);
}

uint16_t lo_port_operator_health(const struct lo_ports *p)
{
    return (uint16_t)(p->base + 201);
}

static int make_dir(const char *path, struct kc_err *err)
{
    if (mkdir(path, 0700) && errno != EEXIST) {
        return kc_fail(err, -errno, "%s: %s", path, kc_strerror(-errno));
    }
    return 0;
}

static int make_sub(const char *dir, const char *sub, struct kc_err *err)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, sub) >= sizeof(path)) {
        return kc_fail(err, -ENAMETOOLONG, "%s: path too long", dir);
    }
    return make_dir(path, err);
}

int lo_dir_open(const char *dir, int *ret_lock, struct kc_err *err)
{
    char path[PATH_MAX];
    int rc = make_dir(dir, err);
    rc = rc ? rc : make_sub(dir, "brokers", err);
    rc = rc ? rc : make_sub(dir, "volume", err);
    if (rc) {
        return rc;
    }
    snprintf(path, sizeof(path), "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return kc_fail(err, -errno, "%s: %s", path, kc_strerror(-errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        close(fd);
        return kc_fail(err, KC_E_BUSY, "%s: another kaas-operator runs in this directory", dir);
    }
    *ret_lock = fd;
    return 0;
}

char *lo_read_file(const char *path, size_t *ret_len, struct kc_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        kc_fail(err, -errno, "%s: %s", path, kc_strerror(-errno));
        return NULL;
    }
    char *text = kc_try_alloc(FILE_MAX_BYTES + 1);
    size_t len = 0;
    ssize_t n = text ? 1 : -1;
    while (n > 0 && len < FILE_MAX_BYTES) {
        n = read(fd, text + len, FILE_MAX_BYTES - len);
        len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (n != 0) {
        kc_fail(err, n < 0 ? -EIO : KC_E_TOO_LARGE, "%s: cannot read it, or larger than %d bytes",
                path, FILE_MAX_BYTES);
        kc_free(text);
        return NULL;
    }
    text[len] = '\0';
    *ret_len = len;
    return text;
}

/* Written beside and renamed over, so that a reader sees the old text or the new. */
static int write_file(const char *path, const char *text, struct kc_err *err)
{
    char tmp[PATH_MAX];
    if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= sizeof(tmp)) {
        return kc_fail(err, -ENAMETOOLONG, "%s: path too long", path);
    }
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t len = strlen(text);
    bool ok = fd >= 0 && write(fd, text, len) == (ssize_t)len;
    int rc = ok ? 0 : -errno;
    if (fd >= 0 && close(fd) && !rc) {
        rc = -errno;
    }
    if (!rc && rename(tmp, path)) {
        rc = -errno;
    }
    return rc ? kc_fail(err, rc, "%s: %s", path, kc_strerror(rc)) : 0;
}

int lo_token(const char *dir, char out[65], struct kc_err *err)
{
    char path[PATH_MAX];
    size_t len = 0;
    snprintf(path, sizeof(path), "%s/token", dir);
    if (access(path, F_OK)) {
        uint8_t raw[TOKEN_BYTES];
        kc_random_bytes(raw, sizeof(raw));
        for (int i = 0; i < TOKEN_BYTES; i++) {
            snprintf(out + 2 * i, 3, "%02x", raw[i]);
        }
        return write_file(path, out, err);
    }
    char *text = lo_read_file(path, &len, err);
    if (!text) {
        return err ? err->code : -EIO;
    }
    bool ok = len == 2 * TOKEN_BYTES;
    memcpy(out, ok ? text : "", ok ? len + 1 : 1);
    kc_free(text);
    return ok ? 0 : kc_fail(err, KC_E_CONFIG, "%s: not a token; remove the file", path);
}

int lo_write_broker_file(const char *dir, const struct lo_ports *ports, const struct ko_cluster *c,
                         int32_t broker, struct kc_err *err)
{
    char sub[64], path[PATH_MAX], data[PATH_MAX], token[PATH_MAX], image[PATH_MAX];
    struct ko_broker_file f = {
        .data_dir = data,
        .bind = "127.0.0.1",
        .advertised_host = "127.0.0.1",
        .health_port = lo_port_health(ports, broker),
        .operator_host = "127.0.0.1",
        .operator_port = lo_port_heartbeat(ports),
        .token_file = token,
        .image_dir = image,
    };
    snprintf(sub, sizeof(sub), "brokers/%d", broker);
    int rc = make_sub(dir, sub, err);
    if (rc) {
        return rc;
    }
    for (int32_t i = 0; i < c->n_listeners; i++) {
        f.ports[i] = lo_port_listener(ports, broker, i);
    }
    int n = snprintf(image, sizeof(image), "%s/objects/configmaps/%s", dir, c->ns);
    if (n < 0 || (size_t)n >= sizeof(image)) {
        return kc_fail(err, -ENAMETOOLONG, "%s: path too long", dir);
    }
    snprintf(data, sizeof(data), "%s/volume", dir);
    snprintf(token, sizeof(token), "%s/token", dir);
    snprintf(path, sizeof(path), "%s/%s/broker.yaml", dir, sub);
    char *yaml = ko_build_broker_yaml(c, &f);
    rc = write_file(path, yaml, err);
    kc_free(yaml);
    return rc;
}

void lo_write_pid(const char *dir, int32_t broker, int pid)
{
    char path[PATH_MAX], text[16];
    snprintf(path, sizeof(path), "%s/brokers/%d/pid", dir, broker);
    if (pid == 0) {
        unlink(path);
        return;
    }
    snprintf(text, sizeof(text), "%d\n", pid);
    (void)write_file(path, text, NULL); /* for people and tests; the host itself never reads it */
}

bool lo_held(const char *dir, int32_t broker)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/brokers/%d/hold", dir, broker);
    return access(path, F_OK) == 0;
}
