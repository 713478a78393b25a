#include "broker_fix.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "kt.h"
#include "kt_net.h"
#include "wire/kw_describe_groups.h"

enum { PATIENCE_MS = 20000, SLOTS = 50, FRAME_MAX = 64 * 1024 * 1024 };

/* ---- the child ---- */

static void write_config(const struct bx *b)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/broker.yaml", b->dir);
    kt_file_write(
        path,
        "dataDir: %s/volume\n"
        "unsafeStorage: true\n"
        "listeners:\n  - {name: test, bind: 127.0.0.1, port: 0, advertisedHost: 127.0.0.1}\n"
        "health: {bind: 127.0.0.1, port: 0}\n"
        "config: {group.initial.rebalance.delay.ms: \"0\", group.min.session.timeout.ms: "
        "\"500\"}\n",
        b->dir);
}

/* The log goes to a file, which cannot fill up and hold the broker; it says which port was picked. */
static uint16_t read_port(struct bx *b)
{
    static char text[64 * 1024];
    char path[128];
    snprintf(path, sizeof(path), "%s/log", b->dir);
    for (int64_t until = kc_mono_ms() + PATIENCE_MS; kc_mono_ms() < until; poll(NULL, 0, 2)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
        close(fd);
        text[n > 0 ? n : 0] = '\0';
        const char *at = strstr(text, "event=listening listener=test port=");
        if (at && strchr(at, '\n')) {
            return (uint16_t)strtol(at + strlen("event=listening listener=test port="), NULL, 10);
        }
    }
    fprintf(stderr, "the broker did not start:\n%s\n", text);
    return 0;
}

/* One group a slot. */
static void slot_names(char names[SLOTS][16])
{
    int found = 0;
    memset(names, 0, SLOTS * sizeof(names[0]));
    for (int i = 0; found < SLOTS; i++) {
        char name[16];
        int len = snprintf(name, sizeof(name), "probe%d", i);
        char *at = names[kc_coordinator_slot((struct kc_str){name, len}, SLOTS)];
        if (!*at) {
            memcpy(at, name, sizeof(name));
            found++;
        }
    }
}

/* Clients are served, and all slots are open and loaded. */
static bool coordinates(struct bx *b)
{
    char names[SLOTS][16];
    struct kc_str groups[SLOTS];
    struct bx_conn c;
    slot_names(names);
    for (int i = 0; i < SLOTS; i++) {
        groups[i] = kc_str_of(names[i]);
    }
    bx_connect(b, &c);
    struct kw_describe_groups_request q;
    kw_describe_groups_request_init(&q);
    q.groups = groups;
    q.n_groups = SLOTS;
    struct kw_describe_groups_response *r = bx_ask(&c, 15, 0, &q);
    bool ready = r != NULL;
    for (int32_t i = 0; r && i < r->n_groups; i++) {
        ready &= r->groups[i].error_code == 0;
    }
    bx_close(&c);
    return ready;
}

void bx_start(struct bx *b, bool fresh)
{
    if (fresh) {
        kt_dir_make(b->dir);
        char volume[96];
        snprintf(volume, sizeof(volume), "%s/volume", b->dir);
        KT_REQUIRE(mkdir(volume, 0755) == 0);
        write_config(b);
    }
    char log[128], config[128];
    snprintf(log, sizeof(log), "%s/log", b->dir);
    snprintf(config, sizeof(config), "%s/broker.yaml", b->dir);
    unlink(log);
    b->pid = fork();
    KT_REQUIRE(b->pid >= 0);
    if (b->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives the test */
        dup2(open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
        execl(KAAS_BROKER, "kaas-broker", "--config", config, "--id", "0", (char *)NULL);
        _exit(127);
    }
    b->port = read_port(b);
    KT_REQUIRE(b->port != 0);
    int64_t until = kc_mono_ms() + PATIENCE_MS;
    while (!coordinates(b)) {
        KT_REQUIRE(kc_mono_ms() < until);
        poll(NULL, 0, 10);
    }
}

void bx_kill(struct bx *b)
{
    kill(b->pid, SIGKILL);
    waitpid(b->pid, NULL, 0);
}

void bx_end(struct bx *b)
{
    int status = -1;
    kill(b->pid, SIGTERM);
    waitpid(b->pid, &status, 0);
    KT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    kt_dir_remove(b->dir);
}

/* ---- the client ---- */

void bx_connect(struct bx *b, struct bx_conn *c)
{
    *c = (struct bx_conn){0};
    kc_arena_init(&c->arena, 64 * 1024, 0);
    c->fd = kt_dial(b->port, PATIENCE_MS / 1000);
    KT_REQUIRE(c->fd >= 0);
}

void bx_close(struct bx_conn *c)
{
    close(c->fd);
    kc_free(c->frame);
    kc_arena_fini(&c->arena);
}

void bx_send(struct bx_conn *c, int16_t key, int16_t version, const void *request)
{
    const struct kw_api *api = kw_api_find(key);
    struct kw_writer w;
    kw_writer_init(&w, FRAME_MAX);
    struct kw_frame mark = kw_writer_begin_frame(&w);
    struct kw_request_header h = {key, version, ++c->correlation, {"test", 4}};
    kw_request_header_encode(&w, &h);
    kw_api_encode_request(api, &w, version, request);
    kw_writer_end_frame(&w, mark);
    if (w.error) {
        fprintf(stderr, "%s v%d: field %s\n", api->name, version, w.error_field);
    }
    KT_REQUIRE(w.error == 0);
    KT_REQUIRE(kt_send(c->fd, w.own.data, w.own.len));
    kw_writer_fini(&w);
}

bool bx_waiting(struct bx_conn *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

void *bx_receive(struct bx_conn *c, int16_t key, int16_t version)
{
    const struct kw_api *api = kw_api_find(key);
    uint8_t size[4];
    if (!kt_recv(c->fd, size, 4)) {
        return NULL;
    }
    c->frame_len = (size_t)size[0] << 24 | (size_t)size[1] << 16 | (size_t)size[2] << 8 | size[3];
    KT_REQUIRE(c->frame_len < FRAME_MAX);
    c->frame = kc_realloc(c->frame, c->frame_len + 1);
    KT_REQUIRE(kt_recv(c->fd, c->frame, c->frame_len));
    struct kw_cursor cur;
    int32_t correlation;
    kw_cursor_init(&cur, c->frame, c->frame_len);
    kc_arena_reset(&c->arena);
    void *out = kc_arena_zalloc(&c->arena, 1, api->response_size);
    KT_REQUIRE(kw_response_header_decode(&cur, api, version, &correlation) == 0);
    KT_REQUIRE(kw_api_decode_response(api, &cur, version, &c->arena, out) == 0);
    KT_EQ(kw_cursor_left(&cur), 0);
    KT_TRUE(correlation <= c->correlation);
    return out;
}
