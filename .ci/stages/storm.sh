#!/usr/bin/env bash
# storm: kill -9, SIGTERM, SIGSTOP and operator kills under producers; nothing acknowledged may be lost.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build clients
build release kaas-broker kaas-operator kaas-history >&2
exec python3 "$ROOT/e2e/storm/suite.py" "$@"
