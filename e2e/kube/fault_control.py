"""Faults of the control plane: operators and the API server away, watches cut, EndpointSlices made by somebody else."""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

from kaaslib import kube
from kaaslib.kube import get, kubectl
from kaaslib.proc import ended, stopped
from kaaslib.recorded import fault
from kaaslib.runner import check, eventually, hold

AWAY_S = 60 if os.environ.get("KAAS_SOAK") else 15
ETCD = "http://127.0.0.1:2379"
SLICE = "by-hand"


@fault(out=0, group_errors=False)
def both_operators_are_down(c, t):
    replicas = get("deployment", "kaas-operator", kube.SYSTEM)["spec"]["replicas"]
    t0, leaders = time.monotonic(), c.leaders(t.load.topic)
    kubectl("scale", "deployment", "kaas-operator", "-n", kube.SYSTEM, "--replicas=0")
    try:
        eventually(lambda: not kube.operators(), 60, what="no operator runs")
        t1 = time.monotonic()
        hold(lambda: c.leaders(t.load.topic) == leaders, AWAY_S, 0.5, "nothing moves")
    finally:
        kubectl("scale", "deployment", "kaas-operator", "-n", kube.SYSTEM, f"--replicas={replicas}")
    eventually(lambda: kube.lease_holder().rsplit("_", 1)[0] in kube.operators(), 60, what="an operator again")
    back = time.monotonic()
    hold(lambda: c.leaders(t.load.topic) == leaders, 5, 0.5, "nothing moves when they are back")
    c.create_topic("after-operators", 1)
    t.without(t0, back)
    return f"{back - t1:.0f} s without an operator"


def api_answers():
    return kubectl("get", "--raw", "/readyz", ok=False, timeout_s=10).returncode == 0


@fault(out=0, group_errors=False)
def the_api_server_is_stopped(c, t):
    t0, leaders = time.monotonic(), c.leaders(t.load.topic)
    with stopped(kube.apiserver_pid()):
        hold(lambda: c.leaders(t.load.topic) == leaders, AWAY_S, 0.5, "nothing moves")
    eventually(api_answers, 60, 0.5, "the API server again")
    t.without(t0)
    c.create_topic("after-the-api-server", 1)
    return f"stopped for {AWAY_S} s"


def etcd(path, body):
    request = urllib.request.Request(f"{ETCD}/v3/kv/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as r:
        return json.load(r)


def compact():
    """Forgets every version but the newest: whoever watches from an older one is told 410 Gone."""
    revision = etcd("range", {"key": "AA=="})["header"]["revision"]
    etcd("compaction", {"revision": revision, "physical": True})


def restart_api_server():
    """Ends the API server at once and starts it as it was: all connections are cut, its watch cache begins anew."""
    pid = kube.apiserver_pid()
    argv = pathlib.Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: ended(pid), 10, what="its end")
    compact()
    with open(pathlib.Path(os.environ["KC_RUN"]) / "log/kube-apiserver.log", "ab") as log:
        proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    pathlib.Path("/run/kc/kube-apiserver.pid").write_text(str(proc.pid))
    eventually(api_answers, 60, 0.5, "the API server again")


def slice_of(c, endpoints):
    """Labelled as the Service's own slices are, else nobody would look at it."""
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [],
            "metadata": {"name": f"{c.name}-{SLICE}", "namespace": kube.NAMESPACE,
                         "labels": {"kubernetes.io/service-name": f"{c.name}-brokers", "kaas.dev/cluster": c.name,
                                    "endpointslice.kubernetes.io/managed-by": "by-hand.example.com"}},
            "endpoints": endpoints}


def endpoint(hostname, pod=None, ready=True):
    """The address is the broker's own where there is one: the cluster's DNS believes every slice."""
    own = kubectl("get", "pod", hostname, "-o", "jsonpath={.status.podIP}", "--ignore-not-found")
    out = {"addresses": [own or "10.99.99.99"], "hostname": hostname, "conditions": {"ready": ready, "serving": ready}}
    if pod:
        out["targetRef"] = {"kind": "Pod", "namespace": kube.NAMESPACE, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    return out


def delete_slice(c):
    kubectl("delete", "endpointslice", f"{c.name}-{SLICE}", "--ignore-not-found")


@fault(out=1)
def watches_are_cut_and_too_old(c, t):
    """While the operators stand still a slice and a pod go; their watches then begin from a version that is forgotten."""
    apply_slice(c, [endpoint("demo-1", get("pod", "demo-1"))])
    t0, old = time.monotonic(), c.pods()["demo-2"]
    try:
        with stopped(*kube.operators().values()):
            delete_slice(c)
            kubectl("delete", "pod", "demo-2", "--grace-period=1", "--wait=true", timeout_s=90)
            eventually(lambda: c.pods().get("demo-2", old) != old, 30, what="the next pod")
            restart_api_server()
    finally:
        delete_slice(c)
    t.came_back(2, t0)
    t.without(t0)
    topic = f"after-gone-{int(time.time())}"
    c.create_topic(topic, 1)
    eventually(lambda: topic in kubectl("get", "kaastopics"), 20, what="the topic as an object")
    kubectl("delete", "kaastopic", topic, "--timeout=30s")
    eventually(lambda: c.metadata([topic])["topics"][topic]["error"] == 3, 30, what="its end as clients see it")
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "rows changed", t.ids(t0, time.monotonic()))


def pod_without_an_ordinal():
    """A pod that belongs to the StatefulSet, as far as anybody can tell, and whose name ends in no number. It never runs."""
    sts = get("statefulset", "demo")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo", "uid": sts["metadata"]["uid"]}
    doc = {"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": "demo-x", "namespace": kube.NAMESPACE, "labels": {"kaas.dev/cluster": "demo"}, "ownerReferences": [owner]},
           "spec": {"schedulerName": "nobody", "containers": [{"name": "none", "image": "localhost/none:none"}]}}
    kubectl("apply", "-f", "-", stdin=json.dumps(doc))
    return get("pod", "demo-x")


def apply_slice(c, endpoints):
    kubectl("apply", "-f", "-", stdin=json.dumps(slice_of(c, endpoints)))


@fault(out=0, group_errors=False)
def a_second_slice_by_hand_admits_nobody(c, t):
    pod, foreign = get("pod", "demo-1"), get("pods", namespace=kube.SYSTEM)["items"][0]
    t0, leaders = time.monotonic(), c.leaders(t.load.topic)
    cases = [("a foreign ordinal", [endpoint("demo-7"), endpoint("demo-8", pod), endpoint("other-0", foreign), endpoint("demo-x")]),
             ("a foreign pod behind a known ordinal", [endpoint("demo-0", foreign), endpoint("demo-2")]),
             ("a pod without an ordinal", [endpoint("demo-x", pod_without_an_ordinal())]),
             ("a known pod twice, not ready", [endpoint("demo-1", pod, ready=False), endpoint("demo-1", pod)]),
             ("nothing", [])]
    try:
        for what, endpoints in cases:
            apply_slice(c, endpoints)
            hold(lambda: t.line.now(("ids",)) == (0, 1, 2) and t.line.now(("serving",)) == 3, 3, 0.1, what)
        events = eventually(lambda: [e for e in get("events")["items"] if e["reason"] == "ForeignEndpoint" and SLICE in e["message"]],
                            20, 0.5, "an Event about foreign endpoints")
    finally:
        delete_slice(c)
        kubectl("delete", "pod", "demo-x", "--grace-period=0", "--force", "--ignore-not-found")
    hold(lambda: t.line.now(("ids",)) == (0, 1, 2) and t.line.now(("serving",)) == 3, 3, 0.1, "its deletion takes nobody")
    check(c.leaders(t.load.topic) == leaders, "partitions moved")
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "rows changed", t.ids(t0, time.monotonic()))
    return f"{len(events)} Events"


@fault()
def slices_by_hand_take_nobody_whom_another_lists(c, t):
    """A broker that is not wanted any more stays for as long as the Service's own slice lists it, whatever other slices say or have
    said (R4 to R6, R27). It is frozen: it neither hands over nor ends before the grace period is over."""
    t0, pid = time.monotonic(), c.pid(2)
    pods = {n: get("pod", f"demo-{n}") for n in range(3)}
    cases = [[0], [0, 1], [2, 1], [1], [2], []]
    try:
        with stopped(pid):
            c.scale(2)
            t.wait(("desired",), lambda n: n == 2, t0)
            for case in cases:
                if case:
                    apply_slice(c, [endpoint(f"demo-{n}", pods[n]) for n in case])
                else:
                    delete_slice(c)
                hold(lambda: t.line.now(("ids",)) == (0, 1, 2), 1, 0.05, f"a slice by hand lists {case}: all are registered")
            check(get("pod", "demo-2")["metadata"].get("deletionTimestamp"), "its pod was not on its way out")
    finally:
        delete_slice(c)
    after = t.wait(("ids",), lambda ids: ids == (0, 1), t0, 60)
    c.settle(2)
    c.scale(3)
    return f"it left after {after:.1f} s, with its pod"
