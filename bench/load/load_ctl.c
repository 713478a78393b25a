/* load_ctl.c - the blocking control plane: dialing, Metadata, ListOffsets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "load.h"

int ld_dial(const char *host, int port, int64_t timeout_ms)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval t = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    int on = 1;
    if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &a.sin_addr) != 1) {
        return -EINVAL;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

int ld_bootstrap(const struct ld *l, int from, int64_t timeout_ms)
{
    const char *list = l->o.bootstrap;
    int n = 1, fd = -EINVAL;
    for (const char *c = list; *c; c++) {
        n += *c == ',';
    }
    for (int i = 0; i < n && fd < 0; i++) {
        const char *at = list;
        char host[LD_HOST];
        int port;
        for (int skip = (from + i) % n; skip; skip--) {
            at = strchr(at, ',') + 1;
        }
        if (sscanf(at, "%255[^:,]:%d", host, &port) == 2) {
            fd = ld_dial(host, port, timeout_ms);
        }
    }
    return fd;
}

int ld_dial_broker(const struct ld *l, int32_t id, int64_t timeout_ms)
{
    for (int i = 0; i < l->n_brokers; i++) {
        if (l->brokers[i].id == id) {
            return ld_dial(l->brokers[i].host, l->brokers[i].port, timeout_ms);
        }
    }
    return -EHOSTUNREACH;
}

static int receive(int fd, uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = recv(fd, p, n, 0);
        if (k == 0) {
            return -ECONNRESET;
        }
        if (k < 0 && errno != EINTR) {
            return -errno;
        }
        p += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return 0;
}

int ld_call(int fd, struct ld_w *request, struct ld_w *answer)
{
    uint8_t head[4];
    ld_put32(request->p, (int64_t)request->len - 4);
    for (size_t sent = 0; sent < request->len;) {
        ssize_t k = send(fd, request->p + sent, request->len - sent, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR) {
            return -errno;
        }
        sent += k > 0 ? (size_t)k : 0;
    }
    int rc = receive(fd, head, sizeof(head));
    if (rc) {
        return rc;
    }
    int32_t len = ld_get32(head);
    if (len < 4 || len > LD_FRAME_MAX) {
        return -EPROTO;
    }
    if ((size_t)len > answer->cap) {
        uint8_t *p = kc_try_realloc(answer->p, (size_t)len);
        if (!p) {
            return -ENOMEM;
        }
        answer->p = p;
        answer->cap = (size_t)len;
    }
    answer->len = (size_t)len;
    return receive(fd, answer->p, (size_t)len);
}

/* ---- Metadata 4 ---- */

static void read_brokers(struct ld *l, struct ld_r *r)
{
    int32_t n = ld_r_count(r, 12);
    l->n_brokers = 0;
    for (int32_t i = 0; i < n && !r->bad; i++) {
        struct ld_broker b;
        char rack[LD_HOST];
        b.id = ld_r32(r);
        ld_r_str(r, b.host, sizeof(b.host));
        b.port = ld_r32(r);
        ld_r_str(r, rack, sizeof(rack));
        if (l->n_brokers < LD_BROKERS) {
            l->brokers[l->n_brokers++] = b;
        }
    }
}

/* The partitions of the one topic asked for; its first error. */
static int read_parts(struct ld *l, struct ld_r *r)
{
    int error = 0;
    int32_t n = ld_r_count(r, 18);
    if (n > LD_PARTS) {
        ld_fail("%d partitions are too many", n);
    }
    kc_free(l->parts);
    l->parts = kc_try_zalloc((size_t)n + 1, sizeof(*l->parts));
    l->n_parts = n;
    for (int32_t i = 0; l->parts && i < n && !r->bad; i++) {
        int16_t part_error = ld_r16(r);
        int32_t index = ld_r32(r), leader = ld_r32(r);
        for (int k = 0; k < 2; k++) { /* replicas, those in sync */
            ld_r_bytes(r, (int64_t)ld_r_count(r, 4) * 4);
        }
        if (index < 0 || index >= n) {
            return -EPROTO;
        }
        l->parts[index].leader = leader;
        error = error ? error : part_error;
    }
    return l->parts ? error : -ENOMEM;
}

int ld_metadata(struct ld *l, int fd)
{
    struct ld_w w = {0}, a = {0};
    char name[LD_HOST];
    ld_w_request(&w, 3, 4, 1);
    ld_w32(&w, 1);
    ld_w_str(&w, l->o.topic);
    ld_w8(&w, 1);
    int rc = ld_call(fd, &w, &a);
    if (!rc) {
        struct ld_r r = {.p = a.p, .end = a.p + a.len};
        ld_r_bytes(&r, 8); /* correlation, throttle */
        read_brokers(l, &r);
        ld_r_str(&r, name, sizeof(name)); /* the cluster's id */
        ld_r32(&r); /* controller */
        int32_t topics = ld_r_count(&r, 9);
        int16_t error = ld_r16(&r);
        ld_r_str(&r, name, sizeof(name));
        ld_r_bytes(&r, 1);
        int parts = topics == 1 ? read_parts(l, &r) : -EPROTO;
        rc = r.bad ? -EPROTO : error ? error : parts;
        if (!rc && !l->n_parts) {
            rc = 3; /* UNKNOWN_TOPIC_OR_PARTITION */
        }
    }
    kc_free(w.p);
    kc_free(a.p);
    return rc;
}

/* ---- ListOffsets 1 ---- */

/* The end offset of a partition: 0, a Kafka error, or -errno. */
static int end_of(struct ld *l, int fd, int32_t part)
{
    struct ld_w w = {0}, a = {0};
    char name[LD_HOST];
    ld_w_request(&w, 2, 1, 1);
    ld_w32(&w, -1);
    ld_w32(&w, 1);
    ld_w_str(&w, l->o.topic);
    ld_w32(&w, 1);
    ld_w32(&w, part);
    ld_w64(&w, -1);
    int rc = ld_call(fd, &w, &a);
    if (!rc) {
        struct ld_r r = {.p = a.p, .end = a.p + a.len};
        ld_r_bytes(&r, 8); /* correlation, topics */
        ld_r_str(&r, name, sizeof(name));
        ld_r_bytes(&r, 8); /* partitions, index */
        int16_t error = ld_r16(&r);
        ld_r64(&r);
        l->parts[part].end = ld_r64(&r);
        rc = r.bad ? -EPROTO : error;
    }
    kc_free(w.p);
    kc_free(a.p);
    return rc;
}

/* One round over all partitions: 0, or what the first that did not answer said. */
static int ends(struct ld *l)
{
    int fds[LD_BROKERS], rc = 0;
    for (int i = 0; i < l->n_brokers; i++) {
        fds[i] = ld_dial_broker(l, l->brokers[i].id, 5000);
    }
    for (int32_t p = 0; p < l->n_parts && !rc; p++) {
        int at = 0;
        while (at < l->n_brokers && l->brokers[at].id != l->parts[p].leader) {
            at++;
        }
        rc = at == l->n_brokers ? 5 /* LEADER_NOT_AVAILABLE */
             : fds[at] < 0      ? fds[at]
                                : end_of(l, fds[at], p);
    }
    for (int i = 0; i < l->n_brokers; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return rc;
}

void ld_topic_wait(struct ld *l)
{
    int rc = 0;
    for (int i = 0; i < 600; i++) { /* a new topic's leader may not know yet that it leads */
        int fd = ld_bootstrap(l, i, 5000);
        rc = fd < 0 ? fd : ld_metadata(l, fd);
        if (fd >= 0) {
            close(fd);
        }
        if (!rc && l->o.parts && l->o.parts < l->n_parts) {
            l->n_parts = (int)l->o.parts;
        }
        rc = rc ? rc : ends(l);
        if (!rc) {
            return;
        }
        usleep(50000);
    }
    ld_fail("topic %s is not served: %d (%s)", l->o.topic, rc,
            rc < 0 ? strerror(-rc) : "Kafka error");
}
