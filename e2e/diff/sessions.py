#!/usr/bin/env python3
"""Fetch sessions (KIP-227) of Apache Kafka and of kaas: the same random requests, and the same must be told.

sessions.py [OPERATIONS]: how many (400; with KAAS_SOAK=1: 8000). Seeds as suite.py. One connection at a time; between requests
records come, log starts move, topics go and come again under their old names. The order of partitions in an answer is not
compared, nor the last stable offset, which moves with the high watermark here."""

import os
import pathlib
import random
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import peer  # noqa: E402
from kaaslib import alone, local  # noqa: E402
from kaaslib.batch import make, records_of  # noqa: E402
from kaaslib.runner import eventually  # noqa: E402
from world import World  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 8000 if SOAK else 400
SEED = int(os.environ.get("KAAS_SEED") or (time.time() if SOAK else 1))
TOPICS, PARTS = ("s0", "s1", "s2"), 3
NOWHERE = uuid.UUID(int=0x4711)
EVERYWHERE = {"auto.create.topics.enable": "false", "log.message.timestamp.after.max.ms": str(2**63 - 1), "log.retention.ms": "-1"}


class Run:
    def __init__(self, world, seed):
        self.world, self.r = world, random.Random(seed)
        self.ids = {s: 0 for s in world.sides}  # of the sessions
        self.old = {s: 0 for s in world.sides}  # of the ones before
        self.epoch, self.version = 0, 12
        self.there, self.end = set(), {}
        self.topic_ids = {s: {} for s in world.sides}  # all there ever were, by (name, how many of that name before)
        self.made = dict.fromkeys(TOPICS, 0)
        self.kinds = {}

    # ---- what happens to the topics ----

    def make(self, name):
        for side in self.world.sides:
            r = side.call("CreateTopics", 7, {"TimeoutMs": 30000, "Topics": [
                {"Name": name, "NumPartitions": PARTS, "ReplicationFactor": 1}]})
            assert r["Topics"][0]["ErrorCode"] == 0, r
            eventually(lambda side=side: side.led(name, PARTS), 60, 0.02, what=f"leaders of {name}")
            self.topic_ids[side][name, self.made[name]] = side.ids[name]
        self.made[name] += 1
        self.there.add(name)
        self.end.update({(name, p): 0 for p in range(PARTS)})

    def remove(self, name):
        for side in self.world.sides:
            r = side.call("DeleteTopics", 5, {"TimeoutMs": 30000, "TopicNames": [name]})
            assert r["Responses"][0]["ErrorCode"] == 0, r
            eventually(lambda side=side: side.metadata([name])[name]["ErrorCode"] == 3, 60, 0.02, what=f"the end of {name}")
        self.there.discard(name)

    def produce(self, name, part):
        n = self.r.randint(1, 3)
        data = make([self.world.t0] * n, records_of([self.world.t0] * n, [b"v" * self.r.randint(1, 50)] * n))
        for side in self.world.sides:
            r = side.call("Produce", 9, {"Acks": -1, "TimeoutMs": 30000, "TopicData": [
                {"Name": name, "PartitionData": [{"Index": part, "Records": data}]}]})
            assert r["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0, r
        self.end[name, part] += n

    def delete_records(self, name, part):
        at = self.r.randint(0, self.end[name, part])
        for side in self.world.sides:
            side.call("DeleteRecords", 2, {"TimeoutMs": 30000, "Topics": [
                {"Name": name, "Partitions": [{"PartitionIndex": part, "Offset": at}]}]})

    # ---- requests ----

    def some(self, most):
        """(name, turn of that name, partition, offset): the topic of today as a rule, or one of before, or none."""
        out = {}
        for _ in range(self.r.randint(0, most)):
            name, part = self.r.choice(TOPICS), self.r.randint(0, PARTS if self.r.random() < 0.1 else PARTS - 1)
            turn = self.made[name] - 1 if self.r.random() < 0.9 else self.r.randint(-1, self.made[name] - 1)
            offset = max(0, self.end.get((name, part), 0) - self.r.randint(-1, 2))
            out[name, turn, part] = offset
        return [(*k, v) for k, v in out.items()]

    def entry(self, side, version, name, turn, partitions):
        key = {"Topic": name} if version < 13 else {"TopicId": self.topic_ids[side].get((name, turn), NOWHERE)}
        return {**key, "Partitions": partitions}

    def request(self):
        r, kind = self.r, self.r.random()
        version, epoch, wanted, forgotten = self.version, self.epoch, self.some(3), []
        if not self.epoch or kind < 0.08:
            self.version = version = r.choice([7, 11, 12, 13, 15, 16, 17, 18])
            what, epoch, wanted = "full", 0, self.some(12)
        elif kind < 0.11:
            what, epoch = "end", -1
        elif kind < 0.16:
            what, epoch = "wrong epoch", r.choice([self.epoch + 1, self.epoch - 1 or 7, -2, 2**31 - 1])
        elif kind < 0.19:
            what, version = "other version", 13 if version < 13 else 12
        elif kind < 0.22:
            what = "unknown"
        else:
            what, forgotten = "next", self.some(14 if r.random() < 0.1 else 2)
        keep = what == "full" and r.random() < 0.5  # without its id the session before stays, and nobody goes on with it

        def ask(side):
            sid = self.old[side] if what == "unknown" else 0 if what == "full" and not keep else self.ids[side]
            body = {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 25, "SessionId": sid, "SessionEpoch": epoch,
                    "Topics": [self.entry(side, version, n, t, [{"Partition": p, "FetchOffset": o, "PartitionMaxBytes": 1 << 20}])
                               for n, t, p, o in wanted],
                    "ForgottenTopicsData": [self.entry(side, version, n, t, [p]) for n, t, p, _ in forgotten]}
            return self.plain(side, version, side.call("Fetch", version, body), sid)

        kafka, kaas = self.world.each(ask)
        self.kinds[f"{what} {kafka['error']}"] = self.kinds.get(f"{what} {kafka['error']}", 0) + 1
        if kafka != kaas:
            raise AssertionError(f"{what}, version {version}, epoch {epoch}, {wanted}, forgotten {forgotten}\n"
                                 f"  kafka {kafka}\n  kaas  {kaas}")
        if what == "full":
            self.old = {s: self.ids[s] if keep else 0 for s in self.world.sides}
            self.ids, self.epoch = {s: self.last[s] for s in self.world.sides}, 1
        elif what == "end" or (what == "next" and kafka["session"] == "none"):
            self.old, self.epoch = self.ids, 0
        elif what == "next" and not kafka["error"]:
            self.epoch += 1

    last = {}

    def plain(self, side, version, r, asked_with):
        if "closed" in r:
            return r
        self.last = {**self.last, side: r["SessionId"]}
        names = {v: k for k, v in self.topic_ids[side].items()}
        parts = {}
        for t in r["Responses"]:
            name = t["Topic"] if version < 13 else names.get(t["TopicId"], "nowhere")
            for p in t["Partitions"]:
                parts[str((name, p["PartitionIndex"]))] = (p["ErrorCode"], p["HighWatermark"], p.get("LogStartOffset"),
                                                           len(p["Records"] or b""))
        sid = r["SessionId"]
        return {"error": r["ErrorCode"], "session": "none" if not sid else "the same" if sid == asked_with else "new",
                "parts": dict(sorted(parts.items()))}

    def one(self):
        r, kind = self.r, self.r.random()
        name = r.choice(TOPICS)
        if kind < 0.03:
            if name in self.there:
                self.remove(name)
            else:
                self.make(name)
        elif kind < 0.06 and name in self.there:
            self.delete_records(name, r.randrange(PARTS))
        elif kind < 0.3 and name in self.there:
            self.produce(name, r.randrange(PARTS))
        else:
            self.request()


def main():
    print(f"seed {SEED}, {COUNT} operations", flush=True)
    kafka = kaas = None
    n = 0
    try:
        base = int(os.environ.get("KAAS_E2E_PORT", 0)) or local.free_base_port()
        kafka = peer.Kafka(base + 60, base + 61, EVERYWHERE)
        kaas = alone.Alone(build=os.environ.get("KAAS_BUILD", "release"), config=EVERYWHERE)
        kafka.start()
        kaas.start()
        run = Run(World(kafka, kaas), SEED)
        for name in TOPICS[:-1]:
            run.make(name)
        while n < COUNT:
            n += 1
            run.one()
        print(", ".join(f"{count} {kind}" for kind, count in sorted(run.kinds.items())))
        print(f"{COUNT} operations answered alike (seed {SEED})\n1 passed, 0 failed")
        return 0
    except AssertionError as e:
        print(f"FAIL operation {n}: {e}\nKAAS_SEED={SEED} replays\n0 passed, 1 failed")
        return 1
    finally:
        for broker in (kafka, kaas):
            if broker:
                broker.close()


if __name__ == "__main__":
    sys.exit(main())
