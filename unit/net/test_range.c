/* Answers that are partly ranges of a file, over real sockets with small buffers: all bytes, in order,
 * whatever the page cache does meanwhile. */
#include "kt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "base/kc_range.h"
#include "base/kc_rng.h"
#include "kt_dir.h"
#include "kt_net.h"
#include "net/kn_net.h"

enum { FILE_LEN = 4 << 20, WAIT_S = 20 };

/* A frame is a list of parts, 8 bytes each: length and position, in host order. A part with the highest
 * bit in its length is a range of the file, another one the same bytes in memory. */
enum { RANGE = 1u << 31 };
struct part {
    uint32_t len, pos;
};

static struct {
    struct rt_loop loop;
    struct kn_server *server;
    char dir[KT_DIR_MAX], path[KT_DIR_MAX + 8];
    uint8_t *content;
    struct kc_rng rng; /* of the loop */
    _Atomic bool moody; /* ready answers less than what was asked for, or nothing */
    _Atomic bool broken; /* load fails */
    _Atomic bool held; /* load waits for the test */
    _Atomic(struct kc_load *) asked;
    _Atomic int loads, made, ended;
} fx;

/* ---- a range, on the loop ---- */

struct later {
    struct rt_msg msg;
    struct kc_load *l;
};

static void on_later(struct rt_msg *msg)
{
    struct later *x = KC_CONTAINER_OF(msg, struct later, msg);
    struct kc_load *l = x->l;
    kc_free(x);
    l->done(l);
}

static void go(struct kc_load *l, struct rt_loop *loop)
{
    struct later *x = kc_zalloc(sizeof(*x));
    x->msg.fn = on_later;
    x->l = l;
    rt_post(loop, &x->msg);
}

static size_t ready(struct kc_range *r, size_t at, size_t len)
{
    KT_TRUE(len > 0 && at + len <= r->len);
    return !fx.moody                       ? len
           : kc_rng_below(&fx.rng, 3) == 0 ? 0
                                           : 1 + (size_t)kc_rng_below(&fx.rng, len);
}

static void load(struct kc_range *r, size_t at, size_t len, struct kc_load *l)
{
    atomic_fetch_add(&fx.loads, 1);
    KT_TRUE(len > 0 && at + len <= r->len);
    if (!fx.broken) {
        l->buf = kc_buf_new(len);
        KT_REQUIRE(pread(r->fd, l->buf->data, len, (off_t)(r->pos + at)) == (ssize_t)len);
    }
    fx.asked = l;
    if (!fx.held) {
        go(l, l->loop);
    }
}

static void range_end(struct kc_range *r)
{
    close(r->fd);
    atomic_fetch_add(&fx.ended, 1);
}

static struct kc_slice range(struct part p)
{
    static const struct kc_range_ops ops = {.ready = ready, .load = load, .end = range_end};
    struct kc_buf *b = kc_range_new(sizeof(struct kc_range));
    int fd = open(fx.path, O_RDONLY | O_CLOEXEC);
    KT_REQUIRE(b && fd >= 0);
    *b->range = (struct kc_range){.ops = &ops, .fd = fd, .pos = p.pos, .len = p.len};
    atomic_fetch_add(&fx.made, 1);
    return kc_range_slice(b);
}

static void on_frame(void *ctx, struct kn_conn *c, struct kn_place place, struct kc_slice f)
{
    (void)ctx;
    struct part p;
    int32_t n = (int32_t)(f.len / sizeof(p));
    struct kn_answer *a = kn_answer_new(n);
    for (int32_t i = 0; i < n; i++) {
        memcpy(&p, f.ptr + (size_t)i * sizeof(p), sizeof(p));
        bool is_range = p.len & RANGE;
        p.len &= ~RANGE;
        a->len += p.len;
        a->segs[i] = is_range ? range(p) : (struct kc_slice){NULL, fx.content + p.pos, p.len};
    }
    kc_buf_unref(f.buf);
    kn_send(c, place, a);
}

static bool overlaps(const uint8_t *f, size_t len)
{
    (void)f;
    (void)len;
    return true;
}

/* ---- up and down ---- */

static void up(void)
{
    struct kn_listener_opts l = {"test", "127.0.0.1", 0};
    struct kn_limits limits = {.max_frame_bytes = 1 << 20,
                               .max_connections = 100,
                               .max_connections_per_ip = 100,
                               .idle_ms = 60000,
                               .frame_ms = 60000,
                               .stall_ms = 60000,
                               .budget_bytes = 256 << 20,
                               .max_pipelined = 32};
    struct kn_opts o = {&l, 1, limits, {on_frame, overlaps, NULL}};
    struct kc_err err;
    fx.moody = fx.broken = fx.held = false;
    fx.asked = NULL;
    kc_rng_seed(&fx.rng, kt_seed());
    kt_dir_make(fx.dir);
    snprintf(fx.path, sizeof(fx.path), "%s/bytes", fx.dir);
    fx.content = malloc(FILE_LEN);
    KT_REQUIRE(fx.content != NULL);
    for (size_t i = 0; i < FILE_LEN; i += 8) {
        uint64_t v = kc_rng_next(&fx.rng);
        memcpy(fx.content + i, &v, 8);
    }
    int fd = open(fx.path, O_WRONLY | O_CREAT, 0600);
    KT_REQUIRE(fd >= 0 && write(fd, fx.content, FILE_LEN) == FILE_LEN);
    close(fd);
    atomic_store(&fx.loads, 0);
    atomic_store(&fx.made, 0);
    atomic_store(&fx.ended, 0);
    KT_REQUIRE(kn_server_new(&o, &fx.server, &err) == 0);
    KT_REQUIRE(rt_loop_init(&fx.loop, "net-0") == 0 && rt_loop_start(&fx.loop) == 0);
    struct rt_loop *loop = &fx.loop;
    kn_server_start(fx.server, &loop, 1);
}

static void await(const char *what, _Atomic int64_t *v, int64_t n)
{
    int64_t until = kc_mono_ms() + WAIT_S * 1000;
    while (atomic_load(v) != n && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    if (atomic_load(v) != n) {
        fprintf(stderr, "%s\n", what);
    }
    KT_EQ(atomic_load(v), n);
}

static void down(void)
{
    kn_server_stop(fx.server, true);
    await("connections", &kn_server_counters(fx.server)->connections, 0);
    rt_loop_stop(&fx.loop);
    rt_loop_join(&fx.loop);
    KT_EQ(atomic_load(&kn_server_counters(fx.server)->inflight_bytes), 0);
    kn_server_free(fx.server);
    KT_EQ(atomic_load(&fx.made), atomic_load(&fx.ended));
    unlink(fx.path);
    kt_dir_remove(fx.dir);
    free(fx.content);
}

/* Takes little at once, so that no answer goes out in one piece. */
static int dial(void)
{
    int fd = kt_dial(kn_listener_port(fx.server, 0), WAIT_S);
    int small = 128 * 1024;
    KT_REQUIRE(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
    return fd;
}

static void ask(int fd, const struct part *parts, uint32_t n)
{
    uint32_t len = htonl((uint32_t)(n * sizeof(*parts)));
    (void)(kt_send(fd, &len, 4) && kt_send(fd, parts, n * sizeof(*parts))); /* it may be closed */
}

static bool arrives(int fd, const struct part *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = parts[i].len & ~RANGE;
        uint8_t *got = malloc(len + 1);
        bool same = kt_recv(fd, got, len) && memcmp(got, fx.content + parts[i].pos, len) == 0;
        free(got);
        if (!same) {
            return false;
        }
    }
    return true;
}

static bool closed(int fd)
{
    uint8_t buf[4096];
    ssize_t n;
    while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
}

/* ---- tests ---- */

static void ranges_and_memory_arrive_in_order(void)
{
    static const struct part parts[] = {{20, 5},     {RANGE | (3 << 20), 12345}, {0, 7},
                                        {7, 4096},   {RANGE | 1, 8191},          {RANGE | 70001, 1},
                                        {100000, 99}};
    up();
    int fd = dial();
    for (int i = 0; i < 3; i++) { /* pipelined */
        ask(fd, parts, KC_ARRAY_LEN(parts));
    }
    for (int i = 0; i < 3; i++) {
        KT_TRUE(arrives(fd, parts, KC_ARRAY_LEN(parts)));
    }
    KT_EQ(atomic_load(&fx.loads), 0);
    close(fd);
    down();
}

/* What the page cache has changes from one look to the next. */
static void what_goes_cold_under_way_is_loaded(void)
{
    up();
    fx.moody = true;
    int fd = dial();
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    for (int round = 0; round < 12; round++) {
        struct part parts[8];
        uint32_t n = 1 + (uint32_t)kc_rng_below(&rng, 8);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t len = 1 + (uint32_t)kc_rng_below(&rng, 1 + kc_rng_below(&rng, 1 << 20));
            parts[i].pos = (uint32_t)kc_rng_below(&rng, FILE_LEN - len);
            parts[i].len = kc_rng_below(&rng, 2) ? len | RANGE : len;
        }
        for (int i = 0; i < 8; i++) { /* more than the sockets hold */
            ask(fd, parts, n);
        }
        for (int i = 0; i < 8; i++) {
            KT_REQUIRE(arrives(fd, parts, n));
        }
    }
    KT_TRUE(atomic_load(&fx.loads) > 0);
    close(fd);
    down();
}

static void a_range_that_cannot_be_read_closes_its_connection(void)
{
    static const struct part parts[] = {{10, 0}, {RANGE | 5000, 100}};
    up();
    fx.moody = fx.broken = true;
    int fd = dial();
    for (int i = 0; i < 30; i++) { /* until one of them has to be loaded */
        ask(fd, parts, 2);
    }
    KT_TRUE(closed(fd));
    close(fd);
    fx.moody = false;
    fd = dial();
    ask(fd, parts, 2);
    KT_TRUE(arrives(fd, parts, 2));
    close(fd);
    down();
}

static void a_file_shorter_than_what_was_promised_closes_the_connection(void)
{
    static const struct part parts[] = {{RANGE | 5000, FILE_LEN - 100}};
    up();
    int fd = dial();
    ask(fd, parts, 1);
    KT_TRUE(closed(fd));
    close(fd);
    down();
}

static void a_file_unlinked_under_way_is_sent_whole(void)
{
    static const struct part parts[] = {{4, 0}, {RANGE | (3 << 20), 77}};
    up();
    int fd = dial();
    ask(fd, parts, 2);
    await("bytes in", (_Atomic int64_t *)(void *)&kn_server_counters(fx.server)->bytes_in, 20);
    while (atomic_load(&fx.made) == 0) {
        poll(NULL, 0, 1);
    }
    KT_EQ(unlink(fx.path), 0);
    KT_TRUE(arrives(fd, parts, 2));
    close(fd);
    down();
}

static void a_connection_may_end_while_bytes_are_loaded(void)
{
    static const struct part parts[] = {{4, 0}, {RANGE | 100000, 77}};
    up();
    fx.moody = fx.held = true;
    int fd = dial();
    for (int i = 0; i < 30 && atomic_load(&fx.loads) == 0; i++) {
        ask(fd, parts, 2);
        poll(NULL, 0, 5);
    }
    int64_t until = kc_mono_ms() + WAIT_S * 1000;
    while (atomic_load(&fx.loads) == 0 && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_EQ(atomic_load(&fx.loads), 1); /* nothing overtakes it */
    struct linger reset = {1, 0};
    KT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    close(fd);
    await("connections", &kn_server_counters(fx.server)->connections, 0);
    KT_TRUE(atomic_load(&fx.ended) < atomic_load(&fx.made)); /* the one that is being loaded */
    go(fx.asked, &fx.loop);
    down();
}

KT_MAIN("net/range", KT(ranges_and_memory_arrive_in_order), KT(what_goes_cold_under_way_is_loaded),
        KT(a_range_that_cannot_be_read_closes_its_connection),
        KT(a_file_shorter_than_what_was_promised_closes_the_connection),
        KT(a_file_unlinked_under_way_is_sent_whole),
        KT(a_connection_may_end_while_bytes_are_loaded))
