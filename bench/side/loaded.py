#!/usr/bin/env python3
"""The stage `load`: brokers built with a sanitizer under the load of ./dev bench log. Not one report, and every acknowledged record is read.

BUILD names the preset (asan by default, or tsan), SECONDS how long each load lasts."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "e2e"), str(ROOT / "bench")]
from kaaslib import alone, local, runner  # noqa: E402
from kaaslib.runner import check, scenario  # noqa: E402
from side.side import LOAD, UNSYNCED  # noqa: E402

BUILD = os.environ.get("BUILD", "asan")
SECONDS = float(os.environ.get("SECONDS_EACH", 60 if os.environ.get("KAAS_SOAK") else 10))
FAST = ("--conns", 6, "--inflight", 4, "--secs", SECONDS)


class Load:
    """Runs of kaas-load against some brokers, several at once."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def spawn(self, mode, *args):
        return subprocess.Popen([str(LOAD), mode, *map(str, args), "--b", self.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    @staticmethod
    def outcome(p):
        out, err = p.communicate(timeout=SECONDS * 5 + 300)
        check(p.returncode == 0, " ".join(p.args[1:]), p.returncode, err)
        return json.loads(out)

    def run(self, mode, *args):
        return self.outcome(self.spawn(mode, *args))

    def all_at_once(self):
        """Every kind of load side by side, then a read of everything; what was done."""
        for name, parts, *more in (("synced", 6), ("relaxed", 6, "--config", UNSYNCED), ("small", 24), ("e", 3), ("old", 6)):
            self.run("create", "--topic", name, "--p", parts, *more)
        self.run("produce", "--topic", "old-0", "--conns", 6, "--bytes", "64m")
        kinds = {"synced": ("produce", "--topic", "synced-0", *FAST), "relaxed": ("produce", "--topic", "relaxed-0", *FAST, "--rate", 20),
                 "small": ("produce", "--topic", "small-0", *FAST, "--batch", 1, "--rec", 100, "--ppr", 3),
                 "old": ("fetch", "--topic", "old-0", "--conns", 12, "--crc", "--secs", SECONDS),
                 "tail": ("fetch", "--topic", "synced-0", "--conns", 3, "--crc", "--secs", SECONDS, "--pmax", "64k"),
                 "e2e": ("e2e", "--topic", "e-0", "--parts", 3, "--rate", 200, "--secs", SECONDS),
                 "idle": ("idle", "--n", 300, "--hold", SECONDS)}
        running = {k: self.spawn(*v) for k, v in kinds.items()}
        try:
            done = {k: self.outcome(p) for k, p in running.items()}
        finally:
            for p in running.values():
                if p.poll() is None:
                    p.kill()
                    p.wait()
        for name in ("synced", "relaxed", "small"):
            read = self.run("fetch", "--topic", f"{name}-0", "--conns", 6, "--crc")["msgs"]
            check(read == done[name]["msgs"] > 0, f"{name}: {done[name]['msgs']} records were acknowledged, {read} read")
        e = done["e2e"]
        check(e["sent"] == e["acked"] == e["read"], "end to end:", e)
        return (f"{done['synced']['mb_s'] + done['relaxed']['mb_s']:.0f} MB/s and {done['small']['msgs_s']:.0f} small records/s in, "
                f"{done['old']['mb_s']:.0f} MB/s out")


@scenario
def one_broker_is_clean_under_load(_):
    with contextlib.closing(alone.Alone(build=BUILD)) as b:
        b.start(300)
        note = Load(b.address).all_at_once()
        check(not b.findings(), "\n" + b.findings())
        code = b.end(timeout_s=300)
        check(code == 0 and not b.findings(), "exit code", code, "\n" + b.findings())
        return note


@scenario
def three_brokers_and_their_operator_are_clean_under_load(_):
    with local.LocalCluster(build=BUILD, env=alone.SANITIZERS) as c:
        note = Load(c.bootstrap).all_at_once()
        operator = c.operator
        c.stop(300)
        found = [alone.findings(f.read_text(errors="replace")) for f in (c.dir / "operator.log", *c.dir.glob("brokers/*/log"))]
        check(not any(found), *(f"\n{text}" for text in found if text))
        check(operator.returncode == 0, "the operator's exit code", operator.returncode)
        return note


def main():
    return runner.run(None, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
