"""Clients that write histories, and the checker over them (../history/README.md)."""

import json
import os
import pathlib
import re
import subprocess

from . import clients

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent


class Violations(AssertionError):
    pass


class Clients:
    """The recording clients of one run: each a process with a number and a file of its own.

    topics: {name: partitions}. wrap: a command before each client's (a network namespace). defaults: the clients are as patient as
    their libraries are by themselves; else those that can be told to look at the cluster again sooner are."""

    def __init__(self, folder, topics, wrap=(), defaults=False):
        self.folder, self.wrap = pathlib.Path(folder), list(wrap)
        self.env = dict(os.environ, KAAS_CLIENT_DEFAULTS="1" if defaults else "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.spec = ",".join(f"{name}:{n}" for name, n in topics.items())
        self.running, self.files, self.number = [], [], 0

    def _start(self, name, verb, bootstrap, *args, wrap=()):
        self.number += 1
        file = self.folder / f"{self.number:03d}-{name}-{verb}"
        errors = open(f"{file}.err", "wb")
        proc = subprocess.Popen([*self.wrap, *wrap, *clients.history_command(name), verb, str(file), str(self.number), bootstrap, self.spec,
                                 *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=self.env)
        self.files.append(file)
        return f"{self.number} {name} {verb}", proc

    def produce(self, name, bootstrap, rate, mode, wrap=()):
        """wrap: a command before this one's only."""
        self.running.append(self._start(name, "produce", bootstrap, rate, mode, wrap=wrap))

    def consume(self, name, bootstrap):
        self.running.append(self._start(name, "consume", bootstrap))

    def group(self, name, bootstrap, group, *args):
        self.running.append(self._start(name, "group", bootstrap, group, *args))

    @staticmethod
    def _result(what, proc, timeout_s):
        """What it counted. A consumer that does not end is killed, and its history stands as far as it was written: librdkafka
        2.16 is known to lock itself up (its answer to OffsetForLeaderEpoch against a broker connection that fails)."""
        may_hang = any(verb in what for verb in (" consume", " group"))
        try:
            out, _ = proc.communicate(timeout=30 if may_hang else timeout_s)
        except subprocess.TimeoutExpired:
            proc.kill()
            proc.communicate()
            if may_hang:
                return {"hung": True}
            raise RuntimeError(f"client {what}: no end within {timeout_s} s") from None
        if proc.returncode:
            raise RuntimeError(f"client {what}: exit {proc.returncode}")
        return json.loads(out.strip().splitlines()[-1])

    def waiting(self):
        """The clients that have not yet seen a record acknowledged, or read one: they write that down at once."""
        return [f.name for f in self.files if not f.exists() or not re.search(rb"^[ap] ", f.read_bytes()[:1 << 20], re.M)]

    def ended(self):
        """What has ended before its time."""
        return [what for what, proc in self.running if proc.poll() is not None]

    def stop(self, producers_only=False, timeout_s=260):
        """Lets the clients end; {what: its counts}."""
        chosen = [r for r in self.running if not producers_only or " produce" in r[0]]
        self.running = [r for r in self.running if r not in chosen]
        for _, proc in chosen:
            proc.stdin.close()
            proc.stdin = None
        return {what: self._result(what, proc, timeout_s) for what, proc in chosen}

    def group_errors(self):
        """What the group consumers were told when they committed, or asked what is committed."""
        return [line for f in self.folder.glob("*-group.err") for line in f.read_text(errors="replace").splitlines()
                if line.startswith(("commit:", "committed:"))]

    def kill(self):
        for _, proc in self.running:
            proc.kill()
            proc.wait()
        self.running = []

    def final_read(self, bootstrap, timeout_s=300):
        what, proc = self._start("confluent-kafka", "read", bootstrap)
        return self._result(what, proc, timeout_s)

    def errors(self, lines=3):
        """The last lines that each client said on its error output."""
        out = []
        for file in self.files:
            text = pathlib.Path(f"{file}.err").read_text(errors="replace").splitlines()
            out += [f"{file.name}: {line}" for line in text[-lines:]]
        return out


def check(files, compacted=(), deleting=(), partial=False, build="release", raising=True):
    """The checker's report over these files; raises Violations unless it found none."""
    options = [x for t in compacted for x in ("--compacted", t)] + [x for t in deleting for x in ("--deleting", t)]
    cmd = [str(ROOT / "build" / build / "bin/kaas-history"), *options, *(["--partial"] if partial else []), *map(str, files)]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=600, check=False)
    if r.returncode not in (0, 1):
        raise RuntimeError(f"kaas-history: {r.returncode}: {r.stderr[-1000:]}")
    report = json.loads(r.stdout)
    if raising and (r.returncode or report["violations"]):
        raise Violations(f"{report['violations']}, first: {report['first'][:6]}")
    return report


def gaps_ms(files, since_us, until_us, partitions):
    """For each partition of the only topic the longest time in ms between two acknowledgements, whoever was acknowledged; ascending.
    One that was not acknowledged at all has the whole time."""
    times = {p: [since_us, until_us] for p in range(partitions)}
    for file in files:
        for line in pathlib.Path(file).read_text(encoding="ascii").splitlines():
            if line.startswith("a "):
                _, t, _, partition, _ = line.split()
                if since_us <= int(t) <= until_us:
                    times[int(partition)].append(int(t))
    longest = (max(b - a for a, b in zip(ordered, ordered[1:])) for ordered in map(sorted, times.values()))
    return sorted(gap / 1000 for gap in longest)


def summary(report):
    ack, gap = report["ackMs"], report.get("longestGapS", 0)
    return (f"{report['acked']} acked of {report['sent']} ({report['unknown']} unknown), {report['read']} read, {report['commits']} commits, "
            f"ack p50 {ack['p50']} p99 {ack['p99']} max {ack['max']} ms, longest gap {gap} s, "
            f"{report['plainDuplicates']} duplicates of plain producers")
