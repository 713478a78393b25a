#!/usr/bin/env python3
"""The stage `bench`: both sides of ./dev bench log serve, every record that was acknowledged is read, every line is well formed."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "e2e"), str(ROOT / "bench")]
from kaaslib import runner  # noqa: E402
from kaaslib.runner import check, scenario  # noqa: E402
from side.rows import KEYS  # noqa: E402


def bench(cases):
    """The lines of a quick run of these cases."""
    r = subprocess.run([sys.executable, "-B", str(ROOT / "bench/log.py"), "--quick", "--runs", "1", "--cases", cases], capture_output=True,
                       text=True, timeout=600, check=False)
    check(r.returncode == 0, r.returncode, r.stderr[-3000:])
    return [json.loads(line) for line in r.stdout.splitlines()]


def ordered(values):
    return isinstance(values, list) and len(values) == 3 and 0 <= values[0] <= values[1] <= values[2]


@scenario
def both_serve_and_lose_nothing(_):
    lines = bench("smoke")
    for d in lines:
        check(KEYS <= d.keys() and ordered(d["kaas"]) and ordered(d["kafka"]) and d["better"] in ("higher", "lower"), "a line", d)
        check(isinstance(d["ratio"], float) and d["ratio"] > 0, "a ratio", d)
        print(f"     {d['what']}: kaas {d['kaas'][1]:g}, Kafka {d['kafka'][1]:g} {d['unit']}, ratio {d['ratio']:g}", flush=True)
    served = {d["what"].split(", ")[0] + ", " + d["what"].split(", ")[1] for d in lines}
    check({"smoke, produce", "smoke, fetch", "end to end, smoke"} <= served, "a part is missing:", served)
    return f"{len(lines)} lines"


@scenario
def limits_of_the_machine_are_measured(_):
    lines = bench("limits")
    check(len(lines) > 15 and all("limit" in d and (d.get("gb_s") or d["us"]["p50"]) > 0 for d in lines), "limits", lines)
    return f"{len(lines)} lines"


def main():
    return runner.run(None, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
