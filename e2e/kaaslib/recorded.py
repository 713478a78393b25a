"""A fault under recorded load: clients of three libraries work before, during and after it, the truth is watched all along, and what
must hold of every fault is checked at the end."""

import dataclasses
import os
import pathlib
import shutil
import time

from . import clients, history, stream, truth
from .runner import check, eventually, scenario

PARTITIONS = 12
RATE = 100  # records a second of each producer
PRODUCERS = [("java-4.4", "idempotent"), ("confluent-kafka", "plain"), ("franz-go", "idempotent")]
LIBRARIES = sorted({name for name, _ in PRODUCERS})
SESSION_MS = 45000  # Kafka's default
AGREE_S = 1.0  # all brokers agree within a second of a change
SAMPLE_S = 0.5  # what sampling adds at most: a period of every sampler, on a machine of two busy cores
LAG_S = 2.0  # status is never wrong for longer
TRUST_S = 330  # a broker that crashes again and again is given nothing for up to five minutes
SILENT_S = 3.0  # spec.heartbeat.timeout: one that falls silent leads for so long


def within(seconds):
    """A bound of time. Only the long form and KAAS_TIMED=1 hold a cluster to it, on a machine that does nothing else; the others say
    the figure and have patience."""
    return seconds if truth.TIMED else max(seconds, truth.PATIENCE_S)


@dataclasses.dataclass
class Bounds:
    """What may differ between faults; the defaults are those of a fault that is noticed at once."""

    agree_s: float = AGREE_S
    out: int | None = None  # brokers not ready at once
    halts: bool = False  # a rollout is to halt
    group_errors: bool = True  # a group consumer may be told of a failed commit
    gap_s: float | None = None  # the longest that a producer may go without an acknowledgement of a partition
    replicas: int = 3
    brokers: int = 3  # the most there will be


class Load:
    """The recording clients on a topic of their own. unnoticed: of a fault that is to be noticed by nobody; all libraries have their
    defaults then, and a group consumer each."""

    def __init__(self, c, name, folder, unnoticed):
        # a name that no run before this one used: what failed stays to be looked at
        self.c, self.topic, self.folder = c, f"{name}-{int(time.time())}", pathlib.Path(folder) / name
        shutil.rmtree(self.folder, ignore_errors=True)
        c.create_topic(self.topic, PARTITIONS)
        self.clients = history.Clients(self.folder, {self.topic: PARTITIONS}, defaults=unnoticed)
        for library, mode in PRODUCERS:
            self.clients.produce(library, c.bootstrap, RATE, mode)
        self.clients.consume("franz-go", c.bootstrap)
        for library in LIBRARIES if unnoticed else ["java-4.4"]:
            self.clients.group(library, c.bootstrap, f"{self.topic}-{library}", *([SESSION_MS] if library.startswith("java") else []))

    def wait_for_work(self):
        """Until every client has moved a record."""
        eventually(lambda: not self.clients.waiting(), 90, what=f"work of {self.clients.waiting()}")

    def finish(self):
        """Ends the clients, reads all of the topic once more, and has the history checked; (counts, the checker's report)."""
        check(not self.clients.ended(), "a client ended:", self.clients.ended(), self.clients.errors())
        counts = self.clients.stop(producers_only=True)
        counts.update(self.clients.stop())
        self.clients.final_read(self.c.bootstrap)
        return counts, history.check(self.clients.files)

    def forget(self):
        with self.c.conn(0) as conn:
            conn.delete_topics([self.topic])
        shutil.rmtree(self.folder, ignore_errors=True)


def judge(t, load, counts, alone, bounds, since, until):
    """What must hold of every fault; returns the figures as text."""
    stuck = {what: n for what, n in counts.items() if n.get("unknown") or n.get("fatal") or n.get("hung")}
    check(not stuck, "failed sends or clients that gave up:", stuck)
    lag, at, who = t.lag(since, until)
    others, at_object, object_who = t.object_lag(since, until)
    apart, apart_at, about = t.disagreement(since, until)
    out = t.out(since, until, bounds.replicas)
    errors, denied = load.clients.group_errors(), t.denied_itself(since, until)
    found = [f"R32: broker {n} left itself out or called itself fenced at {at:.2f} s" for at, n in denied[:1]]
    if lag > within(LAG_S + SAMPLE_S):
        found.append(f"status was wrong about broker {who} for {lag:.2f} s from {at - since:.2f} s on")
    if others > within(LAG_S + SAMPLE_S):
        found.append(f"KaasBroker {object_who} differed from the KaasCluster for {others:.2f} s from {at_object - since:.2f} s on")
    if apart > within(bounds.agree_s + SAMPLE_S):
        found.append(f"brokers disagreed about {about} for {apart:.2f} s from {apart_at - since:.2f} s on: {t.said(about, apart_at)}, at the "
                     f"end {t.said(about, apart_at + apart - 0.02)}")
    if bounds.out is not None and out > bounds.out:
        found.append(f"{out} brokers out at once")
    halts = [v for _, v in t.changes(("condition", "Progressing"), since) if v[1] == "RolloutHalted"]
    if halts and not bounds.halts:
        found.append(f"R60: a rollout halted for no reason: {halts[0][2]}")
    if errors and not bounds.group_errors:
        found.append(f"{len(errors)} group errors, first {errors[0]}")
    for name, gap in alone.items():
        if bounds.gap_s is not None and gap > 1000 * within(bounds.gap_s):
            found.append(f"{name} went without an acknowledgement of a partition for {gap / 1000:.1f} s")
    text = (f"status lag {lag:.2f} s, KaasBrokers {others:.2f} s, brokers apart {apart:.2f} s, {out} out at once, {len(errors)} group errors, "
            f"noise {t.noise(since, until):.2f} s, load {os.getloadavg()[0]:.0f}")
    check(not found, "; ".join(found), f"({text})")
    return text


def under_load(c, name, fault, bounds):
    """Runs fault(truth) while clients work; what it returns, or what that returns when the clients have ended, heads the figures.
    The cluster serves as before when it ends."""
    load = Load(c, name, c.folder, not bounds.group_errors)
    t = truth.Truth(c, bounds.brokers)
    t.load = load
    try:
        with t:
            load.wait_for_work()
            eventually(lambda: t.line.now(("serving",)) == bounds.replicas and all(t.line.now(("view", n)) for n in range(bounds.replicas)),
                       60, what="a healthy start")
            eventually(lambda: {leader for leader, _ in c.leaders(load.topic).values()} == set(range(bounds.replicas)), TRUST_S, 0.5,
                       "every broker leads: one that has crashed is trusted again")
            since, since_us = time.monotonic(), time.time_ns() // 1000
            note = fault(t)
            c.settle(bounds.replicas)
            eventually(lambda: truth.same_answers(t.brokers, t.line.last), 30, what="one answer of all brokers")
            until, until_us = time.monotonic(), time.time_ns() // 1000
        counts, report = load.finish()
        gaps = history.gaps_ms(load.clients.files, since_us, until_us, PARTITIONS)
        alone = {name: history.gaps_ms([file], since_us, until_us, PARTITIONS)[-1] for (name, _), file in zip(PRODUCERS, load.clients.files)}
        note = note() if callable(note) else note
        figures = judge(t, load, counts, alone, bounds, since, until)
    except BaseException:
        print("\n".join(t.told(locals().get("since", 0))[-60:]), flush=True)
        raise
    finally:
        load.clients.kill()
    load.forget()
    middle, most = stream.percentile(gaps, 50), stream.percentile(gaps, 99)
    return (f"{note + '; ' if note else ''}{report['acked']} acked; ack gap of a partition p50 {middle:.0f} p99 {most:.0f} max {gaps[-1]:.0f} ms "
            f"(alone: {', '.join(f'{name} {gap:.0f}' for name, gap in alone.items())}); {figures}")


def fault(nodes=1, soak=False, **bounds):
    """Registers fn(cluster, truth) as a scenario under recorded load; nodes: how many it needs; soak: in the long form only."""
    def register(fn):
        def run(c):
            if c.nodes < nodes:
                return f"left out: needs {nodes} nodes (KC_NODES={nodes})"
            if soak and not os.environ.get("KAAS_SOAK"):
                return "left out: runs with KAAS_SOAK=1"
            return under_load(c, fn.__name__.replace("_", "-"), lambda t: fn(c, t), Bounds(**bounds))
        run.__name__ = fn.__name__
        return scenario(run)
    return register


def prepare():
    """Builds the clients; to be done before a cluster's network namespaces are entered."""
    clients.prepare(LIBRARIES)
