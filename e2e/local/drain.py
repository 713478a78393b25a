#!/usr/bin/env python3
"""A drain ends below the grace period of the pod, here of 10 s (R29): with an operator that hands everything over, and with one that
is silent, so that the broker has to seal what it leads by itself.

drain.py [NAME...]: scenarios whose name contains one of the words."""

import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, load, local, runner  # noqa: E402
from kaaslib.proc import ended  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

GRACE_S = 10
BUILD = os.environ.get("KAAS_BUILD", "release")


def terminate(c, n):
    """SIGTERM, as the kubelet sends it; how long the process lived on, and what it said meanwhile."""
    log = c.dir / "brokers" / str(n) / "log"
    before = log.stat().st_size
    t0 = time.monotonic()
    pid = c.kill(n, signal.SIGTERM)
    eventually(lambda: ended(pid), GRACE_S, 0.02, "the broker's end before its SIGKILL")
    return time.monotonic() - t0, log.read_bytes()[before:].decode(errors="replace")


@scenario
def partitions_are_handed_over_within_the_grace(c):
    c.create_topic("drained", 60)
    p = load.Producing(c.bootstrap, "drained", 15, rate=300)
    eventually(lambda: c.end_offset("drained", 0) > 0, 30, what="the producer's first record")
    c.hold_back(1)
    took, said = terminate(c, 1)
    check("deadline_ms=5000" in said, "the deadline is not that of the grace period", said[-600:])
    check("event=drained left_open=0" in said and "event=leaving" not in said, "not handed over", said[-600:])
    check(1 not in c.led_by("drained").values())
    c.let_go(1)
    c.wait_serving(3)
    history = p.history()
    check(not history["failed"] and not history["unflushed"], "failed sends", history["failed"][:3])
    return f"gone after {took:.1f} s"


@scenario
def without_an_operator_everything_is_sealed_at_the_deadline(c):
    eventually(lambda: 1 in c.led_by("drained").values(), 60, what="failback")
    operator = c.operator.pid
    c.hold_back(1)
    os.kill(operator, signal.SIGSTOP)
    try:
        took, said = terminate(c, 1)
    finally:
        os.kill(operator, signal.SIGCONT)
    check('event=leaving' in said and 'reason="drain deadline"' in said, said[-600:])
    check("event=drained left_open=0" in said and "event=exit code=0" in said, "not sealed in time", said[-600:])
    eventually(lambda: 1 not in c.led_by("drained").values(), 20, what="the others to lead")
    c.let_go(1)
    c.wait_serving(3)
    return f"gone after {took:.1f} s of {GRACE_S} s"


def main():
    clients.prepare()
    with local.LocalCluster(3, BUILD, extra={"terminationGracePeriodSeconds": GRACE_S}) as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
