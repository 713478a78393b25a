#!/usr/bin/env python3
"""A volume that is full, and has room again: two brokers on a file system of a few MiB.

The file system is a tmpfs in a mount namespace of this program's own (which needs root, or user namespaces); nobody else sees it."""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kaaslib import chaos, load, local, runner, wire  # noqa: E402
from kaaslib.runner import check, eventually, hold, scenario  # noqa: E402

SIZE = "48m"
STORAGE_ERROR, NOT_LEADER = 56, 6
BUILD = os.environ.get("KAAS_BUILD", "release")


def leader(c, topic, partition=0):
    for n in range(c.replicas):
        try:
            with c.conn(n) as k:
                p = k.metadata([topic])["topics"][topic]["partitions"][partition]
                if p["error"] == 0 and p["leader"] >= 0:
                    return p["leader"]
        except (OSError, KeyError, ValueError):
            pass
    raise ValueError("no leader")


def put(c, topic, value=b"x" * 3000, partition=0):
    """(error, offset) of one batch, by Produce 3."""
    b = chaos.batch(value)
    body = struct.pack(">h", -1) + struct.pack(">hii", -1, 5000, 1) + wire.string(topic)
    body += struct.pack(">iii", 1, partition, len(b)) + b
    with c.conn(leader(c, topic, partition)) as k:
        r = k.call(0, 3, body, flexible=False)
        r.take("i")
        r.take(f"{r.take('h')}s")
        r.take("i")
        r.take("i")
        return r.take("h"), r.take("q")


def fill(c):
    """A file of somebody else takes what is left, also what the brokers give up for their seals."""
    def once():
        fill_once(c)
        return refused(c, "probe")
    eventually(once, what="KAFKA_STORAGE_ERROR")


def fill_once(c):
    with open(c.dir / "volume" / "ballast", "ab", buffering=0) as f:
        size = 1 << 20
        while size:
            try:
                f.write(b"b" * size)
            except OSError:
                size //= 2


def make_room(c):
    (c.dir / "volume" / "ballast").unlink()


def refused(c, topic):
    error = put(c, topic)[0]
    check(error in (0, STORAGE_ERROR, NOT_LEADER), "a full volume answers", error)
    return error == STORAGE_ERROR


def acked(c, topic):
    return put(c, topic)[0] == 0


def same_processes(c, pids):
    check(c.pids() == pids, "a broker was started again: ", pids, c.pids())


@scenario
def a_full_volume_refuses_and_goes_on_by_itself(c):
    pids = c.pids()
    c.create_topic("full", load.PARTITIONS)
    p = load.Producing(c.bootstrap, "full", 25, rate=200)
    eventually(lambda: acked(c, "probe"), what="an ack")

    def begun():
        with c.conn(leader(c, "full")) as k:
            return k.end_offset("full", 0) > 20
    eventually(begun, what="the producer's records")
    fill(c)
    hold(lambda: put(c, "probe")[0] in (STORAGE_ERROR, NOT_LEADER), 3, 0.2, "refusal")
    during = load.everything(c.bootstrap, "full")
    check(len(during) > 100, "read of a full volume", len(during))
    same_processes(c, pids)
    make_room(c)
    t0 = time.monotonic()
    eventually(lambda: acked(c, "probe"), 60, what="acks again")
    took = time.monotonic() - t0
    history = p.history()
    same_processes(c, pids)
    check(not history["failed"] and not history["unflushed"], "records given up", history["failed"][:3])
    final = load.everything(c.bootstrap, "full")
    bad = load.check_history(history, final)
    check(not bad, bad[:5])
    check(all(r in final for r in during), "what was read of the full volume is not there")
    return f"{len(history['acked'])} acked, {len(during)} read while full, acks {took:.1f} s after there was room"


@scenario
def a_takeover_on_a_full_volume_loses_nothing(c):
    c.create_topic("heir", load.PARTITIONS)
    p = load.Producing(c.bootstrap, "heir", 15, rate=200)

    def begun():
        with c.conn(leader(c, "heir")) as k:
            return k.end_offset("heir", 0) > 20
    eventually(begun, what="the producer's records")
    fill(c)
    c.kill(0)
    time.sleep(3)  # whatever is tried without room has been tried
    make_room(c)
    c.wait_serving()
    history = p.history()
    check(not history["failed"] and not history["unflushed"], "records given up", history["failed"][:3])
    bad = load.check_history(history, load.everything(c.bootstrap, "heir"))
    check(not bad, bad[:5])
    return f"{len(history['acked'])} acked"


@scenario
def foreign_files_are_ignored(c):
    volume = c.dir / "volume"
    topic = next(t for t in (volume / "topics").iterdir())
    for d in (volume, volume / "topics", volume / "inc", volume / "deleted", volume / "pids", topic, topic / "0"):
        (d / "README.txt").write_text("not of kaas\n")
        (d / "lost+found").mkdir()
    old = c.kill(1)
    eventually(lambda: c.pid(1) != old, what="the broker again")
    c.wait_serving()
    eventually(lambda: acked(c, "probe"), what="an ack")
    c.create_topic("after", 2)
    eventually(lambda: acked(c, "after"), what="an ack of a new topic")
    with c.conn(0) as k:
        check(set(k.metadata()["topics"]) >= {"probe", "after"}, "topics")
    return "7 directories with a file and a directory of somebody else"


def fsck(c):
    r = subprocess.run([str(c.bin / "kaas-broker"), "fsck", str(c.dir / "volume")], capture_output=True, text=True, check=False)
    check(r.returncode == 0, r.stdout[-2000:], r.stderr[-500:])


def main():
    if "KAAS_DISK_NS" not in os.environ:
        os.environ["KAAS_DISK_NS"] = "1"
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", *user, "--mount", "--", sys.executable, "-B", *sys.argv])
    with tempfile.TemporaryDirectory(prefix="kaas-disk-") as tmp:
        c = local.LocalCluster(replicas=2, build=BUILD, dir=tmp)
        (c.dir / "volume").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(c.dir / "volume")], check=True)
        try:
            with c:
                c.create_topic("probe", 1)
                rc = runner.run(c, sys.argv[1:], on_failure=lambda _: c.tail())
            fsck(c)
            return rc
        finally:
            subprocess.run(["umount", str(c.dir / "volume")], check=False)


if __name__ == "__main__":
    sys.exit(main())
