#!/usr/bin/env bash
# bench: a few seconds of ./dev bench log: kaas and Apache Kafka both serve produce, fetch and end to end, lose nothing, and the ratios are
# printed. No time is asserted. Arguments: scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build java
kafka_jars
build release kaas-broker kaas-operator kaas-load kaas-limits >&2
exec python3 -B "$ROOT/bench/side/smoke.py" "$@"
