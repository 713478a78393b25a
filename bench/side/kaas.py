"""kaas: brokers under `kaas-operator local`, the release build."""

import sys

from . import side

sys.path.insert(0, str(side.ROOT / "e2e"))
from kaaslib import local  # noqa: E402


class Kaas(side.Side):
    name = "kaas"

    def __init__(self, brokers=1, build="release"):
        super().__init__(brokers)
        self.cluster = local.LocalCluster(replicas=brokers, build=build, dir=self.dir)

    def exec(self):
        self.cluster.start()

    def start(self):
        took = super().start()
        self.cluster.wait_serving()
        return took

    @property
    def bootstrap(self):
        return self.cluster.bootstrap

    def pids(self):
        """Of the brokers, and of the operator: Kafka's controller counts, too."""
        o = self.cluster.operator
        return [*self.cluster.pids(), *([o.pid] if o and o.poll() is None else [])]

    def end(self):
        self.cluster.stop()

    def kill(self):
        self.cluster.close()
