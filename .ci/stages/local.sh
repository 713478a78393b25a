#!/usr/bin/env bash
# local: real clients and faults against three brokers under `kaas-operator local`; drains of a short grace period; log compaction by Kafka's
# own tester; then one broker under ASan + UBSan, with clients, garbage and faults, and with all its data loops blocked; then three of those,
# one of them wedged and frozen; then rollouts from and to brokers of older images; then a volume that is full and has room again; then
# restarts of a whole cluster (long form: 5,000 partitions, 10 GB); then kills, planned moves and a rolling update under an acking stream
# (timed: stage takeover), brokers that are frozen, wedged or only busy, and coordinators of 1,000 groups (timed: stage liveness). Arguments:
# scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build clients disk
build release kaas-broker kaas-broker-hb0 kaas-broker-hb1 kaas-operator kaas-history kaas-synced >&2
build asan kaas-broker kaas-operator >&2
for part in suite drain compact sanitized wedge evict oldimage disk restart moves rollouts liveness busy coordinators; do
  [ "$part" = moves ] && unset KAAS_SOAK # the long forms from here on are the stages takeover and liveness
  local_suite "$part" "$@"
done
finish
