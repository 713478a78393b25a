#!/usr/bin/env python3
"""Differential run: Apache Kafka and kaas are asked the same random things, one after another, and must answer the same.

suite.py [OPERATIONS]: how many (600; with KAAS_SOAK=1: 12000). The seed is the same each time, with KAAS_SOAK=1 a new one
each time, which explores; it is printed, and KAAS_SEED sets it. At the first difference both answers are printed, then a
shorter list of operations that shows it, too. With KAAS_GO_ON=1 it goes on and prints the first of each kind of difference
instead."""

import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import asks  # noqa: E402
import peer  # noqa: E402
from kaaslib import alone, local  # noqa: E402
from plan import KINDS, Plan  # noqa: E402
from world import Difference, World  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 12000 if SOAK else 600
SEED = int(os.environ.get("KAAS_SEED") or (time.time() if SOAK else 1))
GO_ON = bool(os.environ.get("KAAS_GO_ON"))
SHRINK_S = 120
LAST = 40
# Retention is tried by an operation of its own, which waits for both; else it would take old records at a moment of each broker's own.
EVERYWHERE = {"auto.create.topics.enable": "false", "log.message.timestamp.after.max.ms": str(2**63 - 1), "log.retention.ms": "-1"}


def everything(world, plan):
    """What a partition holds, by every way of asking for it."""
    for (topic, part), p in list(plan.parts.items()):
        at = {"topic": topic, "part": part, "epoch": -1}
        for ts in range(-6, 0):
            yield {"op": "list_offsets", **at, "version": 11, "isolation": 0, "raw": ts}
        for ts in plan.random.sample(p.times, min(10, len(p.times))):
            yield {"op": "list_offsets", **at, "version": 7, "isolation": 0, "at": ts}
        yield {"op": "describe_producers", **at}
        offset = p.start
        while offset < p.end:
            r = yield {"op": "fetch", **at, "version": 12, "isolation": 0, "offset": offset, "part_bytes": 1 << 20,
                       "max_bytes": 1 << 25}
            if not r["Records"]:
                break
            offset = r["Records"][-1][1] + 1


class Run:
    def __init__(self, world, plan):
        self.world, self.plan, self.done, self.counts = world, plan, [], {}
        self.kinds = set()

    def one(self, op):
        self.done.append(op)
        try:
            answer = asks.run(self.world, op)
        except Difference as d:
            if not GO_ON:
                raise
            if d.kind not in self.kinds:
                print(f"operation {len(self.done)}: {d}\n  {json.dumps(op)[:600]}")
                show(d.answers)
            self.kinds.add(d.kind)
            answer = d.answers[0]
        self.plan.learn(op, answer)
        key = op["op"] + ("" if not answer.get("ErrorCode") else " refused")
        self.counts[key] = self.counts.get(key, 0) + 1
        return answer

    def check_all(self):
        ops = everything(self.world, self.plan)
        answer = None
        while True:
            try:
                op = ops.send(answer)
            except StopIteration:
                return
            answer = self.one(op)

    def go(self, count):
        t0 = time.monotonic()
        while len(self.done) < count:
            self.one(self.plan.next())
            if len(self.done) % 2000 == 0:
                print(f"  {len(self.done)} operations, {time.monotonic() - t0:.0f} s", flush=True)
        self.check_all()


def shows(world, ops, kind):
    """Whether the operations, on topics of their own, end in a difference of that kind; and which."""
    world.fresh()
    try:
        for op in ops:
            asks.run(world, op)
    except Difference as d:
        return d if d.kind == kind else None
    except Exception:  # noqa: BLE001 - an operation that makes no sense without those left out
        return None
    return None


def shrink(world, ops, kind):
    """Fewer operations that show a difference, in the time there is."""
    end = time.monotonic() + SHRINK_S
    last = ops[-1]
    ops = [o for o in ops if o.get("topic") == last.get("topic")]
    found = shows(world, ops, kind)
    if not found:
        return None, None
    size = len(ops) // 2
    while size and time.monotonic() < end:
        at = 0
        while at < len(ops) - 1 and time.monotonic() < end:
            less = ops[:at] + ops[min(at + size, len(ops) - 1):]
            d = shows(world, less, kind)
            if d:
                ops, found = less[:less.index(d.op) + 1], d
            else:
                at += size
        size //= 2
    return ops, found


def show(answers):
    for name, answer in zip(("kafka", "kaas"), answers):
        print(f"  {name:5} {answer!r:.3000}")


def main():
    print(f"seed {SEED}, {COUNT} operations", flush=True)
    kafka = kaas = None
    try:
        base = int(os.environ.get("KAAS_E2E_PORT", 0)) or local.free_base_port()
        kafka = peer.Kafka(base + 60, base + 61, {**EVERYWHERE, "log.retention.check.interval.ms": "200"})
        kaas = alone.Alone(build=os.environ.get("KAAS_BUILD", "release"),
                           config={**EVERYWHERE, "log.retention.check.interval.ms": "200"})
        kafka.start()
        kaas.start()
        world = World(kafka, kaas)
        run = Run(world, Plan(SEED))
        try:
            run.go(COUNT)
        except Difference as d:
            print(f"FAIL operation {len(run.done)}: {d}\n  {json.dumps(d.op)}")
            show(d.answers)
            ops, d = shrink(world, run.done, d.kind)
            if ops:
                print(f"the same with {len(ops)} operations: {d}")
                for op in ops:
                    print("  " + json.dumps(op))
                show(d.answers)
            else:
                print("which a shorter list did not show; the last operations of that topic, and restarts:")
                for op in [o for o in run.done if o.get("topic") in (None, run.done[-1].get("topic"))][-LAST:]:
                    print("  " + json.dumps(op)[:600])
            print(f"KAAS_SEED={SEED} replays\n0 passed, 1 failed")
            return 1
        print(", ".join(f"{n} {k}" for k, n in sorted(run.counts.items())))
        if run.kinds:
            print("\n".join([f"{len(run.kinds)} kinds of difference:", *sorted(map(str, run.kinds)), "0 passed, 1 failed"]))
            return 1
        print(f"{len(run.done)} operations answered alike (seed {SEED})\n1 passed, 0 failed")
        return 0
    finally:
        for broker in (kafka, kaas):
            if broker:
                broker.close()


if __name__ == "__main__":
    sys.exit(main())
