"""Faults of brokers: killed, deleted, evicted, terminated, frozen, wedged, stalled, restarted again and again."""

import json
import os
import signal
import threading
import time

from kaaslib import batch, kube, wire
from kaaslib.kube import kubectl
from kaaslib.proc import stopped
from kaaslib.recorded import fault, within
from kaaslib.runner import check, eventually, hold
from kaaslib.threads import Held

SOAK = bool(os.environ.get("KAAS_SOAK"))
FREEZE_S = 60 if SOAK else 15
WEDGE_S = 120 if SOAK else 15
STALL_S = 120 if SOAK else 30
STALL_WINDOW_S = 10  # one stalled broker is not judged before it is known that it is not the volume (ADR 9)
RESTARTS = 20 if SOAK else 5
NOT_LEADER = 6  # NOT_LEADER_OR_FOLLOWER


@fault(out=1)
def a_broker_is_killed(c, t):
    """One that is back within an interval keeps its place (ADR 9); status must not be wrong for longer, as always."""
    t0 = time.monotonic()
    c.kill(2)
    t.came_back(2, t0)
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "R12: rows changed", t.ids(t0, time.monotonic()))
    fenced = t.first(("row", 2), lambda row: row and row[0] == "Fenced", t0)
    ready = [at - t0 for at, ready in t.changes(("ready", 2), t0) if ready]
    return f"{'never fenced' if fenced is None else f'fenced after {fenced:.2f} s'}, ready again after {ready[0]:.2f} s"


@fault(out=1)
def a_pod_is_deleted(c, t):
    t0 = time.monotonic()
    kubectl("delete", "pod", "demo-1", "--wait=true", timeout_s=90)
    after = t.wait_row(1, t0, "Draining")
    t.came_back(1, t0)
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "W1: rows changed", t.ids(t0, time.monotonic()))
    return f"Draining after {after:.2f} s"


def evict(pod):
    """Asks for an eviction (policy/v1), as kubectl drain does."""
    doc = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kube.NAMESPACE}}
    return kubectl("create", "--raw", f"/api/v1/namespaces/{kube.NAMESPACE}/pods/{pod}/eviction", "-f", "-", stdin=json.dumps(doc), ok=False)


@fault(out=1)
def a_pod_is_evicted_and_no_second_one(c, t):
    t0 = time.monotonic()
    r = evict("demo-1")
    check(r.returncode == 0, r.stderr)
    t.wait_row(1, t0, "Draining")
    r = evict("demo-0")
    check(r.returncode and "disruption budget" in r.stderr, "the budget lets a second one go:", r.stdout, r.stderr)
    t.came_back(1, t0)


@fault(out=1)
def one_broker_is_terminated(c, t):
    t0 = time.monotonic()
    c.kill(0, signal.SIGTERM)
    after = t.wait_row(0, t0, "Draining")
    t.came_back(0, t0)
    return f"Draining after {after:.2f} s"


@fault(out=2)
def two_brokers_are_terminated(c, t):
    t0 = time.monotonic()
    for n in (0, 2):
        c.kill(n, signal.SIGTERM)
    for n in (0, 2):
        t.came_back(n, t0)


@fault()
def all_brokers_are_terminated(c, t):
    t0 = time.monotonic()
    for n in range(3):
        c.kill(n, signal.SIGTERM)
    for n in range(3):
        t.came_back(n, t0)
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "rows changed")


@fault()
def all_pods_start_cold(c, t):
    t0 = time.monotonic()
    kubectl("delete", "pod", "demo-0", "demo-1", "demo-2", "--grace-period=0", "--force", timeout_s=90)
    for n in range(3):
        t.came_back(n, t0)
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "rows changed")


@fault()
def a_broker_is_frozen(c, t):
    t0, pid = time.monotonic(), c.pid(1)
    with stopped(pid):
        after = t.wait_row(1, t0, "Fenced")
        hold(lambda: t.line.now(("row", 1))[:2] == ("Fenced", "Dead") or t.replaced(1, pid), t0 + FREEZE_S - time.monotonic(), 0.2,
             "frozen is Dead and Fenced")
    t.came_back(1, t0)
    check(after <= within(6), "W4: fenced after", after)
    return f"frozen {FREEZE_S} s, fenced after {after:.2f} s"


@fault(out=1)
def the_data_loops_of_a_broker_are_wedged(c, t):
    t0, pid = time.monotonic(), c.pid(1)
    held = Held(pid, "stop", "data-")
    try:
        unready = t.wait(("ready", 1), lambda ready: not ready, t0, 10)
        after = t.wait_row(1, t0, "Fenced", "wedged")
        check("main alive: no" in t.line.now(("readyz", 1)), t.line.now(("readyz", 1)))
        hold(lambda: t.line.now(("row", 1))[0] == "Fenced" or t.replaced(1, pid), t0 + WEDGE_S - time.monotonic(), 0.2,
             "a wedged broker is fenced")
    finally:
        held.release()
    t.came_back(1, t0)
    check(unready <= within(6) and after <= within(8), "R40, R50: 503 after", unready, "fenced after", after)
    return f"{held.n} loops for {WEDGE_S} s: 503 after {unready:.2f} s, fenced after {after:.2f} s"


class Asked(threading.Thread):
    """A produce request to one broker for all that it leads of a topic, and the answer with its time."""

    def __init__(self, c, n, topic):
        super().__init__(daemon=True)
        now = int(time.time() * 1000)
        self.records = {p: batch.make([now], batch.records_of([now], [b"x"])) for p, (leader, _) in c.leaders(topic).items() if leader == n}
        self.conn, self.topic, self.errors, self.at = wire.Conn(c.address(n), 2 * STALL_S + 60), topic, None, None
        self.start()

    def run(self):
        self.errors, self.at = self.conn.produce(self.topic, self.records, timeout_ms=1000 * (2 * STALL_S + 30)), time.monotonic()
        self.conn.sock.close()


@fault(out=1)
def the_storage_of_one_broker_stalls(c, t):
    topic = f"stalled-{int(time.time())}"
    c.create_topic(topic, 6)
    t0 = time.monotonic()
    held = Held(c.pid(2), "stall", "ks-sync", "ks-commit")
    try:
        asked = Asked(c, 2, topic)
        unready = t.wait(("ready", 2), lambda ready: not ready, t0, 10)
        after = t.wait_row(2, t0, "Fenced", "stalled")
        eventually(lambda: {leader for leader, _ in c.leaders(topic).values()} <= {0, 1}, STALL_WINDOW_S + 10, what="others lead what it led")
        asked.join(1)
        check(asked.records and asked.errors == dict.fromkeys(asked.records, NOT_LEADER), "condemned, it answered what it had accepted with",
              asked.errors, "for", sorted(asked.records))
        check("storage: stalled" in t.line.now(("readyz", 2)), t.line.now(("readyz", 2)))
        check(c.condition("StorageReady")[:2] == ("False", "StorageStalled"), c.condition("StorageReady"))
        hold(lambda: t.line.now(("row", 2))[0] == "Fenced", t0 + STALL_S - time.monotonic(), 0.2, "a stalled broker is fenced")
    finally:
        held.release()
    t.came_back(2, t0)
    check(unready <= within(7) and after <= within(8), "503 after", unready, "fenced after", after)
    return (f"a file operation hangs for {STALL_S} s: 503 after {unready:.2f} s, fenced after {after:.2f} s, what was accepted is answered "
            f"after {asked.at - t0:.2f} s")


@fault(out=1)
def a_broker_restarts_again_and_again(c, t):
    t0, longest = time.monotonic(), 0.0
    for _ in range(RESTARTS):
        old, t1 = c.pid(2), time.monotonic()
        c.kill(2)
        eventually(lambda: c.pid(2) != old, 30, 0.02, "its next process")
        longest = max(longest, time.monotonic() - t1)
    t.came_back(2, t0)
    check(t.ids(t0, time.monotonic()) == {(0, 1, 2)}, "rows changed")
    reasons = {row[2] for _, row in t.changes(("row", 2), t0) if row}
    check(not reasons & {"wedged", "stalled"}, "R54, W6: one that was booting was told to be", reasons)
    return f"{RESTARTS} lives, each replaced within {longest:.2f} s"
