"""Hostile and broken input for a Kafka port: each case must cost only its own connection."""

import os
import socket
import struct

CASES = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls hello": bytes.fromhex("16030100c8010000c40303") + os.urandom(192),
    "negative length": struct.pack(">i", -1),
    "smallest length": struct.pack(">i", -2147483648),
    "huge length": struct.pack(">i", 2147483647) + b"x" * 64,
    "zero length": struct.pack(">i", 0),
    "short header": struct.pack(">ihh", 4, 3, 9),
    "unknown key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "negative key": struct.pack(">ihhih", 10, -1, 0, 1, -1),
    "unsupported version": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "client id beyond the frame": struct.pack(">ihhih", 10, 3, 1, 1, 32000),
    "array count beyond the frame": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0x7FFFFFFF),
    "negative array count": struct.pack(">ihhihi", 14, 3, 1, 1, -1, -7),
    "endless varint": struct.pack(">ihhih", 10 + 21, 3, 9, 1, -1) + b"\x00" + b"\xff" * 20,
    "produce with rotten records": struct.pack(">ihhihhhii", 58, 0, 3, 1, -1, -1, 1, 1000, 1) + struct.pack(">h", 1) + b"t"
    + struct.pack(">iii", 1, 0, 16) + os.urandom(17),
    "noise": os.urandom(4096),
}


def _connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def throw(address):
    """Sends every case on a connection of its own and waits until the broker closes or answers it."""
    ended = {}
    for name, data in CASES.items():
        with _connect(address) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(10)
            try:
                while s.recv(4096):
                    pass
                ended[name] = "closed"
            except ConnectionResetError:
                ended[name] = "reset"
            except socket.timeout:
                ended[name] = "still open"
    return ended


def half_open(address, n=1000):
    """n connections that sent half a frame and keep silent."""
    conns = []
    for i in range(n):
        s = _connect(address)
        s.sendall(struct.pack(">i", 1000) + b"\0" * (i % 4))
        conns.append(s)
    return conns
