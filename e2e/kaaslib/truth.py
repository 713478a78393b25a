"""What is true of every broker, what its cluster's status says, and what its clients are told, all along a fault.

Truth samples: each broker's /readyz and process (what is); Metadata, DescribeCluster and FindCoordinator through each broker
(what clients are told); KaasCluster and KaasBroker by watches (what status says). Every change is one event of a timeline;
afterwards the timeline is walked and the longest time that a statement did not hold is measured. Nothing is judged while it
runs, so nothing that happened in between is missed but what is shorter than a sample."""

import os
import threading
import time
import urllib.error
import urllib.request

from . import kube, runner, wire

GROUPS = [f"watched-{i}" for i in range(24)]
PERIOD_S = 0.1
PATIENCE_S = 30  # where no time is judged
TIMED = bool(os.environ.get("KAAS_SOAK") or os.environ.get("KAAS_TIMED"))
TIMEOUT_S = 1.0 if TIMED else 5.0  # the kubelet's for its probe is one second, which a busy machine may need for itself


def view_of(conn):
    """What a broker tells its clients: {id: fenced}, the ids in Metadata, and the coordinators of GROUPS."""
    fenced = conn.describe_cluster()
    return {"fenced": fenced, "listed": frozenset(conn.metadata([])["brokers"]), "coordinators": conn.coordinators(GROUPS)}


class Timeline:
    """Changes of values with their times, and what can be asked of them."""

    def __init__(self):
        self.events, self.last, self.lock = [], {}, threading.Lock()

    def put(self, t, key, value):
        with self.lock:
            if key not in self.last or self.last[key] != value:
                self.last[key] = value
                self.events.append((t, key, value))

    def now(self, key, default=None):
        with self.lock:
            return self.last.get(key, default)

    def walk(self, since, until):
        """(from, to, values) of every stretch between since and until in which nothing changed."""
        with self.lock:
            events = sorted(self.events, key=lambda e: e[0])
        values, t0 = {}, since
        for t, key, value in events:
            if t > until:
                break
            if t > t0:
                yield t0, t, values
                t0 = t
            values[key] = value
        if until > t0:
            yield t0, until, values

    def longest(self, since, until, holds, blind=()):
        """(seconds, when it began) of the longest time that holds(values) was false; blind stretches end it."""
        longest, begun, began = 0.0, since, None
        for t0, t1, values in self.walk(since, until):
            for a, b in seen(t0, t1, blind):
                if a > t0:
                    began = None
                if holds(values):
                    began = None
                    continue
                began = a if began is None else began
                if b - began > longest:
                    longest, begun = b - began, began
            if any(a < t1 <= b for a, b in blind):
                began = None
        return longest, begun


def seen(t0, t1, blind):
    """The parts of [t0, t1] that no blind stretch covers."""
    parts = [(t0, t1)]
    for a, b in blind:
        parts = [p for x, y in parts for p in ((x, min(y, a)), (max(x, b), y)) if p[0] < p[1]]
    return parts


SILENT = "silent"


def agrees_with_truth(n, values):
    """Whether the row of broker n (None: no row) fits what its process does. A row that says that nothing is heard of its broker does
    not say that it serves (ADR 22)."""
    row, ready = values.get(("row", n)), values.get(("ready", n), False)
    if row is None:
        return not ready
    if row[0] == "Draining":
        return ready or values.get(("process", n)) is not None
    return (row[0] == "Serving" and row[2] != SILENT) == ready


def views_of(brokers, values):
    """The answers of the brokers that serve."""
    return {n: v for n in brokers if values.get(("ready", n)) and (v := values.get(("view", n)))}


def same_about(about, brokers, values):
    """Whether all say the same of one broker. Its own word is left out: it never calls itself fenced (R32)."""
    others = [v for n, v in views_of(brokers, values).items() if n != about]
    said = {(v["fenced"].get(about), about in v["listed"]) for v in others}
    return len(said) < 2 and all((fenced is False) == listed for fenced, listed in said)


def same_coordinator(group, brokers, values):
    return len({v["coordinators"].get(group) for v in views_of(brokers, values).values()}) < 2


def same_answers(brokers, values):
    return all(same_about(n, brokers, values) for n in brokers) and all(same_coordinator(g, brokers, values) for g in GROUPS)


class Truth:
    """Samples a cluster from `with` to its end. brokers: the highest number of them that will be."""

    def __init__(self, c, brokers=3):
        self.c, self.brokers = c, range(brokers)
        self.line, self.stop = Timeline(), threading.Event()
        self.blind = []
        self.late = []  # [(time, seconds)]: how much later than asked for this program went on
        self.threads = [threading.Thread(target=self._processes, daemon=True), threading.Thread(target=self._noise, daemon=True)]
        for n in self.brokers:
            self.threads += [threading.Thread(target=self._ready, args=(n,), daemon=True),
                             threading.Thread(target=self._view, args=(n,), daemon=True)]

    def __enter__(self):
        self.watches = [kube.KindWatch("kaasclusters", self._cluster), kube.KindWatch("kaasbrokers", self._broker)]
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for w in self.watches:
            w.close()
        for t in self.threads:
            t.join()

    # ---- samples ----

    def _ready(self, n):
        url = f"http://{self.c.host(n)}:{kube.HEALTH_PORT}/readyz"
        while not self.stop.is_set():
            t0, ready, why = time.monotonic(), False, "no answer"
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT_S):
                    ready, why = True, ""
            except urllib.error.HTTPError as e:
                try:
                    why = e.read(2000).decode(errors="replace")
                except OSError:
                    pass
            except OSError:
                pass
            self.line.put(t0, ("ready", n), ready)
            if not ready:
                self.line.put(t0, ("readyz", n), why)
            self.stop.wait(PERIOD_S)

    def _view(self, n):
        conn = None
        while not self.stop.is_set():
            t0 = time.monotonic()
            try:
                conn = conn or wire.Conn(self.c.address(n), TIMEOUT_S)
                view = view_of(conn)
            except (OSError, ValueError):
                view = None
                if conn:
                    conn.sock.close()
                conn = None
            self.line.put(t0, ("view", n), view)
            self.stop.wait(PERIOD_S)
        if conn:
            conn.sock.close()

    def _noise(self):
        t0 = time.monotonic()
        while not self.stop.wait(PERIOD_S):
            t0, before = time.monotonic(), t0
            self.late.append((t0, t0 - before - PERIOD_S))

    def _processes(self):
        """Every broker's process: (pid, "runs" or "stopped") or None."""
        while not self.stop.wait(2 * PERIOD_S):
            t0, found = time.monotonic(), kube.processes()
            for n in self.brokers:
                pid, letter = found.get(f"{self.c.name}-{n}", (None, ""))
                self.line.put(t0, ("process", n), pid and (pid, "stopped" if letter in "Tt" else "runs"))

    def _cluster(self, t, kind, doc):
        if doc["metadata"]["name"] != self.c.name:
            return
        status = doc.get("status", {}) if kind != "DELETED" else {}
        rows = {b["id"]: (b["state"], b["health"], b.get("reason", "")) for b in status.get("brokers", [])}
        for n in self.brokers:
            self.line.put(t, ("row", n), rows.get(n))
        self.line.put(t, ("ids",), tuple(sorted(rows)))
        for key in ("serving", "desired"):
            self.line.put(t, (key,), status.get(key))
        for cond in status.get("conditions", []):
            self.line.put(t, ("condition", cond["type"]), (cond["status"], cond["reason"], cond["message"]))

    def _broker(self, t, kind, doc):
        spec, status = doc.get("spec", {}), doc.get("status", {})
        if spec.get("cluster") == self.c.name:
            here = (status.get("state"), status.get("health")) if kind != "DELETED" else None
            self.line.put(t, ("object", spec["id"]), here)

    # ---- what is asked afterwards ----

    def without(self, since, until=None):
        """From since to now nobody could write status, or tell brokers of one another: neither is held against that time."""
        self.blind.append((since, until or time.monotonic()))

    def noise(self, since, until):
        """Seconds that the machine kept this program waiting for a processor, at worst: others waited as long."""
        return max((s for t, s in self.late if since <= t <= until), default=0.0)

    def lag(self, since, until):
        """(seconds, when, broker) of the longest time that a broker's row did not fit what was true."""
        return max((*self.line.longest(since, until, lambda v, n=n: agrees_with_truth(n, v), self.blind), n) for n in self.brokers)

    def object_lag(self, since, until):
        """The same of KaasBroker against KaasCluster: both tell of one registry."""
        def same(v, n):
            row, obj = v.get(("row", n)), v.get(("object", n))
            return (row and row[:2]) == obj
        return max((*self.line.longest(since, until, lambda v, n=n: same(v, n), self.blind), n) for n in self.brokers)

    def disagreement(self, since, until):
        """(seconds, when, about what) of the longest time that serving brokers did not say the same of one broker or group: moves
        follow one another, and each is a change of its own."""
        asked = [(f"broker {n}", lambda v, n=n: same_about(n, self.brokers, v)) for n in self.brokers]
        asked += [(f"group {g}", lambda v, g=g: same_coordinator(g, self.brokers, v)) for g in GROUPS]
        return max((*self.line.longest(since, until, holds, self.blind), what) for what, holds in asked)

    def said(self, what, at):
        """What the serving brokers said of it then, as text."""
        kind, _, which = what.partition(" ")
        values = next((v for t0, t1, v in self.line.walk(at, at + 0.01)), {})
        if kind == "group":
            return {n: v["coordinators"].get(which) for n, v in views_of(self.brokers, values).items()}
        return {n: (v["fenced"].get(int(which)), int(which) in v["listed"]) for n, v in views_of(self.brokers, values).items()}

    def denied_itself(self, since, until):
        """[(when, broker)] of answers in which a broker did not list itself, or called itself fenced (R32)."""
        return [(t - since, k[1]) for t, k, v in list(self.line.events) if k[0] == "view" and v and since <= t <= until
                and (v["fenced"].get(k[1]) is not False or k[1] not in v["listed"])]

    def out(self, since, until, replicas):
        """The most brokers of the first `replicas` that were not ready at once."""
        return max((sum(not v.get(("ready", n), False) for n in range(replicas)) for _, _, v in self.line.walk(since, until)), default=0)

    def ids(self, since, until):
        """Every set of registered brokers that status showed."""
        return {v[("ids",)] for _, _, v in self.line.walk(since, until) if ("ids",) in v}

    def changes(self, key, since):
        """[(time, value)] of one value."""
        return [(t, v) for t, k, v in list(self.line.events) if k == key and t >= since]

    def first(self, key, fits, since):
        """Seconds from since until the value first was one that fits; None if it has not been."""
        return next((t - since for t, v in self.changes(key, since) if fits(v)), None)

    def wait(self, key, fits, since, timeout_s=10):
        """Waits for such a value; seconds from since until it was there."""
        timeout_s = timeout_s if TIMED else max(timeout_s, PATIENCE_S)
        return runner.eventually(lambda: (s := self.first(key, fits, since)) is not None and [s], timeout_s, 0.05, f"{key}")[0]

    def wait_row(self, n, since, state, reason=None, timeout_s=10):
        """Waits until status shows broker n in such a state."""
        return self.wait(("row", n), lambda r: r and r[0] == state and reason in (None, r[2]), since, timeout_s)

    def came_back(self, n, since, timeout_s=120):
        """Waits until broker n has been out since then, and serves again."""
        self.wait(("ready", n), lambda ready: not ready, since, 30)
        runner.eventually(lambda: self.line.now(("ready", n)) and (self.line.now(("row", n)) or ("",))[0] == "Serving", timeout_s, 0.1,
                          f"broker {n} again")

    def replaced(self, n, pid):
        """Whether that process is no more: the kubelet has had enough of one that does not answer its liveness probe."""
        now = self.line.now(("process", n))
        return now is None or now[0] != pid

    def told(self, since):
        """The timeline as text: what a failure is explained with."""
        rows = [(t, k, v) for t, k, v in sorted(self.line.events, key=lambda e: e[0]) if t >= since and k[0] not in ("view", "readyz")]
        return [f"{t - since:8.2f} {' '.join(map(str, k))}: {v}" for t, k, v in rows]
