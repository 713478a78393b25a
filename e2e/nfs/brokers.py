"""Two whole brokers, each under an operator that knows no other (kaas-rival), on two NFS clients, with Kafka clients of
their own beside the NFS server. What all clients saw, and a final read through a takeover for good, go to the history checker."""

import subprocess

from kaaslib import history
from kaaslib.runner import check

TOPICS = {"fight": 4}
IPS = {"A": "10.77.0.11", "B": "10.77.0.12"}
PORT = 9092
LAST = 9  # the broker of the final read


class Fight:
    """One fight on a volume of its own; use as a context."""

    def __init__(self, rig, name, broker="kaas-broker"):
        self.rig, self.name, self.broker = rig, name, broker
        self.volume = rig.export / name
        self.clients = history.Clients(rig.dir / f"histories-{name}", TOPICS, wrap=rig.inside())
        self.running = {}  # node: handle of its rival

    def __enter__(self):
        self.rig.run("A", f"mkdir -p {self.name}")
        for n, role in enumerate(IPS):
            self.start(role, n)
            bootstrap = f"{IPS[role]}:{PORT}"
            self.clients.produce("confluent-kafka", bootstrap, 60, "idempotent")
            self.clients.produce("confluent-kafka", bootstrap, 60, "plain")
            self.clients.produce("franz-go", bootstrap, 60, "idempotent")
            self.clients.consume("confluent-kafka", bootstrap)
        return self

    def __exit__(self, *_):
        self.clients.kill()
        for role in list(self.running):
            self.end(role)

    def folder(self, role, n):
        return self.rig.ctl / f"{self.name}.{role}{n}"

    def start(self, role, n, mode=""):
        folder = self.folder(role, n)
        folder.mkdir()
        here = f"/mnt/ctl/{folder.name}"
        self.running[role] = (folder, self.rig.submit(
            role, f"/mnt/ctl/kaas-rival {n} {IPS[role]} /mnt/nfs/{self.name} {here} /mnt/ctl/{self.broker} {mode}"))

    def end(self, role):
        """Ends the rival of a node and its broker; what it counted."""
        folder, handle = self.running.pop(role)
        (folder / "stop").touch()
        rc, out = self.rig.result(handle, 60)
        check(rc == 0 and "by itself" not in out, role, rc, out, self.log(folder))
        return out.strip().splitlines()[-1]

    @staticmethod
    def log(folder, lines=30):
        f = folder / "log"
        return "\n".join(f.read_text(errors="replace").splitlines()[-lines:]) if f.exists() else "no log"

    def finish(self):
        """Clients and fighters end, somebody takes over for good, everything is read; (counts, the checker's report)."""
        sent = self.clients.stop(producers_only=True)
        self.clients.stop()
        counts = [self.end(role) for role in list(self.running)]
        fatal = [n for n in sent.values() if "fatal" in n]
        self.start("B", LAST, "hold")
        self.clients.final_read(f"{IPS['B']}:{PORT}")
        self.end("B")
        check(all(n["acked"] for n in sent.values()), "a client got nothing:", sent)
        check(self.broker != "kaas-broker" or not fatal, "idempotent producers gave up:", fatal)
        return ", ".join(counts), history.check(self.clients.files, raising=False)

    def fsck(self):
        r = subprocess.run([str(self.rig.ctl / "kaas-broker"), "fsck", str(self.volume)], capture_output=True, text=True, timeout=120,
                           check=False)
        check(r.returncode == 0, r.stdout[-2000:], r.stderr[-500:])
        return r.stdout.strip().splitlines()[-1]
