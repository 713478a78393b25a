#!/usr/bin/env bash
# nfs: two real Linux NFS clients fight for a partition with the production storage engine.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build nfs
build release kaas-fight kaas-fight-cached kaas-broker >&2
exec python3 "$ROOT/e2e/nfs/suite.py" "$@"
