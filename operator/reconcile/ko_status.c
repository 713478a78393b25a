#include "reconcile/ko_status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"
#include "reconcile/ko_cond.h"

enum { LAST_SEEN_MS = 30000, BLOCKED_MS = 10000, DISAGREE_MS = 30000 };

/* What the rows say, counted once. */
struct sums {
    int32_t serving, fenced, draining, stalled, alive, faulty, silent;
    enum kp_volume volume; /* of the first broker that cannot write */
    char volume_text[120];
    char fenced_names[600], draining_names[600], silent_names[600], version[40], first_fault[120];
};

static int64_t parse_ms(const char *s)
{
    struct tm tm = {0};
    return s && strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) ? (int64_t)timegm(&tm) * 1000 : 0;
}

const char *ko_volume_reason(enum kp_volume v)
{
    return v == KP_VOLUME_FULL        ? "VolumeFull"
           : v == KP_VOLUME_READ_ONLY ? "VolumeReadOnly"
                                      : "VolumeAnswers";
}

/* Why a row is what it is; of one that serves, that nothing is heard of it, or what its volume refuses. */
static const char *why_of(const struct kp_row *row)
{
    const char *why = kp_reason_name(row->reason);
    return *why ? why : row->silent ? "silent" : kp_volume_name(row->volume);
}

json_t *ko_row_json(const struct kp_row *row, const json_t *old, int64_t now_wall_ms)
{
    char incarnation[KC_UUID_B64_LEN + 1] = "", seen[32] = "";
    const char *old_seen = kc_json_str(old, "lastSeen", NULL);
    int64_t old_ms = parse_ms(old_seen);
    bool keep = row->health != KP_DEAD && old_ms > 0 && old_ms <= now_wall_ms &&
                row->last_seen_ms - old_ms < LAST_SEEN_MS;
    if (keep) {
        snprintf(seen, sizeof(seen), "%s", old_seen);
    } else if (row->last_seen_ms > 0) {
        kc_rfc3339(row->last_seen_ms, row->health == KP_DEAD, seen);
    }
    if (!kc_uuid_is_zero(&row->incarnation)) {
        kc_uuid_to_b64(&row->incarnation, incarnation);
    }
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:b, s:i, s:i, s:s, s:s, s:s}", "id", (int)row->id,
                          "host", row->host, "state", kp_state_name(row->state), "health",
                          kp_health_name(row->health), "ready", (int)row->slice_ready, "partitions",
                          (int)row->partitions, "slots", (int)row->slots, "incarnation",
                          incarnation, "version", row->version, "reason", why_of(row));
    if (j && *seen) {
        json_object_set_new(j, "lastSeen", json_string(seen));
    }
    return j;
}

static void append(char *out, size_t cap, const char *name, int32_t id)
{
    size_t len = strlen(out);
    char item[80];
    snprintf(item, sizeof(item), "%.50s-%d", name, id);
    snprintf(out + len, cap - len, "%s%s", len ? "," : "", item);
}

/* The oldest of those that run. */
static void add_version(char *out, size_t cap, const char *version)
{
    if (*version && (!*out || strverscmp(version, out) < 0)) {
        snprintf(out, cap, "%s", version);
    }
}

static void sum_row(struct sums *s, const struct ko_rc *c, const struct kp_row *row)
{
    const char *name = c->spec->name;
    s->serving += row->state == KP_SERVING;
    s->alive += row->health != KP_DEAD;
    s->stalled += row->reason == KP_REASON_STALLED;
    if (row->volume != KP_VOLUME_WRITABLE && s->volume == KP_VOLUME_WRITABLE) {
        s->volume = row->volume;
        snprintf(s->volume_text, sizeof(s->volume_text), "broker %.50s-%d refuses records: %s",
                 name, row->id, kp_volume_name(row->volume));
    }
    add_version(s->version, sizeof(s->version), row->version);
    if (row->state == KP_STATE_DRAINING) {
        s->draining++;
        append(s->draining_names, sizeof(s->draining_names), name, row->id);
    } else if (row->state == KP_FENCED) {
        s->fenced++;
        append(s->fenced_names, sizeof(s->fenced_names), name, row->id);
    }
    if (row->silent) {
        s->silent++;
        append(s->silent_names, sizeof(s->silent_names), name, row->id);
    }
    bool planned = row->reason == KP_REASON_BOOTING || row->reason == KP_REASON_NEVER_SEEN ||
                   row->reason == KP_REASON_DRAINED;
    if (row->state == KP_FENCED && !(planned && c->rolling) && row->reason != KP_REASON_BOOTING) {
        if (s->faulty++ == 0) {
            const char *why = kp_reason_name(row->reason);
            snprintf(s->first_fault, sizeof(s->first_fault), "broker %.50s-%d is fenced%s%s", name,
                     row->id, *why ? ": " : "", why);
        }
    }
}

/* A rollout or scaling is under way until every broker is updated and, after that, available once, with
 * every partition at its home. A crash later is not progress (it is Degraded). A StatefulSet that has
 * yet to be seen as it was written counts, too: nobody may be told of an end before the beginning. */
static bool rolling(const struct ko_rc *c)
{
    const json_t *s = c->sts;
    int64_t want = c->spec->replicas;
    if (!s ||
        (*c->template_hash && strcmp(ko_annotation(s, KO_TEMPLATE_HASH), c->template_hash) != 0) ||
        kc_json_int(s, "spec.replicas", -1) != want ||
        kc_json_int(s, "status.observedGeneration", -1) < ko_generation(s) ||
        kc_json_int(s, "status.replicas", 0) != want ||
        kc_json_int(s, "status.updatedReplicas", 0) != want) {
        return true;
    }
    bool home = c->view && c->view->active && c->view->away == 0;
    return c->rolling && (kc_json_int(s, "status.availableReplicas", 0) < want || !home);
}

/* Running pods of the cluster whose broker has no heartbeat. */
static int32_t silent_pods(struct ko_rec *r, const struct ko_rc *c)
{
    int32_t n = 0;
    for (int32_t i = 0; c->view && i < c->view->n_rows; i++) {
        const struct kp_row *row = &c->view->rows[i];
        char key[KO_KEY_MAX];
        snprintf(key, sizeof(key), "%s/%s-%d", c->spec->ns, c->spec->name, row->id);
        const struct ko_pod *p = ko_rec_find(&r->pods, key);
        n += p && p->running && row->health == KP_DEAD &&
             (row->reason == KP_REASON_LOST || row->reason == KP_REASON_NEVER_SEEN);
    }
    return n;
}

static void ready_condition(struct ko_cond_list *l, const struct ko_rc *c, const struct sums *s)
{
    char text[300];
    const struct ko_view *v = c->view;
    if (*c->invalid) {
        ko_cond_add(l, "Ready", "False", "InvalidSpec", c->invalid);
    } else if (!v || !v->active) {
        ko_cond_add(l, "Ready", "Unknown", "NoDecision", "the controller has not decided yet");
    } else if (s->serving < c->spec->replicas) {
        snprintf(text, sizeof(text), "%d of %d brokers serve%s%.150s", s->serving,
                 c->spec->replicas, *s->fenced_names ? "; fenced: " : "", s->fenced_names);
        ko_cond_add(l, "Ready", "False", "BrokersNotServing", text);
    } else if (v->offline > 0) {
        snprintf(text, sizeof(text), "%d partitions are offline", v->offline);
        ko_cond_add(l, "Ready", "False", "PartitionsOffline", text);
    } else if (s->silent > 0) {
        snprintf(text, sizeof(text), "a report is overdue of %.200s", s->silent_names);
        ko_cond_add(l, "Ready", "Unknown", "BrokersSilent", text);
    } else {
        snprintf(text, sizeof(text), "all %d brokers serve", c->spec->replicas);
        ko_cond_add(l, "Ready", "True", "AllBrokersServing", text);
    }
}

/* Whether what holds now has held for long enough; *since keeps when it began. */
static bool lasting(bool holds, int64_t *since, int64_t now_ms, int64_t long_ms)
{
    *since = !holds ? 0 : *since ? *since : now_ms;
    return holds && now_ms - *since >= long_ms;
}

/* Conditions about what should not last: one look alone says little. */
static void watch_conditions(struct ko_cond_list *l, struct ko_rec *r, struct ko_rc *c,
                             int64_t now_ms)
{
    char text[200] = "";
    int32_t silent = silent_pods(r, c), differs = -1;
    bool blocked = lasting(silent > 0, &c->blocked_since_ms, now_ms, BLOCKED_MS);
    if (blocked) {
        snprintf(text, sizeof(text), "%d running broker(s) send no heartbeat; see their logs",
                 silent);
    }
    ko_cond_add(l, "HeartbeatsBlocked", blocked ? "True" : "False",
                blocked ? "NoHeartbeat" : "HeartbeatsArrive", text);
    for (int32_t i = 0; c->view && i < c->view->n_rows; i++) {
        const struct kp_row *row = &c->view->rows[i];
        if (row->health == KP_ALIVE && row->serving != row->slice_ready) {
            differs = row->id;
        }
    }
    bool disagree = lasting(differs >= 0, &c->disagree_since_ms, now_ms, DISAGREE_MS);
    text[0] = '\0';
    if (disagree) {
        snprintf(text, sizeof(text),
                 "broker %.50s-%d says one thing about its readiness, its EndpointSlice another",
                 c->spec->name, differs);
    }
    ko_cond_add(l, "ReadinessDisagrees", disagree ? "True" : "False",
                disagree ? "HeartbeatAndSliceDiffer" : "AsExpected", text);
}

static void other_conditions(struct ko_cond_list *l, struct ko_rec *r, struct ko_rc *c,
                             const struct sums *s, int64_t now_ms)
{
    char text[500];
    int32_t updated = (int32_t)kc_json_int(c->sts, "status.updatedReplicas", 0);
    int32_t available = (int32_t)kc_json_int(c->sts, "status.availableReplicas", 0);
    snprintf(text, sizeof(text), "%d of %d brokers are updated, %d available%s%.380s", updated,
             c->spec->replicas, available, *c->roll_text && c->rolling ? "; " : "",
             c->rolling ? c->roll_text : "");
    ko_cond_add(l, "Progressing", c->rolling ? "True" : "False",
                !c->rolling       ? "RolloutComplete"
                : *c->roll_reason ? c->roll_reason
                                  : "RollingOut",
                text);
    bool unwritten = s->volume != KP_VOLUME_WRITABLE;
    bool bad = *c->invalid || *c->error || s->faulty > 0 || c->halt.on || unwritten ||
               (c->view && c->view->offline > 0);
    ko_cond_add(l, "Degraded", bad ? "True" : "False",
                *c->invalid  ? "InvalidSpec"
                : *c->error  ? "ApplyFailed"
                : s->faulty  ? "BrokersFenced"
                : c->halt.on ? "RolloutHalted"
                : unwritten  ? ko_volume_reason(s->volume)
                : bad        ? "PartitionsOffline"
                             : "AsExpected",
                *c->invalid  ? c->invalid
                : *c->error  ? c->error
                : s->faulty  ? s->first_fault
                : c->halt.on ? c->halt.text
                : unwritten  ? s->volume_text
                : bad        ? "a partition failed for a permanent reason"
                             : "");
    ko_cond_add(l, "StorageReady",
                s->stalled || unwritten ? "False"
                : s->alive              ? "True"
                                        : "Unknown",
                s->stalled  ? "StorageStalled"
                : unwritten ? ko_volume_reason(s->volume)
                : s->alive  ? "VolumeAnswers"
                            : "NoBroker",
                s->stalled  ? "a broker's writes to the volume do not complete"
                : unwritten ? s->volume_text
                            : "");
    watch_conditions(l, r, c, now_ms);
}

static json_t *bootstrap(const struct ko_rec *r, const struct ko_rc *c)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < c->spec->n_listeners && !r->local_bootstrap; i++) {
        char text[400];
        snprintf(text, sizeof(text), "%s-bootstrap.%s.svc:%u", c->spec->name, c->spec->ns,
                 c->spec->listeners[i].port);
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", c->spec->listeners[i].name, "address", text));
    }
    if (r->local_bootstrap) {
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", c->spec->listeners[0].name,
                                              "address", r->local_bootstrap));
    }
    return list;
}

static const json_t *old_row(const struct ko_rc *c, int32_t id)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(c->status, "brokers"), i, v)
    {
        if (kc_json_int(v, "id", -1) == id) {
            return v;
        }
    }
    return NULL;
}

static void put_registry(json_t *st, const struct ko_rc *c, const struct sums *s,
                         int64_t now_wall_ms)
{
    const struct ko_view *v = c->view;
    json_t *rows = json_array();
    for (int32_t i = 0; i < v->n_rows; i++) {
        json_array_append_new(rows,
                              ko_row_json(&v->rows[i], old_row(c, v->rows[i].id), now_wall_ms));
    }
    json_object_set_new(st, "serving", json_integer(s->serving));
    json_object_set_new(st, "fencedBrokers", json_string(s->fenced_names));
    json_object_set_new(st, "drainingBrokers", json_string(s->draining_names));
    json_object_set_new(st, "partitions", json_integer(v->partitions));
    json_object_set_new(st, "offlinePartitions", json_integer(v->offline));
    json_object_set_new(st, "version", json_string(s->version));
    json_object_set_new(st, "brokers", rows);
    if (*v->order.uid) {
        json_object_set_new(st, "image",
                            json_pack("{s:s, s:I, s:I}", "uid", v->order.uid, "term",
                                      (json_int_t)v->order.term, "generation",
                                      (json_int_t)v->order.generation));
    }
}

/* The registry as it was, while nothing newer is known (operator just started). */
static void keep_registry(json_t *st, const struct ko_rc *c)
{
    static const char *const keys[] = {
        "serving",           "fencedBrokers", "drainingBrokers", "partitions",
        "offlinePartitions", "version",       "brokers",         "image"};
    for (size_t i = 0; i < KC_ARRAY_LEN(keys); i++) {
        json_t *v = json_object_get(c->status, keys[i]);
        if (v) {
            json_object_set(st, keys[i], v);
        } else if (i == 0) {
            json_object_set_new(st, keys[i], json_integer(0));
        }
    }
}

/* What kubectl wait compares with metadata.generation before it believes a condition. */
static int64_t observed(const struct ko_rc *c)
{
    int64_t told = kc_json_int(c->status, "observedGeneration", 0);
    return KC_MAX(c->acted_generation, told);
}

json_t *ko_status_build(struct ko_rec *r, struct ko_rc *c, int64_t now_mono_ms, int64_t now_wall_ms)
{
    struct sums s = {0};
    char selector[300];
    json_t *st = json_object(), *conds = json_array();
    struct ko_cond_list l = {conds, json_object_get(c->status, "conditions"), observed(c)};
    json_object_set_new(st, "observedGeneration", json_integer(l.generation));
    if (!c->spec) { /* never had a valid spec: nothing to tell but why */
        ko_cond_add(&l, "Ready", "False", "InvalidSpec", c->invalid);
        ko_cond_add(&l, "Degraded", "True", "InvalidSpec", c->invalid);
        json_object_set_new(st, "conditions", conds);
        return st;
    }
    c->rolling = rolling(c);
    c->halt.on = c->halt.on && c->rolling; /* of a crash later nobody waits for a rollout */
    for (int32_t i = 0; c->view && i < c->view->n_rows; i++) {
        sum_row(&s, c, &c->view->rows[i]);
    }
    ko_build_selector(c->spec, selector, sizeof(selector));
    json_object_set_new(st, "desired", json_integer(c->spec->replicas));
    json_object_set_new(st, "replicas", json_integer(kc_json_int(c->sts, "status.replicas", 0)));
    json_object_set_new(st, "selector", json_string(selector));
    json_object_set_new(st, "bootstrap", bootstrap(r, c));
    json_t *rollout = ko_rollout_report(c, now_wall_ms);
    if (rollout) {
        json_object_set_new(st, "lastRollout", rollout);
    }
    if (c->view) {
        put_registry(st, c, &s, now_wall_ms);
    } else {
        keep_registry(st, c);
    }
    ready_condition(&l, c, &s);
    other_conditions(&l, r, c, &s, now_mono_ms);
    json_object_set_new(st, "conditions", conds);
    return st;
}
