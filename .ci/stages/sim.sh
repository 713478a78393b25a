#!/usr/bin/env bash
# sim: the decisions and the storage engine on virtual time (ctest label sim, with sanitizers), then the storage
# engine without them: many seeds, and every mutant found within a minute. KAAS_SOAK: 100,000 seeds.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"

count "$(KAAS_LABEL=sim "$ROOT/.ci/stages/unit.sh" | tail -n 1)"
build sim kaas-sim
sim=$ROOT/build/sim/bin/kaas-sim
# shown NAME COMMAND...: a step that counts as one test and whose output is wanted.
shown() {
  say "  $1:"
  if "${@:2}" >&2; then PASSED=$((PASSED + 1)); else FAILED=$((FAILED + 1)); fi
}
shown "mutants" "$sim" --flaws
if [ -n "${KAAS_SOAK-}" ]; then
  shown "100,000 seeds" "$sim" --seeds 100000 --from "${KAAS_SEED:-1}" --jobs "$JOBS"
else
  shown "300 seeds" "$sim" --seeds 300 --from "${KAAS_SEED:-$(date +%s)}" --jobs "$JOBS"
fi
finish
