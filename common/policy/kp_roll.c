#include "policy/kp_roll.h"

static void say(struct kp_roll_out *ret, enum kp_roll_why why, int32_t broker)
{
    ret->why = why;
    ret->broker = broker;
}

static int32_t highest_outdated(const struct kp_roll_in *in)
{
    for (int32_t i = in->replicas - 1; i >= 0; i--) {
        if (!in->pods[i].updated) {
            return i;
        }
    }
    return -1;
}

static int32_t count_serving(const struct kp_roll_in *in)
{
    int32_t n = 0;
    for (int32_t i = 0; i < in->replicas; i++) {
        n += in->pods[i].serving;
    }
    return n;
}

/* All are up to date; the last ones may still be coming. */
static void finish(const struct kp_roll_in *in, struct kp_roll_out *ret)
{
    say(ret, KP_ROLL_DONE, -1);
    for (int32_t i = in->replicas - 1; i >= 0; i--) {
        if (!in->pods[i].available) {
            say(ret, KP_ROLL_UNAVAILABLE, i);
            return;
        }
    }
}

/* Whether losing the serving pod `next` leaves every other broker in service. */
static bool others_stand(const struct kp_roll_in *in, int32_t next, struct kp_roll_out *ret)
{
    for (int32_t i = in->replicas - 1; i >= 0; i--) {
        const struct kp_roll_pod *p = &in->pods[i];
        if (i == next) {
            continue;
        }
        if (p->updated && !p->available) {
            say(ret, KP_ROLL_UNAVAILABLE, i);
            return false;
        }
        if (!p->updated && !p->serving) {
            say(ret, KP_ROLL_UNSERVING, i);
            return false;
        }
    }
    if (!in->failback_done) {
        say(ret, KP_ROLL_FAILBACK, -1);
        return false;
    }
    return true;
}

static bool halted(const struct kp_roll_pod *p)
{
    return !p->serving && p->down_ms >= (p->failing ? KP_ROLL_FAILING_MS : KP_ROLL_HALT_MS);
}

static void decide(const struct kp_roll_in *in, struct kp_roll_out *ret)
{
    ret->partition = in->partition;
    int32_t next = highest_outdated(in);
    if (next < 0) {
        finish(in, ret);
        return;
    }
    if (next >= in->partition) {
        say(ret, KP_ROLL_REPLACING, next);
        return;
    }
    /* A pod that does not serve costs nothing to replace, and when nobody serves a bad first image
     * can be corrected; one that serves goes only when all others stand. */
    bool free_to_go = in->force || !in->pods[next].serving || count_serving(in) == 0;
    if (free_to_go || others_stand(in, next, ret)) {
        ret->partition = next;
        say(ret, KP_ROLL_OPEN, next);
    }
}

void kp_roll(const struct kp_roll_in *in, struct kp_roll_out *ret)
{
    decide(in, ret);
    bool waits = ret->why == KP_ROLL_UNAVAILABLE || ret->why == KP_ROLL_REPLACING ||
                 ret->why == KP_ROLL_UNSERVING;
    ret->halted = waits && ret->broker >= 0 && halted(&in->pods[ret->broker]);
}

const char *kp_roll_text(enum kp_roll_why why)
{
    switch (why) {
    case KP_ROLL_DONE:
        return "every broker runs the newest template and is available";
    case KP_ROLL_OPEN:
        return "is replaced next";
    case KP_ROLL_REPLACING:
        return "is being replaced";
    case KP_ROLL_UNAVAILABLE:
        return "runs the newest template but has not served for minReadySeconds";
    case KP_ROLL_UNSERVING:
        return "is outdated and does not serve; replacing a serving broker now would leave two "
               "out. "
               "Repair or delete its pod, or set the annotation kaas.dev/force-rollout";
    case KP_ROLL_FAILBACK:
        return "waits until every partition is back at its home";
    }
    return "";
}
