"""Record batches v2: made as a client makes them, or wrong on purpose, and taken apart again."""

import gzip
import struct
import uuid

TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    TABLE.append(c)

HEADER = 61
NO_ID = uuid.UUID(int=1)
LOG_APPEND_TIME = 8


def crc32c(data):
    c, table = 0xFFFFFFFF, TABLE
    for b in data:
        c = table[(c ^ b) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF


def varint(n):
    n = (n << 1 ^ n >> 63) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


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


def split(data):
    """Whole batches of a fetch answer, as (base offset, last offset, leader epoch, the batch as it would be without what
    the broker may set by its own clock)."""
    out = []
    pos = 0
    while pos + HEADER <= len(data):
        base, length, epoch, magic, crc = struct.unpack_from(">qiibI", data, pos)
        size = 12 + length
        if pos + size > len(data):
            break
        batch = bytearray(data[pos:pos + size])
        attributes, last_delta = struct.unpack_from(">hi", batch, 21)
        if crc32c(batch[21:]) != crc:
            raise ValueError(f"CRC of the batch at offset {base}")
        if magic != 2:
            raise ValueError(f"magic {magic} at offset {base}")
        struct.pack_into(">i", batch, 12, 0)
        if attributes & LOG_APPEND_TIME:
            struct.pack_into(">I", batch, 17, 0)
            struct.pack_into(">q", batch, 35, 0)
        out.append((base, base + last_delta, epoch, bytes(batch)))
        pos += size
    return out


class _In:
    def __init__(self, data):
        self.data, self.pos = data, 0

    def varint(self):
        shift = value = 0
        while True:
            b = self.data[self.pos]
            self.pos += 1
            value |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                return value >> 1 ^ -(value & 1)


def times(batch):
    """Offsets and timestamps of the records of a batch that split() gave."""
    base = struct.unpack_from(">q", batch)[0]
    attributes = struct.unpack_from(">h", batch, 21)[0]
    base_time = struct.unpack_from(">q", batch, 27)[0]
    count = struct.unpack_from(">i", batch, 57)[0]
    i = _In(gzip.decompress(batch[HEADER:]) if attributes & 7 == 1 else batch[HEADER:])
    out = []
    for _ in range(count):
        end = i.varint() + i.pos
        i.pos += 1
        time = base_time + i.varint()
        out.append((base + i.varint(), time))
        i.pos = end
    return out
