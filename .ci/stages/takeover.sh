#!/usr/bin/env bash
# takeover: how long partitions are without an acking leader when it is killed and when they are moved; with KAAS_SOAK=1 (./dev soak
# takeover) 1,000 of them, 20 kills, and bounds. Arguments: scenarios.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build
build release kaas-broker kaas-operator >&2
exec python3 "$ROOT/e2e/local/moves.py" "$@"
