"""Record batches v2, as kaaslib.batch makes them, taken apart again."""

import gzip
import struct
import uuid

from kaaslib.batch import crc32c
from kaaslib.wire import Buf

HEADER = 61
NO_ID = uuid.UUID(int=1)
LOG_APPEND_TIME = 8


def split(data):
    """Whole batches of a fetch answer, as (base offset, last offset, leader epoch, the time of append or None, the batch as it
    would be without what the broker may set by its own clock)."""
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
        stamp = None
        if attributes & LOG_APPEND_TIME:
            stamp, = struct.unpack_from(">q", batch, 35)
            struct.pack_into(">I", batch, 17, 0)
            struct.pack_into(">q", batch, 35, 0)
        out.append((base, base + last_delta, epoch, stamp, bytes(batch)))
        pos += size
    return out


def times(batch, stamp):
    """Offsets and timestamps of the records of a batch that split() gave, with its time of append."""
    base = struct.unpack_from(">q", batch)[0]
    attributes = struct.unpack_from(">h", batch, 21)[0]
    base_time = struct.unpack_from(">q", batch, 27)[0]
    count = struct.unpack_from(">i", batch, 57)[0]
    i = Buf(gzip.decompress(batch[HEADER:]) if attributes & 7 == 1 else batch[HEADER:])
    out = []
    for _ in range(count):
        end = i.varint() + i.pos
        i.pos += 1
        time = base_time + i.varint()
        out.append((base + i.varint(), time if stamp is None else stamp))
        i.pos = end
    return out
