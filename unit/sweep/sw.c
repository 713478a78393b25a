#include "sw.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/kb_broker.h"
#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "kt_net.h"
#include "wire/kw_errors.h"

enum { SHORT_MS = 1000, PATIENCE_MS = 20000, FRAME_MAX = 16 << 20 };

void sw_bad(struct sw *s, const char *fmt, ...)
{
    va_list ap;
    s->errors++;
    va_start(ap, fmt);
    fputs("  ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* ---- the broker ---- */

/* A port that was free a moment ago. */
static uint16_t free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sa);
    KT_REQUIRE(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    KT_REQUIRE(getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
    close(fd);
    return ntohs(sa.sin_port);
}

void sw_make(struct sw_broker *b)
{
    char path[96];
    memset(b, 0, sizeof(*b));
    kt_dir_make(b->dir);
    snprintf(path, sizeof(path), "%s/volume", b->dir);
    KT_REQUIRE(mkdir(path, 0755) == 0);
    b->port = free_port();
    snprintf(path, sizeof(path), "%s/broker.yaml", b->dir);
    kt_file_write(path,
                  "dataDir: %s/volume\n"
                  "unsafeStorage: true\n"
                  "dataLoops: 2\n"
                  "listeners:\n"
                  "  - {name: test, bind: 127.0.0.1, port: %u, advertisedHost: 127.0.0.1}\n"
                  "health: {bind: 127.0.0.1, port: 0}\n"
                  "config: {group.initial.rebalance.delay.ms: \"0\", group.min.session.timeout.ms: "
                  "\"500\", auto.create.topics.enable: false}\n",
                  b->dir, b->port);
}

void sw_remove(struct sw_broker *b)
{
    kt_dir_remove(b->dir);
}

static void *broker_main(void *arg)
{
    struct sw_broker *b = arg;
    b->exit_code = kb_broker_run(b->config);
    atomic_store(&b->ended, true);
    return NULL;
}

bool sw_start(struct sw_broker *b)
{
    char path[96];
    struct kb_config_env env = {.id = 0};
    struct kc_err err;
    snprintf(path, sizeof(path), "%s/broker.yaml", b->dir);
    if (kb_config_load(path, &env, &b->config, &err)) {
        return false;
    }
    atomic_store(&b->ended, false);
    KT_REQUIRE(pthread_create(&b->thread, NULL, broker_main, b) == 0);
    return true;
}

int sw_stop(struct sw_broker *b)
{
    if (!atomic_load(&b->ended)) {
        kill(getpid(), SIGTERM); /* the broker's loop listens to it as soon as it runs */
    }
    pthread_join(b->thread, NULL);
    return b->exit_code;
}

/* ---- the client ---- */

bool sw_dial(struct sw *s)
{
    kc_arena_init(&s->arena, 16 * 1024, 0);
    s->fd = kt_dial(s->broker->port, 0);
    s->closed = s->fd < 0;
    return !s->closed;
}

void sw_hang_up(struct sw *s)
{
    close(s->fd);
    free(s->frame);
    s->frame = NULL;
    kc_arena_fini(&s->arena);
}

bool sw_send_raw(struct sw *s, const void *data, size_t len)
{
    s->closed = s->closed || !kt_send(s->fd, data, len);
    return !s->closed;
}

bool sw_send(struct sw *s, int16_t key, int16_t version, const void *request)
{
    struct kw_writer w;
    s->complaint = false;
    kw_writer_init(&w, FRAME_MAX);
    struct kw_frame mark = kw_writer_begin_frame(&w);
    struct kw_request_header h = {key, version, ++s->correlation, {"sweep", 5}};
    kw_request_header_encode(&w, &h);
    kw_api_encode_request(kw_api_find(key), &w, version, request);
    kw_writer_end_frame(&w, mark);
    if (w.error) {
        sw_bad(s, "key %d: field %s cannot be encoded", key, w.error_field);
    }
    bool ok = !w.error && sw_send_raw(s, w.own.data, w.own.len);
    kw_writer_fini(&w);
    return ok;
}

/* 1 = read, 0 = closed, -1 = nothing came. */
static int read_exactly(struct sw *s, void *to, size_t len)
{
    uint8_t *at = to;
    while (len > 0) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        int ready = poll(&p, 1, s->faults ? SHORT_MS : PATIENCE_MS);
        if (ready == 0 && s->faults) { /* it waits for memory: now there is some */
            kc_mem_fail_nth(0, false);
            ready = poll(&p, 1, PATIENCE_MS);
        }
        if (ready <= 0) {
            return -1;
        }
        ssize_t n = recv(s->fd, at, len, 0);
        if (n <= 0) {
            s->closed = true;
            return 0;
        }
        at += n;
        len -= (size_t)n;
    }
    return 1;
}

bool sw_await_close(struct sw *s)
{
    uint8_t b;
    int got = s->closed ? 0 : read_exactly(s, &b, 1);
    if (got) {
        sw_bad(s, "the connection is not closed");
    }
    return got == 0;
}

/* Errors after which clients retry, or look for the leader or the coordinator again: none that makes
 * one reset an offset, drop a batch, or give up its place in a group. */
static bool retriable(int16_t error)
{
    switch (error) {
    case KAFKA_UNKNOWN_SERVER_ERROR:
    case KAFKA_LEADER_NOT_AVAILABLE:
    case KAFKA_NOT_LEADER_OR_FOLLOWER:
    case KAFKA_REQUEST_TIMED_OUT:
    case KAFKA_COORDINATOR_LOAD_IN_PROGRESS:
    case KAFKA_COORDINATOR_NOT_AVAILABLE:
    case KAFKA_NOT_COORDINATOR:
    case KAFKA_KAFKA_STORAGE_ERROR:
        return true;
    default:
        return false;
    }
}

static bool judge(struct sw *s, const char *api, int16_t error)
{
    bool expected = error == 0;
    for (int i = 0; i < SW_EXPECT_MAX; i++) {
        expected |= s->expect[i] == error;
    }
    if (!expected) {
        snprintf(s->why, sizeof(s->why), "%s answers error %d", api, error);
        if (s->faults && !retriable(error)) {
            sw_bad(s, "%s", s->why);
        }
    }
    return expected;
}

/* Every ErrorCode of an answer; as deep as the schema nests structs. */
static bool judge_all(struct sw *s, const char *api, const struct kw_struct *st, const uint8_t *in)
{
    bool ok = true;
    for (uint16_t i = 0; i < st->n_fields; i++) {
        const struct kw_field *f = &st->fields[i];
        const uint8_t *at = in + f->offset;
        if (f->type == KW_INT16 && strcmp(f->name, "ErrorCode") == 0) {
            ok &= judge(s, api, *(const int16_t *)(const void *)at);
        } else if (f->type == KW_STRUCT && f->array) {
            const uint8_t *items = *(const uint8_t *const *)(const void *)at;
            int32_t n = *(const int32_t *)(const void *)(in + f->n_offset);
            for (int32_t k = 0; k < n; k++) {
                ok &= judge_all(s, api, f->sub, items + (size_t)k * f->sub->size);
            }
        } else if (f->type == KW_STRUCT && !f->pointer) {
            ok &= judge_all(s, api, f->sub, at);
        }
    }
    return ok;
}

const void *sw_receive_all(struct sw *s, int16_t key, int16_t version)
{
    const struct kw_api *api = kw_api_find(key);
    uint32_t len;
    int got = s->closed ? 0 : read_exactly(s, &len, sizeof(len));
    if (got > 0) {
        len = ntohl(len);
        free(s->frame);
        s->frame = malloc(len + 1);
        got = read_exactly(s, s->frame, len);
    }
    if (got <= 0) {
        snprintf(s->why, sizeof(s->why), "%s: %s", api->name, got ? "no answer" : "closed");
        if (got < 0) {
            sw_bad(s, "%s", s->why);
            s->closed = true;
        }
        return NULL;
    }
    kc_arena_reset(&s->arena);
    uint8_t *out = kc_arena_zalloc(&s->arena, 1, api->response_size);
    struct kw_cursor c;
    int32_t correlation = -1;
    kw_cursor_init(&c, s->frame, len);
    if (kw_response_header_decode(&c, api, version, &correlation) ||
        correlation != s->correlation || kw_api_decode_response(api, &c, version, &s->arena, out) ||
        kw_cursor_left(&c)) {
        sw_bad(s, "%s: the answer does not decode", api->name);
        return NULL;
    }
    s->complaint = !judge_all(s, api->name, api->response->root, out);
    return out;
}

const void *sw_receive(struct sw *s, int16_t key, int16_t version)
{
    const void *out = sw_receive_all(s, key, version);
    return s->complaint ? NULL : out;
}

const void *sw_ask(struct sw *s, int16_t key, int16_t version, const void *request)
{
    return sw_send(s, key, version, request) ? sw_receive(s, key, version) : NULL;
}

void sw_await(struct sw *s, const char *what, bool (*run)(struct sw *s))
{
    int64_t until = kc_mono_ms() + PATIENCE_MS;
    for (;;) {
        snprintf(s->why, sizeof(s->why), "no connection");
        bool ok = sw_dial(s) && run(s);
        sw_hang_up(s);
        if (ok) {
            return;
        }
        if (kc_mono_ms() > until) {
            sw_bad(s, "%s: does not work again: %s", what, s->why);
            return;
        }
        poll(NULL, 0, 2);
    }
}
