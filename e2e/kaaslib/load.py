"""Producing and consuming in the background of a fault, with a history to check afterwards.

Runs as a program of its own on the confluent-kafka environment, so that the scenario's interpreter
stays free:

    load.py produce BOOTSTRAP TOPIC SECONDS RATE idempotent|plain FIRST   → JSON history on stdout
    load.py drain BOOTSTRAP TOPIC                                   → JSON of everything in the topic
"""

import json
import subprocess
import sys
import time


def produce(bootstrap, topic, seconds, rate, idempotent, first):
    from confluent_kafka import Producer
    acked, failed = [], []

    def on_delivery(error, m):
        if error:
            failed.append([m.value().decode(), str(error)])
        else:
            acked.append([m.value().decode(), m.partition(), m.offset(), round(time.time() - t0, 3)])

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "enable.idempotence": idempotent,
                         "message.timeout.ms": 120000, "retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 5000,
                         "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500})
    t0, i = time.time(), 0
    while time.time() - t0 < seconds:
        due = int((time.time() - t0) * rate)
        while i < due:
            try:
                producer.produce(topic, value=f"v{first + i}", on_delivery=on_delivery, partition=i % PARTITIONS)
            except BufferError:
                break
            i += 1
        producer.poll(0.005)
    left = producer.flush(150)
    print(json.dumps({"sent": i, "acked": acked, "failed": failed, "unflushed": left}))


def drain(bootstrap, topic):
    from confluent_kafka import Consumer, TopicPartition
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "drain", "enable.auto.commit": False,
                         "auto.offset.reset": "earliest"})
    out = []
    for p in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)
        consumer.assign([TopicPartition(topic, p, low)])
        at, idle = low, 0
        while at < high and idle < 100:
            m = consumer.poll(0.2)
            if m is None or m.error():
                idle += 1
                continue
            idle = 0
            at = m.offset() + 1
            out.append([m.value().decode(), p, m.offset()])
        if at < high:
            raise SystemExit(f"partition {p}: read up to {at} of {high}")
    consumer.close()
    print(json.dumps(out))


PARTITIONS = 6


def _command(*args):
    from . import clients
    return [str(clients.CACHE / "venv/bin/python"), __file__, *map(str, args)]


class Producing:
    """A producer running beside the scenario."""

    def __init__(self, bootstrap, topic, seconds, rate=500, idempotent=True, first=0, wrap=()):
        mode = "idempotent" if idempotent else "plain"
        self.proc = subprocess.Popen([*wrap, *_command("produce", bootstrap, topic, seconds, rate, mode, first)],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def history(self, timeout_s=400):
        out, err = self.proc.communicate(timeout=timeout_s)
        if self.proc.returncode:
            raise RuntimeError(f"producer: exit {self.proc.returncode}: {err[-1000:]}")
        return json.loads(out)


def everything(bootstrap, topic, wrap=()):
    r = subprocess.run([*wrap, *_command("drain", bootstrap, topic)], capture_output=True, text=True, timeout=300, check=False)
    if r.returncode:
        raise RuntimeError(f"drain: {r.stderr[-1000:]}")
    return json.loads(r.stdout)


def longest_gap(history):
    """Longest time in seconds without an acknowledged record, per partition, worst first."""
    gaps = {}
    for p in range(PARTITIONS):
        times = sorted(a[3] for a in history["acked"] if a[1] == p)
        gaps[p] = max((b - a for a, b in zip(times, times[1:])), default=0)
    return max(gaps.values())


def check_history(history, final, idempotent=True):
    """Every acknowledged record is in the log once, at the offset that was acknowledged, in order of sending. Returns findings."""
    bad = []
    at = {}
    for value, p, offset in final:
        if (p, offset) in at:
            bad.append(f"offset {p}/{offset} read twice")
        at[(p, offset)] = value
    seen = {}
    for value, p, offset in final:
        seen.setdefault(value, []).append((p, offset))
    for value, p, offset, _ in history["acked"]:
        if at.get((p, offset)) != value:
            bad.append(f"acknowledged {value} at {p}/{offset}, the log has {at.get((p, offset))!r}")
    if idempotent:
        bad += [f"{v} stands at {places}" for v, places in seen.items() if len(places) > 1]
        for p in range(PARTITIONS):
            order = [int(v[1:]) for v, q, _ in sorted(final, key=lambda r: (r[1], r[2])) if q == p]
            if order != sorted(order):
                bad.append(f"partition {p}: order of sending not kept")
    return bad


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]), sys.argv[6] == "idempotent", int(sys.argv[7]))
    else:
        drain(sys.argv[2], sys.argv[3])
