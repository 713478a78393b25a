#!/usr/bin/env python3
"""The broker under sanitizers: clients, garbage, faults and endings, and not one report, not one byte leaked.

BUILD names the preset (asan by default; tsan works, too); RECORDS, TOPICS and CHAOS_S the amounts; KAAS_SEED
replays the broken connections, as far as threads allow."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import alone, chaos, clients, garbage, records  # noqa: E402
from kaaslib.runner import check, eventually, scenario  # noqa: E402

BUILD = os.environ.get("BUILD", "asan")
RECORDS = int(os.environ.get("RECORDS", "2000"))
TOPICS = int(os.environ.get("TOPICS", "150"))
CHAOS_S = float(os.environ.get("CHAOS_S", "15"))
SEED = int(os.environ.get("KAAS_SEED", "0")) or None
SLOW_S = 300


def clean(b):
    found = b.findings()
    check(not found, "\n" + found)


def ends(b, code=0):
    """SIGTERM: an orderly end, after which nothing may be left."""
    got = b.end()
    clean(b)
    check(got == code, "exit code", got)


@scenario
def every_client_moves_its_records(b):
    for name in clients.MAKERS:
        b.topic(f"s-{name}", 3)
        r = clients.produce(name, b.address, f"s-{name}", 0, RECORDS).result(SLOW_S)
        check(r["sent"] == RECORDS and r["failed"] == 0, name, r)
        r = clients.consume(name, b.address, f"s-{name}", f"g-{name}", RECORDS).result(SLOW_S)
        check(r["unique"] == RECORDS and r["digest"] == records.digest(0, RECORDS), name, r)
    clean(b)


@scenario
def many_at_the_same_time(b):
    names = [n for n in ("franz-go", "kcat", "confluent-kafka") if n in clients.MAKERS]
    b.topic("crowd", 6)
    writers = [clients.produce(n, b.address, "crowd", i * RECORDS, RECORDS) for i, n in enumerate(names)]
    readers = [clients.consume(n, b.address, "crowd", f"crowd-{n}", RECORDS * len(names)) for n in names]
    for c in writers + readers:
        c.result(SLOW_S)
    clean(b)


@scenario
def consumers_keep_fetch_sessions(b):
    """KIP-227: they have one while they read, of all partitions, and read each record once."""
    def in_sessions():
        lines = b.get("/metrics", SLOW_S)[1].splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("kaas_fetch_session_partitions "))

    for name in ("java-4.4", "java-3.7", "franz-go"):
        topic = f"sessions-{name}"
        b.topic(topic, 12)
        clients.produce(name, b.address, topic, 0, RECORDS).result(SLOW_S)
        before = in_sessions()
        reader = clients.consume(name, b.address, topic, topic, 2 * RECORDS)
        eventually(lambda: in_sessions() >= before + 12, SLOW_S, what=f"the session of {name}")
        clients.produce(name, b.address, topic, RECORDS, RECORDS).result(SLOW_S)
        r = reader.result(SLOW_S)
        check(r["records"] == 2 * RECORDS and r["digest"] == records.digest(0, 2 * RECORDS), name, r)
    clean(b)


@scenario
def garbage_costs_only_its_connection(b):
    pid = b.proc.pid
    with b.conn() as neighbour:
        for _ in range(3):
            ended = garbage.throw(b.address)
            check("still open" not in ended.values(), ended)
        silent = garbage.half_open(b.address, 1000)
        neighbour.metadata()
        with b.conn() as late:
            late.metadata()
        for s in silent:
            s.close()
        neighbour.metadata()
    check(b.proc.poll() is None and b.proc.pid == pid, "the broker ended")
    clean(b)


@scenario
def connections_leave_descriptors_to_the_log(b):
    """A client that opens what it can must not keep topics from being made and records from being stored."""
    few = alone.Alone(build=BUILD, files=400)
    try:
        few.start()
        with few.conn() as before:
            held = []
            for _ in range(600):
                try:
                    held.append(socket.create_connection(("127.0.0.1", few.base), timeout=1))
                except OSError:
                    break
            r = before.create_topics(["late-0", "late-1", "late-2"], 20)
            check(all(e == 0 for e in r.values()), r)
            eventually(lambda: all(p["leader"] == 0 for t in before.metadata(["late-0", "late-1", "late-2"])["topics"].values()
                                   for p in t["partitions"].values()), 30, what="leaders while connections are held")
            check(few.get("/readyz")[0] == 200, "not ready")
            for s in held:
                s.close()
        ends(few)
    finally:
        few.close()


@scenario
def connections_break_with_requests_in_flight(b):
    """On other loops, in the log, in groups: whatever is under way when its connection goes."""
    b.topic("chaos", 5)
    sent, seed = chaos.run(b.address, "chaos", 5, CHAOS_S, seed=SEED)
    with b.conn() as c:
        c.metadata()
    clean(b)
    return f"{sent} requests, KAAS_SEED={seed}"


@scenario
def topics_by_the_hundred(b):
    with b.conn(SLOW_S) as c:
        for k in range(0, TOPICS, 50):
            names = [f"many-{i}" for i in range(k, min(k + 50, TOPICS))]
            r = c.create_topics(names, timeout_ms=120000)
            check(all(e == 0 for e in r.values()), r)
        r = c.delete_topics([f"many-{i}" for i in range(0, TOPICS, 2)], timeout_ms=120000)
        check(all(e == 0 for e in r.values()), r)
        left = [t for t in c.metadata()["topics"] if t.startswith("many-")]
        check(len(left) == TOPICS // 2, len(left), "topics are left")
    clean(b)


@scenario
def groups_churn(b):
    """Members with and without an instance id come, are killed, and come back under the same name."""
    b.topic("churn", 4)
    common = ["kcat", "-b", b.address, "-X", "session.timeout.ms=6000", "-X", "auto.offset.reset=earliest", "-u"]
    members, end = {}, time.monotonic() + 20
    turn = 0
    while time.monotonic() < end:
        slot = turn % 6
        old = members.pop(slot, None)
        if old:
            old.send_signal(signal.SIGKILL if turn % 3 else signal.SIGTERM)
            old.communicate()
        static = ["-X", f"group.instance.id=i{slot}"] if slot < 3 else []
        members[slot] = subprocess.Popen([*common, *static, "-G", "churners", "churn"], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        turn += 1
        time.sleep(0.3)  # the pace of the churn, not a wait
    for p in members.values():
        p.kill()
        p.communicate()
    with b.conn() as c:
        c.metadata()
    clean(b)
    return f"{turn} members"


def load(b, stop):
    """A producer that does not mind what happens to its broker."""
    p = subprocess.Popen(["kcat", "-b", b.address, "-P", "-t", "faults", "-X", "message.timeout.ms=60000"],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not stop.is_set():
            p.stdin.write(b"x" * 500 + b"\n")
            p.stdin.flush()
            stop.wait(0.0005)
    except BrokenPipeError:
        pass
    finally:
        p.kill()
        p.communicate()


def readers(b, n):
    return [subprocess.Popen(["kcat", "-b", b.address, "-C", "-t", "faults", "-o", "beginning", "-u", *extra],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for extra in ([], ["-X", "fetch.wait.max.ms=20000", "-X", "socket.timeout.ms=60000"]) for _ in range(n)]


@scenario
def it_is_killed_and_ended_under_load(b):
    b.topic("faults", 6)
    stop = threading.Event()
    thread = threading.Thread(target=load, args=(b, stop))
    thread.start()
    procs = readers(b, 2)
    try:
        for turn in range(6):
            stop.wait(1.5)
            if turn % 2:
                b.end(signal.SIGKILL)
            else:
                ends(b)
            b.start()
        clean(b)
    finally:
        stop.set()
        thread.join()
        for p in procs:
            p.kill()
            p.communicate()


@scenario
def an_impatient_end_is_an_end(_):
    """A second SIGTERM does not wait for the drain: what is under way is abandoned with its memory, but it must
    not crash."""
    b = alone.Alone(build=BUILD, env={"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"})
    stop = threading.Event()
    thread = threading.Thread(target=load, args=(b, stop))
    procs = []
    try:
        b.start()
        b.topic("faults", 6)
        thread.start()
        procs = readers(b, 1)
        for _ in range(4):
            stop.wait(1.0)
            b.proc.send_signal(signal.SIGTERM)
            code = b.end()
            clean(b)
            check(code in (0, 1), "exit code", code, b.text()[-3000:])
            b.start()
        ends(b)
    finally:
        stop.set()
        if thread.ident:
            thread.join()
        for p in procs:
            p.kill()
            p.communicate()
        b.close()


@scenario
def the_end_leaves_nothing(b):
    ends(b)


def main():
    clients.prepare()
    return alone.run(sys.argv[1:], build=BUILD)


if __name__ == "__main__":
    sys.exit(main())
