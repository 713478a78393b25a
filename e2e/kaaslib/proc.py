"""Processes of this machine, or of the process namespace that the caller is in."""

import pathlib


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
