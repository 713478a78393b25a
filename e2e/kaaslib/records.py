"""The records that every client program sends, and the digest of a set of them (see ../clients/README.md)."""

import functools
import hashlib


def value(i):
    n = 65536 if i % 1000 == 0 else 1 + (i * 7919) % 1024
    period = bytes(97 + (i * 7 + j * 13) % 26 for j in range(26))
    return (period * (n // 26 + 1))[:n]


def one(key, val):
    return int.from_bytes(hashlib.sha256(key + b"\0" + val).digest()[:8], "big")


@functools.lru_cache(maxsize=None)
def digest(first, count):
    """Hex digest of records first .. first+count-1."""
    total = sum(one(f"k{i}".encode(), value(i)) for i in range(first, first + count))
    return f"{total % 2**64:016x}"
