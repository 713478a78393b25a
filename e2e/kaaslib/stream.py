"""An acking producer stream over many partitions at once, in one thread: Produce 7 and Metadata 7 in raw bytes.

Each partition has at most one batch on its way. A turn sends one request to every broker with a batch for each of its partitions that
waits for none, and comes again PERIOD after the answer. Whoever is refused asks for Metadata and tries again. What is measured is the
time between two acks of a partition."""

import asyncio
import struct
import time

from . import wire

PART = struct.Struct(">ihqqq")  # index, error, base offset, append time, log start
RETRY_S = 0.005


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batch(value):
    """A batch v2 of one record without key and headers; value is shorter than 60 bytes."""
    record = b"\0\0\0\1" + bytes([2 * len(value)]) + value + b"\0"
    now = int(time.time() * 1000)  # retention would drop what is older than a week
    body = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + bytes([2 * len(record)]) + record
    tail = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return struct.pack(">qi", 0, len(tail)) + tail


class Conn:
    def __init__(self, address):
        self.address, self.correlation, self.writer = address, 0, None

    async def call(self, key, version, body):
        if not self.writer:
            host, _, port = self.address.rpartition(":")
            self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
        self.correlation += 1
        head = struct.pack(">hhi", key, version, self.correlation) + wire.string("stream")
        self.writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        answer = await self.reader.readexactly(size)
        if struct.unpack_from(">i", answer)[0] != self.correlation:
            raise ConnectionError("an answer to something else")
        return answer[4:]

    def hang_up(self):
        if self.writer:
            self.writer.close()
        self.writer = None


class Broker:
    """The partitions one broker leads, and the turns that write to them."""

    def __init__(self, stream, address):
        self.stream, self.conn = stream, Conn(address)
        self.parts = set()
        self.wake = asyncio.Event()
        self.task = asyncio.create_task(self.run())

    async def run(self):
        s = self.stream
        while True:
            if not self.parts:
                self.wake.clear()
                await self.wake.wait()
            parts = sorted(self.parts)
            try:
                refused = s.acked(await self.conn.call(0, 7, s.produce_body(parts)))
                pause = s.period_s
            except (OSError, asyncio.IncompleteReadError):
                self.conn.hang_up()
                refused, pause = parts, RETRY_S
            if refused:
                s.look_again()
                pause = RETRY_S if len(refused) == len(parts) else pause
            await asyncio.sleep(pause)


class Stream:
    def __init__(self, bootstrap, topic, partitions, period_s):
        self.bootstrap, self.topic, self.n, self.period_s = bootstrap.split(","), topic, partitions, period_s
        data = batch(b"v" * 20)
        self.rows = [struct.pack(">ii", i, len(data)) + data for i in range(partitions)]
        now = time.monotonic()
        self.last = [now] * partitions
        self.gap = [0.0] * partitions
        self.leader = {}
        self.brokers, self.lookers = {}, {}
        self.acks = 0
        self.errors = {}
        self.looking = None

    def produce_body(self, parts):
        return (struct.pack(">hhii", -1, -1, 30000, 1) + wire.string(self.topic) + struct.pack(">i", len(parts)) +
                b"".join(self.rows[p] for p in parts))

    def acked(self, answer):
        """Notes the acks; returns who was refused."""
        at = 4 + 2 + len(self.topic)
        n = struct.unpack_from(">i", answer, at)[0]
        now, refused = time.monotonic(), []
        for index, error, _, _, _ in PART.iter_unpack(answer[at + 4:at + 4 + n * PART.size]):
            if error:
                refused.append(index)
                self.errors[error] = self.errors.get(error, 0) + 1
                continue
            self.acks += 1
            self.gap[index] = max(self.gap[index], now - self.last[index])
            self.last[index] = now
        return refused

    # ---- leaders ----

    def look_again(self):
        if self.looking is None or self.looking.done():
            self.looking = asyncio.create_task(self.look())

    async def look(self):
        """Metadata of every broker: the highest epoch is the newest."""
        for address in self.bootstrap:
            conn = self.lookers.setdefault(address, Conn(address))
            try:
                body = struct.pack(">i", 1) + wire.string(self.topic) + b"\0"
                self.learn(await asyncio.wait_for(conn.call(3, 7, body), 1))
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                conn.hang_up()
        await asyncio.sleep(RETRY_S)

    def learn(self, answer):
        b = wire.Buf(answer)

        def string():
            n = b.take("h")
            b.pos += max(n, 0)
            return b.data[b.pos - n:b.pos].decode() if n > 0 else ""

        b.take("i")
        for _ in range(b.take("i")):
            ident, host, port = b.take("i"), string(), b.take("i")
            string()
            if ident not in self.brokers:
                self.brokers[ident] = Broker(self, f"{host}:{port}")
        string()
        b.take("i")
        if b.take("i") != 1:
            return
        b.take("h")
        string()
        b.take("?")
        for _ in range(b.take("i")):
            error, index, leader, epoch = b.take("h"), b.take("i"), b.take("i"), b.take("i")
            for _ in range(3):
                count = b.take("i")
                b.pos += 4 * count
            if error == 0 and leader in self.brokers and epoch >= self.leader.get(index, (-1, -1))[0]:
                self.lead(index, epoch, leader)

    def lead(self, index, epoch, leader):
        old = self.leader.get(index)
        if old == (epoch, leader):
            return
        if old and old[1] != leader:
            self.brokers[old[1]].parts.discard(index)
        self.leader[index] = (epoch, leader)
        self.brokers[leader].parts.add(index)
        self.brokers[leader].wake.set()

    def led_by(self, ident):
        return [p for p, (_, leader) in self.leader.items() if leader == ident]

    # ---- a run ----

    def mark(self):
        """Gaps are counted from here on."""
        self.gap = [0.0] * self.n

    def gaps_ms(self, parts):
        """The longest gap of each of these partitions since the mark; one that is open counts as it is now."""
        now = time.monotonic()
        return sorted(1000 * max(self.gap[p], now - self.last[p]) for p in parts)

    async def all_acked(self, parts, since, timeout_s):
        """Until each of them was acked after `since`."""
        end = time.monotonic() + timeout_s
        while not all(self.last[p] > since for p in parts):
            if time.monotonic() > end:
                left = [p for p in parts if self.last[p] <= since]
                raise TimeoutError(f"{len(left)} partitions without an ack for {timeout_s} s: {left[:5]}; errors {self.errors}")
            await asyncio.sleep(0.01)

    async def start(self):
        await self.look()
        since = time.monotonic()
        while len(self.leader) < self.n:
            await self.look()
        await self.all_acked(range(self.n), since, 60)

    def stop(self):
        for b in self.brokers.values():
            b.task.cancel()
            b.conn.hang_up()
        for conn in self.lookers.values():
            conn.hang_up()


def percentile(values, p):
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else 0.0
