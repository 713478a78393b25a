/* libuv on the simulation's clock: the handles that rt_loop uses, and of the kernel only its eventfd. These
 * definitions take the place of the library's in this program, so that common/rt is simulated, too. */
#include <poll.h>
#include <uv.h>

#include "base/kc_mem.h"
#include "ss_sched.h"

enum { HANDLES = 16 };

struct entry {
    uv_handle_t *h;
    bool active, closing;
    int fd;
    uv_close_cb closed;
    union {
        uv_poll_cb poll;
        uv_idle_cb idle;
        uv_prepare_cb prepare;
        uv_timer_cb timer;
    } cb;
    int64_t due_us, repeat_us;
};

struct loop {
    int n;
    bool stop;
    struct entry e[HANDLES];
};

static struct loop *of(uv_loop_t *uv)
{
    return uv->internal_fields;
}

static struct entry *find(const void *handle)
{
    const uv_handle_t *h = handle;
    struct loop *l = of(h->loop);
    int i = 0;
    while (i < l->n && l->e[i].h != h) {
        i++;
    }
    KC_ASSERT(i < l->n); /* else: a handle that is closed */
    return &l->e[i];
}

static struct entry *add(uv_loop_t *uv, void *handle, uv_handle_type type)
{
    struct loop *l = of(uv);
    uv_handle_t *h = handle;
    KC_ASSERT(l->n < HANDLES);
    h->loop = uv;
    h->type = type;
    l->e[l->n] = (struct entry){.h = h};
    return &l->e[l->n++];
}

int uv_loop_init(uv_loop_t *uv)
{
    uv->internal_fields = kc_zalloc(sizeof(struct loop));
    return 0;
}

int uv_loop_close(uv_loop_t *uv)
{
    KC_ASSERT(of(uv)->n == 0);
    kc_free(of(uv));
    return 0;
}

int uv_poll_init(uv_loop_t *uv, uv_poll_t *h, int fd)
{
    add(uv, h, UV_POLL)->fd = fd;
    return 0;
}

int uv_poll_start(uv_poll_t *h, int events, uv_poll_cb cb)
{
    struct entry *e = find(h);
    KC_ASSERT(events == UV_READABLE);
    e->cb.poll = cb;
    e->active = true;
    return 0;
}

int uv_prepare_init(uv_loop_t *uv, uv_prepare_t *h)
{
    add(uv, h, UV_PREPARE);
    return 0;
}

int uv_prepare_start(uv_prepare_t *h, uv_prepare_cb cb)
{
    struct entry *e = find(h);
    e->cb.prepare = cb;
    e->active = true;
    return 0;
}

int uv_idle_init(uv_loop_t *uv, uv_idle_t *h)
{
    add(uv, h, UV_IDLE);
    return 0;
}

int uv_idle_start(uv_idle_t *h, uv_idle_cb cb)
{
    struct entry *e = find(h);
    e->cb.idle = cb;
    e->active = true;
    return 0;
}

int uv_idle_stop(uv_idle_t *h)
{
    find(h)->active = false;
    return 0;
}

int uv_timer_init(uv_loop_t *uv, uv_timer_t *h)
{
    add(uv, h, UV_TIMER);
    return 0;
}

int uv_timer_start(uv_timer_t *h, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    struct entry *e = find(h);
    e->cb.timer = cb;
    e->active = true;
    e->due_us = ss_now_us() + (int64_t)timeout * 1000;
    e->repeat_us = (int64_t)repeat * 1000;
    return 0;
}

int uv_timer_stop(uv_timer_t *h)
{
    find(h)->active = false;
    return 0;
}

int uv_is_closing(const uv_handle_t *h)
{
    return find(h)->closing;
}

void uv_close(uv_handle_t *h, uv_close_cb cb)
{
    struct entry *e = find(h);
    KC_ASSERT(!e->closing);
    e->closing = true;
    e->active = false;
    e->closed = cb;
}

void uv_walk(uv_loop_t *uv, uv_walk_cb cb, void *arg)
{
    for (int i = 0; i < of(uv)->n; i++) {
        cb(of(uv)->e[i].h, arg);
    }
}

void uv_stop(uv_loop_t *uv)
{
    of(uv)->stop = true;
}

static void run_one(struct entry *e)
{
    switch (e->h->type) {
    case UV_TIMER:
        if (e->due_us <= ss_now_us()) {
            e->active = e->repeat_us > 0;
            e->due_us = ss_now_us() + e->repeat_us;
            e->cb.timer((uv_timer_t *)e->h);
        }
        break;
    case UV_IDLE:
        e->cb.idle((uv_idle_t *)e->h);
        break;
    case UV_PREPARE:
        e->cb.prepare((uv_prepare_t *)e->h);
        break;
    default:
        if (poll(&(struct pollfd){.fd = e->fd, .events = POLLIN}, 1, 0) == 1) {
            e->cb.poll((uv_poll_t *)e->h, 0, UV_READABLE);
        }
        break;
    }
}

static void close_handles(struct loop *l)
{
    for (int i = 0; i < l->n;) {
        struct entry e = l->e[i];
        if (!e.closing) {
            i++;
            continue;
        }
        l->e[i] = l->e[--l->n];
        if (e.closed) {
            e.closed(e.h);
        }
    }
}

/* One turn; UV_RUN_DEFAULT is for the end of a loop, when nothing is left to wait for. */
int uv_run(uv_loop_t *uv, uv_run_mode mode)
{
    static const uv_handle_type order[] = {UV_TIMER, UV_IDLE, UV_PREPARE, UV_POLL};
    struct loop *l = of(uv);
    for (size_t k = 0; k < KC_ARRAY_LEN(order); k++) {
        for (int i = 0; i < l->n; i++) {
            if (l->e[i].active && l->e[i].h->type == order[k]) {
                run_one(&l->e[i]);
            }
        }
    }
    close_handles(l);
    KC_ASSERT(mode == UV_RUN_NOWAIT || l->n == 0 || l->stop);
    l->stop = false;
    return l->n > 0;
}
