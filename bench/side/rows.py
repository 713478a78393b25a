"""Runs of both sides in turn, and the JSON lines that come of them."""

import json
import statistics
import sys
import time

from . import machine

EXTRA = 2  # more pairs, when some were noisy
KEYS = {"what", "ratio", "target", "better", "kaas", "kafka", "unit", "met", "noisy", "runs"}


def progress(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def spread(values, digits=3):
    """[min, median, max]"""
    return [float(f"{v:.{digits + 1}g}") for v in (min(values), statistics.median(values), max(values))]


def brief(d):
    out = [f"{d['mb_s']:.1f} MB/s"] if d.get("mb_s") else []
    out += [f"{k} p50 {d[k]['p50']:.0f} p99 {d[k]['p99']:.0f}" for k in ("ack_us", "e2e_us", "fetch_us") if d.get(k, {}).get("n")]
    out += [f"{k} {d[k]}" for k in ("broker_cpu_s", "broker_cpu_s_per_gb", "led_s", "since_t0_s", "rss_kib_each", "noise") if d.get(k)]
    return ", ".join(out)


class Pairs:
    """What both sides did in turn: [(kaas, kafka)], each a dictionary with at least `noise`."""

    def __init__(self, label, taken, wanted):
        quiet = [p for p in taken if max(d["noise"] for d in p) < machine.NOISY]
        self.label = label
        self.used = quiet if len(quiet) >= wanted else taken
        self.noisy = len(self.used) - len([p for p in self.used if p in quiet])

    def values(self, i, key):
        return [key(p[i]) for p in self.used]

    def median(self, i, key):
        return statistics.median(self.values(i, key))


def take(sides, once, label, runs):
    """Pairs of once(side), kaas first; noisy ones are repeated, a few times."""
    taken, quiet = [], 0
    while quiet < runs and len(taken) < runs + (EXTRA if runs > 1 else 0):
        pair = []
        for s in sides:
            d = once(s)
            progress(f"{label}: {s.name:5} {brief(d)}")
            pair.append(d)
        taken.append(tuple(pair))
        quiet += max(d["noise"] for d in pair) < machine.NOISY
    return Pairs(label, taken, runs)


def line(row):
    print(json.dumps(row), flush=True)
    return row


def table(lines):
    """Lines of a run as a table of docs/performance.md; noisy rows end with a star."""
    def cell(v):
        return "" if not v else "/".join(f"{x:,.0f}" if x >= 1000 else f"{x:.4g}" for x in v)
    yield "| what | kaas min/median/max | Kafka min/median/max | ratio | target |"
    yield "|---|---|---|---|---|"
    for d in lines:
        if "limit" in d:
            figure = f"{d['gb_s']} GB/s" if "gb_s" in d else f"p50 {d['us']['p50']}, p99 {d['us']['p99']} us"
            mb = f", {d['mb_s']} MB/s" if "mb_s" in d else ""
            yield f"| limit: {d['limit']} | {figure}{mb} | | | |"
            continue
        target = "" if d["target"] is None else f"{'≥' if d['better'] == 'higher' else '≤'} {d['target']:.3g}{': met' if d['met'] else ': NOT met'}"
        ratio = "" if d["ratio"] is None else f"{d['ratio']:.3g}"
        yield f"| {d['what']}, {d['unit']}{' *' if d['noisy'] else ''} | {cell(d['kaas'])} | {cell(d['kafka'])} | {ratio} | {target} |"


def row(pairs, what, key, unit, better, target=None, enough=None, **more):
    """One line: the ratio kaas/Kafka is the median of the pairs' ratios. enough: (value, text) that also meets the target, a bound of the
    machine that kaas's median is at. A target of None is only reported."""
    ours, theirs = pairs.values(0, key), pairs.values(1, key)
    ratios = [a / b for a, b in zip(ours, theirs) if b]
    ratio = float(f"{statistics.median(ratios):.3g}") if ratios else None
    met = None
    if target is not None and ratio is not None:
        met = ratio >= target if better == "higher" else ratio <= target
    if enough and target is not None:
        value, text = enough
        mine = statistics.median(ours)
        met = met or (mine >= value if better == "higher" else mine <= value)
        more["or"] = f"{text}: {value:.4g} {unit}"
    return line({"what": f"{pairs.label}, {what}", "ratio": ratio, "target": target, "better": better, "kaas": spread(ours),
                 "kafka": spread(theirs), "unit": unit, "met": met, "noisy": pairs.noisy, "runs": len(pairs.used), **more})


def alone(what, values, unit, better, target=None, noisy=0, **more):
    """One line of kaas beside an absolute target; where `ratio` is given among `more`, that is what has the target."""
    mine = more.pop("ratio", None)
    got = statistics.median(values) if mine is None else mine
    met = None if target is None else (got >= target if better == "higher" else got <= target)
    return line({"what": what, "ratio": mine, "target": target, "better": better, "kaas": spread(values), "kafka": None, "unit": unit,
                 "met": met, "noisy": noisy, "runs": len(values), **more})


# what is read from a run of kaas-load

def mb_s(d):
    return d["mb_s"]


def msgs_s(d):
    return d["msgs_s"]


def mb_per_cpu_s(d):
    return d["bytes"] / 1e6 / max(d["broker_cpu_s"], 0.01)


def cpu_per_gb(d):
    return max(d["broker_cpu_s"], 0.01) / (d["bytes"] / 1e9)


def us(name, q):
    return lambda d: d[name][q]
