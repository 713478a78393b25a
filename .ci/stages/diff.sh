#!/usr/bin/env bash
# diff: Apache Kafka and kaas are asked the same random things and must answer the same; then requests of fetch sessions.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build java
kafka_jars
build release kaas-broker >&2
for part in suite sessions; do
  log=$(mktemp)
  python3 -B "$ROOT/e2e/diff/$part.py" "$@" 2>&1 | tee "$log" >&2 || true
  count "$(tail -n 1 "$log")"
  rm -f "$log"
done
finish
