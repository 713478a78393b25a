/* hx.h - a broker without a control plane for the tests of broker/handlers: data loops, a listener
 * a name on loopback, and whatever image the test publishes. Requests go over real sockets.
 *
 * Not more than one at a time; the test's thread is none of its loops. */
#ifndef HX_H
#define HX_H

#include "kt.h"
#include "kt_dir.h"
#include "handlers/kb_api.h"
#include "handlers/kb_context.h"

enum { HX_ROWS_MAX = 8, HX_TOPICS_MAX = 16, HX_PARTS_MAX = 64 };

/* The image to be: change it and hx_publish again. */
struct hx_topic {
    struct kc_uuid id;
    char name[64];
    bool internal, deleted;
    int32_t n_configs;
    struct ki_config configs[4];
    int32_t n_parts;
    struct kp_part parts[HX_PARTS_MAX];
};

/* Settles a change as the test's operator would, now or later; on the loop that submits it. */
typedef void (*hx_answer)(struct kb_admin_ticket *t, const struct kb_admin_change *change);

struct hx {
    struct kb_app app;
    int32_t n_rows;
    struct kp_row rows[HX_ROWS_MAX];
    int32_t n_topics;
    struct hx_topic topics[HX_TOPICS_MAX];
    uint64_t generation;
    int32_t n_configs;
    struct ki_config configs[8]; /* cluster-wide, sorted by name */
    int32_t n_leads;
    struct kp_lead leads[4]; /* heard of since, sorted */
    char dir[KT_DIR_MAX]; /* the volume, with an engine */
    hx_answer answer;
    int submitted; /* changes that were given to it */
};

/* Broker `self` with listeners "internal" and "external"; rows is empty. */
void hx_up(struct hx *h, int32_t self, int32_t n_loops);
void hx_down(struct hx *h);
/* Broker 1 with its row, and an operator that the test plays. */
void hx_up_admin(struct hx *h, int32_t n_loops, hx_answer answer);
/* With a volume and an engine, for tests that open logs. */
void hx_up_engine(struct hx *h, int32_t self, int32_t n_loops);

/* A row of state Serving and Alive, with both listeners: host "b<id>", ports 9000 + id, 9100 + id. */
struct kp_row *hx_row(struct hx *h, int32_t id);
/* n partitions, assigned to and led by `leader` (its row's incarnation, epoch 3), or by nobody. */
struct hx_topic *hx_topic(struct hx *h, const char *name, int32_t n_parts, int32_t leader);
void hx_publish(struct hx *h);
struct kc_uuid hx_uuid(uint8_t n);

/* Opens a partition's log and hands it to its loop, with the configs of the image. */
void hx_open_part(struct hx *h, const struct hx_topic *t, int32_t p);
/* Seals and closes it; the hint names new_leader. */
void hx_close_part(struct hx *h, const struct hx_topic *t, int32_t p, int32_t new_leader);
void hx_await(_Atomic bool *flag); /* fails the test after 20 s */

/* ---- a client ---- */

struct hx_client {
    int fd;
    int32_t correlation;
    struct kc_arena arena; /* decoded responses */
    uint8_t *buf; /* the last answer */
};
void hx_dial(struct hx *h, struct hx_client *c, int32_t listener);
void hx_hang_up(struct hx_client *c);
void hx_end(struct hx *h, struct hx_client *c); /* hangs up, and hx_down */
/* The usual: broker 1 of two, topic "t" with one partition, open here, and a client; and its end. */
void hx_up_one(struct hx *h, struct hx_client *c, int32_t n_loops);
void hx_down_one(struct hx *h, struct hx_client *c);
/* Encodes and sends; no answer is read. */
void hx_send(struct hx_client *c, int16_t key, int16_t version, const void *request);
/* The next answer, decoded; NULL when the connection was closed. Until the next call. */
const void *hx_receive(struct hx_client *c, int16_t key, int16_t version);
const void *hx_call(struct hx_client *c, int16_t key, int16_t version, const void *request);
/* Bytes as they are. */
void hx_send_raw(struct hx_client *c, const void *data, size_t len);
/* A frame's content, undecoded; -1 when the connection was closed. */
int32_t hx_receive_raw(struct hx_client *c);

/* Runs fn(arg) on the data loop i and waits for it. */
void hx_on_loop(struct hx *h, int32_t i, void (*fn)(void *arg), void *arg);

#endif
