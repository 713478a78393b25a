#!/usr/bin/env python3
"""Produce and fetch on NFS: one broker on a user-mode-linux node with a real NFS client, the rig of e2e/nfs. JSON lines.

./dev bench nfs [SECONDS]. The node is slow (its system calls cost tens of times those of the host), so the figures are for comparing one
state of this tree with another, and with what the same node's own synced writes do, which stand beside them."""

import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "e2e/nfs"), str(ROOT / "bench")]
import rig  # noqa: E402
from side.rows import line, progress  # noqa: E402

BUILT = ROOT / "build/release/bin"
IP, PORT = "10.77.0.11", 9092  # of node A
AT = ("--b", f"{IP}:{PORT}")
BATCHES = {"1 record of 1 KiB": 1, "16 KiB": "16k", "64 KiB": "64k"}


class Broker:
    """One self-led broker on node A, its volume on the NFS mount."""

    def __init__(self, r):
        self.rig, self.stop = r, r.ctl / "bench.stop"
        (r.ctl / "bench.yaml").write_text(json.dumps({
            "dataDir": "/mnt/nfs/volume", "health": {"bind": "127.0.0.1", "port": 8080},
            "listeners": [{"name": "internal", "bind": "", "port": PORT, "advertisedHost": IP, "advertisedPort": PORT}]}))

    def __enter__(self):
        self.handle = self.rig.submit("A", """
mkdir -p volume
/mnt/ctl/kaas-broker --config /mnt/ctl/bench.yaml --id 0 2> /tmp/log &
pid=$!
while [ ! -e /mnt/ctl/bench.stop ] && [ -d /proc/$pid ]; do sleep 0.2; done
kill $pid
wait $pid
tail -n 20 /tmp/log""")
        self.load("first", "--topic", "first", "--secs", 60)
        return self

    def __exit__(self, *_):
        self.stop.touch()
        rc, out = self.rig.result(self.handle, 60)
        if rc:
            progress(f"the broker's script ended with {rc}: {out}")

    def load(self, mode, *args):
        """A run of kaas-load beside the NFS server."""
        r = subprocess.run(self.rig.inside(str(BUILT / "kaas-load"), mode, *map(str, args), *AT), capture_output=True, text=True,
                           timeout=300, check=False)
        if r.returncode:
            raise SystemExit(f"kaas-load {mode} {args}: {r.stderr}")
        return json.loads(r.stdout)


def measure(b, secs):
    made = {}
    for name, batch in BATCHES.items():
        topic = f"p{len(made)}"
        b.load("create", "--topic", topic, "--p", 4)
        d = b.load("produce", "--topic", f"{topic}-0", "--conns", 4, "--inflight", 4, "--batch", batch, "--secs", secs)
        made[name] = (f"{topic}-0", d["msgs"])
        line({"what": f"nfs, produce, batches of {name}", "mb_s": d["mb_s"], "msgs_s": d["msgs_s"], "ack_us": d["ack_us"]})
    for name, (topic, msgs) in made.items():
        d = b.load("fetch", "--topic", topic, "--conns", 4, "--crc")
        if d["msgs"] != msgs:
            raise SystemExit(f"{topic}: {msgs} records were acknowledged, {d['msgs']} read")
        line({"what": f"nfs, fetch, batches of {name}", "mb_s": d["mb_s"], "msgs_s": d["msgs_s"], "fetch_us": d["fetch_us"]})
    b.load("create", "--topic", "e", "--p", 1)
    d = b.load("e2e", "--topic", "e-0", "--rate", 50, "--secs", secs)
    line({"what": "nfs, 50 records a second end to end", "e2e_us": d["e2e_us"], "ack_us": d["ack_us"]})


def main():
    secs = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    with rig.Rig() as r:
        for program in ("kaas-broker", "kaas-limits"):
            shutil.copy(BUILT / program, r.ctl / program)
        progress("what the node can do")
        for text in r.run("A", "mkdir -p limits && /mnt/ctl/kaas-limits /mnt/nfs/limits disk 0.1", 300).splitlines():
            d = json.loads(text)
            line({"limit": f"nfs, {d.pop('what')}", **d})
        progress("a broker on it")
        with Broker(r) as b:
            measure(b, secs)


if __name__ == "__main__":
    main()
