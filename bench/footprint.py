#!/usr/bin/env python3
"""Footprint of the release build: idle memory, time from exec to listening, CPU when idle. JSON lines.

{"what": ..., "value": ..., "unit": ..., "target": ..., "better": "less", "ok": ...}"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "e2e"))
from kaaslib import local  # noqa: E402

IDLE_S = float(os.environ.get("IDLE_S", "10"))
RUNS = 10


def report(what, value, unit, target):
    print(json.dumps({"what": what, "value": round(value, 2), "unit": unit, "target": target, "better": "less",
                      "ok": value <= target}), flush=True)


def rss_mib(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def listening(pid, port):
    """True when a process listens on the port: read from the kernel's table, which costs it nothing."""
    want = f":{port:04X}"
    for f in ("tcp", "tcp6"):
        for line in open(f"/proc/{pid}/net/{f}", encoding="ascii"):
            parts = line.split()
            if parts[3] == "0A" and parts[1].endswith(want):
                return True
    return False


def exec_to_listening(base):
    """Milliseconds from exec of a self-led broker until its port listens."""
    times = []
    with tempfile.TemporaryDirectory() as d:
        config = pathlib.Path(d) / "broker.yaml"
        config.write_text(json.dumps({
            "dataDir": f"{d}/volume", "health": {"bind": "127.0.0.1", "port": base + 100},
            "listeners": [{"name": "internal", "bind": "127.0.0.1", "port": base, "advertisedHost": "127.0.0.1",
                           "advertisedPort": base}]}))
        os.mkdir(f"{d}/volume")
        for _ in range(RUNS):
            t0 = time.monotonic()
            p = subprocess.Popen([str(ROOT / "build/release/bin/kaas-broker"), "--config", str(config), "--id", "0"],
                                 stderr=subprocess.DEVNULL)
            while not listening(p.pid, base):
                if p.poll() is not None:
                    raise SystemExit("the broker ended by itself")
                time.sleep(0.0005)
            times.append((time.monotonic() - t0) * 1000)
            p.terminate()
            p.wait()
    return times


def main():
    with local.LocalCluster() as c:
        pids = {f"broker {n}": c.pid(n) for n in range(3)} | {"operator": c.operator.pid}
        before = {k: cpu_s(p) for k, p in pids.items()}
        time.sleep(IDLE_S)
        for name, pid in pids.items():
            report(f"idle RSS, {name}", rss_mib(pid), "MiB", 12)
            report(f"idle CPU, {name}", (cpu_s(pid) - before[name]) / IDLE_S * 100, "% of a core", 1)
    times = exec_to_listening(local.free_base_port())
    report("exec to listening, median of 10", statistics.median(times), "ms", 50)
    report("exec to listening, worst of 10", max(times), "ms", 50)


if __name__ == "__main__":
    main()
