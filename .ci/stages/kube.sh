#!/usr/bin/env bash
# kube: a real Kubernetes of KC_NODES nodes (3), kaas installed by Helm, scenarios inside; then everything ends.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build clients kube
build release kaas-broker kaas-operator >&2
KC_RUN=$(mktemp -d "${TMPDIR:-/tmp}/kaas-kube-XXXX")/run
export KC_RUN KC_NODES=${KC_NODES:-3}
trap '"$ROOT/e2e/kube/dev-kube.sh" down >&2 || true; rm -rf "$(dirname "$KC_RUN")"' EXIT
PYTHONPATH=$ROOT/e2e step "client programs" python3 -m kaaslib.clients
"$ROOT/e2e/kube/dev-kube.sh" up "$KC_NODES" >&2
"$ROOT/e2e/kube/kenv" python3 "$ROOT/e2e/kube/suite.py" "$@"
