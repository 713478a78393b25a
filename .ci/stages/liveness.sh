#!/usr/bin/env bash
# liveness: how long dead, frozen and wedged brokers are waited for, that busy ones are not taken for such, and how soon 1,000 groups go on; with
# KAAS_SOAK=1 (./dev soak liveness) many times, with bounds, and busy for 30 minutes. Arguments: scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build
build release kaas-broker kaas-operator >&2
build asan kaas-broker kaas-operator >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for part in "moves killed" liveness busy coordinators; do
  say "$part"
  [ $# -gt 0 ] && names=("$@") || read -ra names <<< "${part#"${part%% *}"}"
  python3 "$ROOT/e2e/local/${part%% *}.py" "${names[@]}" 2>&1 | tee "$log" >&2 || true
  line=$(tail -n 1 "$log")
  [ $# -gt 0 ] && [ "$line" = "0 passed, 0 failed" ] || count "$line"
done
finish
