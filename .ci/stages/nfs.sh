#!/usr/bin/env bash
# nfs: two real Linux NFS clients fight for partitions: the production storage engine alone, then whole brokers.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build nfs clients
build release kaas-fight kaas-fight-cached kaas-broker kaas-broker-cached kaas-rival kaas-history >&2
exec python3 "$ROOT/e2e/nfs/suite.py" "$@"
