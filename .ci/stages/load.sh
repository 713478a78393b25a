#!/usr/bin/env bash
# load: brokers under AddressSanitizer and under ThreadSanitizer, with the load of ./dev bench log: no report, no record lost. By hand
# (./dev soak load: a minute each): it takes the build tsan, which ./dev test has no other use for. Arguments: scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build lint
build release kaas-load >&2
for preset in asan tsan; do
  build "$preset" kaas-broker kaas-operator >&2
  say "$preset"
  log=$(mktemp)
  BUILD=$preset python3 -B "$ROOT/bench/side/loaded.py" "$@" 2>&1 | tee "$log" >&2 || true
  count "$(tail -n 1 "$log")"
  rm -f "$log"
done
finish
