"""A few Kafka requests in raw bytes: what a scenario asks many times a second, and garbage.

Only what the scenarios need: Metadata 9, DescribeCluster 2, FindCoordinator 4, ApiVersions 3,
ListOffsets 1, CreateTopics 5, Produce 7."""

import socket
import struct


class Buf:
    def __init__(self, data):
        self.data, self.pos = data, 0

    def take(self, fmt):
        v = struct.unpack_from(">" + fmt, self.data, self.pos)
        self.pos += struct.calcsize(">" + fmt)
        return v[0]

    def uvarint(self):
        shift = value = 0
        while True:
            b = self.data[self.pos]
            self.pos += 1
            value |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                return value

    def varint(self):
        n = self.uvarint()
        return n >> 1 ^ -(n & 1)

    def cstr(self):
        n = self.uvarint() - 1
        if n < 0:
            return None
        self.pos += n
        return self.data[self.pos - n:self.pos].decode()

    def tags(self):
        for _ in range(self.uvarint()):
            self.uvarint()
            self.pos += self.uvarint()

    def carray(self, item):
        return [item() for _ in range(self.uvarint() - 1)]


def uvarint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def cstr(s):
    return uvarint(0) if s is None else uvarint(len(s.encode()) + 1) + s.encode()


def string(s):
    return struct.pack(">h", len(s)) + s.encode()


def produce_body(topic, records, acks=-1, timeout_ms=30000):
    """Of Produce 7; records: {partition: batches}."""
    parts = b"".join(struct.pack(">ii", p, len(batches)) + batches for p, batches in records.items())
    return struct.pack(">hhii", -1, acks, timeout_ms, 1) + string(topic) + struct.pack(">i", len(records)) + parts


def coordinators_body(groups, key_type=0):
    return bytes([key_type]) + uvarint(len(groups) + 1) + b"".join(cstr(g) for g in groups) + b"\0"


def coordinators_of(b):
    """{group: (error, broker id)} of an answer of FindCoordinator 4, behind its header."""
    b.take("i")

    def one():
        key, node = b.cstr(), b.take("i")
        b.cstr()
        b.take("i")
        error = b.take("h")
        b.cstr()
        b.tags()
        return key, (error, node)

    return dict(b.carray(one))


def agreed(c, brokers, groups, key_type=0):
    """{group: (0, broker id)} if all these brokers of the cluster say the same of the groups, without an error; else None."""
    views = []
    for n in brokers:
        with c.conn(n) as conn:
            views.append(conn.coordinators(groups, key_type))
    same = all(v == views[0] for v in views)
    return views[0] if same and all(error == 0 for error, _ in views[0].values()) else None


class Link:
    """A connection of frames, each behind its length."""

    def __init__(self, address, timeout_s=5, source=None):
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout_s, source)
        self.correlation = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def _exact(self, n):
        out = bytearray()
        while len(out) < n:
            got = self.sock.recv(n - len(out))
            if not got:
                raise ConnectionError("closed by the broker")
            out += got
        return bytes(out)

    def frame(self):
        """The next one that comes."""
        return self._exact(struct.unpack(">i", self._exact(4))[0])


class Conn(Link):
    """Requests one after another."""

    def call(self, key, version, body, flexible=True):
        self.correlation += 1
        head = struct.pack(">hhi", key, version, self.correlation) + string("e2e") + (b"\0" if flexible else b"")
        self.sock.sendall(struct.pack(">i", len(head + body)) + head + body)
        answer = Buf(self.frame())
        if answer.take("i") != self.correlation:
            raise ValueError("correlation id does not match")
        if flexible and key != 18:
            answer.tags()
        return answer

    def metadata(self, topics=None, auto_create=False):
        """{brokers: {id: "host:port"}, controller, topics: {name: {error, partitions: {n: {...}}}}}"""
        if topics is None:
            body = uvarint(0)
        else:
            body = uvarint(len(topics) + 1) + b"".join(cstr(t) + b"\0" for t in topics)
        b = self.call(3, 9, body + bytes([auto_create, 0, 0]) + b"\0")
        b.take("i")

        def broker():
            r = (b.take("i"), b.cstr(), b.take("i"))
            b.cstr()
            b.tags()
            return r

        def partition():
            p = {"error": b.take("h"), "index": b.take("i"), "leader": b.take("i"), "epoch": b.take("i"),
                 "replicas": b.carray(lambda: b.take("i")), "isr": b.carray(lambda: b.take("i")),
                 "offline": b.carray(lambda: b.take("i"))}
            b.tags()
            return p

        def topic():
            t = {"error": b.take("h"), "name": b.cstr(), "internal": bool(b.take("b")),
                 "partitions": {p["index"]: p for p in b.carray(partition)}}
            b.take("i")
            b.tags()
            return t

        brokers = {i: f"{h}:{p}" for i, h, p in b.carray(broker)}
        b.cstr()
        controller = b.take("i")
        return {"brokers": brokers, "controller": controller, "topics": {t["name"]: t for t in b.carray(topic)}}

    def describe_cluster(self, include_fenced=True):
        """{id: fenced} by DescribeCluster 2."""
        b = self.call(60, 2, bytes([0, 1, include_fenced]) + b"\0")
        b.take("i")
        error = b.take("h")
        if error:
            raise ValueError(f"DescribeCluster: error {error}")
        b.cstr()
        b.take("b")
        b.cstr()
        b.take("i")

        def broker():
            i = b.take("i")
            b.cstr()
            b.take("i")
            b.cstr()
            fenced = bool(b.take("b"))
            b.tags()
            return i, fenced

        return dict(b.carray(broker))

    def coordinators(self, groups, key_type=0):
        """{group: (error, broker id)} by FindCoordinator 4."""
        return coordinators_of(self.call(10, 4, coordinators_body(groups, key_type)))

    def create_topics(self, names, partitions=1, replication=1, timeout_ms=30000, configs=None):
        """{name: error} by CreateTopics 5."""
        body = uvarint(len(names) + 1)
        overrides = uvarint(len(configs or {}) + 1) + b"".join(cstr(k) + cstr(v) + b"\0" for k, v in (configs or {}).items())
        for n in names:
            body += cstr(n) + struct.pack(">ih", partitions, replication) + b"\x01" + overrides + b"\0"
        b = self.call(19, 5, body + struct.pack(">i?", timeout_ms, False) + b"\0")
        b.take("i")

        def config():
            b.cstr()
            b.cstr()
            b.take("b")
            b.take("b")
            b.take("b")
            b.tags()

        def one():
            name, error = b.cstr(), b.take("h")
            b.cstr()
            b.take("i")
            b.take("h")
            b.carray(config)
            b.tags()
            return name, error

        return dict(b.carray(one))

    def delete_topics(self, names, timeout_ms=30000):
        """{name: error} by DeleteTopics 4."""
        body = uvarint(len(names) + 1) + b"".join(cstr(n) for n in names) + struct.pack(">i", timeout_ms) + b"\0"
        b = self.call(20, 4, body)
        b.take("i")

        def one():
            r = b.cstr(), b.take("h")
            b.tags()
            return r

        return dict(b.carray(one))

    def api_versions(self):
        """{key: (min, max)} by ApiVersions 3."""
        b = self.call(18, 3, cstr("e2e") + cstr("1") + b"\0")
        if b.take("h"):
            raise ValueError("ApiVersions: error")

        def one():
            r = b.take("h"), (b.take("h"), b.take("h"))
            b.tags()
            return r

        return dict(b.carray(one))

    def produce(self, topic, records, timeout_ms=30000):
        """{partition: error} by Produce 7; records: {partition: batches}."""
        b = self.call(0, 7, produce_body(topic, records, timeout_ms=timeout_ms), flexible=False)
        b.take("i")
        n = b.take("h")
        b.pos += n
        return {one[0]: one[1] for one in ([b.take(f) for f in "ihqqq"] for _ in range(b.take("i")))}

    def end_offset(self, topic, partition):
        """High watermark by ListOffsets 1."""
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, -1)
        b = self.call(2, 1, body, flexible=False)
        b.take("i")
        n = b.take("h")
        b.pos += n
        b.take("i")
        b.take("i")
        error = b.take("h")
        b.take("q")
        if error:
            raise ValueError(f"ListOffsets: error {error}")
        return b.take("q")
