"""Clients that pipeline requests of every kind that waits or crosses loops, and break off in the middle.

Nothing here reads answers properly: what is tested is what the broker does with them."""

import random
import socket
import struct
import threading
import time

from .batch import make, records_of
from .wire import produce_body, string


def batch(value, producer_id=-1, epoch=-1, sequence=-1):
    """A record batch v2 of one record."""
    now = int(time.time() * 1000)
    return make([now], records_of([now], [value]), producer_id, epoch, sequence)


def frame(key, version, body, correlation=1):
    head = struct.pack(">hhi", key, version, correlation) + string("chaos")
    return struct.pack(">i", len(head + body)) + head + body


def produce(topic, partitions, records, acks):
    return frame(0, 7, produce_body(topic, dict.fromkeys(partitions, records), acks, 5000))


def fetch(topic, partitions, offset, wait_ms, min_bytes, max_bytes=1 << 20):
    body = struct.pack(">iiiib", -1, wait_ms, min_bytes, max_bytes, 0) + struct.pack(">i", 1) + string(topic)
    body += struct.pack(">i", len(partitions)) + b"".join(struct.pack(">iqi", p, offset, max_bytes) for p in partitions)
    return frame(1, 4, body)


def list_offsets(topic, partitions, timestamp):
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(partitions))
    return frame(2, 1, body + b"".join(struct.pack(">iq", p, timestamp) for p in partitions))


def join(group, member="", instance=None, session_ms=6000):
    body = string(group) + struct.pack(">ii", session_ms, 10000) + string(member)
    body += struct.pack(">h", -1) if instance is None else string(instance)
    return frame(11, 5, body + string("consumer") + struct.pack(">i", 1) + string("range") + struct.pack(">i", 4) + b"\0\0\0\0")


def leave(group, members):
    body = string(group) + struct.pack(">i", len(members))
    return frame(13, 3, body + b"".join(string(m) + struct.pack(">h", -1) for m in members))


def commit(group, topic, partitions):
    body = string(group) + struct.pack(">i", -1) + string("") + struct.pack(">q", -1) + struct.pack(">i", 1) + string(topic)
    return frame(8, 2, body + struct.pack(">i", len(partitions)) + b"".join(struct.pack(">iq", p, 1) + string("m") for p in partitions))


def metadata(topic):
    return frame(3, 1, struct.pack(">i", 1) + string(topic))


def _one(rng, topic, n, good):
    some = rng.sample(range(n + 1), rng.randint(1, n))  # n itself does not exist
    return rng.choice([
        lambda: produce(topic, some, good, rng.choice([-1, -1, 1, 1, 0])),
        lambda: produce(topic, some, good[:-1] + b"?", rng.choice([-1, 1])),
        lambda: fetch(topic, some, 0, rng.choice([0, 50, 30000]), rng.choice([1, 1 << 30])),
        lambda: fetch(topic, list(range(n)), 1 << 40, 100, 1),
        lambda: list_offsets(topic, some, rng.choice([-1, -2, 5, int(time.time() * 1000)])),
        lambda: join(f"chaos-{rng.randint(0, 3)}", instance=rng.choice([None, f"i{rng.randint(0, 3)}"])),
        lambda: leave(f"chaos-{rng.randint(0, 3)}", ["nobody", ""]),
        lambda: commit(f"chaos-{rng.randint(0, 3)}", topic, some),
        lambda: metadata(topic),
    ])()


def _client(address, topic, partitions, seed, stop, counts):
    rng = random.Random(seed)
    good = batch(rng.randbytes(rng.randint(1, 20000)))
    host, _, port = address.rpartition(":")
    while not stop.is_set():
        try:
            with socket.create_connection((host, int(port)), timeout=2) as s:
                s.settimeout(rng.choice([0.001, 0.02, 0.2]))
                for _ in range(rng.randint(1, 30)):
                    data = _one(rng, topic, partitions, good)
                    if rng.random() < 0.1:
                        data = data[:rng.randint(1, len(data))]  # ends here, and the next begins inside it
                    s.sendall(data)
                    counts[0] += 1
                    if rng.random() < 0.5:
                        try:
                            s.recv(rng.choice([1, 4096, 1 << 20]))
                        except TimeoutError:
                            pass
                if rng.random() < 0.7:  # a reset, not an orderly end
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            stop.wait(0.01)


def run(address, topic, partitions, seconds, n=8, seed=None):
    """Runs n such clients for so long; returns (requests sent, seed)."""
    seed = seed or random.randrange(1 << 32)
    stop, counts = threading.Event(), [0]
    threads = [threading.Thread(target=_client, args=(address, topic, partitions, seed + i, stop, counts)) for i in range(n)]
    for t in threads:
        t.start()
    stop.wait(seconds)
    stop.set()
    for t in threads:
        t.join()
    return counts[0], seed
