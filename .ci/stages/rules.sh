#!/usr/bin/env bash
# rules: each numbered rule (docs/requirements.md) is broken on purpose, and the unit test named for it must turn red.
# Arguments: only these faults or rules.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build rules
exec python3 -B "$ROOT/unit/mutants/mutate.py" "$@"
