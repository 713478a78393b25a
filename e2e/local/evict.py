#!/usr/bin/env python3
"""Brokers that do not die but do not work either are replaced in seconds and come back by themselves.

Wedged (R41, R47, R50): every data loop is blocked, the heartbeat goes on and says so. Frozen (W4): SIGSTOP, no
FIN is ever sent. BUILD names a preset whose broker has the test hook (asan by default, as every Debug build)."""

import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import local, runner  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

BUILD = os.environ.get("BUILD", "asan")
TOPIC, PARTITIONS, VICTIM = "evicted", 6, 2


def row(c):
    return c.broker_status(VICTIM) or {}


def led_by_the_others(c):
    now = c.led_by(TOPIC)
    return len(now) == PARTITIONS and set(now.values()) == {0, 1}


@scenario
def a_topic_is_spread(c):
    c.create_topic(TOPIC, PARTITIONS)
    c.homes = eventually(lambda: (v := c.led_by(TOPIC)) and set(v.values()) == {0, 1, 2} and v, 20, what="leaders on all three")


@scenario
def a_wedged_broker_is_replaced_within_8_s_and_returns(c):
    pid, incarnation = c.pid(VICTIM), row(c)["incarnation"]
    c.kill(VICTIM, signal.SIGUSR2)
    t0 = time.monotonic()
    eventually(lambda: led_by_the_others(c), 8, 0.05, "R50: its partitions led elsewhere")
    took = time.monotonic() - t0
    r = eventually(lambda: row(c).get("health") == "Dead" and row(c), 3, 0.05, "Dead in status")
    check(r["state"] == "Fenced" and r["reason"] == "wedged", r)
    with c.conn(0) as conn:
        check(VICTIM not in conn.metadata()["brokers"], "R30: Metadata names it")
        check(conn.describe_cluster().get(VICTIM) is True, "R31: DescribeCluster 2 does not show it fenced")
    c.kill(VICTIM, signal.SIGUSR2)
    eventually(lambda: row(c).get("state") == "Serving", 20, what="serving again")
    check(c.pid(VICTIM) == pid, "the process was restarted")
    check(row(c)["incarnation"] != incarnation, "a condemned incarnation came back")
    eventually(lambda: c.led_by(TOPIC) == c.homes, 60, 0.5, "the same partitions back")
    return f"led elsewhere after {took:.1f} s"


@scenario
def a_frozen_broker_is_replaced_and_returns(c):
    pid, incarnation = c.pid(VICTIM), row(c)["incarnation"]
    os.kill(pid, signal.SIGSTOP)
    try:
        t0 = time.monotonic()
        eventually(lambda: led_by_the_others(c), 8, 0.05, "W4: its partitions led elsewhere")
        took = time.monotonic() - t0
        eventually(lambda: row(c).get("health") == "Dead", 3, 0.05, "Dead in status")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: row(c).get("state") == "Serving" and row(c)["incarnation"] != incarnation, 30,
               what="another incarnation, serving")
    check(c.pid(VICTIM) == pid, "the process was restarted")
    return f"led elsewhere after {took:.1f} s"


def main():
    with local.LocalCluster(build=BUILD, env={"KAAS_TEST_WEDGE": "1"}) as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
