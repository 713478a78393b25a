#!/usr/bin/env python3
"""Scenarios on a real Kubernetes with kaas installed by Helm and a KaasCluster `demo` of three brokers applied.

Runs inside the cluster's namespaces: kenv suite.py [NAME...]. KAAS_SOAK=1: full record counts and full minutes."""

import json
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import clients, garbage, load, mixed, runner  # noqa: E402
from kaaslib.kube import KubeCluster, Watch, apiserver_pid, get, kubectl, lease_holder, pids_of  # noqa: E402
from kaaslib.proc import stopped  # noqa: E402
from kaaslib.runner import check, eventually, hold, scenario  # noqa: E402

SOAK = bool(os.environ.get("KAAS_SOAK"))
RECORDS = 100_000 if SOAK else 5_000
MINUTE = 60 if SOAK else 20
NODES = int(os.environ.get("KC_NODES", "1"))
GROUPS = [f"group-{i}" for i in range(200)]


@scenario
def the_cluster_turns_ready(c):
    kubectl("wait", "kaascluster/demo", "--for=condition=Ready", "--timeout=120s", timeout_s=130)
    c.wait_serving(3)
    check(c.status()["observedGeneration"] == c.object()["metadata"]["generation"])


@scenario
def kubectl_get_prints_the_columns(c):
    def head(kind):
        return kubectl("get", kind).splitlines()[0].split()
    check(head("kaasclusters") == "NAME DESIRED SERVING FENCED DRAINING PARTITIONS OFFLINE VERSION READY AGE".split(),
          head("kaasclusters"))
    rows = kubectl("get", "kaasbrokers").splitlines()
    check(len(rows) == 4 and rows[0].split()[:2] == ["NAME", "STATE"], rows)
    check(all("Serving" in r for r in rows[1:]), rows)
    c.create_topic("columns", 2)
    eventually(lambda: "columns" in kubectl("get", "kaastopics"), 10, what="the topic as an object")
    text = kubectl("explain", "kaascluster.spec.listeners")
    check("DESCRIPTION" in text and "<empty>" not in text, text[:400])


@scenario
def a_bad_spec_is_refused_with_the_fix(_c):
    base = {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasCluster", "metadata": {"name": "bad"}}
    good = {"replicas": 3, "image": "localhost/kaas:1", "storage": {"hostPath": "/srv/x"},
            "listeners": [{"name": "internal", "port": 9092, "type": "internal"}]}
    cases = [({"replicas": 0}, "replicas"), ({"minReadySeconds": -1}, "minReadySeconds"), ({"storage": {}}, "storage"),
             ({"listeners": [{"name": "a", "port": 99999, "type": "internal"}]}, "port")]
    for change, field in cases:
        r = kubectl("apply", "-f", "-", stdin=json.dumps({**base, "spec": {**good, **change}}), ok=False)
        check(r.returncode != 0 and field in r.stderr, change, r.stderr or "accepted")


@scenario
def every_client_moves_records_exactly(c):
    return mixed.write_and_read(c, RECORDS)


@scenario
def topics_are_objects_both_ways(c):
    topic = {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasTopic", "metadata": {"name": "applied"},
             "spec": {"cluster": "demo", "topicName": "applied", "partitions": 4}}
    kubectl("apply", "-f", "-", stdin=json.dumps(topic))
    eventually(lambda: len(c.metadata(["applied"])["topics"]["applied"]["partitions"]) == 4, 30, what="seen by clients")
    kubectl("delete", "kaastopic", "applied", "--timeout=30s")
    eventually(lambda: c.metadata(["applied"])["topics"]["applied"]["error"] == 3, 30, what="gone for clients")
    clients.kafka_tool("4.4.0", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", c.bootstrap, "--create", "--topic", "by-admin",
                       "--partitions", "2")
    eventually(lambda: get("kaastopic", "by-admin")["spec"]["partitions"] == 2, 10, what="AdminClient's topic as an object")
    clients.kafka_tool("4.4.0", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", c.bootstrap, "--delete", "--topic", "by-admin")
    eventually(lambda: kubectl("get", "kaastopic", "by-admin", ok=False).returncode != 0, 30, what="its end")


@scenario
def coordinators_are_spread_and_agreed(c):
    before = eventually(lambda: c.coordinators((0, 1, 2), GROUPS), 30, what="R18: one answer from every broker")
    per = [sum(1 for _, n in before.values() if n == b) for b in range(3)]
    check(min(per) >= 40, per)
    return per


def under_load(c, seconds, fault):
    """Runs fault(c) while an idempotent producer works; checks the history afterwards."""
    c.create_topic("faults", load.PARTITIONS)
    p = load.Producing(c.bootstrap, "faults", seconds, rate=300, first=int(time.time() * 1000) % 10**9 * 1000)
    time.sleep(2)  # the producer's own start
    note = fault()
    history = p.history()
    c.histories.append(history)
    check(not history["failed"] and not history["unflushed"], "failed sends", history["failed"][:3])
    final = load.everything(c.bootstrap, "faults")
    bad = [b for h in c.histories for b in load.check_history(h, final, idempotent=False)]
    check(not bad, f"{len(bad)} findings, first:", bad[:3])
    return f"{note}; {len(history['acked'])} acked, longest ack gap {load.longest_gap(history):.2f} s"


@scenario
def a_killed_container_comes_back_to_what_it_led(c):
    """One that is back within an interval keeps its place (ADR 9): whether its row was Fenced in between is a matter of luck."""
    before = eventually(lambda: c.coordinators((0, 1, 2), GROUPS), 30)
    c.create_topic("faults", load.PARTITIONS)
    homes = c.led_by("faults")

    def incarnation():
        return c.broker_status(2)["incarnation"]

    watch = Watch("demo")
    try:
        def fault():
            t0, killed = time.monotonic(), incarnation()
            c.kill(2)
            eventually(lambda: incarnation() != killed, 60, 0.1, "another incarnation in status")
            c.wait_serving(3)
            rows = [(t - t0, b["state"]) for t, s in watch.seen for b in s.get("brokers", []) if b["id"] == 2 and t > t0]
            fenced = next((f"fenced in status after {t:.2f} s" for t, state in rows if state == "Fenced"), "never fenced in status")
            return f"{fenced}, another incarnation"
        note = under_load(c, 25, fault)
    finally:
        watch.close()
    eventually(lambda: c.coordinators((0, 1, 2), GROUPS) == before, 60, 0.5, "R22: the same coordinators back")
    eventually(lambda: c.led_by("faults") == homes, 60, 0.5, "the same partitions back")
    return note


@scenario
def a_cut_off_node_stays_dead_and_fenced(c):
    if NODES < 3:
        return "needs three nodes: runs with KC_NODES=3"
    # node0 carries the service addresses of the test itself
    victim, node = next((n, c.node_of(n)) for n in (2, 1, 0) if c.node_of(n) != "node0")
    alive = [n for n in range(3) if c.node_of(n) != node]
    check(alive, "all brokers on one node")
    watch = Watch("demo")

    def fault():
        t0 = time.monotonic()
        c.cut(node)
        try:
            after = watch.first(lambda s: any(b["id"] == victim and b["state"] == "Fenced" and b["health"] == "Dead"
                                              for b in s.get("brokers", [])), t0, 15)
            with c.conn(alive[0]) as conn:
                eventually(lambda: conn.describe_cluster().get(victim) is True, 5, what="R31")
                out = clients.kafka_tool("4.4.0", "org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server",
                                         c.address(alive[0]), "--include-fenced-brokers")
                check([line.split()[4] for line in out.splitlines() if line.split()[:1] == [str(victim)]] == ["fenced"], out)
                hold(lambda: c.broker_status(victim)["state"] == "Fenced" and c.broker_status(victim)["health"] == "Dead"
                     and all(n in conn.metadata()["brokers"] for n in alive), MINUTE, 0.5, "Dead and fenced, survivors listed")
        finally:
            c.cut(node, False)
        c.wait_serving(3)
        return f"Dead after {after:.2f} s"
    try:
        return under_load(c, MINUTE + 30, fault)
    finally:
        watch.close()


@scenario
def a_pod_delete_moves_no_home_and_fails_no_send(c):
    before = eventually(lambda: c.coordinators((0, 1, 2), GROUPS), 30)
    watch = Watch("demo")
    try:
        def fault():
            t0 = time.monotonic()
            kubectl("delete", "pod", "demo-1", "--wait=true", timeout_s=90)
            after = watch.first(lambda s: any(b["id"] == 1 and b["state"] == "Draining" for b in s.get("brokers", [])), t0, 10)
            c.wait_serving(3)
            ids = {tuple(sorted(b["id"] for b in s.get("brokers", []))) for t, s in watch.seen if t > t0}
            check(ids == {(0, 1, 2)}, "W1: rows changed:", ids)
            return f"Draining shown after {after:.2f} s"
        note = under_load(c, 30, fault)
    finally:
        watch.close()
    eventually(lambda: c.coordinators((0, 1, 2), GROUPS) == before, 60, 0.5, "W1: the same coordinators")
    return note


@scenario
def scale_down_and_up(c):
    c.scale(2)
    eventually(lambda: [b["id"] for b in c.status()["brokers"]] == [0, 1], 90, 0.3, "broker 2 gone from status")
    for n in (0, 1):
        with c.conn(n) as conn:
            eventually(lambda: sorted(conn.describe_cluster()) == [0, 1] == sorted(conn.metadata()["brokers"]), 10,
                       what="R9, R33: gone from every answer")
    c.scale(3)
    c.wait_serving(3)


@scenario
def the_active_operator_dies_and_nothing_moves(c):
    c.create_topic("faults", load.PARTITIONS)
    leaders, pods, holder = c.leaders("faults"), c.pods(), lease_holder()
    victims = pids_of(holder.rsplit("_", 1)[0], "kaas-operator")
    check(len(victims) == 1, "operator processes of", holder, victims)
    t0 = time.monotonic()
    os.kill(victims[0], signal.SIGKILL)
    eventually(lambda: (h := lease_holder()) and h != holder, 15, 0.1, "another holder")
    took = time.monotonic() - t0
    hold(lambda: c.leaders("faults") == leaders, 10, 0.5, "R62: leaders and epochs")
    check(c.pods() == pods, "a broker restarted")
    with c.conn(0) as conn:
        check(conn.create_topics([f"after-{int(time.time())}"], 1).popitem()[1] == 0, "the new one takes no admin change")
    return f"another holder after {took:.1f} s"


@scenario
def without_the_api_server_clients_go_on(c):
    def fault():
        with stopped(apiserver_pid()):
            time.sleep(MINUTE)
        eventually(lambda: c.status().get("serving") == 3, 60, 0.5, "status again")
        return f"{MINUTE} s without an API server"
    return under_load(c, MINUTE + 10, fault)


@scenario
def garbage_costs_only_its_connection(c):
    before = c.pods()
    ended = garbage.throw(c.address(0))
    check("still open" not in ended.values(), ended)
    check(c.pods() == before, "a broker restarted")


@scenario
def five_hundred_topics_in_a_burst_flap_nobody(c):
    bad, stop = [], threading.Event()

    def watch():
        while not stop.wait(0.05):
            bad.extend((n, code) for n in range(3) if (code := c.readyz(n)) != 200)
    watcher = threading.Thread(target=watch)
    watcher.start()
    names = [f"burst-{i}" for i in range(500)]
    try:
        for k in range(0, 500, 50):
            with c.conn(k // 50 % 3) as conn:
                conn.sock.settimeout(120)
                errors = conn.create_topics(names[k:k + 50], timeout_ms=60000)
                check(not any(errors.values()), {n: e for n, e in errors.items() if e})
        eventually(lambda: all((t := c.metadata()["topics"].get(n)) and t["error"] == 0 and t["partitions"][0]["leader"] >= 0
                               for n in names), 60, 0.3, "500 topics led")
    finally:
        stop.set()
        watcher.join()
    check(not bad, "R45: readiness flapped:", bad[:3])
    with c.conn(0) as conn:
        conn.sock.settimeout(120)
        check(not any(conn.delete_topics(names, timeout_ms=60000).values()), "deletion")


@scenario
def cold_restart_of_all_brokers_keeps_everything(c):
    name = "java-4.4"
    topics = set(c.metadata()["topics"])
    for n in range(3):
        c.kill(n)
    eventually(lambda: all(c.readyz(n) == 200 for n in range(3)), 90, 0.3, "three ready brokers")
    eventually(lambda: topics <= set(c.metadata()["topics"]), 30, what="all topics")
    eventually(lambda: sum(clients.committed(c.bootstrap, f"g-{name}")) == RECORDS, 60, 1, "committed offsets")
    mixed.read(c, name, f"cold-{int(time.time())}", RECORDS)
    eventually(lambda: c.leading() == {0, 1, 2}, 60, 0.5, "spread over all brokers")


@scenario
def a_recreated_cluster_adopts_its_volume(c):
    topics = sorted(c.metadata()["topics"])
    spec = {k: v for k, v in c.object().items() if k in ("apiVersion", "kind", "spec")}
    kubectl("delete", "kaascluster", "demo", "--timeout=90s", timeout_s=100)
    eventually(lambda: not c.pods(), 90, 0.5, "all pods gone")
    kubectl("apply", "-f", "-", stdin=json.dumps({**spec, "metadata": {"name": "demo", "namespace": "default"}}))
    c.wait_serving(3)
    eventually(lambda: set(topics) <= set(c.metadata()["topics"]), 60, 0.5, "all topics")
    more = set(c.metadata()["topics"]) - set(topics)
    check(not more, "topics out of nowhere:", more)
    name = "java-4.4"
    eventually(lambda: sum(clients.committed(c.bootstrap, f"g-{name}")) == RECORDS, 60, 1, "committed offsets")
    mixed.read(c, name, "adopted", RECORDS)
    eventually(lambda: c.leading() == {0, 1, 2}, 60, 0.5, "spread over all brokers")


def main():
    clients.prepare()
    c = KubeCluster()
    c.histories = []
    return runner.run(c, sys.argv[1:], on_failure=c.tail)


if __name__ == "__main__":
    sys.exit(main())
