/* Who wakes a loop, and what it does before it waits. */
#include "kt.h"

#include <semaphore.h>

#include "rt/rt_loop.h"

static struct rt_loop loops[2];

static void up(int n)
{
    for (int i = 0; i < n; i++) {
        KT_REQUIRE(rt_loop_start(&loops[i]) == 0);
    }
}

static void init(int n)
{
    for (int i = 0; i < n; i++) {
        KT_REQUIRE(rt_loop_init(&loops[i], "wake") == 0);
    }
}

static void down(int n)
{
    for (int i = 0; i < n; i++) {
        rt_loop_stop(&loops[i]);
    }
    for (int i = 0; i < n; i++) {
        rt_loop_join(&loops[i]);
    }
}

/* ---- no wake-up is lost ---- */

enum { PASSES = 20000 };

struct ball {
    struct rt_msg msg;
    int at, passes;
    sem_t *done;
};

static void pass_on(struct rt_msg *msg)
{
    struct ball *b = KC_CONTAINER_OF(msg, struct ball, msg);
    if (++b->passes == PASSES) {
        sem_post(b->done);
        return;
    }
    b->at = !b->at;
    rt_post(&loops[b->at], &b->msg);
}

/* With one ball each loop sleeps while the other has it; with more they also meet in the middle. */
static void a_message_reaches_a_loop_that_is_about_to_wait(void)
{
    enum { MOST = 3 };
    for (int n = 1; n <= MOST; n++) {
        struct ball balls[MOST];
        sem_t done;
        sem_init(&done, 0, 0);
        init(2);
        up(2);
        for (int i = 0; i < n; i++) {
            balls[i] = (struct ball){.msg.fn = pass_on, .at = i & 1, .done = &done};
            rt_post(&loops[i & 1], &balls[i].msg);
        }
        for (int i = 0; i < n; i++) {
            sem_wait(&done);
        }
        down(2);
    }
}

/* ---- a loop's own messages ---- */

static struct rt_msg again;
static _Atomic bool enough;
static sem_t ended;

static void post_again(struct rt_msg *msg)
{
    if (atomic_load(&enough)) {
        sem_post(&ended);
    } else {
        rt_post(&loops[0], msg);
    }
}

static void on_timer(uv_timer_t *t)
{
    (void)t;
    atomic_store(&enough, true);
}

static void a_loop_that_talks_to_itself_still_gets_to_its_other_work(void)
{
    uv_timer_t timer;
    sem_init(&ended, 0, 0);
    init(1);
    uv_timer_init(&loops[0].uv, &timer);
    uv_timer_start(&timer, on_timer, 20, 0);
    again.fn = post_again;
    rt_post(&loops[0], &again);
    up(1);
    sem_wait(&ended);
    down(1);
}

/* ---- what is done once for many ---- */

static char trace[16];
static size_t traced;
static bool armed;
static struct rt_after after;
static sem_t held, go;

static void note(char c)
{
    if (traced < sizeof(trace) - 1) {
        trace[traced++] = c;
        trace[traced] = '\0';
    }
}

static void note_message(void *arg)
{
    note((char)(intptr_t)arg);
    if (!armed) {
        armed = true;
        rt_loop_after(&loops[0], &after);
    }
}

static void hold(void *arg)
{
    sem_post(&held);
    sem_wait(&go);
    note_message(arg);
}

/* The second time asks for itself, and posts. */
static void on_after(struct rt_after *a)
{
    static int times;
    armed = false;
    note('a');
    if (++times == 2) {
        armed = true;
        rt_loop_after(&loops[0], a);
        rt_call(&loops[0], note_message, (void *)(intptr_t)'4');
    }
}

static void signal_end(void *arg)
{
    sem_post(arg);
}

static void messages_that_came_together_are_followed_up_once(void)
{
    after.fn = on_after;
    sem_init(&held, 0, 0);
    sem_init(&go, 0, 0);
    init(1);
    up(1);
    rt_call(&loops[0], hold, (void *)(intptr_t)'1');
    sem_wait(&held);
    rt_call(&loops[0], note_message, (void *)(intptr_t)'2');
    rt_call(&loops[0], note_message, (void *)(intptr_t)'3');
    sem_post(&go);
    for (int i = 0; i < 3; i++) { /* each is a batch behind the one before */
        rt_call(&loops[0], signal_end, &held);
        sem_wait(&held);
    }
    down(1);
    /* Asked for from within, it runs again before the loop waits: here before or behind the message. */
    KT_TRUE(strcmp(trace, "1a23aa4a") == 0 || strcmp(trace, "1a23a4a") == 0);
}

KT_MAIN("rt_wake", KT(a_message_reaches_a_loop_that_is_about_to_wait),
        KT(a_loop_that_talks_to_itself_still_gets_to_its_other_work),
        KT(messages_that_came_together_are_followed_up_once))
