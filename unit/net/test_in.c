/* How bytes become frames: wherever the stream is cut, whatever is claimed. The handler keeps a digest of
 * each frame and answers it at once, or holds it until it is told to go on. */
#include "kt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "kt_net.h"
#include "net/kn_net.h"

enum { MAX_FRAME = 100 << 20, WAIT_MS = 20000, HELD_MAX = 64 };

/* 'e' answers its digest; 'h' does when an 'r' frame comes by another connection. Both overlap. */
struct held {
    struct kn_conn *conn;
    struct kn_place place;
    struct kc_slice frame;
};

static struct {
    struct rt_loop loop;
    struct kn_server *server;
    struct held held[HELD_MAX];
    int n_held;
    _Atomic int64_t lent; /* bytes of buffers that frames came in, beyond the frames themselves */
} fx;

static void answer(struct kn_conn *c, struct kn_place place, struct kc_slice f)
{
    struct kn_answer *a = kn_answer_new(1);
    uint32_t *text = kc_alloc(8);
    text[0] = htonl(4);
    text[1] = htonl(kc_crc32c(0, f.ptr, f.len));
    a->own = text;
    a->segs[0] = (struct kc_slice){NULL, (const uint8_t *)text, 8};
    a->len = 8;
    atomic_fetch_add(&fx.lent, (int64_t)(f.buf->len - f.len));
    kc_buf_unref(f.buf);
    kn_send(c, place, a);
}

static void on_frame(void *ctx, struct kn_conn *c, struct kn_place place, struct kc_slice f)
{
    (void)ctx;
    if (f.len && f.ptr[0] == 'h') {
        KT_REQUIRE(fx.n_held < HELD_MAX);
        fx.held[fx.n_held++] = (struct held){kn_conn_ref(c), place, f};
        return;
    }
    for (int i = 0; f.len && f.ptr[0] == 'r' && i < fx.n_held; i++) {
        answer(fx.held[i].conn, fx.held[i].place, fx.held[i].frame);
        kn_conn_unref(fx.held[i].conn);
    }
    fx.n_held = f.len && f.ptr[0] == 'r' ? 0 : fx.n_held;
    answer(c, place, f);
}

static bool overlaps(const uint8_t *f, size_t len)
{
    return len > 0 && (f[0] == 'e' || f[0] == 'h');
}

static struct kn_limits limits(void)
{
    return (struct kn_limits){.max_frame_bytes = MAX_FRAME,
                              .max_connections = 2000,
                              .max_connections_per_ip = 2000,
                              .idle_ms = 60000,
                              .frame_ms = 60000,
                              .stall_ms = 60000,
                              .budget_bytes = 64 << 20,
                              .max_pipelined = 32};
}

static struct kn_counters *counters(void)
{
    return kn_server_counters(fx.server);
}

static void up(const struct kn_limits *l)
{
    struct kn_listener_opts lo = {"test", "127.0.0.1", 0};
    struct kn_opts o = {&lo, 1, *l, {on_frame, overlaps, NULL}};
    struct kc_err err;
    struct rt_loop *loop = &fx.loop;
    fx.n_held = 0;
    atomic_store(&fx.lent, 0);
    KT_REQUIRE(kn_server_new(&o, &fx.server, &err) == 0);
    KT_REQUIRE(rt_loop_init(loop, "net-0") == 0);
    KT_REQUIRE(rt_loop_start(loop) == 0);
    kn_server_start(fx.server, &loop, 1);
}

static void down(void)
{
    int64_t until = kc_mono_ms() + WAIT_MS;
    kn_server_stop(fx.server, true);
    while (atomic_load(&counters()->connections) && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    KT_EQ(atomic_load(&counters()->connections), 0);
    KT_EQ(atomic_load(&counters()->inflight_bytes), 0);
    rt_loop_stop(&fx.loop);
    rt_loop_join(&fx.loop);
    kn_server_free(fx.server);
}

static int dial(void)
{
    int fd = kt_dial(kn_listener_port(fx.server, 0), WAIT_MS / 1000);
    KT_REQUIRE(fd >= 0);
    return fd;
}

static bool await_bytes_in(uint64_t n)
{
    int64_t until = kc_mono_ms() + WAIT_MS;
    while (atomic_load(&counters()->bytes_in) < n && kc_mono_ms() < until) {
        sched_yield();
    }
    return atomic_load(&counters()->bytes_in) == n;
}

/* ---- a stream of frames of all kinds ---- */

/* Of the scratch's size and of that of the head behind a large frame; small ones between large ones. */
static const uint32_t sizes[] = {1,     10,        40000, 7,   8188, 70000, 32764, 1,
                                 33000, 8192 - 10, 40000, 512, 508,  2,     150000};
enum { FRAMES = sizeof(sizes) / sizeof(sizes[0]) };

static uint8_t *stream;
static size_t stream_len, starts[FRAMES + 1];
static uint32_t digests[FRAMES];

static void make_stream(char kind)
{
    uint64_t rng = 1;
    stream_len = 0;
    for (int i = 0; i < FRAMES; i++) {
        starts[i] = stream_len;
        stream_len += 4 + sizes[i];
    }
    starts[FRAMES] = stream_len;
    stream = malloc(stream_len);
    for (int i = 0; i < FRAMES; i++) {
        uint8_t *p = stream + starts[i];
        uint32_t n = htonl(sizes[i]);
        memcpy(p, &n, 4);
        for (uint32_t k = 0; k < sizes[i]; k++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            p[4 + k] = (uint8_t)(rng >> 56);
        }
        p[4] = (uint8_t)kind;
        digests[i] = kc_crc32c(0, p + 4, sizes[i]);
    }
}

static void expect_digests(int fd)
{
    for (int i = 0; i < FRAMES; i++) {
        uint32_t got[2] = {0, 0};
        KT_REQUIRE(kt_recv(fd, got, 8));
        KT_EQ(ntohl(got[0]), 4);
        KT_EQ(ntohl(got[1]), digests[i]);
    }
}

/* The server has read what is before the cut when what is behind it is sent. */
static void send_cut(int fd, uint64_t *sent, const size_t *cuts, int n)
{
    size_t at = 0;
    for (int i = 0; i <= n; i++) {
        size_t until = i < n ? cuts[i] : stream_len;
        KT_TRUE(kt_send(fd, stream + at, until - at));
        *sent += until - at;
        at = until;
        KT_TRUE(i == n || await_bytes_in(*sent));
    }
}

static void frames_are_whole_wherever_the_stream_is_cut(void)
{
    static const size_t near[] = {0, 1, 2, 3, 4, 5, 6, 7, 511, 512, 513, 8191, 8192, 8193, 32768};
    struct kn_limits l = limits();
    uint64_t sent = 0;
    make_stream('e');
    up(&l);
    int fd = dial();
    for (int i = 0; i < FRAMES; i++) {
        for (size_t k = 0; k < sizeof(near) / sizeof(near[0]); k++) {
            size_t cut = starts[i] + near[k];
            if (cut > 0 && near[k] < 4 + sizes[i]) {
                send_cut(fd, &sent, &cut, 1);
                expect_digests(fd);
            }
        }
    }
    close(fd);
    down();
    free(stream);
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static void frames_are_whole_whatever_the_pieces(void)
{
    enum { ROUNDS = 20, CUTS = 40 };
    struct kn_limits l = limits();
    uint64_t sent = 0, rng = 7;
    make_stream('e');
    up(&l);
    int fd = dial();
    for (int round = 0; round < ROUNDS; round++) {
        size_t cuts[CUTS];
        for (int i = 0; i < CUTS; i++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            cuts[i] = (size_t)(rng >> 33) % stream_len;
        }
        qsort(cuts, CUTS, sizeof(cuts[0]), by_size);
        send_cut(fd, &sent, cuts, CUTS);
        expect_digests(fd);
    }
    close(fd);
    down();
    free(stream);
}

/* What was read behind a frame that has to wait stays behind it. */
static void frames_that_wait_for_their_turn_keep_their_order(void)
{
    struct kn_limits l = limits();
    l.max_pipelined = 3;
    make_stream('h');
    up(&l);
    int fd = dial(), other = dial();
    KT_TRUE(kt_send(fd, stream, stream_len));
    uint64_t asked = 0;
    for (int got = 0; got < FRAMES;) {
        uint32_t head[2] = {0, 0};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 1) == 0) {
            KT_REQUIRE(kt_send(other, "\0\0\0\1r", 5) && kt_recv(other, head, 8));
            KT_REQUIRE(++asked < 100000);
            continue;
        }
        KT_REQUIRE(kt_recv(fd, head, 8));
        KT_EQ(ntohl(head[1]), digests[got]);
        got++;
    }
    close(fd);
    close(other);
    down();
    free(stream);
}

/* ---- claims ---- */

static int64_t inflight(void)
{
    return atomic_load(&counters()->inflight_bytes);
}

static void a_claim_costs_nothing(void)
{
    struct kn_limits l = limits();
    l.budget_bytes = 1 << 30; /* what is claimed would fit */
    up(&l);
    int fd = dial();
    KT_TRUE(kt_send(fd,
                    "\x06\x40\x00\x00"
                    "e12345",
                    10)); /* 100 MiB */
    KT_TRUE(await_bytes_in(10));
    KT_TRUE(inflight() <= 512);
    close(fd);
    down();
}

static void room_follows_what_was_received(void)
{
    enum { LEN = 3000000, PIECE = 10000 };
    struct kn_limits l = limits();
    l.budget_bytes = 1 << 30; /* what is claimed would fit */
    uint8_t *data = calloc(1, LEN + 4);
    memcpy(data,
           "\x06\x40\x00\x00"
           "e",
           5);
    up(&l);
    int fd = dial();
    for (size_t at = 0; at < LEN; at += PIECE) {
        KT_TRUE(kt_send(fd, data + at, PIECE));
        KT_TRUE(await_bytes_in(at + PIECE));
        KT_TRUE(inflight() <= (int64_t)(at + PIECE) * 16);
    }
    close(fd);
    down();
    free(data);
}

/* Half of the budget is not given to room that waits for bytes. */
static void room_is_made_more_slowly_when_the_budget_is_half_spent(void)
{
    enum { N = 20, PIECE = 10000, BUDGET = 1 << 20 };
    struct kn_limits l = limits();
    l.budget_bytes = BUDGET;
    uint8_t data[PIECE] = "\x00\x10\x00\x00"
                          "e";
    int fds[N];
    up(&l);
    for (int i = 0; i < N; i++) {
        fds[i] = dial();
        KT_TRUE(kt_send(fds[i], data, PIECE));
        KT_TRUE(await_bytes_in((uint64_t)(i + 1) * PIECE));
    }
    KT_TRUE(inflight() <= BUDGET / 2 + N * PIECE * 2);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    down();
}

/* A large frame's buffer changes hands: it holds the frame, its length, and nothing else. */
static void a_large_frame_comes_in_a_buffer_of_its_size(void)
{
    enum { N = 20, LEN = 65000 };
    struct kn_limits l = limits();
    uint8_t *data = calloc(N, LEN + 4);
    for (int i = 0; i < N; i++) {
        uint32_t n = htonl(LEN);
        memcpy(data + (size_t)i * (LEN + 4), &n, 4);
        data[(size_t)i * (LEN + 4) + 4] = 'e';
    }
    up(&l);
    int fd = dial();
    KT_TRUE(kt_send(fd, data, (size_t)N * (LEN + 4)));
    for (int i = 0; i < N; i++) {
        uint32_t got[2];
        KT_TRUE(kt_recv(fd, got, 8));
    }
    KT_EQ(atomic_load(&fx.lent), N * 4);
    close(fd);
    down();
    free(data);
}

KT_MAIN("in", KT(frames_are_whole_wherever_the_stream_is_cut),
        KT(frames_are_whole_whatever_the_pieces),
        KT(frames_that_wait_for_their_turn_keep_their_order), KT(a_claim_costs_nothing),
        KT(room_follows_what_was_received),
        KT(room_is_made_more_slowly_when_the_budget_is_half_spent),
        KT(a_large_frame_comes_in_a_buffer_of_its_size))
