"""What kaas and Kafka have in common here: topics made by the load generator, and runs of it."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import time

from . import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOAD = ROOT / "build/release/bin/kaas-load"
LIMITS = ROOT / "build/release/bin/kaas-limits"
UNSYNCED = "flush.messages=9223372036854775807"  # Kafka's default; kaas syncs each batch unless a topic says this


class Refused(Exception):
    """The load generator gave up."""


def new_folder(name):
    """An empty folder on the disk of the cache."""
    base = machine.CACHE / "bench"
    base.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))


class Side:
    """One of the two. Subclasses: exec() starts the processes and returns at once; end() ends them in an orderly way."""

    name = ""

    def __init__(self, brokers):
        self.brokers = brokers
        self.dir = new_folder(self.name)
        self.beside = []  # the other sides that are up
        self.made = 0
        self.written = {}  # bytes by topic

    def start(self):
        """Starts and waits until a produce is acknowledged; seconds that took."""
        t0 = time.time()
        self.exec()
        return self.load("first", "--topic", "first", "--t0", f"{t0:.6f}", "--secs", 120)["since_t0_s"]

    def load(self, mode, *args, timeout_s=400):
        """One run of kaas-load: its line, the share of the machine that others had as `noise`."""
        everyone = [*self.pids(), *(p for s in self.beside for p in s.pids())]
        cmd = [str(LOAD), mode, *map(str, args), "--b", self.bootstrap, "--pid", ",".join(map(str, self.pids()))]
        with machine.Noise(everyone) as noise:
            r = subprocess.run(cmd, capture_output=True, text=True, timeout=timeout_s, check=False)
        if r.returncode:
            raise Refused(f"{self.name}: {' '.join(cmd)}: {r.returncode} {r.stderr.strip()[-500:]} {self.tail()}")
        d = json.loads(r.stdout)
        if mode == "produce":
            topic = args[args.index("--topic") + 1]
            self.written[topic] = self.written.get(topic, 0) + d["bytes"]
        return {**d, "noise": noise.share}

    def topic(self, parts, unsynced=False, n=1, name=None):
        """A new topic with leaders; its name (the first one's, of n)."""
        self.made += 1
        name = name or f"t{self.made}"
        more = ["--config", UNSYNCED] if unsynced else []
        self.load("create", "--topic", name, "--n", n, "--p", parts, "--rf", min(self.brokers, 3), *more)
        return f"{name}-0"

    def drop(self, topic):
        """Deletes a topic, and waits until its disk is free again."""
        goal = machine.used_bytes(self.dir) - self.written.pop(topic, 0) * 0.9
        self.load("delete", "--topic", topic.rpartition("-")[0])
        end = time.monotonic() + 15
        while machine.used_bytes(self.dir) > goal and time.monotonic() < end:
            time.sleep(0.2)

    def close(self):
        try:
            self.kill()
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def tail(self):
        """The ends of its logs."""
        logs = [f for f in self.dir.rglob("*") if f.name in ("log", "operator.log", "server.log")]
        return "\n".join(f"--- {f.name}\n" + "\n".join(f.read_text(errors="replace").splitlines()[-8:]) for f in logs[:4])
