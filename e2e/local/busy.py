#!/usr/bin/env python3
"""Saturation never evicts (R42): all cores at 100 % by clients' floods and by processes that only burn, and no broker is lost, no epoch
grows, no readiness flaps. The floods are of small produces and of large fetches to all three brokers; readiness is asked as a kubelet
asks, and more often. KAAS_SOAK=1: 30 minutes; else 20 s. KAAS_BUSY_S changes that.

A file of the test's own beside the volume is written and synced meanwhile; a failure tells how long that took at most, so that a disk
that stood still by itself can be told from one that brokers do not get to.

busy.py produce | fetch BOOTSTRAP, busy.py burn: the load itself, processes of their own; they end with their standard input."""

import asyncio
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import chaos, local, runner, stream  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
SECONDS = float(os.environ.get("KAAS_BUSY_S", 1800 if SOAK else 20))
BUILD = os.environ.get("KAAS_BUILD", "release")
TOPIC, PARTITIONS = "busy", 48
CONFIGS = {"segment.bytes": str(16 << 20), "retention.bytes": str(32 << 20)}
PROBE_S, EVERY_S = 1.0, 0.25  # the kubelet's timeout; it asks every 2 s
TIMEOUT_S = 3.0  # of heartbeats
BUSY = 0.98  # of all cores' time


# ---- the load ----

def ended():
    return select.select([sys.stdin], [], [], 0)[0]


async def produce(bootstrap):
    s = stream.Stream(bootstrap, TOPIC, PARTITIONS, 0.001)
    await s.start()
    while not ended():
        await asyncio.sleep(0.2)
    print(s.acks, sum(s.errors.values()), flush=True)
    s.stop()


def fetch_from(address, got):
    ask = chaos.fetch(TOPIC, range(PARTITIONS), 0, 100, 1, 4 << 20)
    host, _, port = address.rpartition(":")
    buf = bytearray(1 << 20)
    try:
        with socket.create_connection((host, int(port)), timeout=60) as s:
            while True:
                s.sendall(ask)
                left = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))[0]
                got[0] += left
                while left > 0:
                    n = s.recv_into(buf, min(left, len(buf)))
                    if n == 0:
                        raise ConnectionError("closed by the broker")
                    left -= n
    except (OSError, struct.error) as e:
        print(f"fetch from {address}: {e}", file=sys.stderr, flush=True)
        os._exit(1)  # which the suite sees


def fetch(bootstrap):
    got = [0]
    for address in bootstrap.split(","):
        threading.Thread(target=fetch_from, args=(address, got), daemon=True).start()
    while not ended():
        time.sleep(0.2)
    print(got[0], flush=True)


def burn():
    while not ended():
        for _ in range(1_000_000):
            pass


class Load:
    """Two producers, a fetcher, and a burner for each core."""

    def __init__(self, bootstrap):
        verbs = [("produce", bootstrap), ("produce", bootstrap), ("fetch", bootstrap), *[("burn",)] * os.cpu_count()]
        self.procs = [(v[0], subprocess.Popen([sys.executable, __file__, *v], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                      for v in verbs]

    def running(self):
        return all(p.poll() is None for _, p in self.procs)

    def stop(self):
        """[(verb, its numbers)]"""
        return [(verb, [int(x) for x in p.communicate("\n", timeout=60)[0].split()]) for verb, p in self.procs]

    def kill(self):
        for _, p in self.procs:
            p.kill()
            p.wait()


# ---- what is looked at ----

def core_seconds():
    """(idle, all) seconds of all cores so far."""
    n = [int(x) for x in open("/proc/stat", encoding="ascii").readline().split()[1:9]]
    return (n[3] + n[4]) / os.sysconf("SC_CLK_TCK"), sum(n) / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """Looks at one broker all the time: its readiness, its loops, and how long it sent no heartbeat."""

    def __init__(self, c, n):
        super().__init__(daemon=True)
        self.c, self.n, self.over = c, n, threading.Event()
        self.bad, self.looks, self.slowest, self.loop_ms, self.silent_s = [], 0, 0.0, 0.0, 0.0

    def run(self):
        sent, since = -1, time.monotonic()
        while not self.over.wait(EVERY_S):
            t0 = time.monotonic()
            try:
                code, body = self.c.readyz(self.n, PROBE_S)
            except OSError as e:
                code, body = 0, repr(e)
            took = time.monotonic() - t0
            self.looks += 1
            self.slowest = max(self.slowest, took)
            if code != 200 or took > PROBE_S:
                self.bad.append((code, round(took, 3), body))
                continue
            m = self.c.metrics(self.n, 10)
            self.loop_ms = max([self.loop_ms, *(v for k, v in m.items() if k.startswith("kaas_loop_age_ms{"))])
            now = time.monotonic()
            self.silent_s = max(self.silent_s, now - since)
            if m["kaas_heartbeats_sent_total"] != sent:
                sent, since = m["kaas_heartbeats_sent_total"], now


class Disk(threading.Thread):
    """Writes and syncs a file of its own on the volume's file system: the longest that took."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.path, self.over, self.longest_s, self.since = folder / "disk", threading.Event(), 0.0, None

    def run(self):
        with open(self.path, "wb", buffering=0) as f:
            while not self.over.wait(EVERY_S):
                self.since = t0 = time.monotonic()
                os.pwrite(f.fileno(), os.urandom(4096), 0)
                os.fdatasync(f.fileno())
                self.longest_s, self.since = max(self.longest_s, time.monotonic() - t0), None

    def so_far(self):
        since = self.since
        return max(self.longest_s, time.monotonic() - since if since else 0.0)


def rows(c):
    return {r["id"]: (r["state"], r["health"], r["incarnation"], r["reason"]) for r in c.status()["brokers"]}


@scenario
def saturation_evicts_nobody(c):
    c.create_topic(TOPIC, PARTITIONS, CONFIGS)
    check(set(c.led_by(TOPIC).values()) == {0, 1, 2}, "leaders everywhere", c.leaders(TOPIC))
    before, epochs_before, pids = rows(c), c.leaders(TOPIC), c.pids()
    load, watches, changed, control_ms = Load(c.bootstrap), [Watch(c, n) for n in range(3)], [], 0.0
    try:
        time.sleep(2)  # the interpreters have started
        for w in watches:
            w.start()
        idle, every = core_seconds()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            check(load.running(), "a load ended by itself")
            now = rows(c)
            changed += [now] if now != before else []
            control_ms = max(control_ms, c.metrics(None, 10)["kaas_operator_control_loop_age_ms"])
            time.sleep(0.1)
        idle, every = (b - a for a, b in zip((idle, every), core_seconds()))
        for w in watches:
            w.over.set()
            w.join()
        loads = load.stop()
    finally:
        load.kill()
    busy = 1 - idle / every
    acks = sum(n[0] for verb, n in loads if verb == "produce")
    refused = sum(n[1] for verb, n in loads if verb == "produce")
    fetched = sum(n[0] for verb, n in loads if verb == "fetch")
    says = (f"{SECONDS:.0f} s at {100 * busy:.1f} % of {os.cpu_count()} cores, {acks} acks, {fetched >> 20} MiB fetched; "
            f"{sum(w.looks for w in watches)} probes, slowest {1000 * max(w.slowest for w in watches):.0f} ms; longest without a heartbeat "
            f"{max(w.silent_s for w in watches):.2f} s; oldest tick of a data loop {max(w.loop_ms for w in watches):.0f} ms, of the operator's "
            f"control loop {control_ms:.0f} ms")
    check(busy >= BUSY, "not saturated:", says)
    check(acks > 0 and fetched > 0, "no load:", says)
    check(not changed, f"a broker's row changed {len(changed)} times, first to", changed[:1], says)
    flaps = [(w.n, *b) for w in watches for b in w.bad]
    check(not flaps, f"{len(flaps)} probes not 200, first:", flaps[:3], says)
    check(max(w.silent_s for w in watches) < TIMEOUT_S, "R42:", says)
    check(eventually(lambda: c.leaders(TOPIC), 10) == epochs_before and not refused, "leaders moved", refused, epochs_before, c.leaders(TOPIC))
    check(c.pids() == pids and rows(c) == before, "brokers", rows(c), before)
    check(all(c.metrics(n)["kaas_incarnations_total"] == 1 for n in range(3)), "an incarnation was lost")
    return says


def tell(c, disk):
    print(f"--- longest sync of the test's own: {disk.so_far():.2f} s")
    c.tail()


def main():
    with local.LocalCluster(build=BUILD) as c:
        disk = Disk(c.dir)
        disk.start()
        try:
            return runner.run(c, sys.argv[1:], on_failure=lambda _: tell(c, disk))
        finally:
            disk.over.set()


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        asyncio.run(produce(sys.argv[2]))
    elif sys.argv[1:2] == ["fetch"]:
        fetch(sys.argv[2])
    elif sys.argv[1:2] == ["burn"]:
        burn()
    else:
        sys.exit(main())
