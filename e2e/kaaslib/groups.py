"""Many live consumer groups in one thread: each a member that joined, and that commits its offset every PERIOD to whom it believes to be
its coordinator. Whoever is refused asks FindCoordinator again, one question for all, and waits a backoff where the answer is the same.
What is measured is the time between two commits of a group, so it holds the rhythm, and how often it had to join again."""

import asyncio
import random
import struct
import threading
import time

from . import stream, wire

BACKOFF_S = 0.1  # retry.backoff.ms of Kafka's clients
SESSION_MS, REBALANCE_MS = 30000, 10000
OUTDATED = (22, 25, 27)  # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS: join again
JOIN, SYNC, COMMIT = (11, 2), (14, 1), (8, 5)


def data(b):
    return struct.pack(">i", len(b)) + b


def text(b):
    n = b.take("h")
    b.pos += max(n, 0)
    return b.data[b.pos - n:b.pos].decode() if n > 0 else ""


class Refused(Exception):
    def __init__(self, code):
        super().__init__(f"error {code}")
        self.code = code


class Member:
    """The one member of a group."""

    def __init__(self, groups, name):
        self.groups, self.name, self.generation, self.member = groups, name, -1, ""
        self.commits = self.joins = 0
        self.last = time.monotonic()
        self.gap = 0.0

    async def ask(self, api, body):
        """The answer of whom it believes to be its coordinator, past the throttle time."""
        home = self.groups.home.get(self.name, -1)
        if home < 0:
            raise Refused(15)
        b = wire.Buf(await self.groups.conn(home).call(*api, wire.string(self.name) + body))
        b.take("i")
        return b

    async def join(self):
        b = await self.ask(JOIN, struct.pack(">ii", SESSION_MS, REBALANCE_MS) + wire.string(self.member) + wire.string("consumer") +
                           struct.pack(">i", 1) + wire.string("range") + data(b""))
        if error := b.take("h"):
            self.member = "" if error == 25 else self.member
            raise Refused(error)
        self.generation = b.take("i")
        text(b), text(b)
        self.member = text(b)
        b = await self.ask(SYNC, struct.pack(">i", self.generation) + wire.string(self.member) + struct.pack(">i", 1) +
                           wire.string(self.member) + data(b"mine"))
        if error := b.take("h"):
            raise Refused(error)
        self.joins += 1

    async def commit(self):
        if self.generation < 0:
            await self.join()
        b = await self.ask(COMMIT, struct.pack(">i", self.generation) + wire.string(self.member) + struct.pack(">i", 1) +
                           wire.string(self.groups.topic) + struct.pack(">iiq", 1, 0, self.commits) + wire.string(""))
        b.take("i")
        text(b)
        b.take("i"), b.take("i")
        if error := b.take("h"):
            raise Refused(error)
        now = time.monotonic()
        self.gap, self.last, self.commits = max(self.gap, now - self.last), now, self.commits + 1

    async def run(self):
        period = self.groups.period_s
        phase = random.random() * period  # kept, so that those who waited together do not go on together
        await asyncio.sleep(phase)
        while True:
            home = self.groups.home.get(self.name)
            try:
                await self.commit()
                await asyncio.sleep(period - (time.monotonic() - phase) % period)
                continue
            except Refused as e:
                self.generation = -1 if e.code in OUTDATED else self.generation
            except OSError as e:
                self.groups.conn(home).hang_up(e)
            await self.groups.look(self.name)
            if self.groups.home.get(self.name) == home:
                await asyncio.sleep(BACKOFF_S)


class Groups(threading.Thread):
    """address(n) of broker n; brokers: whom to ask FindCoordinator."""

    def __init__(self, address, brokers, names, topic, period_s):
        super().__init__(daemon=True)
        self.address, self.brokers, self.names, self.topic, self.period_s = address, list(brokers), names, topic, period_s
        self.conns, self.home = {}, {}
        self.lost, self.next_look, self.asking = set(), None, asyncio.Lock()
        self.members = {name: Member(self, name) for name in names}
        self.loop = asyncio.new_event_loop()

    def conn(self, n):
        return self.conns.setdefault(n, stream.Conn(self.address(n)))

    async def look(self, name):
        """One question for all who come while the one before is under way."""
        self.lost.add(name)
        if self.next_look is None:
            self.next_look = asyncio.create_task(self.look_once())
        await asyncio.shield(self.next_look)

    async def look_once(self):
        """Of the first that answers; the next question begins with the next broker."""
        async with self.asking:
            names, self.lost, self.next_look = sorted(self.lost), set(), None
            for _ in range(len(self.brokers)):
                n = self.brokers[0]
                self.brokers.append(self.brokers.pop(0))
                try:
                    answer = await asyncio.wait_for(self.conn(n).call(10, 4, wire.coordinators_body(names), flexible=True), 1)
                except (OSError, asyncio.TimeoutError) as e:
                    self.conn(n).hang_up(str(e))
                    continue
                self.home.update({g: node for g, (error, node) in wire.coordinators_of(wire.Buf(answer)).items() if error == 0})
                break
            await asyncio.sleep(0.005)

    async def live(self):
        try:
            await asyncio.gather(*(m.run() for m in self.members.values()))
        finally:
            for conn in self.conns.values():
                conn.hang_up()
            await asyncio.sleep(0)  # the readers end, too

    def run(self):
        self.task = self.loop.create_task(self.live())
        try:
            self.loop.run_until_complete(self.task)
        except asyncio.CancelledError:
            pass

    def stop(self):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.join()

    # ---- for the scenario, from its own thread ----

    def all_commit(self, since):
        return all(m.commits and m.last > since for m in self.members.values())

    def mark(self):
        """Gaps and joins are counted from here on."""
        for m in self.members.values():
            m.gap, m.joins = 0.0, 0

    def gaps_s(self, names):
        return sorted(self.members[n].gap for n in names)

    def joined(self, names):
        return sum(self.members[n].joins for n in names)
