"""Kafka's messages as dictionaries, read and written by the schemas of proto/kafka.

A request is a dictionary of the fields that differ from their defaults, under Kafka's names; an answer has every field of
its version. Both brokers are asked and understood by this one codec, which knows nothing of either."""

import pathlib
import struct
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "proto" / "gen"))
from kw_parse import parse_file  # noqa: E402

SIMPLE = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d"}
ZERO = uuid.UUID(int=0)


class Malformed(Exception):
    pass


def _apis():
    out = {}
    for path in sorted((ROOT / "proto" / "kafka").glob("[0-9]*.kw")):
        f = parse_file(str(path))
        out[f.name] = f
    return out


APIS = _apis()


def _default(f):
    if f.array:
        return None if f.null_default else []
    if f.default == "null":
        return None
    if f.default is not None:
        return f.default
    if f.struct:
        return {}
    return {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": ZERO}.get(f.type, 0)


class Writer:
    def __init__(self):
        self.out = bytearray()

    def pack(self, fmt, *values):
        self.out += struct.pack(">" + fmt, *values)

    def uvarint(self, n):
        while n > 0x7F:
            self.out.append(n & 0x7F | 0x80)
            n >>= 7
        self.out.append(n)

    def length(self, n, fmt, compact):
        """n < 0: null."""
        if compact:
            self.uvarint(n + 1)
        else:
            self.pack(fmt, n)

    def struct(self, s, value, version, compact):
        unknown = set(value) - {f.name for f in s.fields}
        if unknown:
            raise Malformed(f"{s.name} has no {', '.join(sorted(unknown))}")
        tagged = []
        for f in s.wire_order():
            if version not in f.versions:
                continue
            v = value.get(f.name, _default(f))
            if f.tag < 0:
                self.field(f, v, version, compact)
            elif v != _default(f):
                inner = Writer()
                inner.field(f, v, version, compact)
                tagged.append((f.tag, inner.out))
        if compact:
            self.uvarint(len(tagged))
            for tag, data in tagged:
                self.uvarint(tag)
                self.uvarint(len(data))
                self.out += data

    def field(self, f, v, version, compact):
        if not f.array:
            self.one(f, v, version, compact)
            return
        self.length(-1 if v is None else len(v), "i", compact)
        for item in v or ():
            self.one(f, item, version, compact)

    def one(self, f, v, version, compact):
        if f.struct:
            if version in f.nullable and not f.array:
                self.pack("b", -1 if v is None else 1)
                if v is None:
                    return
            self.struct(f.struct, v, version, compact)
        elif f.type in SIMPLE:
            self.pack(SIMPLE[f.type], v)
        elif f.type == "uuid":
            self.out += v.bytes
        else:
            data = v.encode() if isinstance(v, str) else v
            self.length(-1 if v is None else len(data), "h" if f.type == "string" else "i", compact)
            self.out += data or b""


class Reader:
    def __init__(self, data):
        self.data, self.pos = data, 0

    def take(self, n):
        if n < 0 or self.pos + n > len(self.data):
            raise Malformed(f"{n} bytes at {self.pos} of {len(self.data)}")
        self.pos += n
        return self.data[self.pos - n:self.pos]

    def unpack(self, fmt):
        return struct.unpack(">" + fmt, self.take(struct.calcsize(">" + fmt)))[0]

    def uvarint(self):
        shift = value = 0
        while True:
            b = self.take(1)[0]
            value |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                return value

    def length(self, fmt, compact):
        return self.uvarint() - 1 if compact else self.unpack(fmt)

    def struct(self, s, version, compact):
        out = {f.name: _default(f) for f in s.fields if version in f.versions}
        for f in s.wire_order():
            if f.tag < 0 and version in f.versions:
                out[f.name] = self.field(f, version, compact)
        if compact:
            tags = {f.tag: f for f in s.fields if f.tag >= 0 and version in f.versions}
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                inner = Reader(self.take(size))
                if tag in tags:
                    out[tags[tag].name] = inner.field(tags[tag], version, compact)
        return out

    def field(self, f, version, compact):
        if not f.array:
            return self.one(f, version, compact)
        n = self.length("i", compact)
        return None if n < 0 else [self.one(f, version, compact) for _ in range(n)]

    def one(self, f, version, compact):
        if f.struct:
            if version in f.nullable and not f.array and self.unpack("b") < 0:
                return None
            return self.struct(f.struct, version, compact)
        if f.type in SIMPLE:
            return self.unpack(SIMPLE[f.type])
        if f.type == "uuid":
            return uuid.UUID(bytes=self.take(16))
        n = self.length("h" if f.type == "string" else "i", compact)
        if n < 0:
            return None
        data = self.take(n)
        return data.decode() if f.type == "string" else data


def request(name, version, correlation, body):
    api = APIS[name]
    message = api.messages[0]
    compact = version >= message.flexible
    w = Writer()
    w.pack("hhi", api.key, version, correlation)
    w.pack("h4s", 4, b"diff")
    if compact:
        w.uvarint(0)
    w.struct(message.root, body, version, compact)
    return struct.pack(">i", len(w.out)) + bytes(w.out)


def response(name, version, correlation, data):
    api = APIS[name]
    message = api.messages[1]
    compact = version >= message.flexible
    r = Reader(data)
    if r.unpack("i") != correlation:
        raise Malformed("the correlation id is not that of the request")
    if compact and api.key != 18:
        for _ in range(r.uvarint()):
            r.uvarint()
            r.take(r.uvarint())
    out = r.struct(message.root, version, compact)
    if r.pos != len(data):
        raise Malformed(f"{len(data) - r.pos} bytes behind the answer to {name} {version}")
    return out
