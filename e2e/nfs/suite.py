#!/usr/bin/env python3
"""Two real NFS clients fight for a partition with the production storage engine; then every acknowledged record is
looked for. The build with a cached attribute read in place of the fence check must lose: the test proves that it can fail.

KAAS_SOAK=1: 60 s and three freezes, as long as the NFS lease allows for."""

import os
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from kaaslib import runner  # noqa: E402
from kaaslib.runner import check, scenario  # noqa: E402
import rig  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
SECONDS = 60 if SOAK else 20
FREEZES = 3 if SOAK else 1
FROZEN_S = 13 if SOAK else 6
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


@scenario
def nothing_is_lost_through_freezes_and_a_cut(r):
    def disturb():
        for _ in range(FREEZES):
            time.sleep(3)
            r.freeze("A")
            time.sleep(FROZEN_S)
            r.freeze("A", False)
        r.cut("B")
        time.sleep(3)
        r.cut("B", False)
    note = fight(r, BIN / "kaas-fight", "rough", disturb, SECONDS + FREEZES * (FROZEN_S + 3))
    lost = findings(r, "rough")
    check(not lost, len(lost), lost[:3])
    return note


@scenario
def the_build_without_the_check_loses(r):
    fight(r, BIN / "kaas-fight-cached", "mutant")
    lost = findings(r, "mutant")
    check(lost, "the mutant lost nothing: this test could not fail")
    return f"{len(lost)} findings, as it should be"


def main():
    with rig.Rig() as r:
        for program in ("kaas-broker", "kaas-fight", "kaas-fight-cached"):
            shutil.copy(BUILT / program, r.ctl / program)
        return runner.run(r, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
