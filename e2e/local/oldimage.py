#!/usr/bin/env python3
"""Rollouts from and to brokers of older images under recording clients (R52, W5): one that never sends field 6, healthy, and one a
protocol version behind (old_heartbeat.c). No broker is lost by it, and nothing moves but what the rollout moves.

Reduced: from the oldest to the newest, and back to the one before. KAAS_SOAK=1: forward and back between the newest and each."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, history, local, rolling, runner  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
BUILD = os.environ.get("KAAS_BUILD", "release")
OLDEST, BEFORE, NEWEST = "kaas-broker-hb0", "kaas-broker-hb1", "kaas-broker"
ROLLS = [NEWEST, OLDEST, NEWEST, BEFORE, NEWEST, BEFORE] if SOAK else [NEWEST, BEFORE]
PROTOCOL = {OLDEST: 0, BEFORE: 0, NEWEST: 1}
TOPIC, PARTITIONS = "rolled", 12


def roll(c, program):
    took, _ = rolling.roll(c, c.bin / program, TOPIC)
    rows = eventually(lambda: (rows := c.image_rows()) and all(r["state"] == "Serving" for r in rows.values()) and rows, 10, what="all serving")
    check({r["protocol"] for r in rows.values()} == {PROTOCOL[program]}, program, rows)
    check({r["everHealthy"] for r in rows.values()} == {program != OLDEST}, program, rows)
    return f"{program.removeprefix('kaas-')} in {took:.0f} s"


@scenario
def rolling_from_and_to_old_images_loses_no_broker(c):
    check({(r["protocol"], r["everHealthy"]) for r in c.image_rows().values()} == {(0, False)}, "all old:", c.image_rows())
    c.create_topic(TOPIC, PARTITIONS)
    r = history.Clients(c.dir / "histories", {TOPIC: PARTITIONS})
    notes = []
    try:
        r.produce("franz-go", c.bootstrap, 200, "idempotent")
        r.produce("confluent-kafka", c.bootstrap, 200, "idempotent")
        r.consume("confluent-kafka", c.bootstrap)
        r.group("confluent-kafka", c.bootstrap, "rolled")
        for program in ROLLS:
            notes.append(roll(c, program))
            check(not r.ended(), "a client ended:", r.ended(), r.errors())
        counts = r.stop(producers_only=True)
        counts.update(r.stop())
        r.final_read(c.bootstrap)
    finally:
        r.kill()
    check(not [n for n in counts.values() if "fatal" in n], "a producer gave up:", counts)
    report = history.check(r.files, build=BUILD)
    check(report["acked"] > 0 and not report["unknown"], report)
    return f"{', '.join(notes)}; {history.summary(report)}"


@scenario
def an_old_image_that_stops_is_replaced(c):
    """What it never says keeps it in only as long as it speaks (R52, W4)."""
    c.hold_back(2)
    c.kill(2)
    eventually(lambda: (c.broker_status(2) or {}).get("health") == "Dead", 5, 0.05, "Dead in status")
    eventually(lambda: set(c.led_by(TOPIC).values()) <= {0, 1}, 8, 0.05, "its partitions led elsewhere")
    c.let_go(2)
    c.wait_serving(3)


def main():
    clients.prepare(["franz-go", "confluent-kafka"])
    with local.LocalCluster(build=BUILD, extra={"image": str(local.ROOT / "build" / BUILD / "bin" / OLDEST)}) as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
