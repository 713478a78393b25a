#!/usr/bin/env bash
# local: real clients and faults against three brokers under `kaas-operator local`.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build clients
build release kaas-broker kaas-operator >&2
exec python3 "$ROOT/e2e/local/suite.py" "$@"
