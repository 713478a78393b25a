"""confluent-kafka behind the command line of ../README.md."""

import hashlib
import json
import sys
import time

from confluent_kafka import Consumer, Producer

IDLE_S = 60


def value(i):
    n = 65536 if i % 1000 == 0 else 1 + (i * 7919) % 1024
    period = bytes(97 + (i * 7 + j * 13) % 26 for j in range(26))
    return (period * (n // 26 + 1))[:n]


def produce(bootstrap, topic, first, count):
    result = {"sent": 0, "failed": 0}

    def on_delivery(error, _message):
        result["failed" if error else "sent"] += 1
        if error:
            print("send failed:", error, file=sys.stderr)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5,
                         "enable.idempotence": True})
    for i in range(first, first + count):
        while True:
            try:
                producer.produce(topic, key=f"k{i}", value=value(i), on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush()
    print(json.dumps(result))


def consume(bootstrap, topic, group, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group,
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    seen, records, digest = set(), 0, 0
    last = time.monotonic()
    while len(seen) < count and time.monotonic() - last < IDLE_S:
        batch = consumer.consume(num_messages=1000, timeout=0.5)
        for m in batch:
            if m.error():
                print("fetch error:", m.error(), file=sys.stderr)
                continue
            records += 1
            last = time.monotonic()
            if m.key() not in seen:
                seen.add(m.key())
                h = hashlib.sha256(m.key() + b"\0" + m.value()).digest()
                digest = (digest + int.from_bytes(h[:8], "big")) % 2**64
        if records and batch:
            consumer.commit(asynchronous=False)
    consumer.close()
    print(json.dumps({"records": records, "unique": len(seen), "digest": f"{digest:016x}"}))


def main(argv):
    if len(argv) == 5 and argv[0] == "produce":
        produce(argv[1], argv[2], int(argv[3]), int(argv[4]))
    elif len(argv) == 5 and argv[0] == "consume":
        consume(argv[1], argv[2], argv[3], int(argv[4]))
    else:
        print("usage: produce BOOTSTRAP TOPIC FIRST COUNT | consume BOOTSTRAP TOPIC GROUP COUNT", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
