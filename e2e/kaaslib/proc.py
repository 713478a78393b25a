"""Processes of this machine, or of the process namespace that the caller is in."""

import contextlib
import os
import pathlib
import signal


def stat_of(pid):
    """(name, state letter) of a process."""
    head, _, tail = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], tail.split()[0]


def ended(pid):
    """Gone, or a zombie that its parent has not waited for."""
    try:
        return stat_of(pid)[1] == "Z"
    except OSError:
        return True


@contextlib.contextmanager
def stopped(*pids):
    """These processes stand still inside the block; one may have ended when it is over."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
