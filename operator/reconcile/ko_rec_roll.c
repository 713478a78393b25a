/* The gate of rollouts: updateStrategy.partition goes down by one pod at a time, and only when losing
 * that pod leaves every other broker serving (design.md 7, R57, R60). The decision is kp_roll's. */
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "policy/kp_roll.h"
#include "reconcile/ko_rec.h"

static const struct kp_row *row_of(const struct ko_view *v, int32_t id)
{
    for (int32_t i = 0; v && i < v->n_rows; i++) {
        if (v->rows[i].id == id) {
            return &v->rows[i];
        }
    }
    return NULL;
}

/* A pod serves when both the kubelet and the broker's own heartbeat say so. */
static struct kp_roll_pod pod_of(struct ko_rec *r, const struct ko_rc *c, int32_t id,
                                 int64_t now_wall_ms)
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
    }
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
    snprintf(c->roll_reason, sizeof(c->roll_reason), "%s", reason(out->why));
    snprintf(c->roll_text, sizeof(c->roll_text), "%s%s", who,
             out->why == KP_ROLL_DONE ? "" : kp_roll_text(out->why));
}

static int32_t gate(struct ko_rec *r, struct ko_rc *c, int32_t standing)
{
    struct kp_roll_pod pods[KP_BROKERS_MAX];
    struct kp_roll_out out;
    int64_t now = kc_wall_ms();
    if (kc_json_int(c->sts, "status.observedGeneration", -1) < ko_generation(c->sts)) {
        return standing; /* updateRevision is of an older template */
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
    explain(c, &out);
    return out.partition;
}

json_t *ko_rec_statefulset(struct ko_rec *r, struct ko_rc *c)
{
    json_t *doc = ko_build_statefulset(c->spec, &r->o.build, 0);
    int64_t standing = kc_json_int(c->sts, "spec.updateStrategy.rollingUpdate.partition", 0);
    int32_t partition = 0;
    if (c->sts && strcmp(ko_annotation(c->sts, KO_TEMPLATE_HASH),
                         ko_annotation(doc, KO_TEMPLATE_HASH)) != 0) {
        /* A newer template comes together with a closed gate, and restarts a rollout under way. */
        partition = c->spec->replicas;
    } else if (c->sts) {
        partition = gate(r, c, (int32_t)KC_MIN(KC_MAX(standing, 0), (int64_t)KP_BROKERS_MAX));
    }
    kc_json_set(doc, "spec.updateStrategy.rollingUpdate.partition", json_integer(partition));
    return doc;
}
