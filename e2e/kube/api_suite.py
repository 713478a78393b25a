#!/usr/bin/env python3
"""The custom resources and the chart against a real API server: what it accepts, refuses, defaults and prints. No operator
is needed.

Runs where kubectl reaches a cluster: e2e/kube/kenv python3 e2e/kube/api_suite.py [NAME...]"""

import copy
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "e2e"))
from kaaslib import runner  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

CHART = ROOT / "helm" / "kaas"
NS = f"crd-test-{os.getpid()}"
CLUSTER = {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasCluster", "metadata": {"name": "demo", "namespace": NS},
           "spec": {"storage": {"existingClaim": "data"}}}
TOPIC = {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasTopic", "metadata": {"name": "orders", "namespace": NS},
         "spec": {"cluster": "demo", "partitions": 3}}


class Kubectl:
    def __call__(self, *args, doc=None):
        """(exit code, all output)."""
        r = subprocess.run(["kubectl", "-n", NS, *args], input=json.dumps(doc) if doc else None, capture_output=True,
                           text=True, timeout=60, check=False)
        return r.returncode, (r.stdout + r.stderr).strip()

    def ok(self, *args, doc=None):
        code, out = self(*args, doc=doc)
        check(code == 0, "kubectl", *args, ":", out)
        return out

    def apply(self, doc):
        return self.ok("apply", "--server-side", "--force-conflicts", "-f", "-", doc=doc)

    def get(self, *args):
        return json.loads(self.ok("get", *args, "-o", "json"))

    def status(self, kind, name, status):
        self.ok("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def changed(base, path, value):
    """base with the value at a dotted path; None removes it, the text "null" sets null."""
    doc = copy.deepcopy(base)
    node, keys = doc, path.split(".")
    for k in keys[:-1]:
        node = node.setdefault(k, {})
    if value is None:
        node.pop(keys[-1], None)
    else:
        node[keys[-1]] = None if value == "null" else value
    return doc


def refuse(k, doc, *words):
    code, out = k("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", doc=doc)
    check(code != 0, "accepted:", doc)
    for w in words:
        check(w in out, f"the message lacks {w!r}:", out)


def accept(k, doc):
    k.ok("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", doc=doc)


KINDS = ("kaasclusters", "kaasbrokers", "kaastopics", "kaasusers")


def prepare(k):
    k.ok("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    k.ok("wait", "--for=condition=established", *[f"crd/{name}.kaas.dev" for name in KINDS], "--timeout=30s")
    k.ok("create", "namespace", NS)
    eventually(lambda: k("get", "kaas")[0] == 0, 30, what="the category kaas")  # discovery may lag a second
    k.apply(CLUSTER)


@scenario
def the_crds_are_structural(k):
    for name in KINDS:
        crd = k.get(f"crd/{name}.kaas.dev")
        bad = [c for c in crd["status"]["conditions"] if c["type"] == "NonStructuralSchema" and c["status"] == "True"]
        check(not bad, bad)


@scenario
def a_minimal_cluster_gets_its_defaults(k):
    spec = k.get("kaascluster", "demo")["spec"]
    want = {"replicas": 3, "minReadySeconds": 60, "terminationGracePeriodSeconds": 30, "unsafeStorage": False,
            "heartbeat": {"interval": "1s", "timeout": "3s"}, "limits": {"topics": 2000, "partitions": 20000},
            "listeners": [{"name": "internal", "port": 9092, "type": "internal"}],
            "storage": {"existingClaim": "data", "deleteClaim": False}}
    check(spec == want, "defaults:", spec)


BAD_CLUSTERS = [
    ("spec.replicas", 0, "spec.replicas must be 1 to 128"),
    ("spec.replicas", 129, "spec.replicas must be 1 to 128"),
    ("spec.minReadySeconds", -1, "spec.minReadySeconds must be 0 to 3600"),
    ("spec.terminationGracePeriodSeconds", 5, "spec.terminationGracePeriodSeconds must be 10 to 3600"),
    ("spec.storage", None, "spec.storage"),
    ("spec.storage", {}, "exactly one of existingClaim, claimTemplate and hostPath"),
    ("spec.storage.hostPath", "/srv", "exactly one of existingClaim, claimTemplate and hostPath"),
    ("spec.storage", {"hostPath": "srv/x"}, "absolute path"),
    ("spec.storage", {"existingClaim": "a", "deleteClaim": True}, "goes with claimTemplate only"),
    ("spec.storage", {"claimTemplate": {"resources": {"requests": {}}}}, "must name the size"),
    ("spec.storage", {"claimTemplate": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
     "ReadWriteMany"),
    ("spec.listeners", [], "spec.listeners"),
    ("spec.listeners", [{"name": "a", "port": 1}, {"name": "a", "port": 2}], "spec.listeners: duplicate entries for key"),
    ("spec.listeners", [{"name": "a", "port": 1}, {"name": "b", "port": 1}], "a port of their own"),
    ("spec.listeners", [{"name": "a", "port": 8080}], "not 8080"),
    ("spec.listeners", [{"name": "A", "port": 1}], "lower-case letters"),
    ("spec.listeners", [{"name": "a", "port": 1, "tls": True}], "tls is not supported yet"),
    ("spec.listeners", [{"name": "a", "port": 1, "authentication": {"type": "plain"}}], "authentication is not supported yet"),
    ("spec.listeners", [{"name": "a", "port": 1, "type": "nodeport"}], "not supported yet; use internal"),
    ("spec.listeners", [{"name": "a", "port": 1, "type": "magic"}], "Unsupported value"),
    ("spec.authorization", {"type": "acl"}, "spec.authorization is not supported yet"),
    ("spec.config", {"node.id": 1}, "the operator decides these"),
    ("spec.config", {"zookeeper.connect": "a"}, "the operator decides these"),
    ("spec.config", {"Num.Partitions": 1}, "lower-case Kafka names"),
    ("spec.heartbeat", {"interval": "1s", "timeout": "1500ms"}, "at least twice spec.heartbeat.interval"),
    ("spec.heartbeat", {"interval": "1h"}, "spec.heartbeat.interval"),
    ("spec.heartbeat", {"interval": "20s", "timeout": "60s"}, "200ms to 10s"),
    ("spec.limits", {"partitions": 200000}, "spec.limits.partitions must be 1 to 100000"),
    ("spec.replica", 3, "replica"),
    ("spec.replicas", -1, "spec.replicas must be 1 to 128"),
    ("spec.terminationGracePeriodSeconds", 3601, "spec.terminationGracePeriodSeconds must be 10 to 3600"),
    ("spec.image", "kaas :1", "without blanks"),
    ("spec.storage", {"existingClaim": "Data"}, "must be the name of a PersistentVolumeClaim"),
    ("spec.storage", {"claimTemplate": {"resources": {"requests": {"storage": "lots"}}}}, "spec.storage.claimTemplate.resources.requests"),
    ("spec.storage", {"claimTemplate": {"storageClassName": "A B", "resources": {"requests": {"storage": "1Gi"}}}}, "storage class"),
    ("spec.resources", {"limits": {"memory": "1GB!"}}, "spec.resources.limits.memory"),
    ("spec.listeners", [{"name": "health", "port": 1}], "must not be health"),
    ("spec.listeners", [{"name": "a", "port": 70000}], "must be 1 to 65535"),
    ("spec.rack", {"topologyKey": "zone/"}, "key of a node label"),
    ("spec.podTemplate", {"spec": {"terminationGracePeriodSeconds": 60}}, "set spec.terminationGracePeriodSeconds"),
    ("metadata.name", "9lives", "a letter first"),
    ("metadata.name", "a" * 41, "at most 40"),
]


@scenario
def bad_clusters_are_refused_with_the_field_and_the_fix(k):
    fresh = changed(CLUSTER, "metadata.name", "bad")
    for path, value, *words in BAD_CLUSTERS:
        refuse(k, changed(fresh, path, value), *words)
    return f"{len(BAD_CLUSTERS)} specs"


@scenario
def good_clusters_are_accepted(k):
    fresh = changed(CLUSTER, "metadata.name", "other")
    for path, value in [("spec.minReadySeconds", 0), ("spec.minReadySeconds", "null"), ("spec.replicas", 1),
                        ("spec.storage", {"hostPath": "/srv/shared"}),
                        ("spec.storage", {"claimTemplate": {"resources": {"requests": {"storage": "1Gi"}}}, "deleteClaim": True}),
                        ("spec.config", {"num.partitions": 3, "auto.create.topics.enable": "true"}),
                        ("spec.heartbeat", {"interval": "500ms", "timeout": "2s"}),
                        ("spec.podTemplate", {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"a": "b"}}}),
                        ("spec.rack", {"topologyKey": "topology.kubernetes.io/zone"}),
                        ("spec.image", "registry.example:5000/kaas/broker@sha256:" + 64 * "a"),
                        ("spec.storage", {"existingClaim": "data.v2"}),
                        ("spec.resources", {"requests": {"cpu": "0.5"}, "limits": {"cpu": 1, "memory": "1Gi"}})]:
        accept(k, changed(fresh, path, value))


@scenario
def storage_cannot_be_exchanged(k):
    refuse(k, changed(CLUSTER, "spec.storage.existingClaim", "other"), "spec.storage is immutable")
    refuse(k, changed(CLUSTER, "spec.storage", {"hostPath": "/srv"}), "spec.storage is immutable")
    accept(k, CLUSTER)


@scenario
def clusters_print_the_columns_of_the_design(k):
    k.status("kaascluster", "demo", {
        "desired": 3, "serving": 2, "fencedBrokers": "demo-1", "drainingBrokers": "", "partitions": 48, "offlinePartitions": 0,
        "version": "0.1.0", "replicas": 3, "selector": "kaas.dev/cluster=demo", "observedGeneration": 1,
        "bootstrap": [{"name": "internal", "address": "demo-bootstrap.ns.svc:9092"}],
        "brokers": [{"id": 1, "host": "demo-1", "state": "Fenced", "health": "Dead", "ready": False,
                     "lastSeen": "2026-01-02T03:04:05Z", "partitions": 0, "slots": 0, "incarnation": "x", "version": "0.1.0",
                     "reason": "lost"}],
        "image": {"uid": "u", "term": 1, "generation": 7}, "lastRollout": {"revision": "demo-1"},
        "conditions": [{"type": "Ready", "status": "False", "reason": "BrokersFenced", "message": "demo-1 is fenced",
                        "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
    head, row = k.ok("get", "kaasclusters").splitlines()
    check(head.split() == "NAME DESIRED SERVING FENCED DRAINING PARTITIONS OFFLINE VERSION READY AGE".split(), head)
    check(row.split()[:8] == ["demo", "3", "2", "demo-1", "48", "0", "0.1.0", "False"], row)
    k.ok("wait", "--for=condition=Ready=False", "kaascluster/demo", "--timeout=5s")
    wide = k.ok("get", "kaasc", "-o", "wide")
    check("demo-bootstrap.ns.svc:9092" in wide and "BrokersFenced" in wide, wide)


@scenario
def status_and_spec_are_apart(k):
    before = k.get("kaascluster", "demo")["metadata"]["generation"]
    k.status("kaascluster", "demo", {"serving": 3})
    check(k.get("kaascluster", "demo")["metadata"]["generation"] == before, "a status write is no change of the spec")
    k.ok("patch", "kaascluster", "demo", "--type=merge", "-p", '{"status": {"serving": 9}}')
    check(k.get("kaascluster", "demo")["status"]["serving"] == 3, "a spec write leaves the status alone")


@scenario
def kubectl_scale_works_and_obeys_the_rules(k):
    k.status("kaascluster", "demo", {"replicas": 3, "selector": "kaas.dev/cluster=demo"})
    k.ok("scale", "kaascluster/demo", "--replicas=2")
    check(k.get("kaascluster", "demo")["spec"]["replicas"] == 2)
    scale = json.loads(k.ok("get", "--raw", f"/apis/kaas.dev/v1alpha1/namespaces/{NS}/kaasclusters/demo/scale"))
    check(scale["status"] == {"replicas": 3, "selector": "kaas.dev/cluster=demo"}, scale["status"])
    code, out = k("scale", "kaascluster/demo", "--replicas=0")
    check(code != 0 and "spec.replicas must be 1 to 128" in out, out)


@scenario
def brokers_print_like_nodes(k):
    k.apply({"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasBroker", "metadata": {"name": "demo-1", "namespace": NS},
             "spec": {"cluster": "demo", "id": 1}})
    k.status("kaasbroker", "demo-1", {"state": "Fenced", "health": "Dead", "reason": "lost", "partitions": 0, "slots": 0,
                                      "version": "0.1.0", "lastSeen": "2026-01-02T03:04:05Z", "host": "demo-1", "node": "n1",
                                      "ready": False, "incarnation": "x", "podUID": "u", "rack": "r"})
    head, row = k.ok("get", "kaasbrokers").splitlines()
    check(head.split() == "NAME STATE HEALTH REASON PARTITIONS SLOTS VERSION AGE".split(), head)
    check(row.split()[:7] == ["demo-1", "Fenced", "Dead", "lost", "0", "0", "0.1.0"], row)
    check("LAST-SEEN" in k.ok("get", "kaasb", "-o", "wide"))


@scenario
def topics_are_checked_and_printed(k):
    k.apply(TOPIC)
    for path, value, *words in [
            ("spec.cluster", "other", "spec.cluster is immutable"),
            ("spec.topicName", "Orders", "spec.topicName is immutable"),
            ("spec.partitions", 2, "can only be raised"),
            ("spec.partitions", 0, "1 to 20000"),
            ("spec.config", {"Retention": 1}, "lower-case Kafka names")]:
        refuse(k, changed(TOPIC, path, value), *words)
    fresh = changed(TOPIC, "metadata.name", "other")
    refuse(k, changed(fresh, "spec.topicName", "__consumer_offsets"), "internal topic")
    refuse(k, changed(fresh, "spec.topicName", ".."), "spec.topicName must be")
    refuse(k, changed(fresh, "spec.cluster", "Demo"), "spec.cluster must be the name of a KaasCluster")
    refuse(k, changed(fresh, "spec.replicationFactor", 0), "spec.replicationFactor must be 1 to 32767")
    refuse(k, changed(fresh, "spec.topicName", "a b"), "spec.topicName must be")
    refuse(k, changed(fresh, "metadata.name", "a" * 250), "set spec.topicName")
    accept(k, changed(TOPIC, "spec.partitions", 4))
    accept(k, changed(fresh, "spec.topicName", "Orders_v2"))
    k.status("kaastopic", "orders", {"topicName": "orders", "topicId": "abc", "partitions": 3, "conditions": [
        {"type": "Ready", "status": "True", "reason": "Led", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
    head, row = k.ok("get", "kaastopics").splitlines()
    check(head.split() == "NAME CLUSTER TOPIC PARTITIONS READY AGE".split(), head)
    check(row.split()[:5] == ["orders", "demo", "orders", "3", "True"], row)


@scenario
def users_have_a_schema(k):
    k.apply({"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasUser", "metadata": {"name": "alice", "namespace": NS},
             "spec": {"cluster": "demo", "authentication": {"type": "scram-sha-512"},
                      "acls": [{"resource": {"type": "topic", "name": "orders"}, "operations": ["Read"]}]}})
    check("alice" in k.ok("get", "kaas"))


def undocumented(schema, path):
    """Fields without a description."""
    for name, sub in schema.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            if not sub.get("description"):
                yield f"{path}.{name}"
            yield from undocumented(sub, f"{path}.{name}")
    if "items" in schema:
        yield from undocumented(schema["items"], path + "[]")


@scenario
def every_field_is_explained(k):
    for name in KINDS:
        crd = k.get(f"crd/{name}.kaas.dev")
        bare = list(undocumented(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], ""))
        check(not bare, name, "without description:", bare)
    text = k.ok("explain", "kaascluster.spec.storage")
    check("existingClaim" in text and "ReadWriteMany" in text, text)


def helm(*args, ok=True):
    r = subprocess.run(["helm", *args], capture_output=True, text=True, timeout=60, check=False)
    check(not ok or r.returncode == 0, "helm", *args, ":", r.stdout + r.stderr)
    return r.returncode, r.stdout, r.stderr


def render(*sets):
    return helm("template", "rel", str(CHART), "-n", NS, *[x for s in sets for x in ("--set-json", s)])[1]


@scenario
def the_chart_lints_and_has_the_crds(k):
    helm("lint", "--strict", str(CHART))
    for f in sorted((ROOT / "crds").glob("*.yaml")):
        check((CHART / "crds" / f.name).read_bytes() == f.read_bytes(), f.name)


@scenario
def bad_values_are_refused(k):
    for value, word in [("operator.replica=3", "replica"), ("operator.replicas=0", "replicas"), ("cluster.create=true", "storage"),
                        ('image.pullPolicy="Sometimes"', "pullPolicy"), ("broker.minReadySeconds=-1", "minReadySeconds")]:
        code, _, err = helm("template", "rel", str(CHART), "--set-json", value, ok=False)
        check(code != 0 and word in err, value, err or "accepted")


@scenario
def the_chart_renders_what_a_strict_server_accepts(k):
    k.ok("label", "namespace", NS, "pod-security.kubernetes.io/warn=restricted", "--overwrite")
    storage = 'cluster.spec={"storage": {"existingClaim": "x"}}'
    for sets in [(), ("operator.replicas=1",), ("cluster.create=true", storage),
                 ("cluster.create=true", storage, "broker.minReadySeconds=null"),
                 ('imagePullSecrets=["a"]', 'operator.nodeSelector={"a": "b"}', 'operator.tolerations=[{"operator": "Exists"}]',
                  'operator.podAnnotations={"a": "b"}', 'operator.podLabels={"c": "d"}', 'operator.priorityClassName="p"',
                  'serviceAccount.annotations={"a": "b"}')]:
        r = subprocess.run(["kubectl", "-n", NS, "apply", "--server-side", "--dry-run=server", "-o", "json", "-f", "-"],
                           input=render(*sets), capture_output=True, text=True, timeout=60, check=False)
        check(r.returncode == 0 and "Warning" not in r.stderr, sets, r.stderr)
        made = {(d["kind"], d["metadata"]["name"]): d for d in json.loads(r.stdout)["items"]}
        check(made["Service", "rel-heartbeat"]["spec"]["publishNotReadyAddresses"], "W3")
        check((("PodDisruptionBudget", "rel-operator") in made) == ("operator.replicas=1" not in sets), made.keys())
        if "cluster.create=true" in sets:
            want = None if "broker.minReadySeconds=null" in sets else 60
            check(made["KaasCluster", "kaas"]["spec"]["minReadySeconds"] == want, "R59", made["KaasCluster", "kaas"]["spec"])


@scenario
def the_operator_may_do_its_work_and_no_more(k):
    try:
        helm("upgrade", "--install", "rel", str(CHART), "-n", NS, "--skip-crds", "--set", "image.repository=localhost/none")
        me = f"--as=system:serviceaccount:{NS}:rel-operator"

        def may(verb, what, ns="default"):
            what, _, sub = what.partition(":")
            return k("auth", "can-i", verb, what, f"--subresource={sub}", me, "-n", ns)[1].startswith("yes")
        yes = [("watch", "kaasclusters.kaas.dev"), ("patch", "kaasclusters.kaas.dev:status"), ("create", "kaastopics.kaas.dev"),
               ("create", "statefulsets.apps"), ("patch", "statefulsets.apps"), ("update", "configmaps"), ("create", "services"),
               ("delete", "services"),
               ("create", "roles.rbac.authorization.k8s.io"), ("create", "tokenreviews.authentication.k8s.io"),
               ("watch", "endpointslices.discovery.k8s.io"), ("create", "events")]
        no = [("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("delete", "persistentvolumeclaims"), ("delete", "configmaps"),
              ("delete", "kaasclusters.kaas.dev"), ("update", "leases.coordination.k8s.io/kaas-operator"), ("create", "pods:exec"),
              ("escalate", "roles.rbac.authorization.k8s.io"), ("impersonate", "users")]
        check(all(may(*x) for x in yes), "missing rights:", [x for x in yes if not may(*x)])
        check(not any(may(*x) for x in no), "needless rights:", [x for x in no if may(*x)])
        check(may("update", "leases.coordination.k8s.io/kaas-operator", NS), "its Lease")
        # To grant brokers their Role the operator must hold what is in it (or the server refuses the escalation).
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "demo-broker", "namespace": NS},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["demo-image"],
                           "verbs": ["get", "list", "watch"]}]}
        k.ok("apply", "--server-side", "--dry-run=server", me, "-f", "-", doc=role)
        role["rules"][0]["resources"] = ["secrets"]
        code, out = k("apply", "--server-side", "--dry-run=server", me, "-f", "-", doc=role)
        check(code != 0 and "attempting to grant RBAC permissions not currently held" in out, out)
    finally:
        helm("uninstall", "rel", "-n", NS, "--ignore-not-found", ok=False)


class OperatorAside:
    """An operator would write what it thinks of the objects here: one that runs is put aside meanwhile."""
    TARGET = ("-n", "kaas-system", "deployment/kaas-operator")

    def __init__(self, k):
        self.k = k
        code, replicas = k("get", *self.TARGET, "-o", "jsonpath={.spec.replicas}")
        self.replicas = int(replicas) if code == 0 else 0

    def scale(self, n):
        if self.replicas:
            self.k.ok("scale", *self.TARGET, f"--replicas={n}")
            self.k.ok("rollout", "status", *self.TARGET, "--timeout=60s")

    def __enter__(self):
        self.scale(0)
        eventually(lambda: "No resources" in self.k("get", "pods", "-n", "kaas-system", "-l", "app.kubernetes.io/component=operator")[1],
                   30, what="the operator to end")

    def __exit__(self, *_):
        self.k("delete", "namespace", NS, "--timeout=60s")  # before an operator can take its objects for real
        self.scale(self.replicas)


def main():
    kubectl = Kubectl()
    with OperatorAside(kubectl):
        prepare(kubectl)
        return runner.run(kubectl, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
