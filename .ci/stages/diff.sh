#!/usr/bin/env bash
# diff: Apache Kafka and kaas are asked the same random things and must answer the same.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build java
kafka_jars
build release kaas-broker >&2
exec python3 -B "$ROOT/e2e/diff/suite.py" "$@"
