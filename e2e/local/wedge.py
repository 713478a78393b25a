#!/usr/bin/env python3
"""A broker whose data loops are all blocked says so (R39, R40, R41): /readyz answers 503 within the probe's
timeout and names the loops, /healthz and /metrics still answer, and everything is well again afterwards.

BUILD names a preset whose broker has the test hook (asan by default, as every Debug build)."""

import os
import pathlib
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import alone  # noqa: E402
from kaaslib.runner import check, eventually, hold, scenario  # noqa: E402

BUILD = os.environ.get("BUILD", "asan")
LOOPS = 3
PROBE_S = 1.0  # the kubelet's default timeoutSeconds
STALE_S = 5  # R40
TOPIC = "own"


def wedge(b, on):
    b.proc.send_signal(signal.SIGUSR2)
    want = f"event=test_wedge on={int(on)}"
    eventually(lambda: b.text().splitlines()[-1].endswith(want) or want in b.text()[-400:], 5, 0.01, "the test hook")


def own_view(b):
    """What the broker that leads itself tells: {id: fenced}, and {partition: (leader, epoch)} of its topic."""
    with b.conn() as c:
        parts = c.metadata([TOPIC])["topics"][TOPIC]["partitions"]
        return c.describe_cluster(), {i: (p["leader"], p["epoch"]) for i, p in parts.items()}


def probe(b, path):
    """(code, body, seconds); a probe that takes longer than the kubelet waits raises."""
    t0 = time.monotonic()
    code, body = b.get(path, PROBE_S)
    return code, body, time.monotonic() - t0


@scenario
def ready_before(b):
    code, body, _ = probe(b, "/readyz")
    check(code == 200 and body.startswith("ready\n"), code, body)
    b.topic(TOPIC)
    b.before = own_view(b)
    check(b.before[0] == {0: False}, "R7: it does not tell of itself alone:", b.before[0])


@scenario
def every_loop_blocked_is_not_ready(b):
    t0 = time.monotonic()
    wedge(b, True)
    took = []

    def not_ready():
        code, body, seconds = probe(b, "/readyz")
        took.append(seconds)
        return code == 503 and body
    body = eventually(not_ready, STALE_S + 3, 0.1, "503 from /readyz")
    after = time.monotonic() - t0
    check(after >= STALE_S - 1, "busy is not wedged (R42), yet 503 after", after)
    check(body.startswith("not ready\n") and "main alive: no" in body, body)
    # the loops went stale within a tick of each other
    body = eventually(lambda: (r := probe(b, "/readyz")[1]) and r.count(": no tick for") == LOOPS and r, 3, 0.1, "every loop named")
    for i in range(LOOPS):
        check(f"loop {i}: no tick for" in body, body)
    check("listening: yes" in body and "storage: ok" in body, body)
    hold(lambda: probe(b, "/readyz")[0] == 503, 1, 0.1, "503")
    check(probe(b, "/healthz")[0] == 200, "R40: a wedge of seconds must not restart the pod")
    metrics = probe(b, "/metrics")[1]
    check(metrics.count("kaas_loop_age_ms{") == LOOPS, "metrics of a wedged broker")
    return f"503 after {after:.2f} s, slowest probe {max(took) * 1000:.1f} ms"


@scenario
def the_clients_see_nobody(b):
    with socket.create_connection(("127.0.0.1", b.base), timeout=1) as s:
        s.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # ApiVersions 0
        s.settimeout(0.5)
        try:
            got = s.recv(100)
        except socket.timeout:
            return "the kernel accepts, nobody answers"
        check(False, "a blocked loop answered", got)


@scenario
def ready_afterwards(b):
    wedge(b, False)
    eventually(lambda: probe(b, "/readyz")[0] == 200, 3, 0.05, "200 again")
    check(own_view(b) == b.before, "R8: it was not ready for a while, and now tells", own_view(b), "instead of", b.before)


@scenario
def it_ends_in_order(b):
    code = b.end()
    check(code == 0 and not b.findings(), code, b.findings())


def main():
    return alone.run(sys.argv[1:], build=BUILD, loops=LOOPS, env={"KAAS_TEST_WEDGE": "1"})


if __name__ == "__main__":
    sys.exit(main())
