"""Rolling updates of a cluster of `kaas-operator local`, and what must hold of each: one broker out at once, none lost, every partition
moved away once and back once."""

import collections
import threading
import time

from .runner import check, eventually

LOST = ("lost", "wedged", "stalled")  # reasons that no rollout has


class Watch(threading.Thread):
    """The status of the cluster, all the time: who left Serving how often, who was out at once, and why."""

    def __init__(self, c):
        super().__init__(daemon=True)
        self.c, self.over = c, threading.Event()
        self.serving, self.left, self.wrong, self.looks = set(), collections.Counter(), [], 0

    def run(self):
        while not self.over.wait(0.02):
            try:
                rows = {r["id"]: r for r in self.c.status()["brokers"]}
            except (OSError, ValueError, KeyError):
                continue
            self.looks += 1
            now = {i for i, r in rows.items() if r["state"] == "Serving"}
            self.left.update(self.serving - now)
            self.serving = now
            out = [(i, r["state"], r["reason"]) for i, r in rows.items() if i not in now]
            if len(rows) != self.c.replicas or len(out) > 1 or any(reason in LOST for _, _, reason in out):
                self.wrong.append((len(rows), out))


def roll(c, program, topic):
    """Rolls all brokers to this program, until every partition of the topic is at its home again; what is wrong raises. Returns how
    many seconds the rollout took, and its report."""
    before, pids = c.leaders(topic), c.pids()
    revision = c.status().get("lastRollout", {}).get("revision")
    c.extra["image"] = str(program)
    w = Watch(c)
    w.start()
    t0 = time.monotonic()
    try:
        c.write_spec()
        report = eventually(lambda: (r := c.status().get("lastRollout", {})).get("finishedAt") and r["revision"] != revision and r, 240, 0.1,
                            f"the end of the rollout to {program}")
        took = time.monotonic() - t0
        homes = {n: leader for n, (leader, _) in before.items()}
        eventually(lambda: c.led_by(topic) == homes, 60, 0.2, "every partition at its home again")
    finally:
        w.over.set()
        w.join()
    check(not w.wrong, f"{len(w.wrong)} of {w.looks} looks at the status, first:", w.wrong[:3])
    check(dict(w.left) == dict.fromkeys(range(c.replicas), 1), "each broker leaves Serving once, not", dict(w.left))
    check(not set(pids) & set(c.pids()), "a process stayed", pids, c.pids())
    grown = {n: epoch - before[n][1] for n, (_, epoch) in c.leaders(topic).items()}
    check(all(g == 2 for g in grown.values()), "one move away and one back each, but epochs grew by", grown)
    return took, report
