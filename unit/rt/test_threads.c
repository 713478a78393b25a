/* Loops, inboxes, pools and the health responder, on real threads. */
#include "kt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "kt_net.h"
#include "rt/rt_http.h"
#include "rt/rt_loop.h"
#include "rt/rt_pool.h"

struct counted {
    struct rt_msg msg;
    int sender, n;
};
static int last_of[4];
static bool in_order;
static int received;
static sem_t done;

static void on_counted(struct rt_msg *m)
{
    struct counted *c = KC_CONTAINER_OF(m, struct counted, msg);
    in_order = in_order && c->n == last_of[c->sender] + 1;
    last_of[c->sender] = c->n;
    if (++received == 4 * 10000) {
        sem_post(&done);
    }
    kc_free(c);
}

static struct rt_loop loop;

static void *sender_main(void *arg)
{
    int id = (int)(intptr_t)arg;
    for (int i = 1; i <= 10000; i++) {
        struct counted *c = kc_alloc(sizeof(*c));
        *c = (struct counted){.msg.fn = on_counted, .sender = id, .n = i};
        rt_post(&loop, &c->msg);
    }
    return NULL;
}

static void messages_of_a_sender_arrive_in_order(void)
{
    memset(last_of, 0, sizeof(last_of));
    received = 0;
    in_order = true;
    sem_init(&done, 0, 0);
    KT_EQ(rt_loop_init(&loop, "t"), 0);
    KT_EQ(rt_loop_age_ms(&loop, kc_mono_ms()), INT64_MAX);
    KT_EQ(rt_loop_start(&loop), 0);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&t[i], NULL, sender_main, (void *)(intptr_t)i);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
    sem_wait(&done);
    KT_TRUE(in_order);
    KT_TRUE(rt_loop_age_ms(&loop, kc_mono_ms()) < 5000);
    rt_loop_stop(&loop);
    rt_loop_join(&loop);
}

struct job {
    struct rt_work w;
    sem_t *gate;
};
static _Atomic int ran;

static void run_job(struct rt_work *w)
{
    struct job *j = KC_CONTAINER_OF(w, struct job, w);
    if (j->gate) {
        sem_wait(j->gate);
    }
    ran++;
    kc_free(j);
}

static void others_go_on_beside_a_stuck_job(void)
{
    struct rt_pool *p = rt_pool_new("t", 2);
    sem_t gate;
    sem_init(&gate, 0, 0);
    ran = 0;
    struct job *stuck = kc_alloc(sizeof(*stuck));
    *stuck = (struct job){.w.fn = run_job, .gate = &gate};
    rt_pool_post(p, &stuck->w);
    for (int i = 0; i < 10; i++) {
        struct job *j = kc_alloc(sizeof(*j));
        *j = (struct job){.w.fn = run_job};
        rt_pool_post(p, &j->w);
    }
    while (ran < 10) {
        usleep(1000);
    }
    sem_post(&gate);
    rt_pool_free(p);
    KT_EQ(ran, 11);
}

enum { BIG = 200 * 1024, SLOW = 20 };

static int respond(void *ctx, struct kc_str path, char *body, size_t cap, size_t *ret_len)
{
    (void)ctx;
    if (path.len == 4 && memcmp(path.ptr, "/big", 4) == 0) {
        memset(body, 'x', BIG);
        *ret_len = BIG;
        return 200;
    }
    if (path.len != 7 || memcmp(path.ptr, "/readyz", 7) != 0) {
        return 404;
    }
    *ret_len = (size_t)snprintf(body, cap, "ready\n");
    return 200;
}

/* Sends text, returns the status code of the answer, or 0. */
static int ask(uint16_t port, const char *text)
{
    int fd = kt_dial(port, 0);
    int code = 0;
    char buf[512] = {0};
    if (kt_send(fd, text, strlen(text))) {
        ssize_t n = read(fd, buf, sizeof(buf) - 1);
        if (n > 12) {
            sscanf(buf, "HTTP/1.1 %d", &code);
        }
    }
    close(fd);
    return code;
}

static void the_responder_answers_and_survives_garbage(void)
{
    struct rt_http *h = NULL;
    struct kc_err err;
    KT_EQ(rt_http_start("127.0.0.1", 0, respond, NULL, &h, &err), 0);
    uint16_t port = rt_http_port(h);
    KT_EQ(ask(port, "GET /readyz HTTP/1.1\r\n\r\n"), 200);
    KT_EQ(ask(port, "GET /nothing HTTP/1.1\r\n\r\n"), 404);
    KT_EQ(ask(port, "POST /readyz HTTP/1.1\r\n\r\n"), 400);
    int idle[40]; /* more silent connections than slots must not keep a probe out */
    for (int i = 0; i < 40; i++) {
        idle[i] = kt_dial(port, 0);
        KT_TRUE(idle[i] >= 0);
    }
    KT_EQ(ask(port, "GET /readyz HTTP/1.1\r\n\r\n"), 200);
    for (int i = 0; i < 40; i++) {
        close(idle[i]);
    }
    struct rt_http *second = NULL;
    KT_EQ(rt_http_start("127.0.0.1", port, respond, NULL, &second, &err), -EADDRINUSE);
    rt_http_stop(h);
}

/* A peer with the smallest window that asks for much and reads nothing. */
static int ask_and_not_read(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 2048,
        mss = 536; /* as on a network: loopback's make for large buffers */
    static const char text[] = "GET /big HTTP/1.1\r\n\r\n";
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss));
    KT_EQ(connect(fd, (void *)&a, sizeof(a)), 0);
    KT_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static void scrapers_that_do_not_read_do_not_delay_a_probe(void)
{
    struct rt_http *h = NULL;
    struct kc_err err;
    int slow[SLOW];
    KT_EQ(rt_http_start("127.0.0.1", 0, respond, NULL, &h, &err), 0);
    for (int i = 0; i < SLOW; i++) {
        slow[i] = ask_and_not_read(rt_http_port(h));
    }
    int64_t least = INT64_MAX; /* who had to wait for them would wait each time */
    for (int i = 0; i < 20; i++) {
        int64_t before = kc_mono_ms();
        KT_EQ(ask(rt_http_port(h), "GET /readyz HTTP/1.1\r\n\r\n"), 200);
        least = KC_MIN(least, kc_mono_ms() - before);
    }
    KT_TRUE(least < 500);
    for (int i = 0; i < SLOW; i++) { /* and yet they get all of it, in the end */
        static char buf[64 * 1024];
        size_t got = 0;
        for (ssize_t n; (n = read(slow[i], buf, sizeof(buf))) > 0;) {
            got += (size_t)n;
        }
        KT_TRUE(got > BIG);
        close(slow[i]);
    }
    rt_http_stop(h);
}

KT_MAIN("rt", KT(messages_of_a_sender_arrive_in_order), KT(others_go_on_beside_a_stuck_job),
        KT(the_responder_answers_and_survives_garbage),
        KT(scrapers_that_do_not_read_do_not_delay_a_probe))
