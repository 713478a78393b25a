"""An acking producer stream over many partitions at once, in one thread: Produce 10 and Metadata 7 in raw bytes.

Each partition has at most one batch on its way. Every PERIOD a turn sends one request to each broker with a batch for each of its
partitions that waits for none; up to five requests share a connection, as with Kafka's producer. Whoever is refused goes at once where
the answer says that the leader is now (KIP-951); if it says nothing, the stream asks for Metadata. What is measured is the time between
two acks of a partition."""

import asyncio
import collections
import struct
import time

from . import wire
from .batch import make, records_of
from .wire import uvarint

PART = struct.Struct(">ihqqqBBB")  # index, error, base offset, append time, log start; no record errors, no message, no tags
PLAIN = (1, 0, 0)
LEADER = struct.Struct(">ii")
RETRY_S = 0.005
REQUESTS = 5  # on their way to a broker: max.in.flight.requests.per.connection


def batch(value):
    """A batch v2 of one record without key and headers."""
    now = int(time.time() * 1000)  # retention would drop what is older than a week
    return make([now], records_of([now], [value]))


def take_uvarint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


class Conn:
    """Requests in, answers in their order."""

    def __init__(self, address):
        self.address, self.correlation, self.writer = address, 0, None
        self.waiting = collections.deque()
        self.connecting = asyncio.Lock()

    async def call(self, key, version, body, flexible=False):
        async with self.connecting:
            if not self.writer:
                host, _, port = self.address.rpartition(":")
                reader, self.writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
                self.reading = asyncio.create_task(self.read(reader, self.writer))
        if self.writer.is_closing():
            raise ConnectionError("closed by the broker")
        self.correlation += 1
        head = struct.pack(">hhi", key, version, self.correlation) + wire.string("stream") + (b"\0" if flexible else b"")
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((self.correlation, answer))
        self.writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        return (await answer)[5 if flexible else 4:]

    async def read(self, reader, writer):
        try:
            while True:
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                data = await reader.readexactly(size)
                correlation, answer = self.waiting.popleft()
                if struct.unpack_from(">i", data)[0] != correlation:
                    raise ConnectionError("an answer to something else")
                if not answer.done():
                    answer.set_result(data)
        except (OSError, asyncio.IncompleteReadError, IndexError) as e:
            if self.writer is writer:
                self.hang_up(e)

    def hang_up(self, why="hung up"):
        if self.writer:
            self.writer.close()
            self.reading.cancel()
        self.writer = None
        for _, answer in self.waiting:
            if not answer.done():
                answer.set_exception(ConnectionError(why))
        self.waiting.clear()


class Broker:
    """The partitions one broker leads, and the turns that write to them."""

    def __init__(self, stream, address):
        self.stream, self.conn = stream, Conn(address)
        self.parts = set()
        self.flying, self.requests = set(), set()
        self.fresh = set()  # not to wait for the next turn
        self.wake = asyncio.Event()
        self.task = asyncio.create_task(self.run())

    def add(self, parts):
        self.fresh.update(parts)
        self.wake.set()

    async def run(self):
        while True:
            turn_at = time.monotonic() + self.stream.period_s
            self.send(self.parts - self.flying)
            while (left := turn_at - time.monotonic()) > 0:
                self.wake.clear()
                try:
                    await asyncio.wait_for(self.wake.wait(), left)
                except asyncio.TimeoutError:
                    break
                self.send(self.fresh & self.parts - self.flying)

    def send(self, parts):
        if parts and len(self.requests) < REQUESTS:
            self.flying |= parts
            self.fresh -= parts
            request = asyncio.create_task(self.request(parts))
            self.requests.add(request)
            request.add_done_callback(self.requests.discard)

    async def request(self, parts):
        s = self.stream
        try:
            refused = s.acked(await self.conn.call(0, 10, s.produce_body(sorted(parts)), flexible=True))
        except OSError as e:
            self.conn.hang_up(e)
            refused = parts
        self.flying -= parts
        again = self.parts & set(refused)
        if again:
            s.look_again()
            asyncio.get_running_loop().call_later(RETRY_S, self.add, again)

    def stop(self):
        self.task.cancel()
        for request in list(self.requests):
            request.cancel()
        self.conn.hang_up()


class Stream:
    def __init__(self, bootstrap, topic, partitions, period_s):
        self.bootstrap, self.topic, self.n, self.period_s = bootstrap.split(","), topic, partitions, period_s
        data = batch(b"v" * 20)
        self.rows = [struct.pack(">i", i) + uvarint(len(data) + 1) + data + b"\0" for i in range(partitions)]
        now = time.monotonic()
        self.last = [now] * partitions
        self.gap = [0.0] * partitions
        self.leader = {}
        self.brokers, self.lookers = {}, {}
        self.acks = 0
        self.errors = {}
        self.looking = None

    def produce_body(self, parts):
        name = self.topic.encode()
        return (b"\0" + struct.pack(">hi", -1, 30000) + b"\2" + uvarint(len(name) + 1) + name + uvarint(len(parts) + 1) +
                b"".join(self.rows[p] for p in parts) + b"\0\0")

    def acked(self, answer):
        """Notes the acks, and where the others are told to go; returns who was refused."""
        at = 1 + 1 + len(self.topic.encode())
        n, at = take_uvarint(answer, at)
        now, refused = time.monotonic(), []
        for _ in range(n - 1):
            index, error, _, _, _, *rest = PART.unpack_from(answer, at)
            at += PART.size
            if tuple(rest) != PLAIN:
                at = self.told(index, answer, at - 3)
            if error:
                refused.append(index)
                self.errors[error] = self.errors.get(error, 0) + 1
                continue
            self.acks += 1
            self.gap[index] = max(self.gap[index], now - self.last[index])
            self.last[index] = now
        return refused

    def told(self, index, answer, at):
        """The rest of a row that is not plain: a message, and who leads now."""
        if answer[at] != 1:
            raise ValueError("record errors, though no record is wrong")
        size, at = take_uvarint(answer, at + 1)
        at += max(size - 1, 0)
        tags, at = take_uvarint(answer, at)
        for _ in range(tags):
            tag, at = take_uvarint(answer, at)
            size, at = take_uvarint(answer, at)
            if tag == 0:
                leader, epoch = LEADER.unpack_from(answer, at)
                if leader in self.brokers and epoch > self.leader.get(index, (-1, -1))[0]:
                    self.lead(index, epoch, leader)
            at += size
        return at

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
            except (OSError, asyncio.TimeoutError):
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
        self.brokers[leader].add([index])

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
            b.stop()
        for conn in self.lookers.values():
            conn.hang_up()


def percentile(values, p):
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else 0.0
