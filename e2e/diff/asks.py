"""Operations: how each is asked of a broker, and what of the two answers must be the same.

An operation is a dictionary of plain values that names topics by number, times relative to the start of the run and leader
epochs by their turn, so that it can be printed, repeated and asked of both brokers alike. What is left out of the
comparison, and why, is in docs/kafka-differences.md."""

import gzip
import random
import time

import batches
from kaaslib.batch import make, records_of
from world import Difference, compare, key_at

# Of every answer: text for people, load, and where a broker is.
FREE = {"ThrottleTimeMs", "ErrorMessage", "NodeEndpoints", "CurrentLeader", "TopicId", "SessionId", "Name", "Topic"}
CODEC = {"gzip": 1}


def common(value):
    if isinstance(value, dict):
        return {k: common(v) for k, v in value.items() if k not in FREE}
    return [common(v) for v in value] if isinstance(value, list) else value


# ---- producing ----

def value_of(seed, size):
    return random.Random(seed).randbytes(size)


def batch_of(world, b):
    stamps = [t if b.get("raw_ts") else world.t0 + t for t in b["ts"]]
    values = [value_of(b["seed"] + i, b["size"]) for i in range(len(stamps))]
    wrong = dict(b.get("wrong", {}))
    if "max_timestamp" in wrong:
        wrong["max_timestamp"] += world.t0
    records = records_of(stamps, values, b["key"].encode() if "key" in b else None)
    if b.get("codec"):
        records = gzip.compress(records, mtime=0)
        wrong["attributes"] = CODEC[b["codec"]]
    cut = wrong.pop("cut", None)
    data = make(stamps, records, b.get("pid", -1), b.get("epoch", -1), b.get("seq", -1), **wrong)
    return data[:cut] if cut else data


def produce(world, op):
    name = world.name(op["topic"])
    records = b"".join(batch_of(world, b) for b in op["batches"])

    def ask(side):
        topic = {"PartitionData": [{"Index": op["part"], "Records": records}]}
        if op["version"] >= 13:
            topic["TopicId"] = side.ids.get(name, batches.NO_ID)
        else:
            topic["Name"] = name
        r = side.call("Produce", op["version"], {"Acks": op["acks"], "TimeoutMs": 30000, "TopicData": [topic]})
        if "closed" in r:
            return r
        p = r["Responses"][0]["PartitionResponses"][0]
        p.pop("RecordErrors", None)
        p["LogAppendTimeMs"] = world.stamp(side, name, op["part"], p["LogAppendTimeMs"])
        return common(p)

    answers = world.each(ask)
    if name in world.stamping:
        time.sleep(0.002)  # no two batches of such a topic are of one millisecond
    return answers


# ---- reading ----

def fetch(world, op):
    name = world.name(op["topic"])

    def ask(side):
        part = {"Partition": op["part"], "FetchOffset": op["offset"], "PartitionMaxBytes": op["part_bytes"],
                "CurrentLeaderEpoch": side.epoch(name, op["part"], op["epoch"])}
        topic = {"Partitions": [part]}
        if op["version"] >= 13:
            topic["TopicId"] = side.ids.get(name, batches.NO_ID)
        else:
            topic["Topic"] = name
        body = {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": op["max_bytes"], "IsolationLevel": op["isolation"], "Topics": [topic]}
        if op["version"] < 9:
            part.pop("CurrentLeaderEpoch")
        r = side.call("Fetch", op["version"], body)
        if "closed" in r:
            return r
        p = r["Responses"][0]["Partitions"][0] if r["Responses"] else {}
        out = common({**p, "Top": r.get("ErrorCode", 0)})
        got = batches.split(p.get("Records") or b"")
        out["Records"] = [(base, last, side.nth(name, op["part"], epoch), batch) for base, last, epoch, _, batch in got]
        # No aborted transactions are either no list or an empty one.
        out["AbortedTransactions"] = out.get("AbortedTransactions") or []
        return out

    kafka, kaas = world.each(ask)
    # A read ends at the end of a file at one broker, where memory goes on at the other: the shorter answer counts, if
    # there is one at all.
    a, b = kafka.get("Records"), kaas.get("Records")
    if a and b:
        n = min(len(a), len(b))
        kafka["Records"], kaas["Records"] = a[:n], b[:n]
    return kafka, kaas


def list_offsets(world, op):
    name = world.name(op["topic"])

    def ask(side):
        if "stamp" in op:
            at = world.stamped(side, name, op["part"], op["stamp"]) + op["at"]
        else:
            at = op["raw"] if "raw" in op else world.t0 + op["at"]
        part = {"PartitionIndex": op["part"], "Timestamp": at}
        if op["version"] >= 4:
            part["CurrentLeaderEpoch"] = side.epoch(name, op["part"], op["epoch"])
        body = {"ReplicaId": -1, "Topics": [{"Name": name, "Partitions": [part]}]}
        if op["version"] >= 2:
            body["IsolationLevel"] = op["isolation"]
        r = side.call("ListOffsets", op["version"], body)
        if "closed" in r:
            return r
        p = r["Topics"][0]["Partitions"][0]
        if "LeaderEpoch" in p:
            p["LeaderEpoch"] = side.nth(name, op["part"], p["LeaderEpoch"])
        p["Timestamp"] = world.stamp(side, name, op["part"], p["Timestamp"], False)
        p.pop("OldStyleOffsets", None)
        return common(p)

    kafka, kaas = world.each(ask)
    if explained(world, op, kafka, kaas):
        return kafka, kafka
    return kafka, kaas


def explained(world, op, kafka, kaas):
    """The differences that docs/kafka-differences.md gives the reasons for."""
    a, b = kafka.get("Offset", -1), kaas.get("Offset", -1)
    if (a, kafka["Timestamp"]) == (b, kaas["Timestamp"]) or kafka["ErrorCode"] or kaas["ErrorCode"]:
        return False
    if a == -1 and op.get("raw", 0) >= 0:
        # Kafka gives up behind the first file that could hold the time, even if all of it there is below the log start.
        if "stamp" in op:
            return b >= world.starts(world.kaas, op["topic"])[op["part"]]
        at = op["raw"] if "raw" in op else world.t0 + op["at"]
        first, t = first_at(world, op["topic"], op["part"], at)
        return (first, world.stamp(world.kafka, world.name(op["topic"]), op["part"], t, False)) == (b, kaas["Timestamp"])
    # The latest record may lie below the log start, as long as its file is there; each broker drops its files at its own moment.
    return op.get("raw") == -3 and any(0 <= offset < world.starts(side, op["topic"])[op["part"]]
                                       for offset, side in ((a, world.kafka), (b, world.kaas)))


def batches_from(world, topic, part, offset):
    """All that Kafka has from the batch with that offset on."""
    while True:
        r = world.kafka.call("Fetch", 12, {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 25, "Topics": [
            {"Topic": world.name(topic), "Partitions": [
                {"Partition": part, "FetchOffset": offset, "PartitionMaxBytes": 1 << 25}]}]})
        got = batches.split(r["Responses"][0]["Partitions"][0]["Records"] or b"")
        if not got:
            return
        yield from got
        offset = got[-1][1] + 1


def first_at(world, topic, part, at):
    """(offset, time) of the first record from the log start on with a time of at least `at`; (-1, -1): there is none."""
    start = world.starts(world.kafka, topic)[part]
    for _, _, _, stamp, batch in batches_from(world, topic, part, start):
        for o, t in batches.times(batch, stamp):
            if o >= start and t >= at:
                return o, t
    return -1, -1


def epoch_end(world, op):
    name = world.name(op["topic"])

    def ask(side):
        part = {"Partition": op["part"], "LeaderEpoch": side.epoch(name, op["part"], op["asked"]),
                "CurrentLeaderEpoch": side.epoch(name, op["part"], op["epoch"])}
        r = side.call("OffsetForLeaderEpoch", op["version"], {"Topics": [{"Topic": name, "Partitions": [part]}]})
        if "closed" in r:
            return r
        p = r["Topics"][0]["Partitions"][0]
        p["LeaderEpoch"] = side.nth(name, op["part"], p["LeaderEpoch"])
        return common(p)

    return world.each(ask)


def describe_producers(world, op):
    name = world.name(op["topic"])

    def ask(side):
        r = side.call("DescribeProducers", 0, {"Topics": [{"Name": name, "PartitionIndexes": [op["part"]]}]})
        if "closed" in r:
            return r
        p = r["Topics"][0]["Partitions"][0]
        p["ActiveProducers"].sort(key=lambda a: a["ProducerId"])
        for a in p["ActiveProducers"]:
            a["LastTimestamp"] = world.stamp(side, name, op["part"], a["LastTimestamp"], False)
        return common(p)

    kafka, kaas = world.each(ask)
    if op["topic"] in world.restarted and "ActiveProducers" in kafka:
        # Of a log that was empty when it was restarted Kafka forgets the producers.
        known = {a["ProducerId"] for a in kafka["ActiveProducers"]}
        kaas["ActiveProducers"] = [a for a in kaas["ActiveProducers"] if a["ProducerId"] in known]
    return kafka, kaas


# ---- changing ----

def delete_records(world, op):
    name = world.name(op["topic"])

    def ask(side):
        r = side.call("DeleteRecords", op["version"], {"TimeoutMs": 30000, "Topics": [
            {"Name": name, "Partitions": [{"PartitionIndex": op["part"], "Offset": op["offset"]}]}]})
        return r if "closed" in r else common(r["Topics"][0]["Partitions"][0])

    return world.each(ask)


def alter_configs(world, op):
    """One key of a topic; the next operation finds the change at work at both."""
    name = world.name(op["topic"])

    def ask(side):
        config = {"Name": key_at(side, op["key"]), "ConfigOperation": op["how"], "Value": op["value"]}
        r = side.call("IncrementalAlterConfigs", 1, {"ValidateOnly": op["dry"], "Resources": [
            {"ResourceType": 2, "ResourceName": name, "Configs": [config]}]})
        return r if "closed" in r else {"ErrorCode": r["Responses"][0]["ErrorCode"]}

    answers = world.each(ask)
    if answers[0] == answers[1] == {"ErrorCode": 0} and not op["dry"]:
        world.await_config(op["topic"], op["key"], op["value"] if op["how"] == 0 else None)
    return answers


def describe_configs(world, op):
    name = world.name(op["topic"])

    def ask(side):
        r = side.call("DescribeConfigs", op["version"], {"IncludeSynonyms": False, "Resources": [
            {"ResourceType": 2, "ResourceName": name, "ConfigurationKeys": [key_at(side, k) for k in op["keys"]]}]})
        if "closed" in r:
            return r
        one = r["Results"][0]
        configs = {("segment.bytes" if c["Name"] == "internal.segment.bytes" else c["Name"]):
                   [c["Value"], c.get("ConfigSource"), c["ReadOnly"], c["IsSensitive"], c.get("ConfigType")]
                   for c in one["Configs"]}
        return {"ErrorCode": one["ErrorCode"], "Configs": configs}

    return world.each(ask)


def retention(world, op):
    """Limits for a moment: both brokers are given the time to delete all they would, and must end at the same offset."""
    answers = []
    limits = dict(op["limits"])
    if "cut" in op:  # what is older than that time
        limits["retention.ms"] = int(time.time() * 1000) - world.t0 - op["cut"]
    for key, value in limits.items():
        answers.append(alter_configs(world, {"topic": op["topic"], "key": key, "how": 0, "value": str(value), "dry": False}))
    starts = world.settle(op["topic"], 1.2, 15)
    for key in limits:
        alter_configs(world, {"topic": op["topic"], "key": key, "how": 0, "value": "-1", "dry": False})
    return [{"altered": [a[i] for a in answers], "starts": starts[i]} for i in (0, 1)]


# ---- topics ----

def create_topic(world, op):
    name = op.get("name") or world.name(op["topic"])

    def ask(side):
        configs = [{"Name": key_at(side, k), "Value": v} for k, v in op["configs"].items()]
        r = side.call("CreateTopics", op["version"], {"TimeoutMs": 30000, "Topics": [
            {"Name": name, "NumPartitions": op["parts"], "ReplicationFactor": op["factor"], "Configs": configs}]})
        return r if "closed" in r else {"ErrorCode": r["Topics"][0]["ErrorCode"]}

    answers = world.each(ask)
    if answers[0] == answers[1] == {"ErrorCode": 0}:
        if op["configs"].get("message.timestamp.type") == "LogAppendTime":
            world.stamping.add(name)
        world.await_topic(op["topic"], op["parts"])
    return answers


def delete_topic(world, op):
    name = world.name(op["topic"])

    def ask(side):
        r = side.call("DeleteTopics", 5, {"TimeoutMs": 30000, "TopicNames": [name]})
        return r if "closed" in r else {"ErrorCode": r["Responses"][0]["ErrorCode"]}

    answers = world.each(ask)
    if answers[0] == answers[1] == {"ErrorCode": 0}:
        world.await_gone(op["topic"])
    return answers


def create_partitions(world, op):
    name = world.name(op["topic"])

    def ask(side):
        r = side.call("CreatePartitions", 3, {"TimeoutMs": 30000, "Topics": [{"Name": name, "Count": op["count"]}]})
        return r if "closed" in r else {"ErrorCode": r["Results"][0]["ErrorCode"]}

    answers = world.each(ask)
    if answers[0] == answers[1] == {"ErrorCode": 0}:
        world.await_topic(op["topic"], op["count"])
    return answers


def restart(world, _op):
    world.restart()
    return [{}, {}]


def run(world, op):
    """Asks both; raises Difference, else the answer."""
    kafka, kaas = globals()[op["op"]](world, op)
    what = compare(kafka, kaas)
    if what:
        raise Difference(op, f"{op['op']}: {what} (kafka, kaas)", (kafka, kaas))
    return kafka
