"""Random operations from a seed, aimed by a small model of what the brokers hold: most of them hit something that is there,
some what is just beside it, a few nothing at all. The model learns from Kafka's answers; it judges nothing."""

import random

MINUTE = 60000
FAR = 200 * MINUTE
LATE = FAR - 30 * MINUTE
SETTLED = MINUTE // 2
RESTART_EVERY = 400
BIG = 2**63 - 1

# What the topics of a run are like. limits: retention may be tried on them; segment.bytes make files of a few batches.
KINDS = [
    {"segment.bytes": "4000", "parts": 2, "limits": True},
    {"segment.bytes": "1000000", "segment.ms": str(10 * MINUTE), "parts": 1, "limits": True},
    {"segment.bytes": "100000000", "parts": 2},
    {"segment.bytes": "3000", "message.timestamp.type": "LogAppendTime", "parts": 1},
    {"segment.bytes": "5000", "cleanup.policy": "compact", "min.compaction.lag.ms": str(BIG), "parts": 1},
    {"segment.bytes": "6000", "max.message.bytes": "900", "message.timestamp.before.max.ms": str(60 * MINUTE),
     "message.timestamp.after.max.ms": str(30 * MINUTE), "parts": 2, "limits": True},
]
DESCRIBED = ["cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "segment.jitter.ms",
             "segment.index.bytes", "max.message.bytes", "message.timestamp.type", "message.timestamp.before.max.ms",
             "message.timestamp.after.max.ms", "min.compaction.lag.ms", "delete.retention.ms", "min.cleanable.dirty.ratio",
             "preallocate", "index.interval.bytes", "no.such.key"]
# key: values, some of them refused. The rest of a run must be able to live with those that are accepted.
ALTERED = {
    "max.message.bytes": ["1000", "5000", "1048588", "-1", "x", "2147483648"],
    "segment.bytes": ["3000", "4000", "6000"],
    "segment.ms": ["600000", "3600000", "0", "-5", "1.5"],
    "segment.jitter.ms": ["0", "-1"],
    "message.timestamp.before.max.ms": [str(60 * MINUTE), str(BIG), "-1"],
    "message.timestamp.after.max.ms": [str(30 * MINUTE), str(BIG), "-1"],
    "message.timestamp.type": ["CreateTime", "Createtime", "2"],
    "flush.messages": ["1", "100", "0", "-1"],
    "flush.ms": ["1000", "0", "-1"],
    "retention.ms": ["-1", "-2"],
    "retention.bytes": ["-1", "-2", "9223372036854775807", "9223372036854775808"],
    "segment.index.bytes": ["10485760", "3", "4096"],
    "cleanup.policy": ["delete", "compress", "delete,nothing"],
    "min.insync.replicas": ["1", "0"],
    "compression.type": ["producer", "brotli"],
    "no.such.key": ["1"],
    "preallocate": ["false", "maybe"],
}


class Part:
    def __init__(self):
        self.start = self.end = 0
        self.times = []  # of recent records, relative
        self.all = []  # of all that came since the topic was made
        self.producers = {}  # id -> {"epoch", "next", "sent": [(seq, count, batch)]}


class Plan:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.parts = {}  # (topic, partition) -> Part
        self.kinds = {}  # topic -> kind
        self.restarted = set()  # topics that lived through a restart
        self.next_topic = 0
        self.epochs = 1
        self.pid = 1000
        self.now = 0  # of records, relative ms
        self.count = 0
        self.queue = [self.create(k) for k in KINDS]

    # ---- choices ----

    def create(self, kind, **more):
        index = self.next_topic
        self.next_topic += 1
        configs = {k: v for k, v in kind.items() if "." in k}
        return {"op": "create_topic", "topic": index, "parts": kind["parts"], "factor": 1, "configs": configs,
                "version": self.random.randint(2, 7), "kind": KINDS.index(kind), **more}

    def where(self):
        """A partition that is there, or (seldom) one that is not."""
        if self.random.random() < 0.02:
            return {"topic": self.random.choice([*self.kinds, 999]), "part": self.random.choice([7, -1, 2])}
        topic, part = self.random.choice(list(self.parts))
        return {"topic": topic, "part": part}

    def part(self, op):
        return self.parts.get((op["topic"], op["part"]), Part())

    def offset(self, p):
        r = self.random
        return r.choice([r.randint(p.start, p.end), r.randint(p.start, p.end), p.start, p.end, p.start - 1, p.end + 1, p.end - 1,
                         p.start + 1, r.randint(0, p.end + 1), -1, 10**12])

    def epoch(self):
        return self.random.choices([-1, self.epochs - 1, self.epochs, max(0, self.epochs - 2)], [12, 4, 1, 1])[0]

    # ---- batches ----

    def times(self, n):
        """Of the records of a batch: mostly forward, sometimes equal, out of order, or far away."""
        r = self.random
        self.now += r.choice([0, 0, 1, 10, 1000, MINUTE if self.now < LATE else 1000])  # never up to the clock's time
        base = self.now + r.choices([0, -r.randint(1, 20) * MINUTE, r.randint(1, 20) * MINUTE], [7, 2, 1])[0] - FAR
        step = r.choice([0, 1, 1, 10, -3])
        return [base + i * step + r.choice([0, 0, 0, 5, -5]) for i in range(n)]

    def batch(self, n=None):
        r = self.random
        n = n or r.choice([1, 1, 2, 3, 5, 10])
        b = {"ts": self.times(n), "size": r.choice([0, 1, 10, 50, 100, 200]), "seed": r.randrange(1 << 30)}
        if r.random() < 0.15:
            b["codec"] = "gzip"
        if r.random() < 0.5 or "codec" in b:
            b["key"] = f"k{r.randrange(10)}"
        return b

    def fresh(self):
        self.pid += 1
        return self.pid

    def idempotent(self, p):
        """A batch of a producer: the next one, a repeat, or one that is wrong in its number."""
        r = self.random
        b = self.batch()
        pid = r.choice(list(p.producers) or [0]) if r.random() < 0.9 else 0
        if not pid:
            b.update(pid=self.fresh(), epoch=r.choice([0, 0, 3]), seq=r.choice([0, 0, 0, 0, 7, 2**31 - 3]))
            return b
        s = p.producers[pid]
        kind = r.choices(["next", "repeat", "gap", "old", "newer", "newer_gap", "part"], [60, 15, 6, 4, 4, 2, 3])[0]
        b.update(pid=pid, epoch=s["epoch"], seq=s["next"])
        if kind == "repeat" and s["sent"]:
            return dict(r.choice(s["sent"][-7:]))
        if kind == "gap":
            by = r.choice([1, 5, -1, -2])
            before_restart = by < 0 and s.get("forgotten")  # of which Kafka may not know any more
            b["seq"] = (b["seq"] + (1 if before_restart else by)) & 0x7FFFFFFF
        elif kind == "old":
            b["epoch"] = max(0, b["epoch"] - 1)
        elif kind in ("newer", "newer_gap"):
            b.update(epoch=b["epoch"] + 1, seq=0 if kind == "newer" else 4)
        elif kind == "part" and s["sent"]:
            b["seq"] = s["sent"][-1]["seq"]
        return b

    def broken(self):
        """A batch that is wrong in itself."""
        r = self.random
        b = self.batch(r.choice([1, 2, 3]))
        b.pop("codec", None)
        n = len(b["ts"])
        b["wrong"] = r.choice([
            {"crc": True}, {"magic": 1}, {"magic": 0}, {"magic": 3}, {"count": n + 1}, {"count": 0}, {"last_delta": n},
            {"last_delta": n + 5}, {"base_offset": 7}, {"attributes": 0x20}, {"attributes": 8}, {"cut": 70}, {"cut": 30},
            {"max_timestamp": -FAR + MINUTE}, {"leader_epoch": 5}, {"attributes": 0x10}, {}, {}, {}, {}])
        if not b["wrong"]:
            b.update(r.choice([
                {"size": 6000}, {"size": 1000}, {"size": 2_000_000}, {"ts": [-1] * n, "raw_ts": True},
                {"ts": [-5] * n, "raw_ts": True}, {"ts": [3 * FAR] * n}, {"ts": [-3 * FAR] * n}, {"ts": [0] * n, "raw_ts": True},
                {"pid": self.fresh(), "epoch": 0, "seq": -1}, {"pid": self.fresh(), "epoch": -1, "seq": 0},
                {"pid": -1, "epoch": 0, "seq": 0}]))
        return b

    # ---- operations ----

    def produce(self):
        r = self.random
        op = {"op": "produce", **self.where(), "acks": r.choice([-1, -1, 1]), "version": r.randint(3, 13)}
        kind = r.choices(["plain", "idempotent", "broken", "two"], [40, 40, 18, 2])[0]
        if kind == "broken":
            op["topic"], op["part"] = r.choice(list(self.parts))
        p = self.part(op)
        op["batches"] = [self.idempotent(p) if kind == "idempotent" else self.broken() if kind == "broken" else self.batch()]
        if kind == "two":
            op["batches"].append(self.batch())
        if kind == "plain" and r.random() < 0.02:
            op["acks"] = r.choice([2, -2])
        return op

    def fetch(self):
        r = self.random
        op = {"op": "fetch", **self.where(), "version": r.randint(4, 18), "isolation": r.choice([0, 1]), "epoch": self.epoch()}
        op["offset"] = self.offset(self.part(op))
        op["part_bytes"] = r.choice([0, 1, 100, 500, 2000, 100000, 1 << 20])
        op["max_bytes"] = r.choice([0, 1, 1000, 1 << 20, 1 << 25])
        return op

    def list_offsets(self):
        r = self.random
        op = {"op": "list_offsets", **self.where(), "version": r.randint(1, 11), "isolation": r.choice([0, 1]),
              "epoch": self.epoch()}
        p = self.part(op)
        kind = r.choices(["special", "known", "beside", "far", "raw", "stamp"], [30, 30, 15, 3, 2, 10])[0]
        if kind == "special" or not p.times:
            op["raw"] = r.choice([-1, -2, -3, -3, -4, -5, -6, -7])
        elif kind == "raw":
            op["raw"] = r.choice([0, 1, BIG])
        elif kind == "known":
            op["at"] = r.choice(p.times)
        elif kind == "beside":
            op["at"] = r.choice(p.times) + r.choice([-1, 1, 3, -MINUTE, MINUTE])
        elif kind == "stamp":
            op.update(stamp=r.randrange(1000), at=r.choice([0, 0, 1, -1]))
        else:
            op["at"] = 2 * FAR
        return op

    def epoch_end(self):
        r = self.random
        return {"op": "epoch_end", **self.where(), "version": r.randint(2, 4), "epoch": self.epoch(),
                "asked": r.choice([-1, *range(self.epochs + 2)])}

    def describe_producers(self):
        return {"op": "describe_producers", **self.where()}

    def delete_records(self):
        op = {"op": "delete_records", **self.where(), "version": self.random.randint(0, 2)}
        p = self.part(op)
        some = p.start + self.random.randint(0, max(1, (p.end - p.start) // 4))
        op["offset"] = self.random.choice([min(some, p.end), min(some, p.end), self.offset(p), -1 if self.random.random() < 0.1
                                           else p.start, p.end + 1, -2])
        return op

    def alter_configs(self):
        r = self.random
        topic = self.where()["topic"]
        key = r.choice(list(ALTERED))
        op = {"op": "alter_configs", "topic": topic, "key": key, "how": 0, "value": r.choice(ALTERED[key]), "dry": r.random() < 0.1}
        if key == "message.timestamp.type" and self.kinds.get(topic) == 3:
            op["dry"] = True
        if key not in ("segment.bytes", "message.timestamp.type", "cleanup.policy") and r.random() < 0.1:
            op.update(how=r.choice([1, 2, 3]), value=None if r.random() < 0.5 else op["value"])
        return op

    def describe_configs(self):
        r = self.random
        return {"op": "describe_configs", "topic": self.where()["topic"], "version": r.randint(1, 4),
                "keys": r.sample(DESCRIBED, r.randint(1, 6))}

    def retention(self):
        r = self.random
        able = [t for t in self.kinds if self.limited(t)]
        if not able:
            return self.fetch()
        op = {"op": "retention", "topic": r.choice(able), "limits": {}}
        cut = self.cut(op["topic"]) if r.random() < 0.6 else None
        if cut is not None:
            op["cut"] = cut
        if cut is None or r.random() < 0.3:
            op["limits"]["retention.bytes"] = r.choice([0, 1000, 4000, 8000, 20000])
        return op

    def cut(self, topic):
        """A time with no record near it: the clock goes on between the looks of the brokers, and one of them would delete what
        the other does not."""
        times = [t for (of, _), p in self.parts.items() if of == topic for t in p.all]
        for _ in range(20):
            cut = self.now - FAR + self.random.randint(-30 * MINUTE, 20 * MINUTE)
            if cut <= -MINUTE and not any(cut - SETTLED <= t <= cut + SETTLED for t in times):
                return cut
        return None

    def topics(self):
        r = self.random
        kind = r.choice(["create", "bad", "delete", "grow", "grow"])
        spare = [t for t in self.kinds if t >= len(KINDS)]
        if kind == "create" and len(self.kinds) < 12:
            return self.create(r.choice(KINDS))
        if kind == "bad":
            return {**self.create(KINDS[0]), **r.choice([
                {"parts": 0}, {"factor": 2}, {"name": "no/slash"}, {"name": ""}, {"name": "."}, {"name": "a" * 250},
                {"configs": {"no.such.key": "1"}}, {"configs": {"retention.ms": "x"}}, {"topic": r.choice(list(self.kinds))}])}
        if kind == "delete":
            return {"op": "delete_topic", "topic": r.choice(spare) if spare else 999}
        topic = r.choice([*self.kinds, 999])
        now = sum(1 for t, _ in self.parts if t == topic)
        return {"op": "create_partitions", "topic": topic, "count": r.choice([now, now + 1, 0, -1, now + 1]) if now < 5 else now}

    def restart(self):
        """Both brokers end and start. kaas begins new files then and Kafka does not: retention is tried on new topics only."""
        old = [t for t in self.kinds if self.limited(t)]
        self.queue = [{"op": "restart"}, *({"op": "delete_topic", "topic": t} for t in old[1:]),
                      *(self.create(k) for k in KINDS if k.get("limits"))]
        return self.queue.pop(0)

    def limited(self, topic):
        return KINDS[self.kinds[topic]].get("limits") and topic not in self.restarted

    def next(self):
        if self.queue:
            return self.queue.pop(0)
        self.count += 1
        if self.count % RESTART_EVERY == 0:
            return self.restart()
        makers = [self.produce, self.fetch, self.list_offsets, self.delete_records, self.epoch_end, self.describe_producers,
                  self.alter_configs, self.describe_configs, self.retention, self.topics]
        return self.random.choices(makers, [44, 20, 18, 6, 3, 3, 3, 1.5, 0.8, 1])[0]()

    # ---- learning ----

    def learn(self, op, answer):
        if op["op"] == "produce" and answer.get("ErrorCode") == 0:
            self.learn_append(op, answer)
        elif op["op"] == "delete_records" and answer.get("ErrorCode") == 0:
            self.part(op).start = answer["LowWatermark"]
        elif op["op"] == "retention":
            for i, start in enumerate(answer["starts"]):
                self.parts[(op["topic"], i)].start = start
        elif op["op"] == "create_topic" and answer.get("ErrorCode") == 0:
            self.kinds[op["topic"]] = op["kind"]
            for i in range(op["parts"]):
                self.parts[(op["topic"], i)] = Part()
        elif op["op"] == "create_partitions" and answer.get("ErrorCode") == 0:
            for i in range(op["count"]):
                self.parts.setdefault((op["topic"], i), Part())
        elif op["op"] == "delete_topic" and answer.get("ErrorCode") == 0:
            self.kinds.pop(op["topic"], None)
            self.parts = {k: v for k, v in self.parts.items() if k[0] != op["topic"]}
        elif op["op"] == "restart":
            self.epochs += 1
            self.restarted.update(self.kinds)
            for p in self.parts.values():
                if p.start == p.end:
                    p.producers = {}  # Kafka forgets the producers of an empty log
                for s in p.producers.values():  # and of the others all but the last batch
                    s["sent"] = s["sent"][-1:]
                    s["forgotten"] = True

    def learn_append(self, op, answer):
        p = self.part(op)
        b = op["batches"][0]
        n = len(b["ts"])
        end = answer["BaseOffset"] + n
        if not b.get("raw_ts"):
            p.times = (p.times + b["ts"])[-100:]
            p.all += b["ts"]
        if end > p.end and b.get("pid", -1) >= 0:
            s = p.producers.setdefault(b["pid"], {"sent": []})
            s.update(epoch=b["epoch"], next=(b["seq"] + n) & 0x7FFFFFFF)
            s["sent"] = [*s["sent"], b][-8:]
            s["forgotten"] = s.get("forgotten") and len(s["sent"]) < 5
        p.end = max(p.end, end)
