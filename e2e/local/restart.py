#!/usr/bin/env python3
"""A whole cluster is stopped, or killed, and started again: every partition acknowledges within seconds, whatever the
logs hold, because openings read what came after the last checkpoint only (docs/adr/0014).

KAAS_SOAK=1: 5,000 partitions and 10 GB, timed (RESTART_S, 5 s). Else a small cluster, no times."""

import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import chaos, local, runner, wire  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = os.environ.get("KAAS_SOAK") == "1"
BULK, MANY = (100, 4900) if SOAK else (4, 60)  # partitions with much data, with little
BULK_MB = int(os.environ.get("RESTART_BULK_MB", "102" if SOAK else "40"))  # in each of the former
LIMIT_S = float(os.environ.get("RESTART_S", "5"))
TOPIC_MAX = 1000  # partitions of a topic
RECOVERY_MAX = 64 << 20


def topics():
    out = {"bulk": BULK}
    for i in range(0, MANY, TOPIC_MAX):
        out[f"many-{i // TOPIC_MAX}"] = min(TOPIC_MAX, MANY - i)
    return out


def produce(conn, topic, partitions, records):
    """{partition: error} of one Produce request with acks=all."""
    conn.sock.sendall(chaos.produce(topic, partitions, records, -1))
    b = wire.Buf(conn.frame())
    b.take("i")
    out = {}
    for _ in range(b.take("i")):
        n = b.take("h")
        b.pos += n
        for _ in range(b.take("i")):
            p, error, _, _, _ = b.take("i"), b.take("h"), b.take("q"), b.take("q"), b.take("q")
            out[p] = error
    return out


def leaders(c, n=0):
    """{broker: {topic: [partitions]}}"""
    with wire.Conn(c.address(n), timeout_s=20) as conn:
        meta = conn.metadata(list(topics()))
    out = {}
    for name, t in meta["topics"].items():
        for p, row in t["partitions"].items():
            if row["leader"] >= 0:
                out.setdefault(row["leader"], {}).setdefault(name, []).append(p)
    return out


def every_broker(c, todo, fn):
    """fn(connection, topic, partitions) for what each broker leads, all brokers at once."""
    errors = []

    def one(broker, parts):
        try:
            with wire.Conn(c.address(broker), timeout_s=60) as conn:
                for topic, partitions in parts.items():
                    fn(conn, topic, partitions)
        except Exception as e:  # noqa: BLE001 - told by the caller
            errors.append(e)
    threads = [threading.Thread(target=one, args=item) for item in todo.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors


def fill(c, megabytes, small=None):
    """That many batches of 1 MB into each partition of `bulk`, one of `small` into each of the others."""
    large = chaos.batch(os.urandom(1_000_000))

    def put(conn, topic, partitions):
        step = 16 if topic == "bulk" else 500
        for i in range(0, len(partitions), step):
            part = partitions[i:i + step]
            for _ in range(megabytes if topic == "bulk" else bool(small)):
                check(not any(produce(conn, topic, part, large if topic == "bulk" else small).values()), "fill failed")
    errors = every_broker(c, leaders(c), put)
    check(not errors, errors)


def all_acknowledge(c, deadline):
    """Produces to every partition until each has acknowledged once; refused ones again, by fresh metadata."""
    batch = chaos.batch(b"after")
    want = {(t, p) for t, n in topics().items() for p in range(n)}
    done, lock = set(), threading.Lock()
    first = None
    t0 = time.monotonic()

    def put(conn, topic, partitions):
        nonlocal first
        got = produce(conn, topic, [p for p in partitions if (topic, p) not in done], batch)
        with lock:
            done.update((topic, p) for p, error in got.items() if error == 0)
            first = first or (time.monotonic() - t0 if done else None)
    n = 0
    while done != want:
        check(time.monotonic() < deadline, f"{len(want - done)} of {len(want)} do not acknowledge, such as {sorted(want - done)[:3]}")
        try:
            now = leaders(c, n % c.replicas)
        except (OSError, KeyError, ValueError):
            n += 1
            time.sleep(0.05)
            continue
        todo = {b: {t: rest for t, ps in parts.items() if (rest := [p for p in ps if (t, p) not in done])}
                for b, parts in now.items()}
        every_broker(c, {b: parts for b, parts in todo.items() if parts}, put)
        time.sleep(0.05)
    return first


def again(c, end):
    before = {t: c_end(c, t, 0) for t in topics()}
    t0 = time.monotonic()
    end()
    stopped = time.monotonic() - t0
    t0 = time.monotonic()
    c.start()
    first = all_acknowledge(c, t0 + 120)
    took = time.monotonic() - t0
    most = max(c.metrics(n)["kaas_storage_open_read_bytes_max"] for n in range(c.replicas))
    read = sum(c.metrics(n)["kaas_storage_open_read_bytes_total"] for n in range(c.replicas))
    check(most <= RECOVERY_MAX, f"an opening read {most / 1e6:.0f} MB")
    for t, offset in before.items():
        check(c_end(c, t, 0) > offset, f"{t} lost records")
    note = (f"stopped in {stopped:.1f} s, first ack after {first:.1f} s, all {BULK + MANY} partitions after {took:.1f} s, "
            f"read {read / 1e6:.1f} MB, at most {most / 1e6:.1f} MB for one")
    print(f"     {note}", flush=True)
    return took, most, note


def c_end(c, topic, partition):
    def probe():
        b = next(b for b, parts in leaders(c).items() if partition in parts.get(topic, ()))
        with wire.Conn(c.address(b), timeout_s=20) as conn:
            return conn.end_offset(topic, partition) + 1
    return eventually(probe, 30, what=f"end of {topic}-{partition}") - 1


@scenario
def a_volume_is_filled(c):
    t0 = time.monotonic()
    for name, n in topics().items():
        with wire.Conn(c.address(0), timeout_s=60) as conn:
            eventually(lambda name=name, n=n, conn=conn: conn.create_topics([name], n)[name] in (0, 36), 30, what=name)
    want = sum(topics().values())
    eventually(lambda: sum(len(p) for b in leaders(c).values() for p in b.values()) == want, 120, what="leaders")
    all_acknowledge(c, time.monotonic() + 120)
    made = time.monotonic() - t0
    fill(c, BULK_MB, chaos.batch(b"x" * 1000))
    return f"{want} partitions in {made:.1f} s, {BULK * BULK_MB / 1000:.1f} GB in all after {time.monotonic() - t0:.1f} s"


@scenario
def a_planned_restart_serves_everything_at_once(c):
    took, most, note = again(c, c.stop)
    check(most < 1 << 20, "a planned stop left something to read")
    check(not SOAK or took <= LIMIT_S, f"serving after {took:.1f} s")
    return note


@scenario
def a_cluster_that_was_killed_reads_no_more_than_its_last_checkpoints(c):
    fill(c, 7)  # what came after the last checkpoints

    def kill():
        pids = c.pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)  # first: the operator's end would have them stop in order
        c.operator.kill()
        c.operator.wait()
        eventually(lambda: not c.pids(), 20, what="brokers gone")
    _, most, note = again(c, kill)
    check(most > 7_000_000, "nothing was left to read")
    return note


def main():
    with local.LocalCluster() as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
