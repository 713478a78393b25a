"""The whole volume stands still: a KaasCluster of its own on a file system that can be frozen. Nobody is to blame, so nothing moves."""

import contextlib
import json
import os
import subprocess
import time

from kaaslib import batch, kube, wire
from kaaslib.kube import KubeCluster, get, kubectl
from kaaslib.recorded import Bounds, under_load
from kaaslib.runner import check, eventually, hold, scenario

FROZEN_S = 60 if os.environ.get("KAAS_SOAK") else 15
SIZE = 512 << 20
NAME = "frozen"
TIMED_OUT = 7  # REQUEST_TIMED_OUT


def inside(node, *command):
    subprocess.run(["nsenter", "-t", str(kube.node_process(node)), "-m", "-p", "--", *command], check=True, capture_output=True, timeout=60)


@contextlib.contextmanager
def mounted(folder, nodes):
    """A file system of its own at a folder that all nodes share, mounted on each: brokers see it as one volume."""
    image = folder.with_suffix(".img")
    with open(image, "wb") as f:
        f.truncate(SIZE)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    device = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True).stdout.strip()
    done = []
    try:
        for node in nodes:
            inside(node, "mount", device, str(folder))
            done.append(node)
        subprocess.run(["losetup", "--detach", device], check=True)  # goes with its last mount
        inside(nodes[0], "mkdir", "-m", "1777", str(folder / "data"))  # beside the file system's own lost+found
        yield str(folder / "data")
    finally:
        for node in done:
            inside(node, "umount", "--lazy", str(folder))
        if not done:
            subprocess.run(["losetup", "--detach", device], check=True)
        image.unlink()


@scenario
def the_whole_volume_is_frozen(c):
    folder, nodes = kube.volume_folder(NAME), [n["metadata"]["name"] for n in get("nodes")["items"]]
    v = KubeCluster(NAME)
    v.nodes, v.folder = c.nodes, c.folder
    doc = {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasCluster", "metadata": {"name": NAME, "namespace": kube.NAMESPACE}}
    with mounted(folder, nodes) as data:
        doc["spec"] = {"replicas": 3, "minReadySeconds": 0, "storage": {"hostPath": data}}
        kubectl("apply", "-f", "-", stdin=json.dumps(doc))
        try:
            v.settle()
            return under_load(v, "the-whole-volume-is-frozen", lambda t: freeze(v, t, str(folder), nodes[0]), Bounds())
        finally:
            kubectl("delete", "kaascluster", NAME, "--timeout=90s", timeout_s=100)
            eventually(lambda: not v.pods(), 90, 0.5, "its pods are gone")


def waits(c, topic, seconds):
    """What each leader of a topic answers to a produce request that may take so long."""
    now, told = int(time.time() * 1000), {}
    one = batch.make([now], batch.records_of([now], [b"x"]))
    for p, (leader, _) in c.leaders(topic).items():
        with wire.Conn(c.address(leader), seconds + 10) as conn:
            told.update(conn.produce(topic, {p: one}, timeout_ms=seconds * 1000))
    return told


def freeze(c, t, folder, node):
    t0, leaders, topic = time.monotonic(), c.leaders(t.load.topic), "waits"
    c.create_topic(topic, 3)
    inside(node, "fsfreeze", "--freeze", folder)
    try:
        told = waits(c, topic, 2)
        check(told == {p: TIMED_OUT for p in range(3)}, "what a frozen volume leaves unanswered ends with", told)
        for n in range(3):
            t.wait(("ready", n), lambda ready: not ready, t0, 10)
        eventually(lambda: c.condition("StorageReady")[0] == "False", 5, what="StorageReady=False")
        hold(lambda: {b["id"]: b["reason"] for b in c.status()["brokers"]} == dict.fromkeys(range(3), "stalled"),
             t0 + FROZEN_S - time.monotonic(), 0.5, "all three stalled, none lost")
        said = eventually(lambda: [e for e in get("events")["items"] if e["reason"] == "VolumeStall"], 10, what="an Event: VolumeStall")
    finally:
        inside(node, "fsfreeze", "--unfreeze", folder)
    eventually(lambda: all(t.line.now(("ready", n)) for n in range(3)), 30, what="ready again")
    c.settle()
    check(c.leaders(t.load.topic) == leaders, "partitions moved though all brokers stalled:", leaders, c.leaders(t.load.topic))
    return f"frozen {FROZEN_S} s; {said[0]['message']}"
