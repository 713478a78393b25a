"""kaas on the real Kubernetes of e2e/kube. Scenarios run inside the cluster's namespaces (e2e/kube/kenv), where pod
addresses, service addresses and cluster DNS are reachable and every process of every node can be seen."""

import functools
import json
import os
import pathlib
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

from . import runner, wire
from .cluster import Cluster
from .proc import stat_of

NAMESPACE = "default"
SYSTEM = "kaas-system"
HEALTH_PORT = 8080


def kubectl(*args, stdin=None, ok=True, timeout_s=60):
    r = subprocess.run(["kubectl", *args], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ok and r.returncode:
        raise runner.Failed(f"kubectl {' '.join(args)}: {r.stderr.strip() or r.stdout.strip()}")
    return r.stdout if ok else r


KINDS = {"pod": "api/v1", "event": "api/v1", "node": "api/v1", "service": "api/v1", "lease": "apis/coordination.k8s.io/v1",
         "statefulset": "apis/apps/v1", "deployment": "apis/apps/v1", "kaascluster": "apis/kaas.dev/v1alpha1",
         "kaastopic": "apis/kaas.dev/v1alpha1"}
SERVER = "https://10.10.0.1:6443"


@functools.cache
def credentials():
    pki = pathlib.Path(os.environ["KUBECONFIG"]).parent
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    return context


def get(kind, name=None, namespace=NAMESPACE):
    """An object, or the list of all, by a plain request: what is asked many times a second must not cost a kubectl each."""
    kind = kind.removesuffix("s")
    scope = "" if kind == "node" else f"namespaces/{namespace}/"
    url = f"{SERVER}/{KINDS[kind]}/{scope}{kind}s" + (f"/{name}" if name else "")
    try:
        with urllib.request.urlopen(url, timeout=10, context=credentials()) as r:
            return json.load(r)
    except urllib.error.HTTPError as e:
        raise runner.Failed(f"GET {url}: {e.code}") from None


def environment(pid):
    """Of a process; {} when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def processes(comm="kaas-broker"):
    """{pod: (pid, state letter)} of all nodes, seen from the cluster's process namespace; the newest where a pod has two."""
    out = {}
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and (found := stat_of(p.name))[0] == comm and found[1] not in "ZX":
                pod = environment(p.name).get("POD_NAME", "")
                out[pod] = max(out.get(pod, (0, "")), (int(p.name), found[1]))
        except OSError:
            continue
    return out


def pids_of(pod, comm="kaas-broker"):
    """Processes of a pod, seen from the cluster's process namespace."""
    out = []
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and stat_of(p.name)[0] == comm and environment(p.name).get("POD_NAME") == pod:
                out.append(int(p.name))
        except OSError:
            continue
    return out


class KindWatch:
    """Calls seen(time, ADDED | MODIFIED | DELETED, object) for every event of a kind, by kubectl get --watch; a watch that the
    API server ends is begun again, until close()."""

    def __init__(self, kind, seen, namespace=NAMESPACE):
        self.args, self.seen, self.closed = ["get", kind, "-n", namespace, "--watch", "-o", "json", "--output-watch-events"], seen, False
        self.proc = self._begin()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _begin(self):
        return subprocess.Popen(["kubectl", *self.args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def _run(self):
        while True:
            self._read()
            self.proc.wait()
            if self.closed:
                return
            time.sleep(0.2)  # the API server may be away
            self.proc = self._begin()
            if self.closed:
                self.proc.terminate()

    def _read(self):
        decoder, text = json.JSONDecoder(), ""
        while chunk := os.read(self.proc.stdout.fileno(), 65536):
            text += chunk.decode()
            while text := text.lstrip():
                try:
                    event, end = decoder.raw_decode(text)
                except ValueError:
                    break
                text = text[end:]
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self.seen(time.monotonic(), event["type"], event["object"])

    def close(self):
        self.closed = True
        self.proc.terminate()
        self.thread.join()


class Watch:
    """Every status of one KaasCluster with the time it was seen."""

    def __init__(self, name):
        self.seen = []

        def take(t, _kind, doc):
            if doc["metadata"]["name"] == name:
                self.seen.append((t, doc.get("status", {})))
        self.watch = KindWatch("kaasclusters", take)

    def first(self, predicate, since, timeout_s):
        """Seconds from since until a status fulfilled predicate(status)."""
        def probe():
            return next((t - since for t, s in list(self.seen) if t >= since and predicate(s)), None)
        return runner.eventually(lambda: (v := probe()) is not None and [v], timeout_s, 0.02, "status")[0]

    def close(self):
        self.watch.close()


class KubeCluster(Cluster):
    topic_s = 60

    def __init__(self, name="demo"):
        self.name = name

    def host(self, n):
        return f"{self.name}-{n}.{self.name}-brokers.{NAMESPACE}.svc.cluster.local"

    def address(self, n):
        return f"{self.host(n)}:9092"

    @property
    def bootstrap(self):
        return f"{self.name}-bootstrap.{NAMESPACE}.svc.cluster.local:9092"

    def object(self):
        return get("kaascluster", self.name)

    def status(self):
        return self.object().get("status", {})

    def wait_serving(self, n=3, timeout_s=120):
        runner.eventually(lambda: self.status().get("serving") == n, timeout_s, 0.3, f"{n} serving brokers")

    def condition(self, kind, status=None):
        """(status, reason, message) of a condition."""
        row = next((r for r in (status or self.status()).get("conditions", []) if r["type"] == kind), {})
        return row.get("status"), row.get("reason"), row.get("message")

    def settle(self, n=3, timeout_s=240):
        """Until n of n brokers serve, nothing rolls, no pod is left over and every partition is led."""
        def settled():
            s = self.status()
            led = [p["leader"] for t in self.metadata()["topics"].values() for p in t["partitions"].values()]
            return (s.get("serving") == n == s.get("desired") and self.condition("Ready", s)[0] == "True"
                    and self.condition("Progressing", s)[0] == "False" and len(self.pods()) == n
                    and all(self.readyz(i) == 200 for i in range(n)) and all(leader >= 0 for leader in led))
        runner.eventually(settled, timeout_s, 0.5, f"{n} of {n} brokers serving in peace")

    def patch(self, spec):
        """A merge patch of spec, as kubectl patch or edit would send it."""
        kubectl("patch", "kaascluster", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def scale(self, replicas):
        kubectl("scale", "kaascluster", self.name, f"--replicas={replicas}")

    def pid(self, n):
        """The newest process of broker n."""
        found = processes().get(f"{self.name}-{n}")
        runner.check(found, "no process of broker", n)
        return found[0]

    def kill(self, n, sig=signal.SIGKILL):
        pids = pids_of(f"{self.name}-{n}")
        runner.check(pids, "no process of broker", n)
        for pid in pids:
            os.kill(pid, sig)

    def readyz(self, n):
        """Status code of a broker's /readyz; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.host(n)}:{HEALTH_PORT}/readyz", timeout=2) as r:
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

    def coordinators(self, brokers, groups):
        return wire.agreed(self, brokers, groups)

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


def volume_folder(name):
    """A folder for a hostPath volume, on the file system that all nodes share; brokers run as a user of their own."""
    folder = pathlib.Path("/srv/shared") / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    return folder


def node_process(node):
    """Process 1 of a node: its namespaces are the node's."""
    return int(pathlib.Path(f"/run/kc/{node}.pid").read_text())


def operators():
    """{pod: process} of the operators that run."""
    return {pod: pid for pod, (pid, _) in processes("kaas-operator").items()}


def active_operator():
    """(pod, process) of the one that holds the Lease."""
    pod = lease_holder().rsplit("_", 1)[0]
    return pod, operators()[pod]


def lease_holder():
    """"POD_PROCESS" of the active operator."""
    return get("lease", "kaas-operator", SYSTEM)["spec"].get("holderIdentity", "")


def apiserver_pid():
    return int(pathlib.Path("/run/kc/kube-apiserver.pid").read_text())
