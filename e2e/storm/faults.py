"""Faults against a cluster of `kaas-operator local`: which, when and how long comes from one seed.

They overlap: a frozen broker stays frozen while others are killed. One broker may be frozen long; a second one at
the same time for some seconds; never all of them."""

import collections
import os
import random
import signal
import time

WEIGHTS = {"kill": 38, "freeze": 22, "terminate": 10, "operator_kill": 8, "operator_freeze": 4, "kill_two": 5, "kill_all": 3, "scale": 4}
SECOND_FREEZE_S = 3
REPLICAS = (3, 4)  # scaling between these moves partitions in order, both ways


class Faults:
    def __init__(self, cluster, seed, freeze_s, calm_s):
        self.c, self.random = cluster, random.Random(seed)
        self.freeze_s, self.calm_s = freeze_s, calm_s
        self.frozen = {}  # pid: when it is to go on
        self.done = collections.Counter()
        self.frozen_s = 0.0
        self.longest_s = 0.0

    # ---- victims ----

    def _victim(self):
        """Mostly one that leads much: those are missed."""
        rows = self.c.status().get("brokers", [])
        weight = {b["id"]: 1 + b.get("partitions", 0) for b in rows if b["id"] < self.c.replicas}
        ids = sorted(weight) or list(range(self.c.replicas))
        return self.random.choices(ids, [weight.get(n, 1) for n in ids])[0]

    def _signal(self, n, sig):
        """False: there is no such process at this moment."""
        try:
            self.c.kill(n, sig)
            return True
        except (ProcessLookupError, FileNotFoundError, ValueError):
            return False

    def _stop_pid(self, pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        self.frozen[pid] = time.monotonic() + seconds
        self.frozen_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    # ---- the kinds; each returns whether it happened ----

    def kill(self):
        return self._signal(self._victim(), signal.SIGKILL)

    def terminate(self):
        return self._signal(self._victim(), signal.SIGTERM)

    def kill_two(self):
        a, b = self.random.sample(range(self.c.replicas), 2)
        return self._signal(a, signal.SIGKILL) and self._signal(b, signal.SIGKILL)

    def kill_all(self):
        return sum(self._signal(n, signal.SIGKILL) for n in range(self.c.replicas)) == self.c.replicas

    def freeze(self):
        seconds = self.freeze_s[0] * (self.freeze_s[1] / self.freeze_s[0]) ** self.random.random()
        brokers = [pid for pid in self.frozen if pid != self.c.operator.pid]
        if len(brokers) >= 2:
            return False
        if brokers:
            seconds = min(seconds, SECOND_FREEZE_S)
        try:
            pid = self.c.pid(self._victim())
            if pid in self.frozen:
                return False
            self._stop_pid(pid, seconds)
            return True
        except (ProcessLookupError, FileNotFoundError, ValueError):
            return False

    def operator_kill(self):
        """Its brokers end with it: the local host's children do."""
        self.c.operator.kill()
        self.c.operator.wait()
        self.frozen.clear()
        self.c.start()
        return True

    def operator_freeze(self):
        if self.c.operator.pid in self.frozen:
            return False
        self._stop_pid(self.c.operator.pid, self.random.uniform(1, min(10, self.freeze_s[1])))
        return True

    def scale(self):
        self.c.replicas = REPLICAS[self.c.replicas == REPLICAS[0]]
        self.c.scale(self.c.replicas)
        return True

    # ---- the course of things ----

    def thaw(self, everything=False):
        for pid, until in list(self.frozen.items()):
            if everything or time.monotonic() >= until:
                del self.frozen[pid]
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass  # killed while frozen

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.thaw()
            time.sleep(0.05)

    def _calm(self):
        """Lets the cluster heal, for once, or goes on after some time."""
        end = time.monotonic() + self.calm_s
        while time.monotonic() < end and (self.frozen or self.c.status().get("serving") != self.c.replicas):
            self.wait(0.2)

    def one(self):
        """One fault, and a while until the next."""
        name = self.random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        if getattr(self, name)():
            self.done[name] += 1
        else:
            self.wait(0.2)
            return
        self.wait(self.random.uniform(0.3, 4))
        if self.random.random() < 0.1:
            self._calm()

    def heal(self):
        self.thaw(everything=True)
        self.c.replicas = REPLICAS[0]
        self.c.scale(self.c.replicas)

    def __str__(self):
        kinds = ", ".join(f"{name} {n}" for name, n in self.done.most_common())
        return f"{sum(self.done.values())} faults ({kinds}; frozen {self.frozen_s:.0f} s in all, longest {self.longest_s:.0f} s)"
