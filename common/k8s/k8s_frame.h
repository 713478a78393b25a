/* k8s_frame.h - cuts a watch's byte stream into lines, one JSON event each.
 *
 * Bytes come in any pieces; an event may span many of them. One owner. */
#ifndef K8S_FRAME_H
#define K8S_FRAME_H

#include "base/kc_dyn.h"

struct k8s_frame {
    struct kc_dyn buf;
    size_t head; /* start of the line being gathered */
    size_t scanned; /* no newline before this offset */
};

/* max_bytes bounds what is held at a time, so one event, too. */
void k8s_frame_init(struct k8s_frame *f, size_t max_bytes);
void k8s_frame_fini(struct k8s_frame *f);
void k8s_frame_reset(struct k8s_frame *f); /* a new stream */
/* 0, or KC_E_TOO_LARGE (sticky until the next reset). */
int k8s_frame_push(struct k8s_frame *f, const void *data, size_t len) KC_MUST_CHECK;
/* The next whole line without its end, borrowed until the next push or reset. Empty lines are
 * skipped. False when more bytes are needed. */
bool k8s_frame_next(struct k8s_frame *f, struct kc_bytes *ret);

#endif
