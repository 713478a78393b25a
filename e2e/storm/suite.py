#!/usr/bin/env python3
"""Storm: faults one after another under producers, then every record is looked for.

suite.py [FAULTS]: how many faults (10; with KAAS_SOAK=1: 500). The seed is printed; KAAS_SEED replays the order of faults."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, load, local, runner  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
FAULTS = int(sys.argv[1]) if len(sys.argv) > 1 else 500 if SOAK else 10
PAUSE_S = (1, 60) if SOAK else (1, 6)
SEED = int(os.environ.get("KAAS_SEED", time.time()))


class Faults:
    def __init__(self, c):
        self.c, self.random, self.done = c, random.Random(SEED), {}

    def kill(self, n):
        self.c.kill(n)

    def terminate(self, n):
        self.c.kill(n, signal.SIGTERM)

    def freeze(self, n):
        pid = self.c.kill(n, signal.SIGSTOP)
        time.sleep(self.random.uniform(*PAUSE_S))
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def operator(self, _n):
        self.c.operator.kill()
        self.c.operator.wait()
        self.c.start()

    def one(self):
        name = self.random.choices(["kill", "terminate", "freeze", "operator"], [5, 2, 2, 1])[0]
        n = self.random.randrange(3)
        try:
            getattr(self, name)(n)
        except (ProcessLookupError, FileNotFoundError, ValueError):
            return  # not there at this moment: the next fault
        self.done[name] = self.done.get(name, 0) + 1
        time.sleep(self.random.uniform(0.2, 3))


def storm(c, idempotent):
    topic = "storm-" + ("idempotent" if idempotent else "plain")
    c.create_topic(topic, load.PARTITIONS)
    f = Faults(c)
    rounds = max(1, FAULTS // 10)
    acked = 0
    histories = []
    for r in range(rounds):
        p = load.Producing(c.bootstrap, topic, 30, rate=300, idempotent=idempotent, first=r * 1_000_000)
        while p.proc.poll() is None and sum(f.done.values()) < FAULTS:
            f.one()
        histories.append(p.history())
        acked += len(histories[-1]["acked"])
    eventually(lambda: c.status().get("serving") == 3, 90, what="three serving brokers after the storm")
    final = load.everything(c.bootstrap, topic)
    bad = []
    for h in histories:
        bad += load.check_history(h, final, idempotent)
    check(not bad, f"seed {SEED}: {len(bad)} findings, first:", bad[:3])
    return f"seed {SEED}, {f.done}, {acked} acked, longest gap {max(load.longest_gap(h) for h in histories):.1f} s"


@scenario
def nothing_acknowledged_is_lost_with_idempotence(c):
    return storm(c, True)


@scenario
def nothing_acknowledged_is_lost_without(c):
    return storm(c, False)


@scenario
def the_volume_is_clean_afterwards(c):
    c.stop()
    r = subprocess.run([str(c.bin / "kaas-broker"), "fsck", str(c.dir / "volume")], capture_output=True, text=True, timeout=120,
                       check=False)
    check(r.returncode == 0, r.stdout[-2000:], r.stderr[-500:])
    return r.stdout.strip().splitlines()[-1]


def main():
    clients.prepare(["confluent-kafka"])
    with local.LocalCluster(build=os.environ.get("KAAS_BUILD", "release")) as c:
        return runner.run(c, on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
