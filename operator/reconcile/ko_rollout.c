/* What a rollout was like: status.lastRollout, and the Events of its beginning, halt and end.
 *
 * Begun when the StatefulSet has a newer revision to bring out, ended when every broker runs it, is
 * available and has its partitions back. What clients felt is measured by the control thread
 * (kp_gaps.c) for as long as the report is open; one that an operator took over says since when. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/kc_clock.h"
#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "reconcile/ko_cond.h"
#include "reconcile/ko_rec.h"

enum { MEASURED_LATE_MS = 5000 }; /* a measurement that began later than that says so */

static int64_t parse_ms(const char *s)
{
    struct tm tm = {0};
    return strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) ? (int64_t)timegm(&tm) * 1000 : 0;
}

/* Names a rollout to the control thread, and here; 0 = there is none. */
static uint64_t id_of(const json_t *report)
{
    const char *revision = kc_json_str(report, "revision", NULL);
    const char *started = kc_json_str(report, "startedAt", "");
    if (!revision) {
        return 0;
    }
    return kc_hash64_mix(kc_hash64(revision, strlen(revision)),
                         kc_hash64(started, strlen(started))) |
           1;
}

static bool is_open(const json_t *report)
{
    return report && !json_object_get(report, "finishedAt");
}

static void put_int(json_t *o, const char *key, int64_t value)
{
    json_object_set_new(o, key, json_integer(value));
}

/* The figures as they stand. The largest of an earlier operator's stay in; its percentiles and counts
 * cannot be added to, so those are of the present measurement alone. */
static void put_figures(json_t *ro, const struct ko_rc *c, const json_t *old)
{
    static const char *const keys[] = {"measuredSince", "partitionsMoved", "gapMillis",
                                       "maxBrokersOut"};
    const struct ko_view *v = c->view;
    if (!v || !v->rollout || v->rollout != id_of(ro)) {
        for (size_t i = 0; i < KC_ARRAY_LEN(keys); i++) {
            json_t *was = json_object_get(old, keys[i]);
            if (was) {
                json_object_set(ro, keys[i], was);
            }
        }
        return;
    }
    const struct kp_measure *m = &v->measure;
    char since[32];
    if (v->measured_wall_ms - parse_ms(kc_json_str(ro, "startedAt", "")) > MEASURED_LATE_MS) {
        kc_rfc3339(v->measured_wall_ms, false, since);
        json_object_set_new(ro, "measuredSince", json_string(since));
    }
    put_int(ro, "partitionsMoved", m->partitions);
    put_int(ro, "maxBrokersOut", KC_MAX((int64_t)m->max_out, kc_json_int(old, "maxBrokersOut", 0)));
    json_t *gap = json_object();
    put_int(gap, "count", m->gaps);
    put_int(gap, "p50", m->p50_ms);
    put_int(gap, "p99", m->p99_ms);
    put_int(gap, "max", KC_MAX(m->max_ms, kc_json_int(old, "gapMillis.max", 0)));
    json_object_set_new(ro, "gapMillis", gap);
}

static void put_end(json_t *ro, const char *now, int64_t now_wall_ms)
{
    int64_t ms = now_wall_ms - parse_ms(kc_json_str(ro, "startedAt", now));
    json_object_set_new(ro, "finishedAt", json_string(now));
    put_int(ro, "durationSeconds", KC_MAX(ms, (int64_t)0) / 1000);
}

json_t *ko_rollout_report(const struct ko_rc *c, int64_t now_wall_ms)
{
    const json_t *old = json_object_get(c->status, "lastRollout");
    const char *update = kc_json_str(c->sts, "status.updateRevision", "");
    const char *current = kc_json_str(c->sts, "status.currentRevision", "");
    bool known = old && strcmp(kc_json_str(old, "revision", ""), update) == 0;
    bool goes_on = known && is_open(old);
    /* Back to the revision from before an unfinished one is a rollout too, if not to the StatefulSet. */
    bool begins = c->rolling && *update && !known && (strcmp(update, current) != 0 || is_open(old));
    char now[32];
    kc_rfc3339(now_wall_ms, false, now);
    if (!goes_on && !begins) {
        return old ? json_deep_copy(old) : NULL;
    }
    json_t *ro = json_object();
    json_object_set_new(ro, "revision", json_string(update));
    json_object_set_new(ro, "startedAt",
                        json_string(goes_on ? kc_json_str(old, "startedAt", now) : now));
    put_int(ro, "brokers", kc_json_int(c->sts, "status.updatedReplicas", 0));
    put_figures(ro, c, goes_on ? old : NULL);
    if (!c->rolling) {
        put_end(ro, now, now_wall_ms);
    } else if (c->halt.on) {
        json_object_set_new(ro, "halted",
                            json_pack("{s:s, s:s, s:s}", "reason", c->halt.reason, "pod",
                                      c->halt.pod, "message", c->halt.text));
    }
    json_object_set_new(ro, "message",
                        json_string(c->rolling ? c->roll_text : "every broker runs it"));
    return ro;
}

/* ---- what is said of it ---- */

static void say_finished(struct ko_rec *r, const struct ko_rc *c, const json_t *ro)
{
    char measured[300] = "";
    if (json_object_get(ro, "gapMillis")) {
        snprintf(measured, sizeof(measured),
                 ": at most %d out at once, %d partitions moved, without an acking leader for p50 "
                 "%d ms, p99 %d ms, max %d ms",
                 (int)kc_json_int(ro, "maxBrokersOut", 0),
                 (int)kc_json_int(ro, "partitionsMoved", 0),
                 (int)kc_json_int(ro, "gapMillis.p50", 0), (int)kc_json_int(ro, "gapMillis.p99", 0),
                 (int)kc_json_int(ro, "gapMillis.max", 0));
    }
    ko_rec_event(r, c->doc, false, "RolloutFinished", "%.100s is on %d brokers after %d s%s",
                 kc_json_str(ro, "revision", ""), (int)kc_json_int(ro, "brokers", 0),
                 (int)kc_json_int(ro, "durationSeconds", 0), measured);
}

/* An earlier operator has said it already if the status it left shows the halt. */
static void say_halted(struct ko_rec *r, struct ko_rc *c)
{
    const json_t *was = ko_cond_find(json_object_get(c->status, "conditions"), "Progressing");
    bool said = strcmp(kc_json_str(was, "reason", ""), "RolloutHalted") == 0;
    if (c->halt.on && !c->rollout.halted && !said) {
        ko_rec_event(r, c->doc, true, "RolloutHalted", "%s", c->halt.text);
    }
    c->rollout.halted = c->halt.on;
}

void ko_rollout_run(struct ko_rec *r, struct ko_rc *c, const json_t *status)
{
    const json_t *ro = json_object_get(status, "lastRollout");
    const json_t *old = json_object_get(c->status, "lastRollout");
    uint64_t id = id_of(ro), measure = is_open(ro) ? id : 0;
    if (id && id != id_of(old) && c->rollout.started != id) {
        c->rollout.started = id;
        ko_rec_event(r, c->doc, false, "RolloutStarted", "%.100s goes to %d brokers",
                     kc_json_str(ro, "revision", ""), (int)c->spec->replicas);
    }
    if (id && !is_open(ro) && c->rollout.finished != id && (id != id_of(old) || is_open(old))) {
        c->rollout.finished = id;
        say_finished(r, c, ro);
    }
    say_halted(r, c);
    if (c->spec_told && c->rollout.measured != measure) {
        c->rollout.measured = measure;
        ko_control_rollout(r->control, c->key, measure);
    }
}
