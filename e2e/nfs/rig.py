"""Two real Linux NFS clients and an NFS server in a network namespace of their own.

The clients are user-mode-linux kernels (nodes A and B), so each has caches of its own; the server is nfs-ganesha. Nothing
leaves the namespace. Everything ends with the rig."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = 22049; Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = 10.77.0.1; fsid_device = false; }}
NFSV4 {{ Graceless = true; Lease_Lifetime = 10; Grace_Period = 15; RecoveryBackend = fs; Minor_Versions = 1, 2; Delegations = false;
  Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys; }}
EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /kaas; Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


def sh(*cmd, **kw):
    return subprocess.run(cmd, check=True, capture_output=True, text=True, **kw).stdout


class Rig:
    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kaas-nfs-"))
        self.ctl, self.export = self.dir / "ctl", self.dir / "export"
        self.ns = f"kaas-nfs-{os.getpid()}"
        self.procs = []
        self.count = {"A": 0, "B": 0}
        self.nodes = {}

    def inside(self, *cmd):
        return ["ip", "netns", "exec", self.ns, *cmd]

    def start(self, *cmd, log, **kw):
        p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=open(self.dir / log, "ab"), stderr=subprocess.STDOUT,
                             start_new_session=True, **kw)
        self.procs.append(p)
        return p

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        self.ctl.mkdir()
        self.export.mkdir()
        sh("ip", "netns", "add", self.ns)
        for cmd in ("ip link set lo up", "ip link add br0 type bridge", "ip addr add 10.77.0.1/24 dev br0", "ip link set br0 up",
                    "ip tuntap add dev tapA mode tap", "ip link set tapA master br0 up",
                    "ip tuntap add dev tapB mode tap", "ip link set tapB master br0 up"):
            sh(*self.inside(*cmd.split()))
        (self.dir / "ganesha.conf").write_text(CONFIG.format(export=self.export))
        self.start_server()
        for role, ip in (("A", "10.77.0.11"), ("B", "10.77.0.12")):
            env = dict(os.environ, TMPDIR="/dev/shm", HOME=str(self.dir))
            self.nodes[role] = self.start(*self.inside(
                "linux.uml", f"umid={role}{os.getpid()}", "mem=256M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
                f"init={HERE}/node-init.sh", "con=null", "con0=null,fd:1", f"eth0=tuntap,tap{role}", "quiet", f"role={role}",
                f"myip={ip}", f"ctl={self.ctl}"), log=f"node{role}.console", env=env)
        for role in "AB":
            self.await_(lambda r=role: (self.ctl / f"{r}.up").exists(), f"node {role}", 60)
            text = (self.ctl / f"{role}.mount").read_text()
            if "failed" in text:
                raise RuntimeError(f"node {role}: {text}")

    def start_server(self):
        self.server = self.start(*self.inside("ganesha.nfsd", "-F", "-f", str(self.dir / "ganesha.conf"), "-L",
                                              str(self.dir / "ganesha.log"), "-p", str(self.dir / "ganesha.pid")), log="ganesha.out")
        self.await_(self.listening, "the NFS server", 30)

    def restart_server(self):
        """kill -9 and a new one: what clients wrote and it had not made stable must be sent again by them, or is lost."""
        self.server.kill()
        self.server.wait()
        self.procs.remove(self.server)
        self.await_(lambda: not self.listening(), "the end of the NFS server", 10)
        self.start_server()

    def listening(self):
        text = sh(*self.inside("sh", "-c", "cat /proc/net/tcp /proc/net/tcp6"))
        return any(line.split()[3] == "0A" and line.split()[1].endswith(":5621") for line in text.splitlines() if line.split()[1:2]
                   and ":" in line.split()[1])

    @staticmethod
    def await_(probe, what, timeout_s):
        end = time.monotonic() + timeout_s
        while not probe():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {timeout_s} s")
            time.sleep(0.05)

    def submit(self, role, script):
        """Runs a script on a node, its working folder the NFS mount; returns a handle for result()."""
        self.count[role] += 1
        n = self.count[role]
        tmp = self.ctl / f".{role}.{n}"
        tmp.write_text(script + "\n")
        tmp.rename(self.ctl / f"{role}.{n}.sh")
        return role, n

    def result(self, handle, timeout_s=120):
        role, n = handle
        rc = self.ctl / f"{role}.{n}.rc"
        self.await_(lambda: rc.exists() and rc.read_text().strip(), f"script {n} on node {role}", timeout_s)
        return int(rc.read_text()), (self.ctl / f"{role}.{n}.out").read_text()

    def run(self, role, script, timeout_s=120):
        rc, out = self.result(self.submit(role, script), timeout_s)
        if rc:
            raise RuntimeError(f"node {role}: exit {rc}: {out[-2000:]}")
        return out

    def _kernel_pids(self, role):
        """All host processes of a node's kernel (user-mode-linux uses several)."""
        mine = f"umid={role}{os.getpid()}"
        out = []
        for p in pathlib.Path("/proc").iterdir():
            if p.name.isdigit():
                try:
                    if mine in (p / "cmdline").read_text().split("\0"):
                        out.append(int(p.name))
                except OSError:
                    pass
        return out

    def freeze(self, role, on=True):
        """Stops a node's kernel: nothing of the node runs until it is thawed."""
        pid = int((self.dir / ".uml" / f"{role}{os.getpid()}" / "pid").read_text())
        os.kill(pid, signal.SIGSTOP if on else signal.SIGCONT)

    def cut(self, role, on=True):
        sh(*self.inside("ip", "link", "set", f"tap{role}", *(["nomaster"] if on else ["master", "br0"])))

    def down(self):
        if self.ctl.exists():
            (self.ctl / "stop").touch()
        for role in self.nodes:
            try:
                self.freeze(role, False)
            except (OSError, ValueError):
                pass  # that node has ended already
        end = time.monotonic() + 5
        while time.monotonic() < end and any(p.poll() is None for p in self.nodes.values()):
            time.sleep(0.05)
        for role in self.nodes:
            for pid in self._kernel_pids(role):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for p in self.procs:
            if p.poll() is None:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            p.wait()
        subprocess.run(["ip", "netns", "del", self.ns], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", str(self.dir)], check=False)
