/* Frames and answers over real sockets on loopback: garbage costs only its connection, pipelined
 * answers keep their order, memory follows what was received. */
#include "kt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "kt_net.h"
#include "net/kn_internal.h"

enum { MAX_FRAME = 1 << 20, WAIT_MS = 20000 };

/* The first byte of a test frame says what is done with it: 'e' echoes it; 'h' holds the answer
 * until a 'r' frame on any connection releases all held ones, newest first; 'n' answers nothing; 'q'
 * closes; 'w' holds the loop itself until the test lets it go on, then echoes; 'o' releases held ones,
 * oldest first, and holds the loop after each. Frames that begin with 'e', 'h' or 'w' overlap. */
struct held {
    struct kn_conn *conn;
    struct kn_place place;
    struct kc_slice frame;
};

static struct {
    struct rt_loop loops[2];
    struct kn_server *server;
    struct held held[64];
    int n_held;
    int send_buffer; /* of the last "b" */
    sem_t reached, pass; /* of 'w' */
} fx;

static void echo(struct kn_conn *c, struct kn_place place, struct kc_slice f)
{
    struct kn_answer *a = kn_answer_new(2);
    uint8_t *head = kc_alloc(4);
    uint32_t n = htonl((uint32_t)f.len);
    memcpy(head, &n, 4);
    a->own = head;
    a->segs[0] = (struct kc_slice){NULL, head, 4};
    a->segs[1] = f; /* with the frame's reference */
    a->len = 4 + f.len;
    kn_send(c, place, a);
}

static void hold_loop(void)
{
    sem_post(&fx.reached);
    sem_wait(&fx.pass);
}

static void release_slowly(void)
{
    for (int i = 0; i < fx.n_held; i++) {
        echo(fx.held[i].conn, fx.held[i].place, fx.held[i].frame);
        kn_conn_unref(fx.held[i].conn);
        hold_loop();
    }
    fx.n_held = 0;
}

static void on_frame(void *ctx, struct kn_conn *c, struct kn_place place, struct kc_slice f)
{
    (void)ctx;
    switch (f.len ? f.ptr[0] : 'n') {
    case 'e':
        echo(c, place, f);
        return;
    case 'h':
        fx.held[fx.n_held++] = (struct held){kn_conn_ref(c), place, f};
        return;
    case 'r':
        while (fx.n_held > 0) {
            struct held *h = &fx.held[--fx.n_held];
            echo(h->conn, h->place, h->frame);
            kn_conn_unref(h->conn);
        }
        kn_skip(c, place);
        break;
    case 'w':
        hold_loop();
        echo(c, place, f);
        return;
    case 'o':
        release_slowly();
        kn_skip(c, place);
        break;
    case 'b': {
        socklen_t len = sizeof(fx.send_buffer);
        getsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &fx.send_buffer, &len);
        echo(c, place, f);
        return;
    }
    case 'q':
        kn_close(c, "asked to");
        break;
    default:
        kn_skip(c, place);
    }
    kc_buf_unref(f.buf);
}

static bool overlaps(const uint8_t *f, size_t len)
{
    return len > 0 && (f[0] == 'e' || f[0] == 'h' || f[0] == 'w');
}

/* One loop, so that holding and releasing need no crossing of threads. */
static void up(const struct kn_limits *limits, int n_loops)
{
    struct kn_listener_opts l = {"test", "127.0.0.1", 0};
    struct kn_opts o = {&l, 1, *limits, {on_frame, overlaps, NULL}};
    struct kc_err err;
    KT_REQUIRE(kn_server_new(&o, &fx.server, &err) == 0);
    struct rt_loop *loops[2] = {&fx.loops[0], &fx.loops[1]};
    for (int i = 0; i < n_loops; i++) {
        KT_REQUIRE(rt_loop_init(loops[i], i ? "net-1" : "net-0") == 0);
        KT_REQUIRE(rt_loop_start(loops[i]) == 0);
    }
    kn_server_start(fx.server, loops, n_loops);
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

static int64_t connections(void)
{
    return atomic_load(&kn_server_counters(fx.server)->connections);
}

static bool await_connections(int64_t n)
{
    int64_t until = kc_mono_ms() + WAIT_MS;
    while (connections() != n && kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    return connections() == n;
}

static void down(int n_loops)
{
    kn_server_stop(fx.server, true);
    KT_TRUE(await_connections(0));
    for (int i = n_loops - 1; i >= 0; i--) {
        rt_loop_stop(&fx.loops[i]);
        rt_loop_join(&fx.loops[i]);
    }
    kn_server_free(fx.server);
    fx.server = NULL;
}

static int dial(void)
{
    int fd = kt_dial(kn_listener_port(fx.server, 0), WAIT_MS / 1000);
    KT_REQUIRE(fd >= 0);
    return fd;
}

/* What is not taken any more is not sent: the peer may close at any time. */
static void put(int fd, const void *data, size_t len)
{
    (void)kt_send(fd, data, len);
}

static void put_frame(int fd, const char *text)
{
    uint32_t n = htonl((uint32_t)strlen(text));
    put(fd, &n, 4);
    put(fd, text, strlen(text));
}

/* The next frame as text; "closed" at the end of the stream. */
static const char *get_frame(int fd)
{
    static char text[256];
    uint32_t n;
    if (!kt_recv(fd, &n, 4)) {
        return "closed";
    }
    n = ntohl(n);
    if (n >= sizeof(text) || !kt_recv(fd, text, n)) {
        return "malformed";
    }
    text[n] = '\0';
    return text;
}

static void garbage_closes_only_its_connection(void)
{
    static const struct {
        const char *bytes;
        size_t len;
    } garbage[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 26},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11}, /* a TLS ClientHello */
        {"\xff\xff\xff\xff", 4}, /* -1 */
        {"\x80\x00\x00\x00zz", 6}, /* the most negative */
        {"\x7f\xff\xff\xff", 4}, /* 2 GiB */
        {"\x00\x10\x00\x01", 4}, /* one past the limit */
    };
    struct kn_limits l = limits();
    up(&l, 2);
    int good = dial();
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        int bad = dial();
        put(bad, garbage[i].bytes, garbage[i].len);
        KT_STR(get_frame(bad), "closed");
        close(bad);
        put_frame(good, "e still here");
        KT_STR(get_frame(good), "e still here");
    }
    KT_EQ(atomic_load(&kn_server_counters(fx.server)->protocol_errors), 6);
    close(good);
    down(2);
}

static void pipelined_answers_keep_the_order_of_requests(void)
{
    struct kn_limits l = limits();
    up(&l, 1);
    int fd = dial(), other = dial();
    put_frame(fd, "h first");
    put_frame(fd, "e second");
    put_frame(fd, "h third");
    put_frame(fd, "e fourth");
    /* The release comes by another connection once this one's frames were read. */
    int64_t until = kc_mono_ms() + WAIT_MS;
    while (atomic_load(&kn_server_counters(fx.server)->bytes_in) < 4 * 4 + 7 + 8 + 7 + 8 &&
           kc_mono_ms() < until) {
        poll(NULL, 0, 1);
    }
    put_frame(other, "r");
    KT_STR(get_frame(fd), "h first");
    KT_STR(get_frame(fd), "e second");
    KT_STR(get_frame(fd), "h third");
    KT_STR(get_frame(fd), "e fourth");
    close(fd);
    close(other);
    down(1);
}

/* A saturated loop is not a wedged one (gh #217): requests upon requests keep it in one turn, which is
 * all that a tick of the loop's own would be told by. */
static void R42_every_completed_request_is_a_sign_of_its_loops_life(void)
{
    enum { REQUESTS = 20 };
    struct kn_limits l = limits();
    char burst[REQUESTS * 5];
    for (int i = 0; i < REQUESTS; i++) {
        memcpy(burst + i * 5, "\0\0\0\1w", 5);
    }
    sem_init(&fx.reached, 0, 0);
    sem_init(&fx.pass, 0, 0);
    up(&l, 1);
    int fd = dial();
    put(fd, burst, sizeof(burst));
    sem_wait(&fx.reached);
    uint64_t turn = atomic_load(&fx.loops[0].turns);
    for (int i = 1; i < REQUESTS; i++) {
        int64_t tick = atomic_load(&fx.loops[0].tick_ms);
        while (kc_mono_ms() <= tick) {
            poll(NULL, 0, 1);
        }
        sem_post(&fx.pass); /* the last one ends, the next one begins */
        sem_wait(&fx.reached);
        KT_TRUE(atomic_load(&fx.loops[0].tick_ms) > tick);
    }
    KT_EQ(atomic_load(&fx.loops[0].turns), turn);
    sem_post(&fx.pass);
    for (int i = 0; i < REQUESTS; i++) {
        KT_STR(get_frame(fd), "w");
    }
    close(fd);
    down(1);
}

static void a_request_that_does_not_overlap_waits_for_earlier_answers(void)
{
    struct kn_limits l = limits();
    up(&l, 1);
    int fd = dial(), other = dial();
    put_frame(fd, "h held");
    put_frame(fd, "q closes"); /* would cut the connection before the held answer */
    while (atomic_load(&kn_server_counters(fx.server)->bytes_in) < 22) {
        poll(NULL, 0, 1);
    }
    put_frame(other, "r");
    KT_STR(get_frame(fd), "h held");
    KT_STR(get_frame(fd), "closed");
    close(fd);
    close(other);
    down(1);
}

/* A system call for each of the acks that one sync brings would cost more than all else about them. */
static void answers_that_become_ready_together_leave_together(void)
{
    enum { N = 3 };
    struct kn_limits l = limits();
    sem_init(&fx.reached, 0, 0);
    sem_init(&fx.pass, 0, 0);
    up(&l, 1);
    int fd = dial(), other = dial();
    put_frame(fd, "h a");
    put_frame(fd, "h b");
    put_frame(fd, "h c");
    while (atomic_load(&kn_server_counters(fx.server)->bytes_in) < N * 7) {
        poll(NULL, 0, 1);
    }
    put_frame(other, "o");
    for (int i = 0; i < N; i++) {
        char byte;
        sem_wait(&fx.reached);
        KT_EQ(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1); /* loopback would have it at once */
        sem_post(&fx.pass);
    }
    KT_STR(get_frame(fd), "h a");
    KT_STR(get_frame(fd), "h b");
    KT_STR(get_frame(fd), "h c");
    close(fd);
    close(other);
    down(1);
}

static void silent_requests_keep_their_place(void)
{
    struct kn_limits l = limits();
    up(&l, 1);
    int fd = dial();
    put_frame(fd, "n");
    put_frame(fd, "e one");
    put_frame(fd, "");
    put_frame(fd, "e two");
    KT_STR(get_frame(fd), "e one");
    KT_STR(get_frame(fd), "e two");
    close(fd);
    down(1);
}

static void a_frame_in_single_bytes_is_whole_in_the_end(void)
{
    struct kn_limits l = limits();
    up(&l, 1);
    int fd = dial();
    const char frame[] = "\0\0\0\5e byt\0\0\0\3e x";
    for (size_t i = 0; i < sizeof(frame) - 1; i++) {
        put(fd, frame + i, 1);
    }
    KT_STR(get_frame(fd), "e byt");
    KT_STR(get_frame(fd), "e x");
    close(fd);
    down(1);
}

static void large_frames_come_back_whole(void)
{
    struct kn_limits l = limits();
    up(&l, 2);
    int fd = dial();
    size_t len = MAX_FRAME;
    char *out = malloc(len), *in = malloc(len);
    memset(out, 'x', len);
    out[0] = 'e';
    for (int i = 0; i < 3; i++) {
        uint32_t n = htonl((uint32_t)len), back = 0;
        out[1 + i] = (char)('0' + i);
        put(fd, &n, 4);
        put(fd, out, len);
        KT_TRUE(kt_recv(fd, &back, 4) && back == n);
        KT_TRUE(kt_recv(fd, in, len) && memcmp(in, out, len) == 0);
    }
    free(out);
    free(in);
    close(fd);
    down(2);
}

static void half_open_connections_cost_only_themselves(void)
{
    struct kn_limits l = limits();
    up(&l, 2);
    enum { N = 400 };
    static int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = dial();
        put(fds[i],
            "\x00\x0f\xff\xff"
            "e",
            5); /* claims 1 MiB, sends a byte */
    }
    int fd = dial();
    put_frame(fd, "e served");
    KT_STR(get_frame(fd), "e served");
    /* Room is made for what was received, not for what was claimed. */
    KT_TRUE(atomic_load(&kn_server_counters(fx.server)->inflight_bytes) < N * 1024);
    KT_EQ(connections(), N + 1);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    KT_TRUE(await_connections(1));
    KT_EQ(atomic_load(&kn_server_counters(fx.server)->inflight_bytes), 0);
    close(fd);
    down(2);
}

static void a_frame_that_stays_unfinished_is_closed(void)
{
    struct kn_limits l = limits();
    l.frame_ms = 100;
    up(&l, 1);
    int fd = dial();
    put(fd,
        "\x00\x00\x00\x10"
        "e",
        5);
    KT_STR(get_frame(fd), "closed");
    KT_EQ(atomic_load(&kn_server_counters(fx.server)->timeouts), 1);
    close(fd);
    down(1);
}

static void idle_connections_are_closed(void)
{
    struct kn_limits l = limits();
    l.idle_ms = 100;
    up(&l, 1);
    int fd = dial();
    KT_STR(get_frame(fd), "closed");
    close(fd);
    down(1);
}

static void connections_past_the_caps_are_refused(void)
{
    struct kn_limits l = limits();
    l.max_connections_per_ip = 2;
    up(&l, 1);
    int a = dial(), b = dial();
    put_frame(a, "e a");
    put_frame(b, "e b");
    KT_STR(get_frame(a), "e a");
    KT_STR(get_frame(b), "e b");
    int c = dial();
    KT_STR(get_frame(c), "closed");
    close(c);
    close(a);
    KT_TRUE(await_connections(1));
    /* The count by address follows a message later. */
    const char *got = "closed";
    int64_t until = kc_mono_ms() + WAIT_MS;
    while (strcmp(got, "closed") == 0 && kc_mono_ms() < until) {
        c = dial();
        put_frame(c, "e c");
        got = get_frame(c);
        close(c);
    }
    KT_STR(got, "e c");
    close(b);
    down(1);
}

/* As KIP-308 and KIP-402 have it: new limits are for new connections. */
static void other_caps_are_in_force_with_the_next_connection(void)
{
    struct kn_limits l = limits();
    l.max_connections = 2;
    up(&l, 1);
    int a = dial(), b = dial();
    put_frame(b, "e b");
    KT_STR(get_frame(b), "e b");
    kn_limit_connections(fx.server, 3, 2000);
    int c = dial();
    put_frame(c, "e c");
    KT_STR(get_frame(c), "e c");
    kn_limit_connections(fx.server, 2000, 1);
    int d = dial();
    KT_STR(get_frame(d), "closed");
    put_frame(a, "e a"); /* what is open stays */
    KT_STR(get_frame(a), "e a");
    close(a);
    close(b);
    close(c);
    close(d);
    down(1);
}

static void a_spent_budget_slows_and_does_not_stop(void)
{
    struct kn_limits l = limits();
    l.budget_bytes = 64 * 1024; /* less than one of the frames below */
    up(&l, 1);
    enum { N = 8, LEN = 512 * 1024 };
    int fds[N];
    char *out = malloc(LEN), *in = malloc(LEN);
    memset(out, 'x', LEN);
    out[0] = 'e';
    uint32_t n = htonl(LEN);
    for (int i = 0; i < N; i++) { /* all are begun before any is finished */
        fds[i] = dial();
        put(fds[i], &n, 4);
        put(fds[i], out, 100 * 1024);
    }
    for (int i = 0; i < N; i++) {
        uint32_t back = 0;
        put(fds[i], out + 100 * 1024, LEN - 100 * 1024);
        KT_TRUE(kt_recv(fds[i], &back, 4) && back == n);
        KT_TRUE(kt_recv(fds[i], in, LEN) && memcmp(in, out, LEN) == 0);
        close(fds[i]);
    }
    free(out);
    free(in);
    down(1);
}

/* The kernel counts its own overhead, too, and so doubles what it is told. */
static void a_send_buffer_is_as_large_as_configured(void)
{
    const int32_t asked[] = {20000, -1};
    int got[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct kn_limits l = limits();
        l.send_buffer_bytes = asked[i];
        up(&l, 1);
        int fd = dial();
        put_frame(fd, "b");
        KT_STR(get_frame(fd), "b");
        got[i] = fx.send_buffer;
        close(fd);
        down(1);
    }
    KT_EQ(got[0], 40000);
    KT_TRUE(got[1] > 0 && got[1] != 40000);
}

static void a_port_in_use_is_an_error_that_names_the_listener(void)
{
    struct kn_limits l = limits();
    up(&l, 1);
    struct kn_listener_opts lo = {"second", "127.0.0.1", kn_listener_port(fx.server, 0)};
    struct kn_opts o = {&lo, 1, l, {on_frame, overlaps, NULL}};
    struct kn_server *s = NULL;
    struct kc_err err;
    KT_EQ(kn_server_new(&o, &s, &err), -EADDRINUSE);
    KT_TRUE(strstr(err.msg, "second") != NULL);
    down(1);
}

KT_MAIN("conn", KT(garbage_closes_only_its_connection),
        KT(pipelined_answers_keep_the_order_of_requests),
        KT(R42_every_completed_request_is_a_sign_of_its_loops_life),
        KT(a_request_that_does_not_overlap_waits_for_earlier_answers),
        KT(answers_that_become_ready_together_leave_together), KT(silent_requests_keep_their_place),
        KT(a_frame_in_single_bytes_is_whole_in_the_end), KT(large_frames_come_back_whole),
        KT(half_open_connections_cost_only_themselves), KT(a_frame_that_stays_unfinished_is_closed),
        KT(idle_connections_are_closed), KT(connections_past_the_caps_are_refused),
        KT(other_caps_are_in_force_with_the_next_connection),
        KT(a_spent_budget_slows_and_does_not_stop), KT(a_send_buffer_is_as_large_as_configured),
        KT(a_port_in_use_is_an_error_that_names_the_listener))
