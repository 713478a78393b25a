/* The gate of rollouts: updateStrategy.partition goes down by one pod at a time, and only when losing
 * that pod leaves every other broker serving (design.md 7, R57, R60). The decision is kp_roll's. */
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "policy/kp_roll.h"
#include "reconcile/ko_rec.h"

enum { LOOK_MS = 5000 }; /* the gate is looked at every second while a rollout runs */

static const struct kp_row *row_of(const struct ko_view *v, int32_t id)
{
    for (int32_t i = 0; v && i < v->n_rows; i++) {
        if (v->rows[i].id == id) {
            return &v->rows[i];
        }
    }
    return NULL;
}

/* As this operator has seen it, or longer if the pod's own condition says so. */
static int64_t down_ms(struct ko_rc *c, int32_t id, const struct ko_pod *p, int64_t now_wall_ms)
{
    int64_t now = kc_mono_ms();
    const char *uid = p ? p->uid : ""; /* a missing one is another, too */
    uint64_t pod = kc_hash64(uid, strlen(uid));
    if (!c->down_since_ms[id] || c->down_pod[id] != pod) {
        c->down_since_ms[id] = now;
        c->down_pod[id] = pod;
    }
    int64_t told = p && p->unready_since_ms ? now_wall_ms - p->unready_since_ms : 0;
    return KC_MAX(now - c->down_since_ms[id], told);
}

/* A pod serves when both the kubelet and the broker's own heartbeat say so. */
static struct kp_roll_pod pod_of(struct ko_rec *r, struct ko_rc *c, int32_t id, int64_t now_wall_ms)
{
    char key[KO_KEY_MAX];
    snprintf(key, sizeof(key), "%s/%s-%d", c->spec->ns, c->spec->name, id);
    const struct ko_pod *p = ko_rec_find(&r->pods, key);
    const struct kp_row *row = row_of(c->view, id);
    int64_t min_ready_ms = (int64_t)KC_MAX(c->spec->min_ready_seconds, 0) * 1000;
    struct kp_roll_pod ret = {.updated = false};
    if (p) {
        ret.updated = strcmp(p->revision, kc_json_str(c->sts, "status.updateRevision", "")) == 0;
        ret.serving = p->ready && row && row->state == KP_SERVING;
        ret.available = ret.serving && now_wall_ms - p->ready_since_ms >= min_ready_ms;
        ret.failing = *p->fault != '\0';
    }
    ret.down_ms = ret.serving ? 0 : down_ms(c, id, p, now_wall_ms);
    c->down_since_ms[id] = ret.serving ? 0 : c->down_since_ms[id];
    return ret;
}

static const char *reason(enum kp_roll_why why)
{
    switch (why) {
    case KP_ROLL_DONE:
        return "";
    case KP_ROLL_UNAVAILABLE:
        return "WaitingForBroker";
    case KP_ROLL_UNSERVING:
        return "RolloutBlocked";
    case KP_ROLL_FAILBACK:
        return "WaitingForFailback";
    case KP_ROLL_OPEN:
    case KP_ROLL_REPLACING:
        break;
    }
    return "ReplacingBroker";
}

static void explain(struct ko_rc *c, const struct kp_roll_out *out)
{
    char who[80] = "";
    if (out->broker >= 0) {
        snprintf(who, sizeof(who), "%s-%d ", c->spec->name, out->broker);
    }
    if (c->halt.on) {
        snprintf(c->roll_reason, sizeof(c->roll_reason), "RolloutHalted");
        snprintf(c->roll_text, sizeof(c->roll_text), "%s", c->halt.text);
        return;
    }
    snprintf(c->roll_reason, sizeof(c->roll_reason), "%s", reason(out->why));
    snprintf(c->roll_text, sizeof(c->roll_text), "%s%s", who,
             out->why == KP_ROLL_DONE ? "" : kp_roll_text(out->why));
}

/* A halt lasts until its pod serves or is another one: a container that keeps ending runs at times. */
static void halt(struct ko_rec *r, struct ko_rc *c, const struct kp_roll_out *out)
{
    char key[KO_KEY_MAX], pod[80];
    struct ko_halt *h = &c->halt;
    snprintf(pod, sizeof(pod), "%s-%d", c->spec->name, out->broker);
    snprintf(key, sizeof(key), "%s/%s", c->spec->ns, pod);
    const struct ko_pod *p = out->broker >= 0 ? ko_rec_find(&r->pods, key) : NULL;
    const struct kp_row *row = row_of(c->view, out->broker);
    bool serving = p && p->ready && row && row->state == KP_SERVING;
    bool halted = out->halted && c->rolling; /* else it is a crash, and no rollout */
    bool lasts = h->on && strcmp(h->pod, pod) == 0 && strcmp(h->uid, p ? p->uid : "") == 0 &&
                 !serving && out->why != KP_ROLL_OPEN;
    if (!halted && !lasts) {
        *h = (struct ko_halt){.on = false};
        return;
    }
    if (lasts && (!p || !*p->fault)) {
        return; /* what is known stays */
    }
    h->on = true;
    snprintf(h->pod, sizeof(h->pod), "%s", pod);
    snprintf(h->uid, sizeof(h->uid), "%s", p ? p->uid : "");
    snprintf(h->reason, sizeof(h->reason), "%s",
             !p          ? "PodMissing"
             : *p->fault ? p->fault
             : p->ready  ? "NotServing"
                         : "NotReady");
    snprintf(h->text, sizeof(h->text), "pod %s does not turn ready: %s%s%s", pod, h->reason,
             p && *p->fault_text ? ": " : "", p ? p->fault_text : "");
}

static int32_t gate(struct ko_rec *r, struct ko_rc *c, int32_t standing)
{
    struct kp_roll_pod pods[KP_BROKERS_MAX];
    struct kp_roll_out out;
    int64_t now = kc_wall_ms();
    if (kc_json_int(c->sts, "status.observedGeneration", -1) < ko_generation(c->sts)) {
        return standing; /* updateRevision is of an older template */
    }
    int64_t looked = c->looked_ms;
    c->looked_ms = kc_mono_ms();
    if (c->looked_ms - looked > LOOK_MS) {
        memset(c->down_since_ms, 0,
               sizeof(c->down_since_ms)); /* nobody knows what was in between */
    }
    for (int32_t i = 0; i < c->spec->replicas; i++) {
        pods[i] = pod_of(r, c, i, now);
    }
    struct kp_roll_in in = {
        .replicas = c->spec->replicas,
        .pods = pods,
        .partition = standing,
        .failback_done = c->view && c->view->active && c->view->away == 0,
        .force = *ko_annotation(c->doc, KO_FORCE_ROLLOUT) != '\0',
    };
    kp_roll(&in, &out);
    halt(r, c, &out);
    explain(c, &out);
    return out.partition;
}

json_t *ko_rec_statefulset(struct ko_rec *r, struct ko_rc *c)
{
    json_t *doc = ko_build_statefulset(c->spec, &r->o.build, 0);
    int64_t standing = kc_json_int(c->sts, "spec.updateStrategy.rollingUpdate.partition", 0);
    int32_t partition = 0;
    snprintf(c->template_hash, sizeof(c->template_hash), "%s",
             ko_annotation(doc, KO_TEMPLATE_HASH));
    if (c->sts && strcmp(ko_annotation(c->sts, KO_TEMPLATE_HASH), c->template_hash) != 0) {
        /* A newer template comes together with a closed gate, and restarts a rollout under way. */
        partition = c->spec->replicas;
        c->halt.on = false;
    } else if (c->sts) {
        partition = gate(r, c, (int32_t)KC_MIN(KC_MAX(standing, 0), (int64_t)KP_BROKERS_MAX));
    }
    kc_json_set(doc, "spec.updateStrategy.rollingUpdate.partition", json_integer(partition));
    return doc;
}
