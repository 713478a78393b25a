#!/usr/bin/env python3
"""kaas beside Apache Kafka 4.4 on this machine, in turn, with the same load and the same durability. JSON lines.

./dev bench log [--runs N] [--cases a,b] [--quick]

{"what": ..., "ratio": ..., "target": ..., "better": "higher" | "lower", "kaas": [min, median, max], "kafka": [...], "unit": ..., "met": ...,
"noisy": of the runs used, those with more than a tenth of the machine taken by others, ...}. The ratio is the median of the pairs' ratios.
docs/performance.md says what is measured and how."""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from side import machine, ontime, rows  # noqa: E402
from side.kaas import Kaas  # noqa: E402
from side.kafka import JARS, Kafka  # noqa: E402
from side.rows import us  # noqa: E402
from side.side import LIMITS, new_folder  # noqa: E402

CASES = {}
SYNCED = {"log.flush.interval.messages": "1"}  # Kafka syncs each batch, as kaas always does unless told not to
BATCHES = {"1 record": 1, "16 KiB": "16k", "64 KiB": "64k"}
HOUSE = ("--conns", 4, "--inflight", 4)


def case(fn):
    CASES[fn.__name__] = fn
    return fn


class Bench:
    def __init__(self, runs, quick):
        self.runs, self.quick = runs, quick
        self.raw = {}

    def secs(self, n):
        return 1 if self.quick else n

    def size(self, mib):
        return f"{mib // 16 if self.quick else mib}m"

    @contextlib.contextmanager
    def sides(self, brokers, config=None, warm=True):
        """Both, started and warm: Kafka's code compiled, the page cache's memory with the guest."""
        with Kaas(brokers) as ours, Kafka(brokers, config) as theirs:
            ours.beside, theirs.beside = [theirs], [ours]
            for s in (theirs, ours) if warm else ():
                rows.progress(f"warming {s.name}, {brokers} broker(s)")
                t = s.topic(4, unsynced=True)
                for batch in ("64k", "16k"):
                    s.load("produce", "--topic", t, *HOUSE, "--batch", batch, "--bytes", self.size(1024))
                for pmax in ("1m", "256k"):
                    s.load("fetch", "--topic", t, "--conns", 4, "--pmax", pmax)
                s.load("e2e", "--topic", t, "--rate", 1000, "--secs", self.secs(4), "--warmup", 0)
                s.drop(t)
            machine.settle()
            yield ours, theirs

    def produced(self, s, parts, *args, unsynced=False):
        """One run on a topic of its own, whose partitions have had a record each: Kafka's followers have found their leaders by then."""
        t = s.topic(parts, unsynced=unsynced)
        s.load("produce", "--topic", t, *args[:2], "--batch", 1, "--rec", 100, "--bytes", parts * 250)
        machine.settle()
        d = s.load("produce", "--topic", t, *args)
        s.drop(t)
        return d

    def limits(self, which):
        """{what: line} of kaas-limits, measured once."""
        if which not in self.raw:
            folder = new_folder("limits")
            try:
                out = subprocess.run([str(LIMITS), str(folder), which, "0.1" if self.quick else "1"], capture_output=True, text=True,
                                     check=True).stdout
            finally:
                folder.rmdir()
            self.raw[which] = {d["what"]: d for d in map(json.loads, out.splitlines())}
        return self.raw[which]

    def take(self, sides, once, label):
        return rows.take(sides, once, label, self.runs)


@case
def limits(b):
    """What the machine itself can do."""
    for which in ("mem", "net", "disk"):
        for what, d in b.limits(which).items():
            rows.line({"limit": what, **{k: v for k, v in d.items() if k != "what"}})


# ---- produce ----

def full_and_half(b, sides, label, parts, unsynced, targets, raw=None, house=HOUSE):
    """As fast as it goes, then open loop at half of what Kafka took. targets: of MB/s, of bytes a CPU
    second, of the p99 at half load and at full load."""
    much = ("--bytes", b.size(2048)) if unsynced else ("--secs", b.secs(5))
    one = (*house, "--batch", "64k", "--rec", 1024)
    p = b.take(sides, lambda s: b.produced(s, parts, *one, *much, unsynced=unsynced), f"{label}, produce 1 KiB records, 64 KiB batches")
    enough = None
    if raw:
        most = raw["append + fdatasync, 1024 KiB"]["mb_s"]
        enough = (0.85 * most, "85 % of synced writes of 1 MiB")
    rows.row(p, "MB/s", rows.mb_s, "MB/s", "higher", targets[0], enough)
    rows.row(p, "bytes per CPU second", rows.mb_per_cpu_s, "MB/CPU s", "higher", targets[1])
    rows.row(p, "p99 at full load", us("ack_us", "p99"), "us", "lower", targets[3])
    rows.row(p, "RSS after it", lambda d: d["rss_mib"], "MiB", "lower", 1 / 15)
    rate = p.median(1, rows.mb_s) / 2
    h = b.take(sides, lambda s: b.produced(s, parts, *one, "--rate", f"{rate:.2f}", "--secs", b.secs(6), unsynced=unsynced),
               f"{label}, produce at half of Kafka's rate")
    rows.row(h, "p99", us("ack_us", "p99"), "us", "lower", targets[2], rate_mb_s=round(rate, 1))
    rows.row(h, "p50", us("ack_us", "p50"), "us", "lower", rate_mb_s=round(rate, 1))
    if raw:
        sync = raw["append + fdatasync, 64 KiB"]["us"]["p99"]
        mine = h.values(0, us("ack_us", "p99"))
        rows.alone(f"{h.label}, p99 beside that of one synced write of 64 KiB", mine, "us", "lower", 3, h.noisy,
                   ratio=round(h.median(0, us("ack_us", "p99")) / sync, 2), raw_p99_us=sync)


@case
def synced(b):
    """Each batch on the disk before its ack, one broker each."""
    with b.sides(1, SYNCED) as s:
        full_and_half(b, s, "synced, 1 broker", 16, False, (3, 5, 0.5, None), b.limits("disk"))


@case
def three(b):
    """Three kaas brokers, synced, beside three Kafka brokers, RF 3, acks=all, min.insync.replicas=2."""
    with b.sides(3) as s:
        full_and_half(b, s, "3 brokers", 16, False, (5, 10, 0.2, 0.2), house=("--conns", 6, "--inflight", 4))


@case
def relaxed(b):
    """Neither syncs: Kafka's default."""
    with b.sides(1) as s:
        full_and_half(b, s, "unsynced, 1 broker", 16, True, (1.3, 2.5, None, None))


def table(b, brokers, config, label):
    """Records, batches and partitions, each with each."""
    with b.sides(brokers, config) as s:
        for parts in (1, 16, 256):
            for name, batch in BATCHES.items():
                for rec in (1024, 100):
                    args = ("--conns", max(4, 2 * brokers), "--inflight", 16 if batch == 1 else 4, "--batch", batch, "--rec", rec, "--secs",
                            b.secs(2))
                    p = b.take(s, lambda x, a=args, n=parts: b.produced(x, n, *a),
                               f"{label}, {rec} B records, batches of {name}, {parts} partition(s)")
                    rows.row(p, "MB/s", rows.mb_s, "MB/s", "higher")
                    rows.row(p, "bytes per CPU second", rows.mb_per_cpu_s, "MB/CPU s", "higher")
                    rows.row(p, "p99", us("ack_us", "p99"), "us", "lower")


@case
def matrix(b):
    table(b, 1, SYNCED, "synced, 1 broker")


@case
def matrix3(b):
    table(b, 3, None, "3 brokers")


# ---- fetch ----

def fetched(b, sides, topics, label, targets, conns, *more, cold=False):
    """Reads topics = {side: (name, messages)} with so many connections; everything that was acknowledged must come."""
    def once(s):
        name, msgs = topics[s]
        if cold:
            machine.forget(s.dir)
        before = machine.read_bytes(s.pids())
        d = s.load("fetch", "--topic", name, "--conns", conns, *more)
        parts, repeat = d["parts"], d["repeat"]
        want = msgs * repeat * max(1, d["conns"] // parts)
        if d["msgs"] != want:
            raise SystemExit(f"{s.name}: {want} records were acknowledged, {d['msgs']} read")
        d["disk_share"] = round((machine.read_bytes(s.pids()) - before) / d["bytes"], 2)
        return d
    p = b.take(sides, once, label)
    shares = {"disk_share": [max(p.values(i, lambda d: d["disk_share"])) for i in (0, 1)]} if cold else {}
    rows.row(p, "MB/s", rows.mb_s, "MB/s", "higher", targets[0], **shares)
    rows.row(p, "CPU per GB", rows.cpu_per_gb, "CPU s/GB", "lower", targets[1])
    rows.row(p, "p99 of a fetch", us("fetch_us", "p99"), "us", "lower")


def filled(b, sides, parts, size):
    out = {}
    for s in sides:
        t = s.topic(parts, unsynced=True)
        out[s] = (t, s.load("produce", "--topic", t, *HOUSE, "--bytes", size)["msgs"])
    machine.settle()
    return out


def drop_all(topics):
    for s, (name, _) in topics.items():
        s.drop(name)


@case
def fetch(b):
    """From memory (32 MiB that were just produced, again and again), from the page cache (2 GiB), and from the disk."""
    with b.sides(1) as s:
        tail = filled(b, s, 4, "32m")
        again = 2 if b.quick else 64
        for conns, repeat in ((1, again), (4, again), (16, again // 2)):
            fetched(b, s, tail, f"fetch from memory, {conns} reader(s)", (1, 1), conns, "--repeat", repeat)
        drop_all(tail)
        one = filled(b, s, 1, "32m")
        fetched(b, s, one, "fetch from memory, 16 readers of one partition", (1, 1), 16, "--repeat", max(again // 8, 1))
        drop_all(one)
        old = filled(b, s, 4, b.size(2048))
        for conns, repeat in ((1, 2), (4, 2), (16, 1)):
            fetched(b, s, old, f"fetch from the page cache, {conns} reader(s)", (1, 1), conns, "--repeat", repeat)
        fetched(b, s, old, "fetch from the page cache, 4 readers that drop the bytes", (None, None), 4, "--repeat", 2, "--drop")
        for conns in (1, 4, 16):
            fetched(b, s, old, f"fetch from the disk, {conns} reader(s)", (None, None), conns, cold=True)


# ---- small records end to end ----

def end_to_end(b, sides, label, rates, unsynced, targets=(0.6, 0.5)):
    for rate in rates:
        def once(s, r=rate):
            t = s.topic(1, unsynced=unsynced)
            machine.settle()
            d = s.load("e2e", "--topic", t, "--rate", r, "--secs", b.secs(8), "--warmup", b.secs(2))
            if not d["sent"] == d["acked"] == d["read"]:
                raise SystemExit(f"{s.name}: sent {d['sent']}, acknowledged {d['acked']}, read {d['read']}")
            s.drop(t)
            return d
        p = b.take(sides, once, f"end to end, {label}, {rate} records of 1 KiB a second")
        for q, target in zip(("p50", "p99", "p999"), (*targets, None)):
            rows.row(p, q, us("e2e_us", q), "us", "lower", target)
        rows.row(p, "CPU", lambda d: d["broker_cpu_s"] / d["secs"], "cores", "lower")


@case
def e2e(b):
    with b.sides(1) as s:
        end_to_end(b, s, "unsynced", (1000, 5000), True)
    with b.sides(1, SYNCED) as s:
        end_to_end(b, s, "synced", (200, 500), False)


# ---- scale ----

@case
def idle(b):
    """Connections that do nothing, to processes that have just been started."""
    for n in (1000, 5000):
        def once(cls, count=n):
            with cls(1) as s:
                time.sleep(b.secs(3))
                s.load("idle", "--n", 50, "--hold", 0)
                return s.load("idle", "--n", count, "--hold", b.secs(3))
        p = b.take((Kaas, Kafka), once, f"{n} idle connections")
        rows.row(p, "process memory each", lambda d: max(d["rss_kib_each"], 0.001), "KiB", "lower", None)
        if n == 5000:
            rows.alone(f"{n} idle connections, process memory each", p.values(0, lambda d: d["rss_kib_each"]), "KiB", "lower", 4, p.noisy)
        rows.row(p, "opened", lambda d: d["reqs_s"], "connections/s", "higher")


@case
def topics(b):
    """1,000 topics of 10 partitions: created and led, then a restart with them."""
    n = 50 if b.quick else 1000
    many = ("--topic", "many", "--n", n, "--p", 10)

    def once(cls):
        with cls(1) as s:
            made = s.load("create", *many)
            rss = machine.rss_mib(s.pids())
            s.end()
            t0 = time.time()
            s.start()
            served = [s.load("first", "--topic", f"many-{i}", "--t0", t0)["since_t0_s"] for i in (0, n // 2, n - 1)]
            led = s.load("led", *many, "--t0", t0)["since_t0_s"]
            return {**made, "again_s": max(*served, led), "rss": rss}
    p = b.take((Kaas, Kafka), once, f"{n} topics of 10 partitions")
    rows.row(p, "created and led", lambda d: d["led_s"], "s", "lower")
    rows.row(p, "restarted, all led", lambda d: d["again_s"], "s", "lower")
    rows.row(p, "RSS", lambda d: d["rss"], "MiB", "lower")
    rows.alone(f"{p.label}, created and led", p.values(0, lambda d: d["led_s"]), "s", "lower", 5, p.noisy)
    rows.alone(f"{p.label}, restarted, all led", p.values(0, lambda d: d["again_s"]), "s", "lower", 3, p.noisy)


@case
def start(b):
    """From exec to the first acknowledged produce: on a new folder, and again."""
    for brokers in (1, 3):
        def once(cls, k=brokers):
            s = cls(k)
            try:
                first = s.start()
                time.sleep(b.secs(3))
                rss = machine.rss_mib(s.pids())
                t0 = time.monotonic()
                s.end()
                ended = time.monotonic() - t0
                return {"since_t0_s": first, "again_s": s.start(), "ended_s": ended, "rss": rss, "noise": 0.0}  # noise is not judged
            finally:
                s.close()
        p = b.take((Kaas, Kafka), once, f"start, {brokers} broker(s)")
        for what, key, unit in (("first", "since_t0_s", "s"), ("restart", "again_s", "s"), ("SIGTERM", "ended_s", "s"), ("RSS", "rss", "MiB")):
            rows.row(p, what, lambda d, k=key: d[k], unit, "lower")


@case
def busy(b):
    """Readiness and heartbeats while produce and fetch take all of the machine."""
    with Kaas(3) as s:
        ontime.measure(s, 6 if b.quick else 20)


# ---- in ./dev test ----

def smoke(b):
    """A few seconds of each on both; every record acknowledged is read, on both. Not among the cases of a full run."""
    with b.sides(1, SYNCED) as s:
        made = {}

        def produce(x):
            t = x.topic(4)
            d = x.load("produce", "--topic", t, *HOUSE, "--secs", 2)
            made[x] = (t, d["msgs"])
            return d
        p = b.take(s, produce, "smoke, produce")
        rows.row(p, "MB/s", rows.mb_s, "MB/s", "higher")
        rows.row(p, "bytes per CPU second", rows.mb_per_cpu_s, "MB/CPU s", "higher")
        rows.row(p, "p99", us("ack_us", "p99"), "us", "lower")
        fetched(b, s, made, "smoke, fetch", (None, None), 4, "--crc")
        end_to_end(b, s, "smoke", (200,), False, (None, None))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--runs", type=int, default=3)
    ap.add_argument("--cases", default=",".join(CASES))
    ap.add_argument("--quick", action="store_true", help="a second instead of several; figures mean little")
    ap.add_argument("--table", metavar="FILE", help="measures nothing; the lines of FILE as a table for docs/performance.md")
    a = ap.parse_args()
    if a.table:
        print("\n".join(rows.table(json.loads(text) for text in open(a.table, encoding="utf-8"))))
        return
    known = {**CASES, "smoke": smoke}
    chosen = a.cases.split(",")
    unknown = [c for c in chosen if c not in known]
    if unknown or a.runs < 1:
        ap.error(f"no case {unknown}; there are {', '.join(known)}")
    if not any(JARS.glob("kafka_2.13-*.jar")):
        raise SystemExit(f"Apache Kafka is not in {JARS}: ./dev bench fetches it")
    b = Bench(a.runs, a.quick)
    t0 = time.monotonic()
    for c in chosen:
        rows.progress(f"== {c}")
        known[c](b)
    rows.progress(f"{time.monotonic() - t0:.0f} s")


if __name__ == "__main__":
    main()
