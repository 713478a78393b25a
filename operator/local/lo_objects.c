#include "local/lo_objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_hash.h"
#include "base/kc_json.h"
#include "store/ko_object.h"

#define SERVICE_LABEL "kubernetes.io/service-name"

static json_t *owned_by(const json_t *sts)
{
    return json_pack("[{s:s, s:s, s:s, s:s, s:b}]", "apiVersion", "apps/v1", "kind", "StatefulSet",
                     "name", ko_name(sts), "uid", ko_uid(sts), "controller", 1);
}

void lo_revision(const json_t *sts, char out[11])
{
    char *text = kc_json_canonical(kc_json_at(sts, "spec.template"));
    uint64_t h = text ? kc_hash64(text, strlen(text)) : 0;
    snprintf(out, 11, "%010llx", (unsigned long long)(h & 0xffffffffffULL));
    free(text);
}

json_t *lo_pod_doc(const json_t *sts, int32_t ordinal, const char *revision)
{
    char name[280];
    snprintf(name, sizeof(name), "%s-%d", ko_name(sts), ordinal);
    json_t *doc = ko_doc_new(KO_POD, ko_ns(sts), name);
    json_t *meta = json_object_get(doc, "metadata");
    json_t *labels = json_deep_copy(kc_json_at(sts, "spec.template.metadata.labels"));
    if (!labels) {
        labels = json_object();
    }
    json_object_set_new(labels, "controller-revision-hash", json_string(revision));
    json_object_set_new(labels, "statefulset.kubernetes.io/pod-name", json_string(name));
    json_object_set_new(meta, "labels", labels);
    json_object_set_new(meta, "ownerReferences", owned_by(sts));
    /* The image is the pod's for life: restarted within it, the container is the same program. */
    json_object_set_new(doc, "spec",
                        json_pack("{s:s, s:s, s:s, s:I, s:[{s:s, s:s}]}", "hostname", name,
                                  "subdomain", kc_json_str(sts, "spec.serviceName", ""), "nodeName",
                                  "local", "terminationGracePeriodSeconds",
                                  (json_int_t)lo_pod_grace_s(kc_json_at(sts, "spec.template")),
                                  "containers", "name", "broker", "image",
                                  kc_json_str(sts, "spec.template.spec.containers.0.image", "")));
    return doc;
}

int64_t lo_pod_grace_s(const json_t *pod)
{
    return kc_json_int(pod, "spec.terminationGracePeriodSeconds", 30);
}

const char *lo_pod_program(const json_t *pod)
{
    const char *image = kc_json_str(pod, "spec.containers.0.image", "");
    return image[0] == '/' ? image : "";
}

/* As the kubelet words it: between two runs of a container it waits in CrashLoopBackOff. */
static json_t *container_state(const struct lo_pod_state *p)
{
    if (p->running) {
        return json_pack("{s:{}}", "running");
    }
    return json_pack("{s:{s:s}}", "waiting", "reason",
                     p->restarts > 0 ? "CrashLoopBackOff" : "ContainerCreating");
}

json_t *lo_pod_status_doc(const char *ns, const char *name, const struct lo_pod_state *p,
                          const char *since)
{
    json_t *doc = ko_doc_new(KO_POD, ns, name);
    json_t *ready = json_pack("{s:s, s:s, s:s}", "type", "Ready", "status",
                              p->ready ? "True" : "False", "lastTransitionTime", since);
    json_t *container = json_pack("{s:s, s:b, s:i, s:o}", "name", "broker", "ready", (int)p->ready,
                                  "restartCount", (int)p->restarts, "state", container_state(p));
    if (p->restarts > 0) {
        json_object_set_new(container, "lastState",
                            json_pack("{s:{s:i}}", "terminated", "exitCode", (int)p->exit_code));
    }
    json_object_set_new(doc, "status",
                        json_pack("{s:s, s:s, s:[o], s:[o]}", "phase",
                                  p->running ? "Running" : "Pending", "podIP", "127.0.0.1",
                                  "conditions", ready, "containerStatuses", container));
    return doc;
}

static json_t *endpoint(const json_t *sts, const struct lo_pod_state *p)
{
    char name[280];
    snprintf(name, sizeof(name), "%s-%d", ko_name(sts), p->ordinal);
    json_t *target = json_pack("{s:s, s:s, s:s, s:s}", "kind", "Pod", "namespace", ko_ns(sts),
                               "name", name, "uid", p->uid);
    json_t *conditions = json_pack("{s:b, s:b, s:b}", "ready", 1, "serving", (int)p->ready,
                                   "terminating", (int)p->terminating);
    return json_pack("{s:[s], s:o, s:s, s:o, s:s}", "addresses", "127.0.0.1", "conditions",
                     conditions, "hostname", name, "targetRef", target, "nodeName", "local");
}

json_t *lo_slice_doc(const json_t *sts, const struct lo_pod_state *pods, int32_t n)
{
    char name[300];
    const char *service = kc_json_str(sts, "spec.serviceName", "");
    snprintf(name, sizeof(name), "%s-local", service);
    json_t *doc = ko_doc_new(KO_ENDPOINTSLICE, ko_ns(sts), name);
    json_t *meta = json_object_get(doc, "metadata"), *endpoints = json_array();
    /* As in a cluster, slices carry the labels of their Service; ours has those of the set. */
    json_t *labels = json_deep_copy(kc_json_at(sts, "metadata.labels"));
    labels = labels ? labels : json_object();
    json_object_update_new(labels, json_pack("{s:s, s:s}", SERVICE_LABEL, service,
                                             "endpointslice.kubernetes.io/managed-by",
                                             "kaas-operator-local"));
    json_object_set_new(meta, "labels", labels);
    json_object_set_new(meta, "ownerReferences", owned_by(sts));
    for (int32_t i = 0; i < n; i++) {
        json_array_append_new(endpoints, endpoint(sts, &pods[i]));
    }
    json_object_set_new(doc, "addressType", json_string("IPv4"));
    json_object_set_new(doc, "endpoints", endpoints);
    return doc;
}

json_t *lo_sts_status_doc(const json_t *sts, const struct lo_sts_counts *n, const char *revision)
{
    json_t *doc = ko_doc_new(KO_STATEFULSET, ko_ns(sts), ko_name(sts));
    bool done = n->updated == n->replicas;
    json_object_set_new(
        doc, "status",
        json_pack("{s:I, s:i, s:i, s:i, s:i, s:s, s:s}", "observedGeneration",
                  (json_int_t)ko_generation(sts), "replicas", (int)n->replicas, "readyReplicas",
                  (int)n->ready, "availableReplicas", (int)n->available, "updatedReplicas",
                  (int)n->updated, "updateRevision", revision, "currentRevision",
                  done ? revision : kc_json_str(sts, "status.currentRevision", revision)));
    return doc;
}
