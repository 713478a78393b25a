#!/usr/bin/env bash
# liveness: how long dead, frozen and wedged brokers are waited for, that busy ones are not taken for such, and how soon 1,000 groups go on; with
# KAAS_SOAK=1 (./dev soak liveness) many times, with bounds, and busy for 30 minutes. Arguments: scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build
build release kaas-broker kaas-operator >&2
build asan kaas-broker kaas-operator >&2
for part in "moves killed" liveness busy coordinators; do
  [ $# -gt 0 ] && names=("$@") || read -ra names <<< "${part#"${part%% *}"}"
  local_suite "${part%% *}" "${names[@]}"
done
finish
