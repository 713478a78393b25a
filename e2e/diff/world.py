"""The two brokers as one world: topics, leader epochs and time under common names."""

import time

import peer
from kaaslib.runner import Failed, eventually

EARLY_S = 0.05  # Kafka's logs follow a config that DescribeConfigs shows already a moment later


class Side:
    """One of the two brokers."""

    def __init__(self, name, broker):
        self.name, self.broker = name, broker
        self.conn = None
        self.ids = {}  # topic name -> id
        self.epochs = {}  # (topic name, partition) -> the leader epochs it had, oldest first
        self.stamps = {}  # (topic name, partition) -> times of append, as answered

    def call(self, api, version, body):
        if self.conn is None:
            self.conn = peer.Conn(self.broker.address)
        try:
            return self.conn.call(api, version, body)
        except peer.Closed:
            self.hang_up()
            return {"closed": True}

    def hang_up(self):
        if self.conn:
            self.conn.sock.close()
            self.conn = None

    def metadata(self, names):
        topics = [{"Name": n} for n in names]
        return {t["Name"]: t for t in self.call("Metadata", 12, {"Topics": topics})["Topics"]}

    def led(self, name, partitions):
        """Learns about a topic when all its partitions have a leader that knows it: Kafka tells of it a moment before."""
        t = self.metadata([name])[name]
        if t["ErrorCode"] or len(t["Partitions"]) != partitions or any(p["LeaderId"] != 0 for p in t["Partitions"]):
            return False
        if any(p["ErrorCode"] for p in self.offsets(name, partitions, -2)):
            return False
        self.ids[name] = t["TopicId"]
        for p in t["Partitions"]:
            seen = self.epochs.setdefault((name, p["PartitionIndex"]), [])
            if not seen or seen[-1] != p["LeaderEpoch"]:
                seen.append(p["LeaderEpoch"])
        return True

    def offsets(self, name, partitions, timestamp):
        """What ListOffsets answers for each partition of a topic, in their order."""
        r = self.call("ListOffsets", 7, {"ReplicaId": -1, "Topics": [{"Name": name, "Partitions": [
            {"PartitionIndex": p, "Timestamp": timestamp} for p in range(partitions)]}]})
        return sorted(r["Topics"][0]["Partitions"], key=lambda p: p["PartitionIndex"])

    def epoch(self, name, partition, n):
        """The n-th leader epoch of a partition; beyond the last one: epochs to come. n < 0 stays."""
        seen = self.epochs.get((name, partition), [0])
        return n if n < 0 else seen[n] if n < len(seen) else seen[-1] + n - len(seen) + 1

    def nth(self, name, partition, epoch):
        """The other way round."""
        seen = self.epochs.get((name, partition), [])
        return epoch if epoch < 0 else seen.index(epoch) if epoch in seen else f"unknown epoch {epoch}"


class World:
    """Times that a broker took from its own clock have common names: ("stamp", n) is that of the n-th batch of its partition
    that was answered with one."""

    def __init__(self, kafka, kaas):
        self.kafka, self.kaas = Side("kafka", kafka), Side("kaas", kaas)
        self.sides = (self.kafka, self.kaas)
        self.t0 = int(time.time() * 1000)
        self.prefix = ""
        self.generation = 0
        self.fresh()

    def fresh(self):
        """New names for all topics: the same operations start from nothing again."""
        self.generation += 1
        self.prefix = f"diff-{self.generation}-"
        self.topics = {}  # index -> number of partitions
        self.restarted = set()  # topics that were there at a restart
        self.stamping = set()  # names of topics with LogAppendTime

    def name(self, index):
        return f"{self.prefix}{index}"

    def stamp(self, side, name, partition, ms, is_new=True):
        """A time as it is, or the name of the stamp that it is."""
        if ms < 0 or name not in self.stamping:
            return ms
        stamps = side.stamps.setdefault((name, partition), [])
        if is_new and (not stamps or stamps[-1] < ms):
            stamps.append(ms)
        return ("stamp", stamps.index(ms)) if ms in stamps else ms

    def stamped(self, side, name, partition, n):
        stamps = side.stamps.get((name, partition), [self.t0])
        return stamps[n % len(stamps)]

    def each(self, fn):
        """The answers of both, asked the same, Kafka's first."""
        return [fn(side) for side in self.sides]

    def await_topic(self, index, partitions):
        self.topics[index] = partitions
        for side in self.sides:
            eventually(lambda: side.led(self.name(index), partitions), 30, 0.02, f"leaders of topic {index} at {side.name}")

    def await_gone(self, index):
        self.topics.pop(index, None)
        for side in self.sides:
            eventually(lambda: side.metadata([self.name(index)])[self.name(index)]["ErrorCode"] == 3, 30, 0.02,
                       f"the end of topic {index} at {side.name}")

    def await_config(self, index, key, value):
        """Until both show the value, which they must agree on in the end; None: whatever the default is."""
        for side in self.sides:
            eventually(lambda: value in (None, self.config(side, index, key)), 30, 0.02, f"{key} at {side.name}")
        time.sleep(EARLY_S)

    def config(self, side, index, key):
        r = side.call("DescribeConfigs", 4, {"Resources": [
            {"ResourceType": 2, "ResourceName": self.name(index), "ConfigurationKeys": [key_at(side, key)]}]})
        configs = r["Results"][0]["Configs"]
        return configs[0]["Value"] if configs else None

    def starts(self, side, index):
        return [p["Offset"] for p in side.offsets(self.name(index), self.topics[index], -2)]

    def settle(self, index, quiet_s, timeout_s):
        """Waits until retention has changed nothing at either broker for a while; the log starts of both."""
        end = time.monotonic() + timeout_s
        last, since = None, time.monotonic()
        while True:
            now = self.each(lambda s: self.starts(s, index))
            if now != last:
                last, since = now, time.monotonic()
            quiet = time.monotonic() - since
            if (quiet > quiet_s and now[0] == now[1]) or time.monotonic() > end:
                return now
            time.sleep(0.1)

    def restart(self):
        for side in self.sides:
            side.hang_up()
            side.broker.end()
        for side in self.sides:
            side.broker.start()
        for index, partitions in self.topics.items():
            self.await_topic(index, partitions)
        self.restarted = set(self.topics)


def key_at(side, key):
    """Kafka 4 takes small segments only under another name."""
    return "internal.segment.bytes" if key == "segment.bytes" and side.name == "kafka" else key


def compare(left, right, path=""):
    """The first difference of two answers, as a text, or None."""
    if isinstance(left, dict) and isinstance(right, dict):
        for k in sorted(set(left) | set(right), key=lambda k: (k != "ErrorCode", k)):
            if k not in left or k not in right:
                return f"{path}.{k}: only one has it"
            d = compare(left[k], right[k], f"{path}.{k}")
            if d:
                return d
        return None
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"{path}: {len(left)} and {len(right)} elements"
        for i, (a, b) in enumerate(zip(left, right)):
            d = compare(a, b, f"{path}[{i}]")
            if d:
                return d
        return None
    return None if left == right else f"{path}: {left!r} and {right!r}"


class Difference(Failed):
    def __init__(self, op, what, answers):
        super().__init__(what)
        self.op, self.what, self.answers = op, what, answers
        self.kind = what if "ErrorCode:" in what else what.partition(": ")[0] + what.partition(": ")[2].partition(": ")[0]
