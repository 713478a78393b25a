#!/usr/bin/env python3
"""How long brokers that do not die but do not work either are waited for (W4, R40, R50).

Frozen (SIGSTOP: no FIN is ever sent): the time until every partition it led is acked again, under an acking stream over all
partitions (kaaslib/stream.py). Wedged (all data loops blocked by the test hook of Debug builds): the time until /readyz says 503, and
until others lead what it led. Reduced: one of each, no bounds of time. KAAS_SOAK=1 (./dev soak liveness): ten freezes over 1,000
partitions, <= 6 s; five wedges, 503 <= 6 s, led elsewhere <= 8 s. Kills (<= 2.5 s) are moves.py's."""

import asyncio
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import local, runner, stream  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
PARTITIONS, FREEZES, WEDGES = (1000, 10, 5) if SOAK else (60, 1, 1)
BUILD = os.environ.get("KAAS_BUILD", "release")
HOOKED = os.environ.get("BUILD", "asan")  # a preset whose broker has the test hook
FROZEN_S, NOT_READY_S, WEDGED_S = 6, 6, 8
PATIENCE_S = 30


def bound(seconds):
    return seconds if SOAK else PATIENCE_S


def says(times):
    p50, p99 = (stream.percentile(sorted(times), q) for q in (50, 99))
    return f"p50 {p50:.2f} p99 {p99:.2f} max {max(times):.2f} s"


def serving(c, n):
    try:
        return (c.broker_status(n) or {}).get("state") == "Serving"
    except (OSError, ValueError):
        return False


async def until(what, probe, timeout_s):
    end = time.monotonic() + timeout_s
    while not probe():
        check(time.monotonic() < end, f"{what}: not within {timeout_s} s")
        await asyncio.sleep(0.05)


async def freeze(c, s):
    """Stops the leader of the most partitions; the gaps of these, in seconds, when all of them are acked elsewhere."""
    await until("all serving", lambda: all(serving(c, n) for n in range(c.replicas)), 60)
    victim = max(range(c.replicas), key=lambda n: len(s.led_by(n)))
    parts, incarnation = s.led_by(victim), c.broker_status(victim)["incarnation"]
    s.bootstrap = [c.address(n) for n in range(c.replicas) if n != victim]  # it would not answer
    s.mark()
    pid = c.kill(victim, signal.SIGSTOP)
    try:
        t0 = time.monotonic()
        while any(s.leader[p][1] == victim for p in parts):
            check(time.monotonic() - t0 < PATIENCE_S, "still led by the frozen broker")
            await s.look()
            await asyncio.sleep(0.02)
        await s.all_acked(parts, time.monotonic(), PATIENCE_S)
        gaps = [ms / 1000 for ms in s.gaps_ms(parts)]
    finally:
        os.kill(pid, signal.SIGCONT)
    await until("another incarnation", lambda: serving(c, victim) and c.broker_status(victim)["incarnation"] != incarnation, 60)
    check(c.pid(victim) == pid, "the process was restarted")
    return gaps


async def freezes(c):
    c.create_topic("frozen", PARTITIONS)
    s = stream.Stream(c.bootstrap, "frozen", PARTITIONS, 0.05)
    every = []
    await s.start()
    try:
        for i in range(FREEZES):
            gaps = await freeze(c, s)
            print(f"     freeze {i + 1} of the leader of {len(gaps)}: {says(gaps)}", flush=True)
            every += gaps
    finally:
        s.stop()
    return every


@scenario
def partitions_of_a_frozen_leader_ack_again(_):
    with local.LocalCluster(build=BUILD) as c:
        gaps = asyncio.run(freezes(c))
    check(max(gaps) <= bound(FROZEN_S), says(gaps))
    return says(gaps)


def after(t0, probe, what):
    """Seconds from t0 until probe holds."""
    eventually(probe, PATIENCE_S, 0.02, what)
    return time.monotonic() - t0


def wedge(c, victim, topic):
    """(seconds until 503, seconds until others lead what it led)"""
    c.kill(victim, signal.SIGUSR2)
    t0, not_ready = time.monotonic(), []
    probing = threading.Thread(target=lambda: not_ready.append(after(t0, lambda: c.readyz(victim)[0] == 503, "503 from /readyz")))
    probing.start()
    out = after(t0, lambda: victim not in c.led_by(topic).values(), "led elsewhere")
    eventually(lambda: c.broker_status(victim)["reason"] == "wedged", 5, 0.05, "the reason in status")
    probing.join()
    check(not_ready, "/readyz never said 503")
    c.kill(victim, signal.SIGUSR2)
    eventually(lambda: serving(c, victim), 60, what="serving again")
    return not_ready[0], out


@scenario
def a_wedged_broker_is_not_ready_and_replaced(_):
    times = []
    with local.LocalCluster(build=HOOKED, env={"KAAS_TEST_WEDGE": "1"}) as c:
        c.create_topic("wedged", 12)
        for _ in range(WEDGES):
            eventually(lambda: set(c.led_by("wedged").values()) == {0, 1, 2}, 400, 0.2, "leaders on all three")
            times.append(wedge(c, 2, "wedged"))
    not_ready, out = zip(*times)
    note = f"503: {says(not_ready)}; led elsewhere: {says(out)}"
    check(max(not_ready) <= bound(NOT_READY_S) and max(out) <= bound(WEDGED_S), note)
    return note


if __name__ == "__main__":
    sys.exit(runner.run(None, sys.argv[1:]))
