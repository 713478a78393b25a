/* rival.c - an operator that believes its broker is the only one, with that broker as its child.
 *
 *   rival ID ADVERTISED_HOST VOLUME DIR BROKER [hold]
 *
 * Two of them on two nodes make their brokers fight for the partitions of one volume: each image has
 * a row for its own broker alone, so every other incarnation is condemned, and wants each partition
 * for some hundred milliseconds, leaves it for some, and wants it again. That is the worst that
 * controllers could do; images and heartbeats are the production documents and frames. A broker that
 * gets nowhere (fenced, and in the back-off before its next incarnation) is killed and started again.
 * With `hold` everything is wanted all the time: a takeover for good. Ends when DIR/stop exists; the
 * broker is killed then. DIR gets broker.yaml and the log; images are kept in a folder of /tmp, which
 * tells of changes (a host's folder mounted in a node does not). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "hb/hb_convert.h"
#include "hb/hb_frame.h"
#include "image/ki_image.h"

enum {
    PARTS = 4,
    KAFKA_PORT = 9092,
    HEALTH_PORT = 9192,
    OPERATOR_PORT = 9292,
    TURN_MS = 20,
    WANT_MIN_MS = 300,
    WANT_MAX_MS = 2500,
    LEAVE_MIN_MS = 100,
    LEAVE_MAX_MS = 1000,
    GRACE_MS = 4000, /* a process that has just begun is not called stuck */
    STUCK_MS = 1500
};

struct part {
    bool wanted, led;
    int32_t epoch;
    int64_t until_ms; /* of wanting, or of leaving */
};

struct rival {
    int32_t id;
    const char *host, *volume, *dir, *broker;
    bool hold;
    struct kc_rng rng;
    char images[64], uid[40], cluster_id[KC_UUID_B64_LEN + 1];
    struct kc_uuid topic_id, incarnation; /* incarnation: of the last hello */
    struct part parts[PARTS];
    uint64_t generation;
    struct ki_shard *shards[KP_SHARDS]; /* as written */
    bool news; /* an image is due */
    int listener, stream; /* stream: -1 = none */
    struct hb_reader reader;
    pid_t child;
    int64_t started_ms, led_ms; /* when the child began; when something was led last */
    uint64_t opened, incarnations, restarts;
};

static void die(const char *what)
{
    fprintf(stderr, "rival: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- images ---- */

static void write_document(struct rival *r, const char *name, const json_t *doc)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s.json", r->images, name);
    snprintf(tmp, sizeof(tmp), "%s/.%s.tmp", r->images, name);
    json_t *cm = json_pack("{s:{s:s,s:s},s:o}", "metadata", "name", name, "uid", r->uid, "data",
                           ki_configmap_data(doc));
    if (!cm || json_dump_file(cm, tmp, JSON_COMPACT) || rename(tmp, path)) {
        die(path);
    }
    json_decref(cm);
}

static void write_shard(struct rival *r, struct ki_shard *s)
{
    char name[32];
    json_t *doc = ki_shard_encode(s, r->shards[s->index]);
    snprintf(name, sizeof(name), "fight-image-%d", s->index);
    write_document(r, name, doc);
    json_decref(doc);
    ki_shard_unref(r->shards[s->index]);
    r->shards[s->index] = s;
}

static struct ki_shard *topic_shard(const struct rival *r)
{
    static const struct ki_config small[] = {{"retention.ms", "-1"}, {"segment.bytes", "131072"}};
    struct kp_part parts[PARTS];
    for (int32_t i = 0; i < PARTS; i++) {
        const struct part *p = &r->parts[i];
        parts[i] = (struct kp_part){.home = r->id,
                                    .assigned = p->wanted ? r->id : KP_NO_BROKER,
                                    .assigned_generation = r->generation,
                                    .led = p->led ? r->id : KP_NO_BROKER,
                                    .led_epoch = p->led ? p->epoch : -1};
        if (p->led) {
            parts[i].led_incarnation = r->incarnation;
        }
    }
    struct ki_topic t = {.id = r->topic_id,
                         .name = "fight",
                         .fresh = true,
                         .n_configs = KC_ARRAY_LEN(small),
                         .configs = small,
                         .n_parts = PARTS,
                         .parts = parts,
                         .replication_factor = 1};
    return ki_shard_build(kp_shard_of(&r->topic_id), 1, r->generation, &t, 1);
}

static void fill_row(const struct rival *r, struct kp_row *row)
{
    *row = (struct kp_row){.id = r->id,
                           .health = KP_ALIVE,
                           .state = KP_SERVING,
                           .serving = true,
                           .slice_ready = true,
                           .ever_healthy = true,
                           .protocol_version = HB_PROTOCOL_VERSION,
                           .incarnation = r->incarnation,
                           .n_listeners = 1,
                           .last_seen_ms = kc_wall_ms()};
    snprintf(row->host, sizeof(row->host), "%s", r->host);
    snprintf(row->listeners[0].name, sizeof(row->listeners[0].name), "internal");
    snprintf(row->listeners[0].host, sizeof(row->listeners[0].host), "%s", r->host);
    row->listeners[0].port = KAFKA_PORT;
}

/* Shards first, the root last (design of the image); only the topic's shard ever changes. */
static void publish(struct rival *r)
{
    r->generation++;
    write_shard(r, topic_shard(r));
    struct kp_row row;
    fill_row(r, &row);
    struct ki_image proto = {.order = {.term = 1, .generation = r->generation},
                             .rows = &row,
                             .n_rows = kc_uuid_is_zero(&r->incarnation) ? 0 : 1};
    snprintf(proto.order.uid, sizeof(proto.order.uid), "%s", r->uid);
    snprintf(proto.cluster_id, sizeof(proto.cluster_id), "%s", r->cluster_id);
    struct ki_shard *shards[KP_SHARDS];
    for (int32_t i = 0; i < KP_SLOTS; i++) {
        proto.group_homes[i] = proto.txn_homes[i] = r->id;
    }
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        shards[i] = ki_shard_ref(r->shards[i]);
    }
    struct ki_image *im = ki_image_build(&proto, shards);
    json_t *doc = ki_root_encode(im);
    write_document(r, "fight-image", doc);
    json_decref(doc);
    ki_image_unref(im);
    r->news = false;
}

static void first_images(struct rival *r)
{
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        write_shard(r, ki_shard_build(i, 1, 0, NULL, 0));
    }
    publish(r);
}

/* ---- the broker ---- */

static void write_config(const struct rival *r)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/broker.yaml", r->dir);
    FILE *f = fopen(path, "w");
    if (!f) {
        die(path);
    }
    fprintf(f,
            "cluster: default/fight\ndataDir: %s\n"
            "listeners:\n  - {name: internal, bind: \"\", port: %d, advertisedHost: %s, "
            "advertisedPort: %d}\n"
            "health: {bind: 127.0.0.1, port: %d}\n"
            "operator: {host: 127.0.0.1, port: %d}\n"
            "image: {source: directory, name: fight-image, directory: %s}\n",
            r->volume, KAFKA_PORT, r->host, KAFKA_PORT, HEALTH_PORT, OPERATOR_PORT, r->images);
    fclose(f);
}

static void start_broker(struct rival *r)
{
    char config[PATH_MAX], log[PATH_MAX], id[16];
    snprintf(config, sizeof(config), "%s/broker.yaml", r->dir);
    snprintf(log, sizeof(log), "%s/log", r->dir);
    snprintf(id, sizeof(id), "%d", r->id);
    r->child = fork();
    if (r->child == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fd, 1);
        dup2(fd, 2);
        execl(r->broker, r->broker, "--config", config, "--id", id, (char *)NULL);
        _exit(127);
    }
    r->started_ms = r->led_ms = kc_mono_ms();
}

/* Starts the broker when it has ended; kills one that wants something and gets nothing. */
static void tend_broker(struct rival *r, int64_t now)
{
    bool wanting = false, leading = false;
    for (int32_t i = 0; i < PARTS; i++) {
        wanting |= r->parts[i].wanted;
        leading |= r->parts[i].led;
    }
    if (leading || !wanting) {
        r->led_ms = now;
    }
    if (r->child > 0 && !r->hold && now - r->started_ms > GRACE_MS && now - r->led_ms > STUCK_MS) {
        kill(r->child, SIGKILL);
        r->led_ms = now;
    }
    int status;
    if (r->child > 0 && waitpid(r->child, &status, WNOHANG) == r->child) {
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            printf("broker %d ended by itself: status %x\n", r->id, (unsigned)status);
        }
        r->child = 0;
        r->restarts++;
    }
    if (r->child == 0) {
        start_broker(r);
    }
}

/* ---- heartbeats ---- */

static void hang_up(struct rival *r)
{
    if (r->stream >= 0) {
        close(r->stream);
        r->stream = -1;
        hb_reader_fini(&r->reader);
    }
    for (int32_t i = 0; i < PARTS; i++) {
        r->news |= r->parts[i].led;
        r->parts[i].led = false;
    }
}

static void answer(struct rival *r, const Kaas__Heartbeat__OperatorMessage *m)
{
    struct kc_dyn out;
    kc_dyn_init(&out, HB_FRAME_MAX);
    if (hb_encode_operator(m, &out) ||
        send(r->stream, out.data, out.len, MSG_NOSIGNAL) != (ssize_t)out.len) {
        hang_up(r);
    }
    kc_dyn_fini(&out);
}

static void on_hello(struct rival *r, const Kaas__Heartbeat__Hello *h)
{
    r->incarnation = hb_uuid(h->incarnation);
    r->incarnations++;
    r->news = true;
    Kaas__Heartbeat__HelloAnswer a = KAAS__HEARTBEAT__HELLO_ANSWER__INIT;
    a.accepted = a.active = true;
    a.term = 1;
    a.cluster_id = r->cluster_id;
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_HELLO;
    m.hello = &a;
    answer(r, &m);
}

static struct part *part_of(struct rival *r, const Kaas__Heartbeat__PartitionId *id)
{
    struct kp_pid pid = hb_pid(id);
    bool ours =
        kc_uuid_eq(&pid.topic_id, &r->topic_id) && pid.partition >= 0 && pid.partition < PARTS;
    return ours ? &r->parts[pid.partition] : NULL;
}

static void on_status(struct rival *r, const Kaas__Heartbeat__BrokerStatus *s)
{
    struct part before[PARTS];
    memcpy(before, r->parts, sizeof(before));
    for (int32_t i = 0; s->full && i < PARTS; i++) {
        r->parts[i].led = false;
    }
    for (size_t i = 0; i < s->n_unled; i++) {
        struct part *p = part_of(r, s->unled[i]);
        if (p) {
            p->led = false;
        }
    }
    for (size_t i = 0; i < s->n_led; i++) {
        struct part *p = part_of(r, s->led[i]->partition);
        if (p) {
            p->led = true;
            p->epoch = s->led[i]->epoch;
        }
    }
    for (int32_t i = 0; i < PARTS; i++) {
        bool other = r->parts[i].led != before[i].led || r->parts[i].epoch != before[i].epoch;
        r->news |= other;
        r->opened += other && r->parts[i].led;
    }
    Kaas__Heartbeat__StatusAnswer a = KAAS__HEARTBEAT__STATUS_ANSWER__INIT;
    a.image_uid = r->uid;
    a.term = 1;
    a.generation = r->generation;
    a.active = true;
    Kaas__Heartbeat__OperatorMessage m = KAAS__HEARTBEAT__OPERATOR_MESSAGE__INIT;
    m.kind_case = KAAS__HEARTBEAT__OPERATOR_MESSAGE__KIND_STATUS;
    m.status = &a;
    answer(r, &m);
}

static void on_frame(struct rival *r, struct kc_bytes frame)
{
    struct kc_arena arena;
    const Kaas__Heartbeat__BrokerMessage *m;
    kc_arena_init(&arena, 4096, HB_ARENA_CAP);
    if (hb_decode_broker(frame, &arena, &m, NULL)) {
        hang_up(r);
    } else if (m->kind_case == KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_HELLO) {
        on_hello(r, m->hello);
    } else if (m->kind_case == KAAS__HEARTBEAT__BROKER_MESSAGE__KIND_STATUS) {
        on_status(r, m->status);
    }
    kc_arena_fini(&arena);
}

static void on_readable(struct rival *r)
{
    char data[65536];
    struct kc_bytes frame;
    ssize_t n = recv(r->stream, data, sizeof(data), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    int rc = n > 0 ? hb_reader_feed(&r->reader, data, (size_t)n) : KC_E_CLOSED;
    while (rc == 0 && r->stream >= 0 && (rc = hb_reader_next(&r->reader, &frame, NULL)) == 1) {
        on_frame(r, frame);
        rc = 0;
    }
    if (rc < 0) {
        hang_up(r);
    }
}

/* One stream at a time: a new one is of a newer process or incarnation. */
static void on_dialled(struct rival *r)
{
    int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        hang_up(r);
        r->stream = fd;
        hb_reader_init(&r->reader, HB_FRAME_MAX);
    }
}

static void listen_here(struct rival *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(OPERATOR_PORT)};
    int on = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->listener < 0 || setsockopt(r->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        bind(r->listener, (struct sockaddr *)&at, sizeof(at)) || listen(r->listener, 8)) {
        die("listen");
    }
}

/* ---- the course of things ---- */

static int64_t between(struct rival *r, int64_t min, int64_t max)
{
    return min + (int64_t)kc_rng_below(&r->rng, (uint32_t)(max - min));
}

static void change_mind(struct rival *r, int64_t now)
{
    for (int32_t i = 0; i < PARTS; i++) {
        struct part *p = &r->parts[i];
        if (now < p->until_ms || (r->hold && p->wanted)) {
            continue;
        }
        p->wanted = !p->wanted;
        p->until_ms = now + (p->wanted ? between(r, WANT_MIN_MS, WANT_MAX_MS)
                                       : between(r, LEAVE_MIN_MS, LEAVE_MAX_MS));
        r->news = true;
    }
}

static bool stopped(const struct rival *r)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/stop", r->dir);
    return access(path, F_OK) == 0;
}

static void run(struct rival *r)
{
    while (!stopped(r)) {
        struct pollfd fds[] = {{r->listener, POLLIN, 0}, {r->stream, POLLIN, 0}};
        if (poll(fds, 2, TURN_MS) < 0 && errno != EINTR) {
            die("poll");
        }
        if (fds[1].revents && r->stream >= 0) {
            on_readable(r);
        }
        if (fds[0].revents) {
            on_dialled(r);
        }
        int64_t now = kc_mono_ms();
        tend_broker(r, now);
        change_mind(r, now);
        if (r->news) {
            publish(r);
        }
    }
    if (r->child > 0) {
        kill(r->child, SIGKILL);
        waitpid(r->child, NULL, 0);
    }
    hang_up(r);
    printf("broker %d: %" PRIu64 " partitions opened, %" PRIu64 " incarnations, %" PRIu64
           " restarts\n",
           r->id, r->opened, r->incarnations, r->restarts);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: rival ID ADVERTISED_HOST VOLUME DIR BROKER [hold]\n");
        return 2;
    }
    struct rival r = {.id = (int32_t)strtol(argv[1], NULL, 10),
                      .host = argv[2],
                      .volume = argv[3],
                      .dir = argv[4],
                      .broker = argv[5],
                      .hold = argc > 6 && strcmp(argv[6], "hold") == 0,
                      .stream = -1};
    char boot[KC_UUID_B64_LEN + 1];
    struct kc_uuid once = kc_uuid_random(), cluster;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    kc_rng_seed(&r.rng, (uint64_t)kc_mono_us());
    kc_uuid_to_b64(&once, boot);
    snprintf(r.uid, sizeof(r.uid), "rival-%d-%s", r.id, boot);
    memset(&r.topic_id, 7, sizeof(r.topic_id));
    memset(&cluster, 8, sizeof(cluster));
    kc_uuid_to_b64(&cluster, r.cluster_id);
    snprintf(r.images, sizeof(r.images), "/tmp/kaas-rival-XXXXXX");
    if (!mkdtemp(r.images)) {
        die(r.images);
    }
    write_config(&r);
    listen_here(&r);
    first_images(&r);
    run(&r);
    for (int32_t i = 0; i < KP_SHARDS; i++) {
        ki_shard_unref(r.shards[i]);
    }
    close(r.listener);
    return 0;
}
