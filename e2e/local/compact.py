#!/usr/bin/env python3
"""Log compaction against three brokers under `kaas-operator local`: Kafka's own LogCompactionTester, the topic of
committed offsets, and a cleaned log whose leader is killed.

compact.py [NAME...]: scenarios whose name contains one of the words. KAAS_SOAK=1: all codecs, more records."""

import os
import pathlib
import re
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, local, runner, wire  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
BUILD = os.environ.get("KAAS_BUILD", "release")
MESSAGES = 100_000 if SOAK else 10_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd") if SOAK else ("none", "zstd")
SLEEP_S = 10 if SOAK else 4  # between writing and reading: time for the cleaner (its help speaks of ms, but means s)
CONFIG = {"log.segment.bytes": "65536", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.backoff.ms": "200",
          "log.cleaner.io.max.bytes.per.second": "268435456"}


def total(c, metric):
    return sum(c.metrics(n)[metric] for n in range(c.replicas))


def cleaned(c):
    return total(c, "kaas_log_cleanings_total")


def settled(c):
    """No cleaning went on for a while: what was due is done."""
    before = None

    def same():
        nonlocal before
        now, last = cleaned(c), before
        before = now
        return now == last
    eventually(same, 60, 1.5, "the cleaners come to rest")


def commit(conn, group, topic, offset):
    body = (wire.string(group) + struct.pack(">i", -1) + wire.string("") + struct.pack(">qi", -1, 1) + wire.string(topic) +
            struct.pack(">iiq", 1, 0, offset) + wire.string(""))
    return struct.unpack(">h", conn.call(8, 2, body, flexible=False).data[-2:])[0]


@scenario
def committed_offsets_survive_the_compaction_of_their_topic(c):
    commits, group = 3000 if SOAK else 1500, "steady"
    c.create_topic("counted", 1)
    with c.conn(0) as conn:
        coordinator = eventually(lambda: (a := conn.coordinators([group])[group])[0] == 0 and a[1] + 1, 30, what="coordinator") - 1
    before = cleaned(c)
    with c.conn(coordinator) as conn:
        for i in range(commits):
            check(commit(conn, group, "counted", i) == 0, "commit", i)
    eventually(lambda: cleaned(c) > before, 30, what="the offsets' partition was cleaned")
    settled(c)
    c.kill(coordinator)
    offsets = eventually(lambda: clients.committed(c.bootstrap, group), 60, 1, "the group is described")
    check(offsets == [commits - 1], "committed offset", offsets)
    eventually(lambda: c.status().get("serving") == 3, 60, what="three brokers")
    return f"{commits} commits"


@scenario
def kafkas_log_compaction_tester_passes(c):
    notes = []
    for codec in CODECS:
        out = clients.kafka_tool("4.4.0", "org.apache.kafka.tools.LogCompactionTester", "--bootstrap-server", c.bootstrap,
                                 "--messages", MESSAGES, "--duplicates", 5, "--percent-deletes", 20, "--topics", 2,
                                 "--compression-type", codec, "--sleep", SLEEP_S, timeout_s=300)
        check("Data verification is completed" in out, codec, out[-2000:])
        m = re.search(r"(\d+) rows of data produced, (\d+) rows of data consumed", out)
        check(m and int(m[2]) < int(m[1]) * 0.8, codec, "hardly anything was compacted:", out[-500:])
        notes.append(f"{codec} {m[1]} -> {m[2]} rows")
    return "; ".join(notes)


@scenario
def a_cleaned_log_is_whole_after_its_leader_was_killed(c):
    topic, keys, rounds = "ledger", 50, 120
    c.create_topic(topic, 1, configs={"cleanup.policy": "compact"})
    before = cleaned(c)
    lines = "".join(f"k{k}:{r}-{'x' * 100}\n" for r in range(rounds) for k in range(keys))
    subprocess.run(["kcat", "-P", "-b", c.bootstrap, "-t", topic, "-K", ":", "-X", "batch.size=8192"], input=lines, text=True,
                   check=True, timeout=60)
    eventually(lambda: cleaned(c) > before, 30, what="a cleaning")
    settled(c)
    with c.conn(0) as conn:
        c.kill(conn.metadata([topic])["topics"][topic]["partitions"][0]["leader"])
    out = subprocess.run(["kcat", "-C", "-b", c.bootstrap, "-t", topic, "-e", "-q", "-K", ":", "-o", "beginning", "-X",
                          "topic.metadata.refresh.interval.ms=500"], capture_output=True, text=True, check=True, timeout=90).stdout
    rows = [line.split(":", 1) for line in out.splitlines()]
    last = dict(rows)
    check(len(last) == keys and all(v.startswith(f"{rounds - 1}-") for v in last.values()), "last values", len(last))
    check(len(rows) < keys * rounds / 2, len(rows), "records are left of", keys * rounds)
    eventually(lambda: c.status().get("serving") == 3, 60, what="three brokers")
    return f"{keys * rounds} -> {len(rows)} records"


@scenario
def records_without_a_key_are_refused(c):
    r = subprocess.run(["kcat", "-P", "-b", c.bootstrap, "-t", "ledger", "-X", "message.timeout.ms=5000"], input="no key\n", text=True,
                       capture_output=True, timeout=30, check=False)
    check(r.returncode != 0 or "failed" in r.stderr.lower(), "kcat was told nothing:", r.returncode, r.stderr)


@scenario
def the_volume_verifies_afterwards(c):
    check(total(c, "kaas_log_cleaner_errors_total") == 0, "cleanings failed")
    check(total(c, "kaas_log_cleaner_uncleanable_partitions") == 0, "partitions were given up")
    c.stop()
    r = subprocess.run([str(c.bin / "kaas-broker"), "fsck", str(c.dir / "volume")], capture_output=True, text=True, timeout=120,
                       check=False)
    check(r.returncode == 0, r.stdout[-2000:], r.stderr[-500:])
    return r.stdout.splitlines()[-1]


def main():
    clients.kafka_libs("4.4.0")
    with local.LocalCluster(build=BUILD, config=CONFIG) as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
