#!/usr/bin/env python3
"""Faults on a real Kubernetes under recorded load: clients of three libraries write down what they ask for and are told, and
kaas-history looks for records lost, doubled, reordered or collided; a watcher compares status with the truth all along
(kaaslib/recorded.py says what must hold of every fault). Every scenario leaves three of three brokers serving.

Runs inside the cluster's namespaces: kenv faults.py [NAME...]. KAAS_SOAK=1: full lengths; KAAS_ROUNDS: how often."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from kaaslib import kube, recorded, runner  # noqa: E402
# They register their scenarios in this order: a rollout waits for brokers that have crashed to be trusted again, so those that crash them
# most come right behind the rollouts, and long before those of the next round.
import fault_rollouts  # noqa: E402,F401
import fault_brokers  # noqa: E402,F401
import fault_control  # noqa: E402,F401
import fault_nodes  # noqa: E402,F401
import fault_volume  # noqa: E402,F401


def main():
    recorded.prepare()
    c = kube.KubeCluster()
    c.nodes = len(kube.get("nodes")["items"])
    c.folder = pathlib.Path(os.environ["KC_RUN"]) / "histories"
    c.settle()
    return runner.run(c, sys.argv[1:], on_failure=c.tail, rounds=int(os.environ.get("KAAS_ROUNDS", "1")))


if __name__ == "__main__":
    sys.exit(main())
