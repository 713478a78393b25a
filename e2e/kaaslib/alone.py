"""One self-led broker, started from a binary of any build, under whatever its environment asks for."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile

from . import local, runner, wire

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99:abort_on_error=0:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "exitcode=66:second_deadlock_stack=1",
}
FINDING = re.compile(r"ERROR: \w+Sanitizer|WARNING: \w+Sanitizer|SUMMARY: \w+Sanitizer|runtime error:|assertion failed")


def findings(text):
    """What sanitizers and assertions said in a log, with what follows the first of it."""
    lines = text.splitlines()
    at = [i for i, line in enumerate(lines) if FINDING.search(line)]
    return "\n".join(lines[max(at[0] - 1, 0):at[0] + 60]) if at else ""


class Alone:
    made = 0

    def __init__(self, build="release", config=None, env=None, loops=2, files=None):
        """files: the hard limit of open files."""
        self.files = files
        self.binary = local.ROOT / "build" / build / "bin/kaas-broker"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kaas-alone-"))
        given = int(os.environ.get("KAAS_E2E_PORT", 0))
        self.base = given + Alone.made if given else local.free_base_port()
        self.health = self.base + (50 if given else 100)
        Alone.made += 1
        self.env = {**os.environ, **SANITIZERS, **(env or {})}
        self.proc = None
        (self.dir / "volume").mkdir()
        (self.dir / "broker.yaml").write_text(json.dumps({
            "dataDir": str(self.dir / "volume"), "dataLoops": loops,
            "health": {"bind": "127.0.0.1", "port": self.health},
            "listeners": [{"name": "internal", "bind": "127.0.0.1", "port": self.base, "advertisedHost": "127.0.0.1",
                           "advertisedPort": self.base}],
            "config": {"group.initial.rebalance.delay.ms": "0", **(config or {})}}))

    def start(self, timeout_s=60):
        self.log = open(self.dir / "log", "ab")
        self.proc = subprocess.Popen([str(self.binary), "--config", str(self.dir / "broker.yaml"), "--id", "0"],
                                     stdout=self.log, stderr=self.log, env=self.env, preexec_fn=self._limit)
        runner.eventually(lambda: self._alive() and self.get("/readyz")[0] == 200 and self._serves(), timeout_s, 0.05,
                          what="a ready broker")
        return self

    def _limit(self):
        if self.files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, self.files), self.files))

    def _alive(self):
        if self.proc.poll() is not None:
            raise RuntimeError(f"the broker ended with {self.proc.returncode}")
        return True

    def _serves(self):
        with self.conn() as c:
            return all(p["leader"] == 0 for t in c.metadata()["topics"].values() for p in t["partitions"].values())

    def end(self, sig=signal.SIGTERM, timeout_s=60):
        """Ends the broker; returns its exit code (negative: a signal)."""
        self.proc.send_signal(sig)
        code = self.proc.wait(timeout_s)
        self.log.close()
        return code

    def close(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def address(self):
        return f"127.0.0.1:{self.base}"

    def conn(self, timeout_s=10):
        return wire.Conn(self.address, timeout_s)

    def get(self, path, timeout_s=1.0):
        """(status code, body) of the health port."""
        return local.http_get(self.health, path, timeout_s)

    def topic(self, name, partitions=3):
        with self.conn(60) as c:
            error = c.create_topics([name], partitions)[name]
            runner.check(error in (0, 36), f"topic {name}: error", error)
            runner.eventually(lambda: all(p["leader"] == 0 for p in c.metadata([name])["topics"][name]["partitions"].values()),
                              60, what=f"leaders of {name}")

    def text(self):
        return (self.dir / "log").read_text(errors="replace")

    def findings(self):
        """What sanitizers and assertions said (see findings above)."""
        return findings(self.text())


def run(names, **options):
    """Runs scenarios (runner.run) with a broker of these options; shows the end of its log when one fails."""
    b = Alone(**options)
    try:
        b.start()
        return runner.run(b, names, on_failure=lambda _: print("\n".join(b.text().splitlines()[-30:])))
    finally:
        b.close()
