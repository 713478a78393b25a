"""Apache Kafka 4.4.0 from its jars: brokers that are controllers, too, with the flags of its own start script."""

import os
import subprocess
import sys

from . import machine, side

sys.path.insert(0, str(side.ROOT / "e2e"))
from kaaslib import local  # noqa: E402

JARS = machine.CACHE / "peer"  # .ci/lib.sh, kafka_jars
CLUSTER = "4L6g3nShT-eMCtK--X86sw"

PROPERTIES = """\
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={dir}/data
offsets.topic.replication.factor={rf}
transaction.state.log.replication.factor={rf}
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor={rf}
share.coordinator.state.topic.min.isr=1
default.replication.factor={rf}
min.insync.replicas={isr}
group.initial.rebalance.delay.ms=0
# not its default, a minute: the disk is free again soon after a topic is deleted
log.segment.delete.delay.ms=1000
"""
LOG4J = """\
rootLogger.level=WARN
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=out
appenders=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""
# bin/kafka-server-start.sh: KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS
FLAGS = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
         "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"]


class Kafka(side.Side):
    name = "kafka"

    def __init__(self, brokers=1, config=None):
        super().__init__(brokers)
        self.config = config or {}
        self.base = None
        self.procs = []

    def _prepare(self):
        """Configuration and formatted folders, on ports that are free now."""
        self.base = local.free_base_port()
        rf = min(self.brokers, 3)
        voters = ",".join(f"{i}@127.0.0.1:{self.base + 100 + i}" for i in range(self.brokers))
        (self.dir / "log4j2.properties").write_text(LOG4J)
        for i in range(self.brokers):
            d = self.dir / str(i)
            d.mkdir()
            text = PROPERTIES.format(id=i, voters=voters, port=self.base + i, controller=self.base + 100 + i, dir=d, rf=rf,
                                     isr=2 if rf == 3 else 1)
            (d / "server.properties").write_text(text + "".join(f"{k}={v}\n" for k, v in self.config.items()))
            subprocess.run(self._java(["-Xmx256M"], "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c",
                                      str(d / "server.properties")), check=True, stdout=subprocess.DEVNULL)

    def _java(self, flags, *args):
        return ["java", *flags, f"-Dlog4j2.configurationFile={self.dir}/log4j2.properties", "-cp", f"{JARS}/*", *args]

    def start(self):
        if self.base is None:
            self._prepare()  # is not part of what a start takes
        return super().start()

    def exec(self):
        self.procs = []
        for i in range(self.brokers):
            d = self.dir / str(i)
            with open(d / "server.log", "ab") as log:
                self.procs.append(subprocess.Popen(self._java(FLAGS, "kafka.Kafka", str(d / "server.properties")), stdout=log, stderr=log,
                                                   stdin=subprocess.DEVNULL, env={**os.environ, "LANG": "C.UTF-8"}))

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{self.base + i}" for i in range(self.brokers))

    def pids(self):
        return [p.pid for p in self.procs if p.poll() is None]

    def end(self):
        for p in self.procs:
            p.terminate()
        for p in self.procs:
            try:
                p.wait(60)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()

    def kill(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()
            p.wait()
