"""Rollouts and scaling under load: never more than one broker out, no failed send, and what goes wrong halts with a reason."""

import json
import os
import signal
import time

from kaaslib import kube
from kaaslib.kube import get, kubectl
from kaaslib.proc import stopped
from kaaslib.recorded import fault, within
from kaaslib.runner import check, eventually, hold, scenario

SOAK = bool(os.environ.get("KAAS_SOAK"))
ABSENT = "localhost/kaas:absent"  # no node has it, and there is nowhere to pull it from
HALT_S = 60 if SOAK else 15
ROLLS = int(os.environ.get("KAAS_ROLLS", "20"))
NOTE = "e2e/rolled"
OPERATOR_S = 6  # a new operator acts within
SILENT_OPERATOR_S = 9  # and has fenced a broker that was silent from the first
GAP_S = 8  # whoever dials an address that nobody has any more is gone for longer: Java waits 10 s, less 20 % at random (ADR 18)


def rolled(pods=()):
    """{ordinal: (value of NOTE, revision)} of the pods of demo."""
    out = {}
    for p in pods or get("pods")["items"]:
        meta = p["metadata"]
        if meta.get("labels", {}).get("kaas.dev/cluster") == "demo":
            out[int(meta["name"].rsplit("-", 1)[1])] = (meta.get("annotations", {}).get(NOTE), meta["labels"]["controller-revision-hash"])
    return out


def addressed():
    """The brokers of demo that have a Service, which is what they advertise (ADR 18)."""
    names = [s["metadata"]["name"] for s in get("services")["items"]]
    return {int(name.rsplit("-", 1)[1]) for name in names if name.startswith("demo-broker-")}


def begin(c):
    """A change of the pod template; returns its value of NOTE."""
    value = str(time.time_ns())
    c.patch({"podTemplate": {"metadata": {"annotations": {NOTE: value}}}})
    return value


def wait_for_end(timeout_s=600):
    kubectl("wait", "kaascluster/demo", "--for=condition=Progressing=False", f"--timeout={timeout_s}s", timeout_s=timeout_s + 10)


def check_report(c, value, replicas):
    """What must be so when Progressing has turned False."""
    pods = rolled()
    check([v for v, _ in pods.values()] == [value] * replicas, "Progressing=False, but the pods are", pods)
    sts, report = get("statefulset", "demo"), c.status().get("lastRollout", {})
    check(report.get("revision") == sts["status"]["updateRevision"] and report.get("finishedAt") and report.get("brokers") == replicas
          and report.get("maxBrokersOut") == 1, report)
    return report["gapMillis"]


def roll(c, replicas):
    """Rolls all brokers; the seconds it took, and the reported gaps in ms."""
    t0 = time.monotonic()
    value = begin(c)
    wait_for_end()
    return time.monotonic() - t0, check_report(c, value, replicas)


def rolled_text(took_s, gap):
    return f"rolled in {took_s:.0f} s, reported gaps p50 {gap['p50']} p99 {gap['p99']} max {gap['max']} ms"


@fault(out=1, group_errors=False, gap_s=GAP_S)
def a_rolling_update_of_three(c, t):
    return rolled_text(*roll(c, 3))


@fault(soak=True, out=1, group_errors=False, gap_s=GAP_S)
def twenty_rolling_updates_in_a_row(c, t):
    done = [roll(c, 3) for _ in range(ROLLS)]
    return (f"{ROLLS} of {min(s for s, _ in done):.0f} to {max(s for s, _ in done):.0f} s, reported gaps p99 {max(g['p99'] for _, g in done)} max "
            f"{max(g['max'] for _, g in done)} ms in the worst, p99 {sorted(g['p99'] for _, g in done)[ROLLS // 2]} in the middle one")


@fault(soak=True, brokers=5, group_errors=False, gap_s=GAP_S)
def a_rolling_update_of_five(c, t):
    c.scale(5)
    c.settle(5)
    t0 = time.monotonic()
    note = rolled_text(*roll(c, 5))
    check(t.out(t0, time.monotonic(), 5) <= 1, "brokers out at once", t.out(t0, time.monotonic(), 5))
    c.scale(3)
    return note


@fault(out=1, halts=True)
def an_image_that_never_turns_ready_halts_and_is_corrected(c, t):
    t0, image = time.monotonic(), c.object()["spec"].get("image")
    before = c.pods()
    c.patch({"image": ABSENT})
    try:
        t.wait(("condition", "Progressing"), lambda v: v[0] == "True" and "demo-2 " in v[2], t0, 60)
        t.wait(("ready", 2), lambda ready: not ready, t0, 60)
        hold(lambda: {n: p for n, p in c.pods().items() if n != "demo-2"} == {n: p for n, p in before.items() if n != "demo-2"}
             and t.line.now(("ready", 0)) and t.line.now(("ready", 1)), HALT_S, 0.5, "the others stand")
        why = c.condition("Progressing")
        check(why[:2] == ("True", "RolloutHalted") and "demo-2 " in why[2] and "Image" in why[2], "no reason:", why)
    finally:
        c.patch({"image": image})
    t.came_back(2, t0)
    wait_for_end()
    return f"halted: {why[1]}: {why[2]}"


@fault(out=1, halts=True)
def an_update_whose_target_is_already_down(c, t):
    nodes = [n["metadata"]["name"] for n in get("nodes")["items"]]
    t0, before = time.monotonic(), c.pods()
    kubectl("cordon", *nodes)
    try:
        kubectl("delete", "pod", "demo-2", "--wait=true", timeout_s=90)
        eventually(lambda: c.pods().get("demo-2", before["demo-2"]) != before["demo-2"], 30, what="its next pod, which fits nowhere")
        value = begin(c)
        eventually(lambda: rolled().get(2, ("",))[0] == value, 60, what="the pod that is down is replaced at once")
        check(all(c.pods()[n] == before[n] for n in ("demo-0", "demo-1")), "another one was replaced while it is down")
    finally:
        kubectl("uncordon", *nodes)
    t.came_back(2, t0)
    wait_for_end()
    check_report(c, value, 3)


@fault(out=1)
def a_flapping_broker_resets_min_ready_seconds(c, t):
    least, usual = 8, c.object()["spec"]["minReadySeconds"]
    c.patch({"minReadySeconds": least})
    try:
        t0 = time.monotonic()
        value = begin(c)
        t.came_back(2, t0)
        t1 = time.monotonic()
        c.kill(2)  # before it has served for long enough
        t.came_back(2, t1)
        wait_for_end()
    finally:
        c.patch({"minReadySeconds": usual})
    check_report(c, value, 3)
    # not by its row: one that is back within a second may have had no other in between
    served = max(at for at, ready in t.changes(("ready", 2), t1) if ready)
    left = next(at for at, row in t.changes(("row", 1), t0) if row and row[0] == "Draining")
    check(left - served >= least - 1, "R59: the next one went", left - served, "s after it served again")
    return f"the next one went {left - served:.1f} s after it served again"


@fault(brokers=5)
def scaling_three_five_two_three(c, t):
    t0 = time.monotonic()
    c.scale(5)
    c.settle(5)
    t1 = time.monotonic()
    c.scale(2)
    t.wait(("ids",), lambda ids: ids == (0, 1), t1, 120)
    for n in (0, 1):
        eventually(lambda n=n: sorted(t.line.now(("view", n))["fenced"]) == [0, 1] == sorted(t.line.now(("view", n))["listed"]), 10,
                   what="R9, R33: gone from every answer")
    c.settle(2)
    eventually(lambda: addressed() == {0, 1}, 30, what="who is gone has no address any more")
    c.scale(3)
    c.settle(3)
    check(addressed() == {0, 1, 2}, "Services of brokers:", addressed())
    seen = t.ids(t0, time.monotonic())
    # pods come and go in parallel, so in any order; who stays is never missing, and nobody comes who is not wanted
    check(all({0, 1} <= set(ids) <= set(range(5)) for ids in seen), "rows of the wrong brokers", seen)


def kill_operator(t):
    """Kills the active operator; status is not held against the time until another holds the Lease."""
    t0 = time.monotonic()
    holder = kube.lease_holder()
    os.kill(kube.active_operator()[1], signal.SIGKILL)
    eventually(lambda: (h := kube.lease_holder()) and h != holder, 15, 0.1, "another holder of the Lease")
    took = time.monotonic() - t0
    t.without(t0)
    check(took <= within(OPERATOR_S), "another operator after", took)
    return f"another operator after {took:.1f} s"


@fault(out=1)
def the_operator_dies_during_a_rollout(c, t):
    t0 = time.monotonic()
    value = begin(c)
    t.wait_row(2, t0, "Draining", timeout_s=60)
    note = kill_operator(t)
    wait_for_end()
    check_report(c, value, 3)
    return note


@fault(out=1)
def the_operator_dies_during_a_takeover(c, t):
    t0 = time.monotonic()
    c.kill(1)
    note = kill_operator(t)
    t.came_back(1, t0)
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "rows changed", t.ids(t0, time.monotonic()))
    return note


@fault()
def the_operator_dies_during_a_scale_down(c, t):
    t0 = time.monotonic()
    c.scale(2)
    t.wait_row(2, t0, "Draining", timeout_s=30)
    note = kill_operator(t)
    t.wait(("ids",), lambda ids: ids == (0, 1), t0, 120)
    c.settle(2)
    c.scale(3)
    return note


@fault(out=1)
def the_operator_dies_and_a_broker_is_silent(c, t):
    """The next operator never hears of that broker: the one before it may have, so it has the time of any broker (R62)."""
    t0, pid = time.monotonic(), c.pid(1)
    with stopped(pid):
        note = kill_operator(t)
        after = t.wait_row(1, t0, "Fenced", timeout_s=20)
    t.came_back(1, t0)
    check(after <= within(SILENT_OPERATOR_S), "fenced after", after)
    return f"{note}, the silent broker fenced after {after:.2f} s"


@scenario
def a_bad_first_image_is_corrected(c):
    first = kube.KubeCluster("first")
    good = get("statefulset", "demo")["spec"]["template"]["spec"]["containers"][0]["image"]
    doc = {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasCluster", "metadata": {"name": "first", "namespace": kube.NAMESPACE},
           "spec": {"replicas": 2, "minReadySeconds": 0, "image": ABSENT, "storage": {"hostPath": "/srv/shared/first"}}}
    kube.volume_folder("first")
    kubectl("apply", "-f", "-", stdin=json.dumps(doc))
    try:
        eventually(lambda: len(first.pods()) == 2 and first.condition("Progressing")[0] == "True", 60, what="two pods that cannot start")
        why = eventually(lambda: (v := first.condition("Progressing"))[1] == "RolloutHalted" and v, 60, 0.5, "what is wrong")
        check("Image" in why[2] and first.condition("Ready")[0] != "True", why, first.condition("Ready"))
        first.patch({"image": good})
        first.settle(2)
        first.create_topic("hello", 3)
    finally:
        kubectl("delete", "kaascluster", "first", "--timeout=90s", timeout_s=100)
    eventually(lambda: not first.pods(), 90, 0.5, "its pods are gone")
    return f"halted: {why[1]}: {why[2]}"
