#!/usr/bin/env python3
"""Storm: faults under clients of three libraries, then the history of all they saw is checked.

suite.py [FAULTS]: how many faults (10; with KAAS_SOAK=1: 500). The seed is printed; KAAS_SEED replays the order of faults.
KAAS_STORM_DIR keeps the cluster's folder and the histories."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from kaaslib import clients, history, local, runner  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402
import faults  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
FAULTS = int(sys.argv[1]) if len(sys.argv) > 1 else 500 if SOAK else 10
FREEZE_S = (1, 60) if SOAK else (1, 6)
SEED = int(os.environ.get("KAAS_SEED", time.time()))
BUILD = os.environ.get("KAAS_BUILD", "release")
COMPACTED = "storm-compacted"
TOPICS = {"storm-wide": 6, "storm-segments": 3, COMPACTED: 3}
CONFIGS = {"storm-segments": {"segment.bytes": "131072", "retention.ms": "-1"},
           COMPACTED: {"cleanup.policy": "compact", "segment.bytes": "131072", "min.cleanable.dirty.ratio": "0.01"}}
# (library, records a second, mode)
PRODUCERS = [("java-4.4", 80, "idempotent"), ("confluent-kafka", 80, "idempotent"), ("franz-go", 80, "idempotent"),
             ("confluent-kafka", 80, "plain"), *([("java-3.7", 80, "plain")] if SOAK else [])]


def start_clients(r, bootstrap):
    for name, rate, mode in PRODUCERS:
        r.produce(name, bootstrap, rate, mode)
    r.consume("confluent-kafka", bootstrap)
    r.consume("franz-go", bootstrap)
    r.group("confluent-kafka", bootstrap, "storm-librdkafka")
    r.group("confluent-kafka", bootstrap, "storm-librdkafka")
    if SOAK:
        r.group("java-4.4", bootstrap, "storm-java")


@scenario
def nothing_acknowledged_is_lost_doubled_or_reordered(c):
    for topic, partitions in TOPICS.items():
        c.create_topic(topic, partitions, CONFIGS.get(topic))
    bootstrap = c.bootstrap
    r = history.Clients(c.dir / "histories", TOPICS)
    f = faults.Faults(c, SEED, FREEZE_S, calm_s=20)
    begun = time.monotonic()
    try:
        start_clients(r, bootstrap)
        f.wait(3)
        while sum(f.done.values()) < FAULTS:
            f.one()
            check(not r.ended(), "a client ended:", r.ended(), r.errors())
        f.heal()
        eventually(lambda: c.status().get("serving") == c.replicas, 120, what="three serving brokers after the storm")
        took = time.monotonic() - begun
        f.wait(5)
        counts = r.stop(producers_only=True)
        f.wait(5)  # the consumers come to the end
        counts.update(r.stop())
        r.final_read(bootstrap)
    finally:
        f.thaw(everything=True)
        r.kill()
    print(f"     seed {SEED}: {f} in {took:.0f} s", flush=True)
    for what, n in counts.items():
        print(f"     {what}: {n}", flush=True)
    fatal = {what: n["fatal"] for what, n in counts.items() if "fatal" in n}
    check(not fatal, "idempotent producers gave up:", fatal)
    check(sum("hung" in n for n in counts.values()) <= 2, "clients hung:", counts)
    report = history.check(r.files, compacted=[COMPACTED], build=BUILD)
    return history.summary(report)


@scenario
def no_broker_crashed(c):
    """Brokers end by the storm's signals only."""
    signals = re.findall(r"event=broker_exited broker=\d+ code=-?\d+ signal=(\d+)", (c.dir / "operator.log").read_text(errors="replace"))
    crashes = [s for s in signals if int(s) not in (0, signal.SIGKILL, signal.SIGTERM)]
    check(not crashes, "brokers ended by signals", crashes)
    bad = [f"broker {f.parent.name}: {line}" for f in c.dir.glob("brokers/*/log") for line in f.read_text(errors="replace").splitlines()
           if "assertion" in line.lower() or "Sanitizer" in line or "runtime error" in line]
    check(not bad, len(bad), bad[:3])
    return f"{len(signals)} ends of brokers"


@scenario
def the_volume_is_clean_afterwards(c):
    c.stop()
    r = subprocess.run([str(c.bin / "kaas-broker"), "fsck", str(c.dir / "volume")], capture_output=True, text=True, timeout=600,
                       check=False)
    check(r.returncode == 0, r.stdout[-2000:], r.stderr[-500:])
    return r.stdout.strip().splitlines()[-1]


def main():
    clients.prepare(sorted({name for name, _, _ in PRODUCERS} | {"java-4.4", "confluent-kafka", "franz-go"}))
    print(f"     seed {SEED}, {FAULTS} faults", flush=True)
    with local.LocalCluster(build=BUILD, dir=os.environ.get("KAAS_STORM_DIR")) as c:
        return runner.run(c, on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
