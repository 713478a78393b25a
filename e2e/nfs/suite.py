#!/usr/bin/env python3
"""Two real NFS clients fight for partitions; then every acknowledged record is looked for.

First with the production storage engine alone (kaas-fight: many takeovers a second), then with whole brokers and Kafka
clients (brokers.py). The builds with a cached attribute read in place of the fence check must lose: the test proves that it
can fail.

KAAS_SOAK=1: 60 s each and three freezes longer than the NFS lease."""

import os
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from kaaslib import clients, history, runner  # noqa: E402
from kaaslib.runner import check, scenario  # noqa: E402
import brokers  # noqa: E402
import rig  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
SECONDS = 60 if SOAK else 10
FREEZES = 3 if SOAK else 1
FROZEN_S = 13 if SOAK else 6
SERVER_KILLS = 5 if SOAK else 2
BUILT = HERE.parent.parent / "build/release/bin"
BIN = pathlib.Path("/mnt/ctl")  # where a node finds the programs, wherever the tree lies


def fight(r, binary, name, disturb=None, seconds=SECONDS):
    r.run("A", f"mkdir -p {name}")
    parts = {role: r.submit(role, f"{binary} /mnt/nfs/{name} {i} {seconds} /mnt/ctl/{name}.{role}") for i, role in enumerate("AB")}
    if disturb:
        disturb()
    out = [r.result(h, seconds + 120) for h in parts.values()]
    check(all(rc == 0 for rc, _ in out), out)
    read = r.run("B", f"{binary} /mnt/nfs/{name} read /mnt/ctl/{name}.log")
    return ", ".join(o.strip().splitlines()[-1] for _, o in out) + ", " + read.strip().splitlines()[-1]


def findings(r, name):
    """Acknowledged records that the log does not have at their offset, and offsets acknowledged twice."""
    final = dict(line.split() for line in (r.ctl / f"{name}.log").read_text().splitlines())
    lost, owner, acks = [], {}, 0
    for role in "AB":
        for line in (r.ctl / f"{name}.{role}").read_text().splitlines():
            offset, value, _epoch = line.split()
            acks += 1
            if owner.setdefault(offset, value) != value:
                lost.append(f"offset {offset} acknowledged twice: {owner[offset]}, {value}")
            if final.get(offset) != value:
                lost.append(f"acknowledged {value} at {offset}: the log has {final.get(offset)}")
    check(acks > 100, "only", acks, "acks")
    return lost


@scenario
def the_volume_passes_the_probe(r):
    return r.run("A", f"mkdir -p probe && {BIN}/kaas-broker fsck --probe /mnt/nfs/probe").strip().splitlines()[-1]


@scenario
def nothing_is_lost_between_two_fighters(r):
    note = fight(r, BIN / "kaas-fight", "plain")
    lost = findings(r, "plain")
    check(not lost, len(lost), lost[:3])
    return note


def freezes_and_a_cut(r):
    for _ in range(FREEZES):
        time.sleep(3)
        r.freeze("A")
        time.sleep(FROZEN_S)
        r.freeze("A", False)
    time.sleep(2)
    r.cut("B")
    time.sleep(4)
    r.cut("B", False)


def server_deaths(r):
    for _ in range(SERVER_KILLS):
        time.sleep(3)
        r.restart_server()


@scenario
def nothing_is_lost_through_freezes_and_a_cut(r):
    note = fight(r, BIN / "kaas-fight", "rough", lambda: freezes_and_a_cut(r), SECONDS + FREEZES * (FROZEN_S + 3))
    lost = findings(r, "rough")
    check(not lost, len(lost), lost[:3])
    return note


@scenario
def nothing_is_lost_when_the_server_dies(r):
    note = fight(r, BIN / "kaas-fight", "server", lambda: server_deaths(r), SECONDS + SERVER_KILLS * 6)
    lost = findings(r, "server")
    check(not lost, len(lost), lost[:3])
    return note


@scenario
def the_build_without_the_check_loses(r):
    fight(r, BIN / "kaas-fight-cached", "mutant")
    lost = findings(r, "mutant")
    check(lost, "the mutant lost nothing: this test could not fail")
    return f"{len(lost)} findings, as it should be"


def broker_fight(r, name, disturb):
    with brokers.Fight(r, name) as f:
        disturb()
        counts, report = f.finish()
        check(not report["violations"], report["violations"], report["first"][:6])
        return f"{counts}; {history.summary(report)}; {f.fsck()}"


if SOAK:  # the next one holds all of this
    @scenario
    def brokers_lose_nothing_in_a_fight(r):
        return broker_fight(r, "brokers-plain", lambda: time.sleep(SECONDS))

    @scenario
    def brokers_lose_nothing_when_the_server_dies(r):
        return broker_fight(r, "brokers-server", lambda: server_deaths(r))


@scenario
def brokers_lose_nothing_through_freezes_and_a_cut(r):
    def disturb():
        time.sleep(SECONDS)
        freezes_and_a_cut(r)
    return broker_fight(r, "brokers-rough", disturb)


@scenario
def a_broker_without_the_check_loses(r):
    with brokers.Fight(r, "brokers-mutant", "kaas-broker-cached") as f:
        time.sleep(SECONDS)
        _, report = f.finish()
    bad = {c: report["violations"].get(c, 0) for c in ("lost", "collision")}
    check(sum(bad.values()), "the mutant lost nothing: this test could not fail;", report["violations"])
    return f"{report['violations']}, as it should be"


def main():
    clients.prepare(["confluent-kafka", "franz-go"])
    with rig.Rig() as r:
        for program in ("kaas-broker", "kaas-broker-cached", "kaas-rival", "kaas-fight", "kaas-fight-cached"):
            shutil.copy(BUILT / program, r.ctl / program)
        return runner.run(r, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
