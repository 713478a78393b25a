"""A cluster of `kaas-operator local`: brokers are child processes of one machine."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from . import runner
from .cluster import Cluster

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# below the ephemeral range, so that a client retrying a closed port cannot meet itself
PORTS = range(23000, 32000, 400)


def ports_free(base):
    try:
        for off in (0, 1, 2, 100, 101, 102, 200, 201):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", base + off))
        return True
    except OSError:
        return False


def free_base_port():
    """A block of ports nobody listens on: brokers from +0, health from +100, operator at +200."""
    start = os.getpid() % len(PORTS)
    for i in range(len(PORTS)):
        base = PORTS[(start + i) % len(PORTS)]
        if ports_free(base):
            return base
    raise RuntimeError("no free block of ports")


def http_get(port, path, timeout_s):
    """(status code, body) of a health port."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = b""
        while chunk := s.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def spec(replicas=3, name="demo", config=None, **extra):
    return {"apiVersion": "kaas.dev/v1alpha1", "kind": "KaasCluster", "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": replicas, "minReadySeconds": 0, "storage": {"hostPath": "volume"},
                     "listeners": [{"name": "internal", "port": 9092, "type": "internal"}],
                     "config": {"group.initial.rebalance.delay.ms": "0", **(config or {})}, **extra}}


class LocalCluster(Cluster):
    def __init__(self, replicas=3, build="release", dir=None, config=None, env=None, extra=None):
        self.bin = ROOT / "build" / build / "bin"
        self.dir = pathlib.Path(dir or tempfile.mkdtemp(prefix="kaas-e2e-"))
        self.keep = dir is not None
        self.base = free_base_port()
        self.replicas = replicas
        self.config = config
        self.extra = dict(extra or {})  # of the spec
        self.topics = []
        self.env = dict(os.environ, **(env or {}))
        self.operator = None

    def write_spec(self, replicas=None):
        """The file the operator follows: replaced at once, as editors do."""
        f = self.dir / "cluster.yaml"
        tmp = f.with_suffix(".tmp")
        docs = [spec(self.replicas if replicas is None else replicas, config=self.config, **self.extra), *self.topics]
        tmp.write_text("\n---\n".join(json.dumps(d) for d in docs))
        tmp.rename(f)
        return f

    def start(self):
        """Starts the operator; does not wait."""
        self.dir.mkdir(parents=True, exist_ok=True)
        self.log = open(self.dir / "operator.log", "ab")
        self.operator = subprocess.Popen(
            [str(self.bin / "kaas-operator"), "local", "-f", str(self.write_spec()), "--dir", str(self.dir), "--broker",
             str(self.bin / "kaas-broker"), "--port", str(self.base)],
            stdout=self.log, stderr=self.log, env=self.env)
        return self

    def stop(self, timeout_s=60):
        if self.operator and self.operator.poll() is None:
            self.operator.send_signal(signal.SIGTERM)
            self.operator.wait(timeout_s)
        self.operator = None

    def close(self):
        try:
            self.stop()
        finally:
            if self.operator and self.operator.poll() is None:
                self.operator.kill()
            if not self.keep:
                shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        self.start()
        self.wait_serving()
        return self

    def __exit__(self, *_):
        self.close()

    def address(self, n):
        return f"127.0.0.1:{self.base + n}"

    @property
    def bootstrap(self):
        return ",".join(self.address(n) for n in range(self.replicas))

    def object(self, plural, name, namespace="default"):
        return json.loads((self.dir / "objects" / plural / namespace / f"{name}.json").read_text())

    def status(self):
        return self.object("kaasclusters", "demo").get("status", {})

    def image_rows(self):
        """{id: row} of the published image: what the operator knows of each broker."""
        root = self.object("configmaps", "demo-image")
        return {r["id"]: r for r in json.loads(root["data"]["image.json"])["brokers"]}

    def wait_serving(self, n=None, timeout_s=60):
        want = self.replicas if n is None else n
        runner.eventually(lambda: self.status().get("serving") == want, timeout_s, what=f"{want} serving brokers")

    def pid(self, n):
        return int((self.dir / "brokers" / str(n) / "pid").read_text())

    def pids(self):
        out = []
        for n in range(self.replicas):
            try:
                pid = self.pid(n)
                os.kill(pid, 0)
                out.append(pid)
            except (OSError, ValueError):
                pass
        return out

    def kill(self, n, sig=signal.SIGKILL):
        pid = self.pid(n)
        os.kill(pid, sig)
        return pid

    def scale(self, replicas):
        """Edits the KaasCluster file, as kubectl scale would."""
        self.write_spec(replicas)

    def hold_back(self, n):
        """Keeps broker n from being started again (a node that does not come back)."""
        (self.dir / "brokers" / str(n) / "hold").touch()

    def let_go(self, n):
        (self.dir / "brokers" / str(n) / "hold").unlink()

    def readyz(self, n, timeout_s=1.0):
        """(status code, body) of a broker's /readyz."""
        return http_get(self.base + 100 + n, "/readyz", timeout_s)

    def metrics(self, n=None, timeout_s=1.0):
        """{series: value} of a broker's /metrics, of the operator's without a number."""
        code, body = http_get(self.base + (201 if n is None else 100 + n), "/metrics", timeout_s)
        assert code == 200, code
        rows = [line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#")]
        assert len({name for name, _ in rows}) == len(rows), "a series twice"
        return {name: float(value) for name, value in rows}

    def tail(self, lines=40):
        for f in [self.dir / "operator.log", *sorted(self.dir.glob("brokers/*/log"))]:
            if f.exists():
                print(f"--- {f.relative_to(self.dir)}")
                print("\n".join(f.read_text(errors="replace").splitlines()[-lines:]))
