"""Apache Kafka on loopback, and a connection to either broker."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import codec
from kaaslib import runner, wire

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
JARS = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "kaas" / "peer"

PROPERTIES = """\
process.roles=broker,controller
node.id=0
controller.quorum.voters=0@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={dir}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.segment.delete.delay.ms=1000
log.initial.task.delay.ms=0
"""


class Kafka:
    """One broker that is its own controller."""

    def __init__(self, port, controller, config):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kaas-peer-"))
        self.port = port
        self.proc = None
        text = PROPERTIES.format(port=port, controller=controller, dir=self.dir)
        text += "".join(f"{k}={v}\n" for k, v in config.items())
        (self.dir / "server.properties").write_text(text)
        (self.dir / "log4j2.properties").write_text(
            "rootLogger.level=WARN\nrootLogger.appenderRefs=out\nrootLogger.appenderRef.out.ref=out\nappenders=out\n"
            "appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
            "appender.out.layout.pattern=[%d] %p %m (%c)%n\n")

    def _java(self, heap, *args):
        return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true",
                f"-Dlog4j2.configurationFile={self.dir}/log4j2.properties", "-cp", f"{JARS}/*", *args]

    def start(self, timeout_s=120):
        config = str(self.dir / "server.properties")
        if not (self.dir / "data").exists():
            subprocess.run(self._java("256M", "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", config), check=True,
                           stdout=subprocess.DEVNULL)
        self.log = open(self.dir / "log", "ab")
        self.proc = subprocess.Popen(self._java("512M", "kafka.Kafka", config), stdout=self.log, stderr=self.log)
        runner.eventually(lambda: self.proc.poll() is not None or self._serves(), timeout_s, 0.2, what="a ready Kafka")
        if self.proc.poll() is not None:
            raise RuntimeError(f"Kafka ended with {self.proc.returncode}: {(self.dir / 'log').read_text()[-3000:]}")
        return self

    def _serves(self):
        with Conn(self.address) as c:
            return [b["BrokerId"] for b in c.call("DescribeCluster", 0, {})["Brokers"]] == [0]

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def end(self):
        self.proc.send_signal(signal.SIGTERM)
        self.proc.wait(60)
        self.log.close()

    def close(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class Conn(wire.Link):
    def __init__(self, address, timeout_s=30):
        # From another address of the loopback: a connection to a port that nobody listens on yet cannot meet itself.
        super().__init__(address, timeout_s, ("127.0.0.2", 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, name, version, body):
        self.correlation += 1
        try:
            self.sock.sendall(codec.request(name, version, self.correlation, body))
        except (BrokenPipeError, ConnectionResetError):
            raise Closed() from None

    def receive(self, name, version):
        try:
            answer = self.frame()
        except ConnectionError:
            raise Closed() from None
        return codec.response(name, version, self.correlation, answer)

    def call(self, name, version, body):
        self.send(name, version, body)
        return self.receive(name, version)
