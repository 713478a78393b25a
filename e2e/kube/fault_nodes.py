"""Faults of nodes: drained, without power, cut off from the network while what runs on them goes on writing."""

import os
import pathlib
import subprocess
import time

from kaaslib import kube
from kaaslib.kube import get, kubectl
from kaaslib.recorded import SILENT_S, fault, within
from kaaslib.runner import check, eventually, hold
from fault_rollouts import OPERATOR_S

CUT_S = 60 if os.environ.get("KAAS_SOAK") else 15


def victims(c):
    """[(broker, node)] but on node0, which carries the service addresses of the test itself."""
    places = {n: c.node_of(n) for n in range(3)}
    check(len(set(places.values())) == 3, "brokers share a node:", places)
    return [(n, node) for n, node in places.items() if node != "node0"]


def spread(c):
    """One broker a node again: the scheduler prefers it, and is asked again."""
    def attempt():
        nodes = [c.node_of(n) for n in range(3)]
        twice = next((n for n in range(3) if nodes.count(nodes[n]) > 1), None)
        if twice is None:
            return True
        kubectl("delete", "pod", f"demo-{twice}", "--wait=true", timeout_s=90)
        c.settle()
        return False
    eventually(attempt, 240, 0.5, "one broker a node")


def where_status_comes_from(t, node, since):
    """When the active operator is on this node, another one must take over before status can tell."""
    pod = kube.lease_holder().rsplit("_", 1)[0]
    if get("pod", pod, kube.SYSTEM)["spec"]["nodeName"] == node:
        t.without(since, since + OPERATOR_S)
        return " (with the active operator)"
    return ""


@fault(nodes=3, out=1)
def two_nodes_are_drained_at_once(c, t):
    """The budget lets one broker go at a time, whoever asks."""
    chosen = victims(c)
    t0 = time.monotonic()
    drains = [subprocess.Popen(["kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _, node in chosen]
    try:
        told = [d.communicate(timeout=300)[0] for d in drains]
        took = time.monotonic() - t0
        check(not any(d.returncode for d in drains), told)
        for n, _ in chosen:
            t.came_back(n, t0)
    finally:
        kubectl("uncordon", *[node for _, node in chosen])
        for d in drains:
            d.kill()
    c.settle()
    spread(c)
    return f"drained in {took:.0f} s"


@fault(nodes=3, out=1)
def a_node_loses_its_power(c, t):
    n, node = victims(c)[-1]
    here = pathlib.Path(os.environ["KC_HERE"])
    t0 = time.monotonic()
    note = where_status_comes_from(t, node, t0)
    subprocess.run([str(here / "node-kill.sh"), node.removeprefix("node")], check=True)
    try:
        after = t.wait_row(n, t0, "Fenced", timeout_s=20)
        hold(lambda: t.line.now(("row", n))[:2] == ("Fenced", "Dead") and t.line.now(("ids",)) == (0, 1, 2), CUT_S, 0.5,
             "Dead and registered")
    finally:
        subprocess.run([str(here / "node-up.sh"), node.removeprefix("node")], check=True)
    t.came_back(n, t0, 180)
    check(after <= within(6 + (OPERATOR_S if note else 0)), "W4: fenced after", after)
    return f"{node}{note}: Dead after {after:.2f} s"


@fault(nodes=3)
def a_node_is_cut_off_and_its_broker_goes_on_writing(c, t):
    """A producer inside the node reaches its broker all along: what that broker acknowledges must be in the log for all."""
    n, node = victims(c)[-1]
    inside = ["nsenter", "-t", str(kube.node_process(node)), "-n"]
    t.load.clients.produce("confluent-kafka", c.address(n), 100, "idempotent", wrap=inside)
    t.load.wait_for_work()
    t0, t0_us = time.monotonic(), time.time_ns() // 1000
    note = where_status_comes_from(t, node, t0)
    c.cut(node)
    try:
        after = t.wait_row(n, t0, "Fenced", timeout_s=20)
        hold(lambda: t.line.now(("row", n))[:2] == ("Fenced", "Dead"), CUT_S, 0.5, "Dead and Fenced while cut off")
        cut_us = time.time_ns() // 1000
    finally:
        c.cut(node, False)
    t.came_back(n, t0, 180)
    eventually(lambda: get("node", node)["status"]["conditions"][-1]["status"] == "True", 60, 0.5, "the node is Ready")
    check(after <= within(6 + (OPERATOR_S if note else 0)), "W4: fenced after", after)
    file = t.load.clients.files[-1]

    def told():  # its history is written when it has ended
        acked = [(at - t0_us) / 1e6 for at in acknowledged(file) if t0_us < at < cut_us]
        check(acked, "the client inside was acknowledged nothing after the cut: the broker did not go on writing")
        check(acked[-1] <= within(after + SILENT_S), "the cut-off broker acknowledged for", acked[-1], "s")
        return f"{node}{note}: Dead after {after:.2f} s; cut off it acknowledged {len(acked)} records, the last after {acked[-1]:.2f} s"
    return told


def acknowledged(file):
    """Times in us of what a client was acknowledged."""
    return [int(line.split()[1]) for line in pathlib.Path(file).read_text(encoding="ascii").splitlines() if line.startswith("a ")]
