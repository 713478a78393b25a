"""The machine that both sides run on: who else uses it, and what its page cache holds."""

import os
import pathlib
import resource
import time

TICK = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count()
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "kaas"
NOISY = 0.10  # of the machine, by others and by the hypervisor


def stat_fields(pid):
    """The fields of /proc/PID/stat from the state on, or None."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def cpu_of(pids):
    """CPU seconds of these processes so far."""
    fields = [stat_fields(p) for p in pids]
    return sum(int(f[11]) + int(f[12]) for f in fields if f) / TICK


def rss_mib(pids):
    total = 0
    for pid in pids:
        try:
            for line in open(f"/proc/{pid}/status", encoding="ascii"):
                if line.startswith("VmRSS"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


def read_bytes(pids):
    """Bytes that these processes had read from disks so far."""
    total = 0
    for pid in pids:
        try:
            for line in open(f"/proc/{pid}/io", encoding="ascii"):
                if line.startswith("read_bytes:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total


def kernel_threads_s():
    """CPU seconds of kernel threads: writeback, the journal and the like are the measured work's own."""
    total = 0
    for p in os.listdir("/proc"):
        if p.isdigit():
            f = stat_fields(p)
            if f and (f[1] == "2" or p == "2"):
                total += int(f[11]) + int(f[12])
    return total / TICK


def own_s():
    """CPU seconds of this process and of its children that have ended."""
    return sum(r.ru_utime + r.ru_stime for r in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)))


class Noise:
    """The share of the machine that went to neither side, nor to the load, while the block ran: .share"""

    def __init__(self, pids):
        self.pids = list(pids)
        self.share = 0.0

    def _now(self):
        f = [int(x) / TICK for x in open("/proc/stat", encoding="ascii").readline().split()[1:9]]
        mine = cpu_of(self.pids) + own_s() + kernel_threads_s()
        return time.monotonic(), f[0] + f[1] + f[2] - mine, f[7]

    def __enter__(self):
        self.before = self._now()
        return self

    def __exit__(self, *_):
        wall, others, steal = (b - a for a, b in zip(self.before, self._now()))
        self.share = round(max(0.0, others + steal) / (wall * CORES), 3)


def settle():
    """Dirty pages are written, so that no run pays for the one before."""
    os.sync()
    time.sleep(0.3)


def used_bytes(folder):
    """Of the disk, by the files below a folder."""
    total = 0
    for root, _, names in os.walk(folder):
        for n in names:
            try:
                total += os.lstat(os.path.join(root, n)).st_blocks * 512
            except OSError:
                pass
    return total


def forget(folder):
    """Drops the files below a folder from the page cache."""
    os.sync()
    for root, _, names in os.walk(folder):
        for n in names:
            try:
                fd = os.open(os.path.join(root, n), os.O_RDONLY)
            except OSError:
                continue
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):  # also what a side has mapped
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
