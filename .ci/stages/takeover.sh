#!/usr/bin/env bash
# takeover: how long partitions are without an acking leader when it is killed, when they are moved, and in rolling updates; with KAAS_SOAK=1
# (./dev soak takeover) 1,000 of them, 20 kills, 20 rolling updates, and bounds. Arguments: scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build clients
build release kaas-broker kaas-operator kaas-history >&2
for part in moves rollouts; do
  local_suite "$part" "$@"
done
finish
