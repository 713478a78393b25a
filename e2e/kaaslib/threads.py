"""Stops chosen threads of a running process, as a lock, a scheduler or a disk would: no hook in the program is needed, and the
rest of it goes on. By ptrace: a stopped thread goes on when this program ends, however it ends.

    python3 -m kaaslib.threads PID stop PREFIX         threads whose name begins so, wherever they are
    python3 -m kaaslib.threads PID stall PREFIX…       threads whose names begin so, each where it next writes or syncs a file

Prints "stopped N" when so many are (stall: at least one), and lets go when its standard input ends."""

import ctypes
import os
import pathlib
import subprocess
import sys
import threading

SEIZE, INTERRUPT, SYSCALL, SYSCALL_INFO = 0x4206, 0x4207, 24, 0x420E
TRACE_SYSGOOD, WALL = 1, 0x40000000
AT_ENTRY = 1
FILE_CALLS = {18: "pwrite64", 74: "fsync", 75: "fdatasync", 296: "pwritev", 328: "pwritev2"}  # of x86-64

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request, tid, addr=0, data=0):
    n = LIBC.ptrace(request, tid, addr, data)
    if n < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {tid}")
    return n


def named(pid, prefixes):
    """Threads of a process whose names begin with one of the prefixes."""
    out = []
    for t in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            if (t / "comm").read_text().startswith(tuple(prefixes)):
                out.append(int(t.name))
        except OSError:
            continue
    return out


def enters_file_call(tid):
    info = (ctypes.c_ubyte * 88)()
    ptrace(SYSCALL_INFO, tid, len(info), ctypes.addressof(info))
    return info[0] == AT_ENTRY and int.from_bytes(bytes(info[24:32]), "little") in FILE_CALLS



def end_with_stdin():
    sys.stdin.read()
    os._exit(0)  # whoever traces is gone, and the kernel lets everything go


def hold(pid, stall, prefixes):
    tids = named(pid, prefixes)
    if not tids:
        raise SystemExit(f"process {pid} has no thread {prefixes}")
    for tid in tids:
        ptrace(SEIZE, tid, 0, TRACE_SYSGOOD)
        ptrace(INTERRUPT, tid)
    stopped, said = set(), False
    while True:
        tid, status = os.waitpid(-1, WALL)
        if not os.WIFSTOPPED(status):
            continue
        signal = os.WSTOPSIG(status)
        at_call = signal & 0x80
        if not stall or at_call and enters_file_call(tid):
            stopped.add(tid)
        else:  # a signal of its own goes on to it; a stop of ours does not
            ptrace(SYSCALL, tid, 0, 0 if at_call or status >> 16 else signal)
        if not said and (stall and stopped or len(stopped) == len(tids)):
            said = True
            print("stopped", len(stopped), flush=True)


class Held:
    """The threads of one process, stopped until release()."""

    def __init__(self, pid, how, *prefixes):
        self.proc = subprocess.Popen([sys.executable, "-B", __file__, str(pid), how, *prefixes], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = self.proc.stdout.readline()
        if not said.startswith("stopped"):
            raise RuntimeError(f"threads of {pid}: {self.proc.communicate()[1][-500:]}")
        self.n = int(said.split()[1])

    def release(self):
        self.proc.communicate(timeout=30)


def main(argv):
    pid, how, *prefixes = argv
    threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        hold(int(pid), how == "stall", prefixes)
    except (ChildProcessError, ProcessLookupError):
        pass  # the process has ended


if __name__ == "__main__":
    main(sys.argv[1:])
