#include "k8s/k8s_frame.h"

#include <errno.h>

#include <string.h>

#include "base/kc_error.h"

void k8s_frame_init(struct k8s_frame *f, size_t max_bytes)
{
    kc_dyn_init(&f->buf, max_bytes);
    f->head = f->scanned = 0;
}

void k8s_frame_fini(struct k8s_frame *f)
{
    kc_dyn_fini(&f->buf);
}

void k8s_frame_reset(struct k8s_frame *f)
{
    kc_dyn_reset(&f->buf);
    f->head = f->scanned = 0;
}

int k8s_frame_push(struct k8s_frame *f, const void *data, size_t len)
{
    if (f->head) { /* lines handed out before are dropped only now: they were borrowed */
        kc_dyn_consume(&f->buf, f->head);
        f->scanned -= f->head;
        f->head = 0;
    }
    kc_dyn_add(&f->buf, data, len);
    return kc_dyn_ok(&f->buf) ? 0 : f->buf.over ? KC_E_TOO_LARGE : -ENOMEM;
}

bool k8s_frame_next(struct k8s_frame *f, struct kc_bytes *ret)
{
    while (f->scanned < f->buf.len) {
        const uint8_t *from = f->buf.data + f->scanned;
        const uint8_t *nl = memchr(from, '\n', f->buf.len - f->scanned);
        if (!nl) {
            f->scanned = f->buf.len;
            return false;
        }
        const uint8_t *line = f->buf.data + f->head;
        size_t len = (size_t)(nl - line);
        f->head = f->scanned = (size_t)(nl - f->buf.data) + 1;
        if (len && line[len - 1] == '\r') {
            len--;
        }
        if (len) {
            *ret = (struct kc_bytes){line, (int32_t)len};
            return true;
        }
    }
    return false;
}
