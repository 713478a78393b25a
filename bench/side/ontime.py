"""Whether brokers answer /readyz and send heartbeats in time while clients take all of the machine (kaas only)."""

import json
import subprocess
import threading
import time

from . import machine, rows
from .side import LOAD

INTERVAL_S, LOOK_S = 1.0, 0.02  # heartbeats; how often their counter is looked at
BUSY = 0.95


class Beats(threading.Thread):
    """How much later than due each heartbeat of a broker was sent, in ms, as its counter shows within LOOK_S."""

    def __init__(self, cluster, n):
        super().__init__(daemon=True)
        self.cluster, self.n, self.over, self.late_ms = cluster, n, threading.Event(), []

    def run(self):
        last, at = None, 0.0
        while not self.over.wait(LOOK_S):
            sent = self.cluster.metrics(self.n, 10)["kaas_heartbeats_sent_total"]
            now = time.monotonic()
            if sent != last:
                if last is not None:
                    self.late_ms.append(max(0.0, (now - at - INTERVAL_S) * 1e3))
                last, at = sent, now


def states(cluster):
    return {r["id"]: (r["state"], r["health"], r["incarnation"]) for r in cluster.status()["brokers"]}


def spawn(*args):
    return subprocess.Popen([str(LOAD), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(p):
    out, err = p.communicate(timeout=300)
    if p.returncode:
        raise SystemExit(f"{p.args}: {p.returncode} {err}")
    return json.loads(out)


def core_seconds():
    """(busy, all) seconds of all cores so far."""
    n = [int(x) / machine.TICK for x in open("/proc/stat", encoding="ascii").readline().split()[1:9]]
    return sum(n) - n[3] - n[4], sum(n)


def measure(s, secs):
    """Two topics: one is filled by single records, the other is read again and again. Prints its lines."""
    c = s.cluster
    wide, small = s.topic(12, unsynced=True), s.topic(24)
    s.load("produce", "--topic", wide, "--conns", 6, "--bytes", "256m")
    before, control_ms = states(c), 0.0
    beats = [Beats(c, n) for n in range(c.replicas)]
    at = ("--b", s.bootstrap)
    loads = [spawn("produce", "--topic", small, "--conns", 6, "--inflight", 32, "--batch", 1, "--secs", secs, *at),
             spawn("fetch", "--topic", wide, "--conns", 24, "--secs", secs, *at)]
    asks = [spawn("ready", "--b", f"127.0.0.1:{c.base + 100 + n}", "--gap", 20, "--secs", secs, "--timeout", 1000)
            for n in range(c.replicas)]
    used, every = core_seconds()
    changed = 0
    with machine.Noise([*s.pids(), *(p.pid for p in loads + asks)]) as noise:
        for t in beats:
            t.start()
        while loads[0].poll() is None:
            changed += states(c) != before
            control_ms = max(control_ms, c.metrics(None, 10)["kaas_operator_control_loop_age_ms"])
            time.sleep(0.1)
    noisy = int(noise.share >= machine.NOISY)
    busy, every = (b - a for a, b in zip((used, every), core_seconds()))
    for t in beats:
        t.over.set()
        t.join()
    produced, fetched = (outcome(p) for p in loads)
    ready = [outcome(p) for p in asks]
    bad = sum(d["bad"] for d in ready)
    late = sorted(x for t in beats for x in t.late_ms)
    lost = [n for n in range(c.replicas) if c.metrics(n)["kaas_incarnations_total"] != 1]
    more = {"busy": round(busy / every, 3), "load": f"{produced['msgs_s']} records/s in, {fetched['mb_s']} MB/s out"}
    if more["busy"] < BUSY:
        more["why"] = "the machine was not busy"
    rows.alone("busy, p99 of GET /readyz from when it was due", [d["ready_us"]["p99"] / 1e3 for d in ready], "ms", "lower", 50, noisy,
               ratio=max(d["ready_us"]["p99"] / 1e3 for d in ready), **more)
    rows.alone("busy, GET /readyz that was not 200", [d["bad"] for d in ready], "answers", "lower", 0, noisy, ratio=bad)
    rows.alone("busy, p99 of how late heartbeats were", late, "ms", "lower", 50, noisy, ratio=round(late[len(late) * 99 // 100], 1), beats=len(late))
    rows.alone("busy, brokers fenced or changed", [len(lost) + changed], "looks", "lower", 0, noisy)
    rows.alone("busy, oldest tick of the operator's control loop", [control_ms], "ms", "lower", None, noisy, others=noise.share)
