/* broker_fix.h - a self-led kaas-broker as a child process on ports of its own choice, and a client
 * that asks it in any version of the protocol. */
#ifndef BROKER_FIX_H
#define BROKER_FIX_H

#include <sys/types.h>

#include "base/kc_arena.h"
#include "kt_dir.h"
#include "wire/kw_api.h"

struct bx {
    pid_t pid;
    uint16_t port; /* where it listens */
    char dir[KT_DIR_MAX];
};

/* Starts the broker and waits until it answers; a new volume, or the one of the last run. */
void bx_start(struct bx *b, bool fresh);
void bx_kill(struct bx *b); /* SIGKILL */
void bx_end(struct bx *b); /* SIGTERM, expects exit code 0, removes the volume */

struct bx_conn {
    int fd;
    int32_t correlation;
    struct kc_arena arena; /* holds the last answer */
    uint8_t *frame;
    size_t frame_len;
};
void bx_connect(struct bx *b, struct bx_conn *c);
void bx_close(struct bx_conn *c);
void bx_send(struct bx_conn *c, int16_t key, int16_t version, const void *request);
/* The next answer, decoded; lives until the next one. NULL: the connection was closed. */
void *bx_receive(struct bx_conn *c, int16_t key, int16_t version);
/* Whether an answer has come, within ms. */
bool bx_waiting(struct bx_conn *c, int ms);
static inline void *bx_ask(struct bx_conn *c, int16_t key, int16_t version, const void *request)
{
    bx_send(c, key, version, request);
    return bx_receive(c, key, version);
}

#endif
