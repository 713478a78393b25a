#!/usr/bin/env python3
"""Rolling updates nobody notices: one acking stream over all partitions of a topic, and on another the producers and group
consumers of three libraries with their defaults; never more than one broker out, no failed send, no error told to a group.

Reduced: one rolling update, 60 partitions, no bounds of time. KAAS_SOAK=1: 20 of them, 1,000 partitions; the longest time between two
acks of a partition in a rolling update: p99 <= 150 ms, max <= 1 s. KAAS_ROLLOUTS, KAAS_ROLLOUTS_PARTITIONS change that."""

import asyncio
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, history, local, rolling, runner, stream  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
BUILD = os.environ.get("KAAS_BUILD", "release")
ROLLOUTS = int(os.environ.get("KAAS_ROLLOUTS", 20 if SOAK else 1))
PARTITIONS = int(os.environ.get("KAAS_ROLLOUTS_PARTITIONS", 1000 if SOAK else 60))
P99_MS, MAX_MS = 150, 1000
MANY, RECORDED, RECORDED_PARTITIONS, RATE = "many", "recorded", 12, 100
SESSION_MS = 45000  # Kafka's default
LIBRARIES = ("java-4.4", "confluent-kafka", "franz-go")


class Recording:
    """Clients with their defaults that write down what they were told."""

    def __init__(self, c):
        self.folder = c.dir / "histories"
        self.clients = history.Clients(self.folder, {RECORDED: RECORDED_PARTITIONS}, defaults=True)
        for name in LIBRARIES:
            self.clients.produce(name, c.bootstrap, RATE, "idempotent")
            self.clients.group(name, c.bootstrap, f"{name}-group", *([SESSION_MS] if name.startswith("java") else []))
        eventually(lambda: not self.clients.waiting(), 90, what=f"work of {self.clients.waiting()}")

    def finish(self, c):
        check(not self.clients.ended(), "a client ended:", self.clients.ended(), self.clients.errors())
        counts = self.clients.stop(producers_only=True)
        counts.update(self.clients.stop())
        self.clients.final_read(c.bootstrap)
        bad = {what: n for what, n in counts.items() if n.get("unknown") or n.get("fatal") or n.get("hung")}
        check(not bad, "failed sends, or clients that gave up:", bad)
        told = [f"{f.stem}: {line}" for f in self.folder.glob("*-group.err") for line in f.read_text(errors="replace").splitlines()
                if line.startswith(("commit:", "committed:"))]
        check(not told, f"{len(told)} errors told to groups, first:", told[:3])
        return history.check(self.clients.files, build=BUILD)


def images(c):
    """Two names of one program: a new image without anything new."""
    out = []
    for name in ("one", "other"):
        link = c.dir / f"kaas-broker-{name}"
        link.symlink_to(c.bin / "kaas-broker")
        out.append(link)
    return out


def line(gaps):
    return f"p50 {stream.percentile(gaps, 50):.0f} p99 {stream.percentile(gaps, 99):.0f} max {gaps[-1]:.0f} ms"


async def rolls(c):
    """The longest gap of each partition in each rolling update, ascending; and the operator's reports."""
    names, every, reported = images(c), [], []
    s = stream.Stream(c.bootstrap, MANY, PARTITIONS, 0.05)
    await s.start()
    try:
        s.mark()
        await asyncio.sleep(2)
        print(f"     at rest: {line(s.gaps_ms(range(PARTITIONS)))}", flush=True)
        for i in range(ROLLOUTS):
            s.mark()
            took, report = await asyncio.get_running_loop().run_in_executor(None, rolling.roll, c, names[i % 2], MANY)
            await s.all_acked(range(PARTITIONS), time.monotonic(), 60)
            gaps = s.gaps_ms(range(PARTITIONS))
            print(f"     rolling update {i + 1} in {took:.0f} s: {line(gaps)}; as the operator reports it: {report['gapMillis']}", flush=True)
            every += gaps
            reported.append(report)
    finally:
        s.stop()
    return sorted(every), reported


@scenario
def rolling_updates_are_noticed_by_nobody(c):
    c.create_topic(MANY, PARTITIONS)
    c.create_topic(RECORDED, RECORDED_PARTITIONS)
    r = Recording(c)
    try:
        gaps, reported = asyncio.run(rolls(c))
        seen = r.finish(c)
    finally:
        r.clients.kill()
    check(all(report["maxBrokersOut"] <= 1 for report in reported), reported)
    check(seen["acked"] > 0 and not seen["unknown"], seen)
    if SOAK:
        check(stream.percentile(gaps, 99) <= P99_MS and gaps[-1] <= MAX_MS, "too long without an ack:", line(gaps))
    return f"{ROLLOUTS} with {PARTITIONS} partitions: between two acks of a partition {line(gaps)}; {history.summary(seen)}"


def main():
    clients.prepare(LIBRARIES)
    with local.LocalCluster(build=BUILD, dir=os.environ.get("KAAS_ROLLOUTS_DIR")) as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
