"""confluent-kafka (librdkafka) writing down what it asks for and is told: ../README.md and ../../history/README.md."""

import json
import os
import random
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

OUTSTANDING_MAX = 2000
FAST = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50,
        "topic.metadata.refresh.interval.ms": 5000}
SESSION = {"session.timeout.ms": 10000}
if os.environ.get("KAAS_CLIENT_DEFAULTS"):
    FAST = SESSION = {}  # as patient as the library is by itself


def now():
    return time.time_ns() // 1000


class File:
    def __init__(self, path, number, name):
        self.file, self.lock, self.begun = open(path, "w", encoding="ascii", buffering=1 << 16), threading.Lock(), False
        self.line("P", number, name)

    def line(self, *fields):
        text = " ".join(map(str, fields)) + "\n"
        with self.lock:
            self.file.write(text)
            if not self.begun and fields[0] in ("a", "p"):  # whoever waits for this client to work sees it
                self.file.flush()
                self.begun = True

    def flush(self):
        """Whatever happens to this process next, what was written so far is there."""
        with self.lock:
            self.file.flush()

    def close(self):
        self.file.close()


def until_stdin_ends():
    """An event that is set when whoever started us lets go."""
    done = threading.Event()

    def wait():
        sys.stdin.read()
        done.set()
    threading.Thread(target=wait, daemon=True).start()
    return done


def parse_topics(spec):
    """[(topic, partition)] of "topic:partitions,…"."""
    out = []
    for part in spec.split(","):
        name, _, n = part.rpartition(":")
        out += [(name, i) for i in range(int(n))]
    return out


# ---- producing ----

def produce(path, number, bootstrap, spec, rate, mode):
    idempotent = mode == "idempotent"
    # Not "ordered" if plain: its one request in flight is one a broker, and after a change of leader later records may overtake.
    out = File(path, number, f"librdkafka-{mode}{' idempotent' if idempotent else ''}")
    places = parse_topics(spec)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "batch.size": 100000,
                         "enable.idempotence": idempotent,
                         "max.in.flight.requests.per.connection": 5 if idempotent else 1, "message.timeout.ms": 180000, **FAST})
    counts = {"sent": 0, "acked": 0, "unknown": 0}

    def on_delivery(error, m):
        value = m.value().split(b" ", 1)[0].decode()
        if error:
            counts["unknown"] += 1
            out.line("u", now(), value)
        else:
            counts["acked"] += 1
            offset = m.offset()
            out.line("a", now(), value, m.partition(), offset if offset is not None and offset >= 0 else -1)

    done, begun, i = until_stdin_ends(), time.monotonic(), 0
    while not done.is_set():
        due = min(int((time.monotonic() - begun) * rate), counts["acked"] + counts["unknown"] + OUTSTANDING_MAX)
        while i < due:
            topic, partition = places[i % len(places)]
            value = (number << 40) + i
            key, filler = i % 53, i * 7919 % 300
            i += 1
            out.line("s", now(), topic, partition, value, key)
            try:
                producer.produce(topic, key=str(key), value=f"{value} {'x' * filler}", partition=partition,
                                 on_delivery=on_delivery)
            except KafkaException as e:  # an idempotent producer that lost track gives up for good
                counts["fatal"] = str(e)
                break
        try:
            producer.poll(0.005)
        except KafkaException as e:
            counts["fatal"] = str(e)
        if "fatal" in counts:
            done.wait()
    counts["sent"] = i
    if "fatal" not in counts:
        producer.flush(200)
    out.close()
    print(json.dumps(counts))


# ---- consuming ----

def log_messages(out, t0, messages):
    """A line for each partition of a poll; returns {(topic, partition): next offset}."""
    t1, polls = now(), {}
    for m in messages:
        if m.error():
            print("fetch error:", m.error(), file=sys.stderr)
            continue
        value = m.value().split(b" ", 1)[0].decode()
        polls.setdefault((m.topic(), m.partition()), []).append((m.offset(), value))
    for (topic, partition), records in polls.items():
        out.line("p", t0, t1, topic, partition, *(f"{o}:{v}" for o, v in records))
    return {place: records[-1][0] + 1 for place, records in polls.items()}


def watch(out, bootstrap, places, done):
    """Asks for watermarks all the time, on a connection of its own."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch", **FAST})
    rng = random.Random()
    while not done.wait(0.2):
        topic, partition = rng.choice(places)
        t0 = now()
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        except KafkaException:
            continue
        out.line("w", t0, now(), topic, partition, low, high)
    consumer.close()


def consume(path, number, bootstrap, spec):
    """Follows every partition; now and then a partition goes back some records and reads them again."""
    out, places, done, rng = File(path, number, "librdkafka-assign"), parse_topics(spec), until_stdin_ends(), random.Random()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "assign", "enable.auto.commit": False,
                         "auto.offset.reset": "earliest", **FAST})
    consumer.assign([TopicPartition(t, p, 0) for t, p in places])
    for t, p in places:
        out.line("r", now(), t, p, 0)
    watcher = threading.Thread(target=watch, args=(out, bootstrap, places, done))
    watcher.start()
    at, read, again = {}, 0, time.monotonic() + 5
    while not done.is_set():
        t0 = now()
        messages = consumer.consume(500, 0.2)
        read += len(messages)
        at.update(log_messages(out, t0, messages))
        if time.monotonic() > again and at:
            again = time.monotonic() + rng.uniform(3, 8)
            (topic, partition), offset = rng.choice(list(at.items()))
            offset = max(0, offset - rng.randint(1, 1000))
            try:
                consumer.seek(TopicPartition(topic, partition, offset))
            except KafkaException:
                continue  # not fetching it at this moment
            out.line("r", now(), topic, partition, offset)
    watcher.join()
    consumer.close()
    out.close()
    print(json.dumps({"read": read}))


def group(path, number, bootstrap, spec, name):
    """A member of a group: commits after every poll, asks what is committed whenever it is assigned something."""
    out, done = File(path, number, "librdkafka-group"), until_stdin_ends()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False,
                         "auto.offset.reset": "earliest",
                         "partition.assignment.strategy": "range", **SESSION, **FAST})

    def on_assign(_, partitions):
        t0 = now()
        try:
            told = consumer.committed(partitions, timeout=30)
        except KafkaException:
            told = None  # librdkafka asks again by itself
        for i, tp in enumerate(partitions):
            if told and not told[i].error:
                offset = max(told[i].offset, -1)
                out.line("o", t0, now(), name, tp.topic, tp.partition, offset)
            out.line("r", now(), tp.topic, tp.partition, -1)

    consumer.subscribe(sorted({t for t, _ in parse_topics(spec)}), on_assign=on_assign)
    read = commits = 0
    while not done.is_set():
        t0 = now()
        messages = consumer.consume(500, 0.5)
        at = log_messages(out, t0, messages)
        read += len(messages)
        if not at:
            continue
        t0 = now()
        for (topic, partition), offset in at.items():
            out.line("b", t0, name, topic, partition, offset)
        out.flush()
        try:
            results = consumer.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in at.items()], asynchronous=False)
            failed = {(r.topic, r.partition): r.error for r in results if r.error}
        except KafkaException as e:
            failed = dict.fromkeys(at, e)
        for (topic, partition), error in failed.items():
            print("commit:", topic, partition, error, file=sys.stderr, flush=True)
        commits += 1
        for (topic, partition), offset in at.items():
            how = "unknown" if (topic, partition) in failed else "ok"
            out.line("c", t0, now(), name, topic, partition, offset, how)
    consumer.close()
    out.close()
    print(json.dumps({"read": read, "commits": commits}))


# ---- the end ----

def watermarks(consumer, topic, partition):
    """Asks until a leader answers: whoever leads may just have taken over."""
    end = time.monotonic() + 90
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        except KafkaException:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def read(path, number, bootstrap, spec):
    """Reads every partition from its start to its high watermark."""
    out, total = File(path, number, "librdkafka-final"), 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "final", "enable.auto.commit": False,
                         "auto.offset.reset": "error", **FAST})
    for topic, partition in parse_topics(spec):
        low, high = watermarks(consumer, topic, partition)
        consumer.assign([TopicPartition(topic, partition, low)])
        out.line("r", now(), topic, partition, low)
        at, idle = low, time.monotonic()
        while at < high and time.monotonic() - idle < 60:
            t0 = now()
            messages = consumer.consume(1000, 0.5)
            moved = log_messages(out, t0, messages)
            total += len(messages)
            if moved:
                at, idle = moved[(topic, partition)], time.monotonic()
        if at < high:
            raise SystemExit(f"{topic}/{partition}: read up to {at} of {high}")
        out.line("e", now(), topic, partition, low, high)
    consumer.close()
    out.close()
    print(json.dumps({"read": total}))


def main(argv):
    verb, path, number, bootstrap, spec, *rest = argv
    if verb == "produce":
        produce(path, int(number), bootstrap, spec, float(rest[0]), rest[1])
    else:
        {"consume": consume, "group": group, "read": read}[verb](path, int(number), bootstrap, spec, *rest)


if __name__ == "__main__":
    main(sys.argv[1:])
