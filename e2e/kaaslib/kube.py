"""kaas on the real Kubernetes of e2e/kube. Scenarios run inside the cluster's namespaces (e2e/kube/kenv), where pod
addresses, service addresses and cluster DNS are reachable and every process of every node can be seen."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from . import runner, wire

NAMESPACE = "default"
SYSTEM = "kaas-system"


def kubectl(*args, stdin=None, ok=True, timeout_s=60):
    r = subprocess.run(["kubectl", *args], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ok and r.returncode:
        raise runner.Failed(f"kubectl {' '.join(args)}: {r.stderr.strip() or r.stdout.strip()}")
    return r.stdout if ok else r


def get(kind, name=None, namespace=NAMESPACE):
    return json.loads(kubectl("get", kind, *([name] if name else []), "-n", namespace, "-o", "json"))


def pids_of(pod, comm="kaas-broker"):
    """Processes of a pod, seen from the cluster's process namespace."""
    out = []
    for p in pathlib.Path("/proc").iterdir():
        if not p.name.isdigit():
            continue
        try:
            if (p / "comm").read_text().strip() == comm and f"POD_NAME={pod}\0" in (p / "environ").read_text() + "\0":
                out.append(int(p.name))
        except (OSError, UnicodeDecodeError):
            continue
    return out


class Watch:
    """Every status of one KaasCluster with the time it was seen, by kubectl get --watch."""

    def __init__(self, name):
        self.seen = []
        self.proc = subprocess.Popen(["kubectl", "get", "kaascluster", name, "-n", NAMESPACE, "--watch", "-o", "json",
                                      "--output-watch-events"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        decoder, text = json.JSONDecoder(), ""
        while chunk := os.read(self.proc.stdout.fileno(), 65536):
            text += chunk.decode()
            while text.lstrip():
                try:
                    event, end = decoder.raw_decode(text.lstrip())
                except ValueError:
                    break
                text = text.lstrip()[end:]
                self.seen.append((time.monotonic(), event["object"].get("status", {})))

    def first(self, predicate, since, timeout_s):
        """Seconds from since until a status fulfilled predicate(status)."""
        def probe():
            return next((t - since for t, s in list(self.seen) if t >= since and predicate(s)), None)
        return runner.eventually(lambda: (v := probe()) is not None and [v], timeout_s, 0.02, "status")[0]

    def close(self):
        self.proc.terminate()
        self.proc.wait()


class KubeCluster:
    def __init__(self, name="demo"):
        self.name = name

    def address(self, n):
        return f"{self.name}-{n}.{self.name}-brokers.{NAMESPACE}.svc.cluster.local:9092"

    @property
    def bootstrap(self):
        return f"{self.name}-bootstrap.{NAMESPACE}.svc.cluster.local:9092"

    def conn(self, n=0):
        return wire.Conn(self.address(n))

    def object(self):
        return get("kaascluster", self.name)

    def status(self):
        return self.object().get("status", {})

    def broker_status(self, n):
        return next((b for b in self.status().get("brokers", []) if b["id"] == n), None)

    def wait_serving(self, n=3, timeout_s=120):
        runner.eventually(lambda: self.status().get("serving") == n, timeout_s, 0.3, f"{n} serving brokers")

    def scale(self, replicas):
        kubectl("scale", "kaascluster", self.name, f"--replicas={replicas}")

    def kill(self, n, sig=signal.SIGKILL):
        pids = pids_of(f"{self.name}-{n}")
        runner.check(pids, "no process of broker", n)
        for pid in pids:
            os.kill(pid, sig)

    def readyz(self, n):
        """Status code of a broker's /readyz; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.name}-{n}.{self.name}-brokers.{NAMESPACE}.svc.cluster.local:8080/readyz",
                                        timeout=2) as r:
                return r.status
        except urllib.error.HTTPError as e:
            return e.code
        except OSError:
            return 0

    def pods(self):
        """{pod: uid} and restarts"""
        items = get("pods")["items"]
        mine = [p for p in items if p["metadata"].get("labels", {}).get("kaas.dev/cluster") == self.name]
        return {p["metadata"]["name"]: (p["metadata"]["uid"], sum(s["restartCount"] for s in p["status"].get("containerStatuses", [])))
                for p in mine}

    def metadata(self, topics=None, n=0):
        with self.conn(n) as c:
            return c.metadata(topics)

    def create_topic(self, name, partitions=3):
        def attempt():
            with self.conn(0) as c:
                return c.create_topics([name], partitions)[name] in (0, 36)
        runner.eventually(attempt, 60, what=f"topic {name}")

        def led():
            t = self.metadata([name])["topics"][name]
            return t["error"] == 0 and all(p["leader"] >= 0 for p in t["partitions"].values())
        runner.eventually(led, 60, what=f"leaders of {name}")

    def leaders(self, topic, n=0):
        return {i: (p["leader"], p["epoch"]) for i, p in self.metadata([topic], n)["topics"][topic]["partitions"].items()}

    def coordinators(self, brokers, groups):
        views = []
        for n in brokers:
            with self.conn(n) as conn:
                views.append(conn.coordinators(groups))
        same = all(v == views[0] for v in views)
        return views[0] if same and all(e == 0 for e, _ in views[0].values()) else None

    def node_of(self, n):
        return get("pod", f"{self.name}-{n}")["spec"]["nodeName"]

    def cut(self, node, cut=True):
        """Takes a node off the network (or brings it back); what runs on it goes on."""
        subprocess.run(["ip", "link", "set", f"lan-{node.removeprefix('node')}", "down" if cut else "up"], check=True)

    def tail(self, _name=""):
        for args in (["get", "kaasclusters,kaasbrokers,pods", "-A", "-o", "wide"], ["get", "events", "-A", "--sort-by=.lastTimestamp"]):
            print("\n".join(kubectl(*args, ok=False).stdout.splitlines()[-25:]))
        for ns, selector in ((NAMESPACE, f"kaas.dev/cluster={self.name}"), (SYSTEM, "app.kubernetes.io/component=operator")):
            print(kubectl("logs", "-n", ns, "-l", selector, "--tail=15", "--prefix", ok=False).stdout[-6000:])


def lease_holder():
    """"POD_PROCESS" of the active operator."""
    return get("lease", "kaas-operator", SYSTEM)["spec"].get("holderIdentity", "")


def apiserver_pid():
    return int(pathlib.Path("/run/kc/kube-apiserver.pid").read_text())
