#!/usr/bin/env bash
# kube: a real Kubernetes of KC_NODES nodes (3), kaas installed by Helm, scenarios inside; then everything ends.
# kube.sh [NAME...]: only the scenarios whose name contains one of the words; kube.sh faults [NAME...]: those of faults.py, all without.
# Of the faults the short form runs one of each kind (six minutes); KAAS_SOAK=1: everything in full, the faults KAAS_ROUNDS times in a row (3).
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build clients kube
build release kaas-broker kaas-operator kaas-history >&2
work=$(mktemp -d "${TMPDIR:-/tmp}/kaas-kube-XXXX")
export KC_RUN=$work/run KC_NODES=${KC_NODES:-3}
FAULTS=(a_rolling_update_of_three the_operator_dies_during_a_takeover a_second_slice_by_hand a_node_is_cut_off a_broker_is_killed
  one_broker_is_terminated a_broker_is_frozen the_storage_of_one_broker)
trap '"$ROOT/e2e/kube/dev-kube.sh" down >&2 || true; rm -rf "$work"' EXIT

# suite FILE [NAME...]: runs a suite inside the cluster, shows it, adds its closing line to the sums.
suite() {
  "$ROOT/e2e/kube/kenv" python3 -B "$ROOT/e2e/kube/$1" "${@:2}" 2>&1 | tee "$work/out" >&2 || true
  count "$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$work/out" | tail -n 1)"
}

PYTHONPATH=$ROOT/e2e step "client programs" python3 -B -m kaaslib.clients
"$ROOT/e2e/kube/dev-kube.sh" up "$KC_NODES" >&2
if [ "${1-}" = faults ]; then
  KAAS_TIMED=1 suite faults.py "${@:2}"
else
  [ $# -gt 0 ] || suite api_suite.py
  suite suite.py "$@"
  if [ $# -eq 0 ] && [ -n "${KAAS_SOAK-}" ]; then
    KAAS_ROUNDS=${KAAS_ROUNDS:-3} suite faults.py
  elif [ $# -eq 0 ]; then
    suite faults.py "${FAULTS[@]}"
  fi
fi
finish
