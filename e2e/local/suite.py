#!/usr/bin/env python3
"""Real clients and faults against three brokers under `kaas-operator local`.

suite.py [NAME...]: scenarios whose name contains one of the words. KAAS_SOAK=1: full record counts."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, garbage, load, local, mixed, runner, wire  # noqa: E402
from kaaslib.proc import ended  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
RECORDS = 100_000 if SOAK else 10_000
BUILD = os.environ.get("KAAS_BUILD", "release")


@scenario
def three_brokers_serve(c):
    with c.conn(0) as conn:
        check(sorted(conn.metadata()["brokers"]) == [0, 1, 2], "Metadata lists", conn.metadata()["brokers"])
        check(conn.describe_cluster() == {0: False, 1: False, 2: False}, conn.describe_cluster())
        keys = conn.api_versions()
    check(keys[60] == (0, 2), "R35: DescribeCluster 0-2", keys.get(60))
    check(all(c.readyz(n)[0] == 200 for n in range(3)))


@scenario
def kcat_produces_and_consumes(c):
    text = "\n".join(f"line {i}" for i in range(100)) + "\n"
    subprocess.run(["kcat", "-P", "-b", c.bootstrap, "-t", "greetings"], input=text, text=True, check=True, timeout=30)
    out = subprocess.run(["kcat", "-C", "-b", c.bootstrap, "-t", "greetings", "-e", "-q"], capture_output=True, text=True,
                         check=True, timeout=30).stdout
    check(sorted(out.splitlines()) == sorted(text.splitlines()), "kcat read", len(out.splitlines()))


@scenario
def java_console_tools_work(c):
    topic = "console"
    cmd = ["java", "-Xmx256m", "-cp", f"{clients.kafka_libs('4.4.0')}/*"]
    subprocess.run([*cmd, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", c.bootstrap, "--topic", topic],
                   input="a\nb\nc\n", text=True, check=True, timeout=60, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    out = subprocess.run([*cmd, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", c.bootstrap, "--topic", topic,
                          "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"], capture_output=True, text=True,
                         timeout=60, check=False).stdout
    check(sorted(out.split()) == ["a", "b", "c"], "console consumer read", out)


@scenario
def every_client_moves_records_exactly(c):
    return mixed.write_and_read(c, RECORDS)


@scenario
def clients_read_each_others_records(c):
    for writer, reader in (("java-4.4", "kafkajs"), ("kafkajs", "franz-go"), ("franz-go", "java-3.7")):
        mixed.read(c, writer, f"x-{reader}", RECORDS, reader)


@scenario
def a_group_of_two_shares_the_work(c):
    c.create_topic("shared", 6)
    args = ["kcat", "-b", c.bootstrap, "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-f", "%p\n", "-u",
            "-G", "pair", "shared"]
    two = [subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        def assigned():
            out = clients.kafka_tool("4.4.0", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server",
                                     c.bootstrap, "--describe", "--group", "pair", "--members")
            counts = [int(line.split()[-1]) for line in out.splitlines() if line.startswith("pair ")]
            return sorted(counts) == [3, 3]
        eventually(assigned, 60, 1, "three partitions each")
    finally:
        for p in two:
            p.terminate()
            p.communicate()


@scenario
def two_hundred_groups_spread_and_agree(c):
    groups = [f"group-{i}" for i in range(200)]
    c.before = eventually(lambda: wire.agreed(c, range(3), groups), 30, what="R18: one answer from every broker")
    per = [sum(1 for _, n in c.before.values() if n == b) for b in range(3)]
    check(min(per) >= 40, "R16: spread", per)
    return per


@scenario
def a_killed_broker_is_fenced_and_comes_back(c):
    c.create_topic("faults", load.PARTITIONS)
    homes = c.led_by("faults")
    groups = list(c.before)
    p = load.Producing(c.bootstrap, "faults", 25, rate=400)
    eventually(lambda: c.end_offset("faults", 0) > 0, 30, what="the producer's first record")
    # without its binary the broker cannot come back: the fenced state can be looked at in peace
    c.hold_back(2)
    c.kill(2)
    t0 = time.monotonic()
    row = eventually(lambda: (r := c.broker_status(2)) and r["state"] == "Fenced" and r["health"] == "Dead" and r, 5, 0.02,
                     "fenced and Dead in status")
    fenced_after = time.monotonic() - t0
    with c.conn(0) as conn:
        eventually(lambda: conn.describe_cluster() == {0: False, 1: False, 2: True}, 5, 0.05, "R31: DescribeCluster 2")
        check(2 not in conn.metadata()["brokers"], "R30: Metadata names a fenced broker")
        check(2 not in conn.describe_cluster(include_fenced=False))
    seen = row["lastSeen"]
    now = eventually(lambda: wire.agreed(c, (0, 1), groups), 10, what="coordinators after the loss")
    moved = [g for g in groups if now[g][1] != c.before[g][1]]
    check(all(c.before[g][1] == 2 for g in moved), "R18: a group of a living broker moved")
    check(len(moved) == sum(1 for g in groups if c.before[g][1] == 2), "R18: a group stayed on the dead broker")
    out = clients.kafka_tool("4.4.0", "org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server", c.address(0),
                             "--include-fenced-brokers")
    check(any(line.split()[:1] == ["2"] and "fenced" in line and "unfenced" not in line for line in out.splitlines()), out)
    check(c.broker_status(2)["lastSeen"] == seen, "R13: lastSeen of a dead broker moved")
    c.let_go(2)
    c.wait_serving(3)
    history = p.history()
    final = load.everything(c.bootstrap, "faults")
    bad = load.check_history(history, final)
    check(not bad, f"{len(bad)} findings, first:", bad[:3])
    check(not history["failed"] and not history["unflushed"], "failed sends", history["failed"][:3])
    check(load.longest_gap(history) < 10, "clients stood still for", load.longest_gap(history))
    eventually(lambda: c.led_by("faults") == homes, 40, 0.5, "the same partitions back")
    back = eventually(lambda: (v := wire.agreed(c, (0, 1, 2), groups)) == c.before and v, 40, 0.5, "R22: the same groups back")
    check(back)
    return f"fenced after {fenced_after:.2f} s, longest ack gap {load.longest_gap(history):.2f} s, {len(history['acked'])} acked"


@scenario
def sigterm_hands_over_without_a_failed_send(c):
    p = load.Producing(c.bootstrap, "faults", 12, rate=400)
    first = c.end_offset("faults", 0)
    eventually(lambda: c.end_offset("faults", 0) > first, 30, what="the producer's first record")
    c.hold_back(1)
    pid = c.kill(1, signal.SIGTERM)
    seen = set()
    t0 = time.monotonic()
    while not ended(pid) and time.monotonic() - t0 < 40:
        row = c.broker_status(1)
        if row:
            seen.add(row["state"])
        time.sleep(0.01)
    took = time.monotonic() - t0
    check("Draining" in seen, "R25: never shown Draining, only", seen)
    check(1 not in c.led_by("faults").values(), "leadership was not gone at exit")
    c.let_go(1)
    c.wait_serving(3)
    history = p.history()
    check(not history["failed"] and not history["unflushed"], "failed sends", history["failed"][:3])
    return f"exit after {took:.2f} s, longest ack gap {load.longest_gap(history):.2f} s"


@scenario
def five_hundred_topics_in_a_burst_flap_nobody(c):
    stop, bad = time.monotonic() + 120, []
    proc = subprocess.Popen([sys.executable, "-c", (
        "import sys; sys.path.insert(0, sys.argv[1]); from kaaslib import wire\n"
        "for k in range(10):\n"
        "  with wire.Conn(sys.argv[2], 120) as c:\n"
        "    r = c.create_topics([f'burst-{k}-{i}' for i in range(50)], timeout_ms=60000)\n"
        "    assert all(e == 0 for e in r.values()), r\n"), str(pathlib.Path(__file__).resolve().parent.parent), c.address(1)])
    while proc.poll() is None and time.monotonic() < stop:
        bad += [(n, c.readyz(n)) for n in range(3) if c.readyz(n)[0] != 200]
        time.sleep(0.05)
    check(proc.wait(60) == 0, "creation failed")
    check(not bad, "R45: readiness flapped:", bad[:2])
    def all_led():
        with c.conn(2) as conn:
            topics = conn.metadata()["topics"]
        mine = [t for name, t in topics.items() if name.startswith("burst-")]
        return len(mine) == 500 and all(t["error"] == 0 and t["partitions"][0]["leader"] >= 0 for t in mine)
    eventually(all_led, 60, 0.3, "500 topics led")


@scenario
def topics_come_and_go_as_objects(c):
    with c.conn(0) as conn:
        check(conn.create_topics(["as-object"], 2)["as-object"] == 0)
    obj = eventually(lambda: c.object("kaastopics", "as-object"), 10, what="a KaasTopic for a topic that a client made")
    check(obj["spec"]["topicName"] == "as-object" and obj["spec"]["partitions"] == 2, obj["spec"])
    with c.conn(1) as conn: # another broker than the one that was asked to make it: its image may be a moment behind
        eventually(lambda: conn.metadata(["as-object"])["topics"]["as-object"]["error"] != 3, 5, what="known to broker 1")
        deleted = conn.delete_topics(["as-object"])
        check(deleted["as-object"] == 0, deleted)
    eventually(lambda: not (c.dir / "objects/kaastopics/default/as-object.json").exists(), 20, what="its end")
    with c.conn(2) as conn:
        eventually(lambda: conn.metadata(["as-object"])["topics"]["as-object"]["error"] == 3, 10, what="unknown to clients")


@scenario
def configs_change_with_kafkas_tool(c):
    topic = "configured"
    c.create_topic(topic, 3)
    tool = ["4.4.0", "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", c.bootstrap, "--entity-type", "topics",
            "--entity-name", topic]
    clients.kafka_tool(*tool, "--alter", "--add-config", "retention.ms=60000,max.message.bytes=2000")
    want = {"retention.ms": "60000", "max.message.bytes": "2000"}
    spec = c.object("kaastopics", topic)["spec"]
    check(spec.get("config") == want, "the KaasTopic says so when the client has its answer", spec)
    for n in range(3):
        out = clients.kafka_tool("3.7.2", "kafka.admin.ConfigCommand", "--bootstrap-server", c.address(n), "--entity-type", "topics",
                                 "--entity-name", topic, "--describe")
        check("retention.ms=60000" in out and "DYNAMIC_TOPIC_CONFIG" in out, "broker", n, out)
    check(not kcat_put(c, topic, "x" * 5000), "open logs heard of max.message.bytes")
    check(kcat_put(c, topic, "x" * 500))
    refused = ""
    try:
        clients.kafka_tool(*tool, "--alter", "--add-config", "retention.ms=soon")
    except RuntimeError as e:
        refused = str(e)
    check("InvalidConfiguration" in refused or "InvalidRequest" in refused, "a value that is none", refused[-400:])
    clients.kafka_tool(*tool, "--alter", "--delete-config", "max.message.bytes")
    spec = c.object("kaastopics", topic)["spec"]
    check(spec.get("config") == {"retention.ms": "60000"}, "after a delete", spec)
    check(kcat_put(c, topic, "x" * 5000), "back to the default")


@scenario
def partitions_are_added_with_kafkas_tool(c):
    topic = "growing"
    c.create_topic(topic, 2)
    tool = ["4.4.0", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", c.bootstrap, "--topic", topic]
    clients.kafka_tool(*tool, "--alter", "--partitions", "7")
    spec = c.object("kaastopics", topic)["spec"]
    check(spec["partitions"] == 7, "the KaasTopic says so when the client has its answer", spec)
    def all_led(n):
        leaders = c.led_by(topic, n).values()
        return len(leaders) == 7 and all(leader >= 0 for leader in leaders)
    for n in range(3):
        eventually(lambda n=n: all_led(n), 10, what=f"seven led partitions, says broker {n}")
    check(len(set(c.led_by(topic).values())) == 3, "new ones have homes everywhere")
    r = clients.produce("franz-go", c.bootstrap, topic, 0, 700).result()
    check(r["failed"] == 0, r)
    eventually(lambda: all(c.end_offset(topic, p) > 0 for p in range(7)), 10, what="records in every partition")
    refused = ""
    try:
        clients.kafka_tool(*tool, "--alter", "--partitions", "3")
    except RuntimeError as e:
        refused = str(e)
    check("InvalidPartitions" in refused, "partitions only grow", refused[-400:])


@scenario
def topics_follow_their_kaastopic(c):
    def declare(partitions, config):
        c.topics = [{"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasTopic", "metadata": {"name": "declared"},
                     "spec": {"cluster": "demo", "topicName": "declared", "partitions": partitions, "config": config}}]
        c.write_spec()
    def led():
        leaders = c.led_by("declared").values()
        return len(leaders) if all(leader >= 0 for leader in leaders) else 0
    declare(2, {"retention.ms": "60000"})
    eventually(lambda: led() == 2, 20, what="a declared topic")
    check(kcat_put(c, "declared", "x" * 5000))
    declare(4, {"max.message.bytes": "2000"})
    eventually(lambda: led() == 4, 20, what="more partitions")
    eventually(lambda: not kcat_put(c, "declared", "x" * 5000), 10, 0.5, what="a changed config in open logs")
    # What no broker takes changes nothing, and the object says what is wrong.
    declare(4, {"max.message.bytes": "lots", "retention.msec": "1"})
    def refused():
        ready = [x for x in c.object("kaastopics", "declared")["status"]["conditions"] if x["type"] == "Ready"][0]
        return ready if (ready["status"], ready["reason"]) == ("False", "InvalidConfig") else None
    text = eventually(refused, 10, 0.1, what="reason InvalidConfig")["message"]
    check("Unknown topic config name: retention.msec" in text and "max.message.bytes must be a 32-bit number" in text, text)
    out = clients.kafka_tool("4.4.0", "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", c.bootstrap, "--entity-type",
                             "topics", "--entity-name", "declared", "--describe")
    check("max.message.bytes=2000" in out, "the last good config is not in force", out)
    check("retention.ms" not in out, "what the file no longer says is gone", out)
    declare(4, {"max.message.bytes": "20000"})
    eventually(lambda: kcat_put(c, "declared", "x" * 5000), 10, 0.5, what="the corrected config")
    check(refused() is None)
    c.topics = []
    c.write_spec()
    with c.conn(0) as conn:
        check(conn.delete_topics(["declared"])["declared"] == 0)


@scenario
def broker_configs_follow_the_kaascluster(c):
    def made(partitions):
        made.n += 1
        with c.conn(made.n % 3) as conn:
            t = eventually(lambda: (t := conn.metadata([f"auto-{made.n}"], auto_create=True)["topics"][f"auto-{made.n}"])["error"] in (0, 5)
                           and t, 10, what="an automatic topic")
        return len(t["partitions"]) == partitions
    made.n = 0
    pids = c.pids()
    check(made(1))
    c.config = {"num.partitions": "4"}
    c.write_spec()
    eventually(lambda: made(4), 10, 0.2, what="num.partitions of the new spec")
    out = clients.kafka_tool("4.4.0", "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", c.bootstrap, "--entity-type",
                             "brokers", "--entity-default", "--describe")
    check("num.partitions=4" in out and "DYNAMIC_DEFAULT_BROKER_CONFIG" in out, out)
    # Of connections, too: the next one is refused, those that are open stay.
    with c.conn(0) as conn:
        c.config = {"num.partitions": "4", "max.connections.per.ip": "1"}
        c.write_spec()
        def refused():
            try:
                with c.conn(0) as other:
                    other.api_versions()
                return False
            except OSError:
                return True
        eventually(refused, 10, 0.1, what="max.connections.per.ip of the new spec")
        check(conn.api_versions(), "a connection that was open is closed")
        c.config = {"num.partitions": "4"}
        c.write_spec()
        eventually(lambda: not refused(), 10, 0.1, what="the default again")
    check(c.pids() == pids, "a change that needs no restart restarted a broker", pids, c.pids())


def events(c, reason):
    """The messages of the Events with this reason."""
    every = [json.loads(f.read_text()) for f in (c.dir / "objects" / "events" / "default").glob("*.json")]
    return [e["message"] for e in every if e["reason"] == reason for _ in range(e.get("count", 1))]


@scenario
def a_rollout_leaves_a_report(c):
    c.create_topic("rolled", 12)
    pids = c.pids()
    c.config = {**(c.config or {}), "group.max.size": "5000"}  # read at start: it rolls the brokers
    c.write_spec()
    done = lambda: not set(pids) & set(c.pids()) and "finishedAt" in c.status().get("lastRollout", {})
    eventually(done, 180, 0.2, what="the end of the rollout")
    report = c.status()["lastRollout"]
    gap = report["gapMillis"]
    check(report["brokers"] == 3 and report["durationSeconds"] > 0 and report["maxBrokersOut"] == 1, report)
    check("halted" not in report and "measuredSince" not in report, report)
    # Each partition left its broker and came back to it: at least the 100 slots and the topic's 12.
    check(report["partitionsMoved"] >= 112 and gap["count"] >= 2 * 112, report)
    check(0 <= gap["p50"] <= gap["p99"] <= gap["max"], report)
    progressing = [x for x in c.status()["conditions"] if x["type"] == "Progressing"]
    check(progressing[0]["status"] == "False", "every partition is back when it says so", progressing)
    for reason in ("RolloutStarted", "RolloutFinished"):
        told = lambda: [m for m in events(c, reason) if report["revision"] in m]
        eventually(told, 10, 0.1, what=reason)  # an Event may come a moment after the status
        check(len(told()) == 1, reason, "once:", events(c, reason))
    return f"{report['durationSeconds']} s, {report['partitionsMoved']} partitions, without a leader p50 {gap['p50']}, p99 {gap['p99']}, max {gap['max']} ms"


@scenario
def a_broken_image_halts_the_rollout_and_a_corrected_one_goes_on(c):
    def condition(kind):
        return next((x for x in c.status().get("conditions", []) if x["type"] == kind), {})
    pids = c.pids()
    c.extra["image"] = "/bin/false"
    c.write_spec()
    eventually(lambda: condition("Progressing").get("reason") == "RolloutHalted", 120, 0.2, what="a rollout that halts")
    status = c.status()
    halted = status["lastRollout"]["halted"]
    check(halted["pod"] == "demo-2" and halted["reason"] == "CrashLoopBackOff" and "exit code 1" in halted["message"], halted)
    check(condition("Progressing")["status"] == "True" and "demo-2" in condition("Progressing")["message"], condition("Progressing"))
    check(condition("Degraded")["status"] == "True", condition("Degraded"))
    check(status["serving"] == 2 and c.pids()[:2] == pids[:2], "the other two were not touched", status, c.pids())
    del c.extra["image"]
    c.write_spec()
    eventually(lambda: condition("Progressing").get("status") == "False", 120, 0.2, what="the corrected rollout's end")
    report = c.status()["lastRollout"]
    check("halted" not in report and "finishedAt" in report and report["maxBrokersOut"] == 1, report)
    check(condition("Degraded")["status"] == "False" and c.status()["serving"] == 3, c.status()["conditions"])
    check(c.pids()[:2] == pids[:2], "the corrected one is what they run already")
    check(events(c, "RolloutHalted") == [halted["message"]], "said once:", events(c, "RolloutHalted"))


@scenario
def metrics_tell_of_the_cluster(c):
    m = c.metrics()
    check(m["kaas_operator_leader"] == 1 and m["kaas_operator_heartbeat_streams"] == 3, m)
    check(m['kaas_cluster_brokers{cluster="default/demo",state="serving"}'] == 3, m)
    check(m['kaas_cluster_partitions_offline{cluster="default/demo"}'] == 0, m)
    generation = m['kaas_cluster_image_generation{cluster="default/demo"}']
    for n in range(3):
        b = eventually(lambda n=n: (b := c.metrics(n))["kaas_image_generation"] >= generation and b, 10, what="the image")
        check(b["kaas_heartbeat_active"] == 1 and b["kaas_broker_ready"] == 1, n, b)


@scenario
def garbage_costs_only_its_connection(c):
    before = c.pids()
    with c.conn(0) as neighbour:
        for _ in range(3):
            ended = garbage.throw(c.address(0))
            check("still open" not in ended.values(), ended)
        silent = garbage.half_open(c.address(0), 1000)
        neighbour.metadata()
        with c.conn(0) as late:
            late.metadata()
        for s in silent:
            s.close()
    check(c.pids() == before, "a broker restarted")


@scenario
def cold_restart_keeps_everything(c):
    name = "java-4.4"
    with c.conn(0) as conn:
        topics = sorted(conn.metadata()["topics"])
    pids = c.pids()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(set(c.pids()) - set(pids)) == 3, 30, what="new processes")
    eventually(lambda: all(c.readyz(n)[0] == 200 for n in range(3)), 30, what="three ready brokers")
    c.wait_serving(3)
    with c.conn(0) as conn:
        eventually(lambda: sorted(conn.metadata()["topics"]) == topics, 20, what="all topics")
    # the status of before the kill may still say three for a moment
    eventually(lambda: c.leading() == {0, 1, 2}, 20, what="spread over all three")
    out = eventually(lambda: clients.committed(c.bootstrap, f"g-{name}"), 30, 1, "committed offsets")
    check(sum(out) == RECORDS, "committed offsets sum to", sum(out))
    mixed.read(c, name, "after-restart", RECORDS)


@scenario
def scale_down_and_up(c):
    c.scale(2)
    eventually(lambda: [b["id"] for b in c.status()["brokers"]] == [0, 1], 60, what="broker 2 gone from status")
    for n in (0, 1):
        with c.conn(n) as conn:
            eventually(lambda: sorted(conn.describe_cluster()) == [0, 1] and sorted(conn.metadata()["brokers"]) == [0, 1], 5,
                       what="R9, R33: gone from every answer")
    c.scale(3)
    c.wait_serving(3)
    with c.conn(0) as conn:
        eventually(lambda: sorted(conn.metadata()["brokers"]) == [0, 1, 2], 10, what="broker 2 back")


@scenario
def the_operator_dies_and_everything_returns(c):
    before = sorted(c.metadata()["topics"])
    c.operator.kill()
    c.operator.wait()
    c.start()
    c.wait_serving(3)
    eventually(lambda: sorted(c.metadata()["topics"]) == before, 30, what="all topics")
    mixed.read(c, "confluent-kafka", "after-operator", RECORDS)


@scenario
def the_end_leaves_nothing(c):
    pids = c.pids() + [c.operator.pid]
    c.stop()
    check(not [p for p in pids if os.path.exists(f"/proc/{p}")], "processes left")
    check(local.ports_free(c.base), "ports left")


def kcat_put(c, topic, text):
    """Whether a record was taken."""
    r = subprocess.run(["kcat", "-P", "-b", c.bootstrap, "-t", topic], input=text, text=True, capture_output=True, check=False,
                       timeout=30)
    return r.returncode == 0


def main():
    clients.prepare()
    with local.LocalCluster(build=BUILD) as c:
        return runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())


if __name__ == "__main__":
    sys.exit(main())
