#!/usr/bin/env python3
"""A volume that is full, and has room again: two brokers on a file system of a few MiB. And one that becomes read-only.

The file systems are a tmpfs, and an ext4 on a loop device, in a mount namespace of this program's own (which needs root, or user
namespaces; the loop device needs root); nobody else sees them."""

import errno
import fcntl
import os
import pathlib
import random
import signal
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


def fill_beside(c):
    """The same, but what is given up is left to the brokers."""
    fill_once(c)
    eventually(lambda: refused(c, "probe"), what="KAFKA_STORAGE_ERROR")


def fill_once(c):
    with open(c.dir / "volume" / "ballast", "ab", buffering=0) as f:
        size = 1 << 20
        while size:
            try:
                f.write(b"b" * size)
            except OSError:
                size //= 2


def make_room(c):
    (c.dir / "volume" / "ballast").unlink(missing_ok=True)


def failed(c):
    c.tail()
    make_room(c)  # for those that follow


def delete_below(c, topic, offset):
    """The error of DeleteRecords 1 for partition 0; -1: up to its end."""
    body = struct.pack(">i", 1) + wire.string(topic) + struct.pack(">iiqi", 1, 0, offset, 10000)
    with c.conn(leader(c, topic)) as k:
        r = k.call(21, 1, body, flexible=False)
        r.take("i")
        r.take("i")
        r.take(f"{r.take('h')}s")
        r.take("i")
        r.take("i")
        r.take("q")
        return r.take("h")


def set_config(c, topic, name, value):
    """The error of IncrementalAlterConfigs 0."""
    body = struct.pack(">ib", 1, 2) + wire.string(topic) + struct.pack(">i", 1) + wire.string(name)
    body += struct.pack(">b", 0) + wire.string(value) + struct.pack(">b", 0)
    with c.conn(0) as k:
        r = k.call(44, 0, body, flexible=False)
        r.take("i")
        r.take("i")
        return r.take("h")


def condition(status, name):
    return next(({k: x[k] for k in ("status", "reason")} for x in status.get("conditions", []) if x["type"] == name), None)


def says(c, n, status, reason):
    """Broker n and the cluster say this of their volume, and that they are ready all the same."""
    want = {"status": status, "reason": reason}
    broker = c.object("kaasbrokers", f"demo-{n}")["status"]
    return (condition(broker, "StorageReady") == want and condition(c.status(), "StorageReady") == want
            and condition(broker, "Ready")["status"] == "True" and condition(c.status(), "Ready")["status"] == "True")


def refused(c, topic):
    error = put(c, topic)[0]
    check(error in (0, STORAGE_ERROR, NOT_LEADER), "a full volume answers", error)
    return error == STORAGE_ERROR


def acked(c, topic):
    return put(c, topic)[0] == 0


def same_processes(c, pids):
    check(c.pids() == pids, "a broker was started again: ", pids, c.pids())


def produce_into(c, topic, seconds):
    """A producer for so long, of whose records some are there, into a topic of its own."""
    c.create_topic(topic, load.PARTITIONS)
    p = load.Producing(c.bootstrap, topic, seconds, rate=200)

    def begun():
        with c.conn(leader(c, topic)) as k:
            return k.end_offset(topic, 0) > 20
    eventually(begun, what="the producer's records")
    return p


def nothing_lost(c, topic, history, during=()):
    """Every record was acked and is there as it was sent; and so is what was read while the volume took nothing."""
    check(not history["failed"] and not history["unflushed"], "records given up", history["failed"][:3])
    final = load.everything(c.bootstrap, topic)
    bad = load.check_history(history, final)
    check(not bad, bad[:5])
    check(all(r in final for r in during), "what was read before is not there")


@scenario
def a_full_volume_refuses_and_goes_on_by_itself(c):
    pids = c.pids()
    eventually(lambda: acked(c, "probe"), what="an ack")
    p = produce_into(c, "full", 25)
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
    nothing_lost(c, "full", history, during)
    return f"{len(history['acked'])} acked, {len(during)} read while full, acks {took:.1f} s after there was room"


@scenario
def a_takeover_on_a_full_volume_loses_nothing(c):
    p = produce_into(c, "heir", 15)
    fill(c)
    c.kill(0)
    time.sleep(3)  # whatever is tried without room has been tried
    make_room(c)
    c.wait_serving()
    history = p.history()
    nothing_lost(c, "heir", history)
    return f"{len(history['acked'])} acked"


def heavy(c, topic, mib=12):
    c.create_topic(topic, 1, {"segment.bytes": str(1 << 20)})
    for _ in range(mib * 5):
        eventually(lambda: put(c, topic, b"h" * 210000)[0] == 0, what="an ack")


@scenario
def partitions_move_on_a_full_volume(c):
    c.create_topic("moving", load.PARTITIONS)
    p = load.Producing(c.bootstrap, "moving", 4, rate=200)
    history = p.history()
    eventually(lambda: acked(c, "probe"), what="an ack")
    fill_beside(c)
    n = leader(c, "probe")
    eventually(lambda: says(c, n, "False", "VolumeFull"), what="a status that says so")
    code, body = c.readyz(n)
    check(code == 200 and "the volume is full" in body, "/readyz of a full volume", code, body)
    claims = {x.name for x in (c.dir / "volume" / "inc" / str(n)).iterdir() if x.stat().st_size < 4096}
    old = c.kill(n, signal.SIGTERM)
    eventually(lambda: c.pid(n) != old and leader(c, "moving") >= 0, 60, what="another process")
    c.wait_serving()
    # Partitions go back to the broker that came back meanwhile: a look-up of a moment's old leader is made again.
    final = eventually(lambda: load.everything(c.bootstrap, "moving"), 60, what="all that was acked")
    check(refused(c, "probe"), "the volume is not full any more")
    bad = load.check_history(history, final)
    check(not bad, bad[:5])
    fenced = [x.name for x in (c.dir / "volume" / "inc" / str(n)).iterdir() if x.name in claims and x.stat().st_size == 4096]
    check(not fenced, "what was to be moved was taken by force")
    given = {i: c.metrics(i)["kaas_storage_reserve_bytes"] for i in range(2)}
    make_room(c)
    eventually(lambda: acked(c, "probe"), 60, what="acks again")
    eventually(lambda: says(c, n, "True", "VolumeAnswers"), what="a status that says so")
    final = eventually(lambda: load.everything(c.bootstrap, "moving"), 60, what="all that was acked")
    check(not load.check_history(history, final), "records after there was room")
    return f"{len(history['acked'])} acked, moved while full; left of the reserves: {given}"


def acks_after(c, topic, give_up):
    """Seconds from giving up some of a heavy topic's records, on a full volume, to acks."""
    heavy(c, topic)
    fill_beside(c)
    hold(lambda: refused(c, "probe") or not acked(c, "probe"), 2, 0.2, "refusal")
    t0 = time.monotonic()
    give_up()
    eventually(lambda: acked(c, "probe") and acked(c, topic), 60, what="acks again")
    took = time.monotonic() - t0
    make_room(c)
    return took


@scenario
def deleted_records_make_room_on_a_full_volume(c):
    took = acks_after(c, "deleted", lambda: eventually(lambda: delete_below(c, "deleted", -1) == 0, what="DeleteRecords"))
    return f"acks {took:.1f} s after the records were deleted"


@scenario
def retention_makes_room_on_a_full_volume(c):
    def lower():
        check(set_config(c, "aged", "retention.bytes", str(1 << 20)) == 0, "the config is not taken")
    took = acks_after(c, "aged", lower)
    return f"acks {took:.1f} s after retention.bytes was lowered"


def mount(image, target, kind="ext4"):
    """Mounts the image; the name of its loop device, or None where that is not allowed."""
    options = "loop,errors=remount-ro" if kind == "ext4" else "loop"
    r = subprocess.run(["mount", "-t", kind, "-o", options, image, target], capture_output=True, check=False)
    if r.returncode:
        return None
    return subprocess.run(["findmnt", "-no", "SOURCE", target], capture_output=True, text=True, check=True).stdout.strip()


def unmount(target):
    eventually(lambda: subprocess.run(["umount", target], check=False, capture_output=True).returncode == 0, what="umount")


def make(image, mib, kind="ext4"):
    with open(image, "wb") as f:
        f.truncate(mib << 20)
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True)


def break_it(device):
    """The file system finds an error in itself and becomes read-only, as it is told to by errors=remount-ro."""
    try:
        (pathlib.Path("/sys/fs/ext4") / pathlib.Path(device).name / "trigger_fs_error").write_text("a test of kaas\n")
    except OSError as e:
        check(e.errno == errno.EROFS, "trigger_fs_error", e)


def shut_down(target):
    """The file system gives up at once, its journal unwritten: what ext4 and XFS do after an error of theirs."""
    going_down, without_the_log = 0x8004587D, struct.pack("I", 2)
    fd = os.open(target, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, going_down, without_the_log)
    finally:
        os.close(fd)


def on_a_broken_disk(c, image, device):
    volume = str(c.dir / "volume")
    c.create_topic("probe", 1)
    p = produce_into(c, "read", 20)
    pids = c.pids()
    break_it(device)
    eventually(lambda: refused(c, "probe"), what="KAFKA_STORAGE_ERROR")
    hold(lambda: put(c, "probe")[0] in (STORAGE_ERROR, NOT_LEADER), 3, 0.2, "refusal")
    n = leader(c, "probe")
    eventually(lambda: says(c, n, "False", "VolumeReadOnly"), what="a status that says so")
    code, body = c.readyz(n)
    check(code == 200 and "the volume is read-only" in body, "/readyz of a read-only volume", code, body)
    during = load.everything(c.bootstrap, "read")
    check(len(during) > 100, "read of a read-only volume", len(during))
    same_processes(c, pids)
    for i in range(2):
        c.hold_back(i)
        c.kill(i)
    unmount(volume)
    subprocess.run(["e2fsck", "-fy", image], check=False, capture_output=True)
    check(mount(image, volume), "the mended file system is not mounted")
    for i in range(2):
        c.let_go(i)
    c.wait_serving()
    history = p.history()
    nothing_lost(c, "read", history, during)
    return f"{len(history['acked'])} acked, {len(during)} read while it was read-only"


@scenario
def a_disk_that_becomes_read_only_is_read_and_nothing_is_lost(_):
    with tempfile.TemporaryDirectory(prefix="kaas-disk-") as tmp:
        c = local.LocalCluster(replicas=2, build=BUILD, dir=tmp)
        image, volume = f"{tmp}/image", c.dir / "volume"
        volume.mkdir()
        make(image, 96)
        device = mount(image, str(volume))
        if not device:
            return "not run: a loop device needs root"
        try:
            with c:
                try:
                    note = on_a_broken_disk(c, image, device)
                except BaseException:
                    c.tail()
                    raise
            fsck(c)
            return note
        finally:
            subprocess.run(["umount", str(volume)], check=False)


def promised_and_gone(tmp, kind, fail):
    """One file system that fails under six writers: bytes that a sync had promised and that are not there."""
    image, target = f"{tmp}/image", f"{tmp}/mnt"
    make(image, 320 if kind == "xfs" else 64, kind)  # the least that each will be made in
    device = mount(image, target, kind)
    if not device:
        return None
    writers = subprocess.Popen([str(local.ROOT / "build" / BUILD / "bin" / "kaas-synced"), target, "6"], stdout=subprocess.PIPE, text=True)
    eventually(lambda: os.path.getsize(f"{target}/5") > random.randrange(20000, 400000), every_s=0.005)
    if fail == "error":
        break_it(device)
    else:
        shut_down(target)
    said, _ = writers.communicate(timeout=60)
    unmount(target)
    if kind == "ext4":
        subprocess.run(["e2fsck", "-fy", image], check=False, capture_output=True)
    check(mount(image, target, kind), "the mended file system is not mounted")
    gone = []
    for n, promised, _error in (map(int, line.split()) for line in said.splitlines()):
        data = pathlib.Path(target, str(n)).read_bytes()
        there = len(data) - len(data.lstrip(bytes([ord("a") + n])))
        if there < promised:
            gone.append(f"{kind} after {fail}: {there} of {promised} bytes of file {n}")
    unmount(target)
    return gone


@scenario
def what_a_sync_promised_outlives_its_file_system(_):
    rounds, done = 300 if os.environ.get("KAAS_SOAK") else 25, 0
    with tempfile.TemporaryDirectory(prefix="kaas-disk-") as tmp:
        os.mkdir(f"{tmp}/mnt")
        for kind, fail, n in (("ext4", "error", rounds), ("ext4", "shutdown", rounds // 5), ("xfs", "shutdown", rounds // 5)):
            for _ in range(n):
                try:
                    gone = promised_and_gone(tmp, kind, fail)
                except BaseException:
                    subprocess.run(["umount", "--lazy", f"{tmp}/mnt"], check=False, capture_output=True)
                    raise
                if gone is None:
                    return f"{done} rounds; the next not run: a loop device of {kind} needs root, and a kernel that knows it"
                check(not gone, gone)
                done += 1
    return f"{done} file systems failed under six writers each"


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
                rc = runner.run(c, sys.argv[1:], on_failure=lambda _: failed(c))
            fsck(c)
            return rc
        finally:
            subprocess.run(["umount", str(c.dir / "volume")], check=False)


if __name__ == "__main__":
    sys.exit(main())
