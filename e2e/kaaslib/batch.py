"""Record batches v2 as a client makes them, or wrong on purpose."""

import struct

from .wire import uvarint

_TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    _TABLE.append(c)


def crc32c(data):
    c, table = 0xFFFFFFFF, _TABLE
    for b in data:
        c = table[(c ^ b) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF


def varint(n):
    return uvarint((n << 1 ^ n >> 63) & 0xFFFFFFFFFFFFFFFF)


def record(offset_delta, timestamp_delta, value, key=None):
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def records_of(timestamps, values, key=None):
    return b"".join(record(i, t - timestamps[0], v, key) for i, (t, v) in enumerate(zip(timestamps, values)))


def make(timestamps, records, pid=-1, epoch=-1, sequence=-1, attributes=0, **wrong):
    """One batch. wrong: fields of the header to be set to something else, after which the CRC is right again, or crc=True,
    which makes the CRC wrong."""
    base = timestamps[0]
    tail = struct.pack(">hiqqqhii", wrong.get("attributes", attributes), wrong.get("last_delta", len(timestamps) - 1), base,
                       wrong.get("max_timestamp", max(timestamps)), pid, epoch, sequence, wrong.get("count", len(timestamps)))
    tail += records
    crc = crc32c(tail) ^ (1 if wrong.get("crc") else 0)
    length = wrong.get("length", 9 + len(tail))
    return struct.pack(">qiibI", wrong.get("base_offset", 0), length, wrong.get("leader_epoch", -1), wrong.get("magic", 2),
                       crc) + tail
