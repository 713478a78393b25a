# shellcheck shell=bash
# lib.sh - what the stages of ./dev share. Sourced; expects $ROOT.
set -euo pipefail
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/kaas
JOBS=${JOBS:-$(nproc)}
export CACHE JOBS CCACHE_DIR=${CCACHE_DIR:-$CACHE/ccache}

say() { printf '%s\n' "$*" >&2; }

# step NAME COMMAND...: runs a long step, says how long it took; its output only when it fails.
step() {
  local name=$1 t0 log rc=0
  shift
  t0=$(date +%s)
  log=$(mktemp)
  printf '  %-44s ' "$name" >&2
  "$@" > "$log" 2>&1 || rc=$?
  printf '%4ds %s\n' "$(($(date +%s) - t0))" "$([ $rc = 0 ] && echo ok || echo FAILED)" >&2
  [ $rc = 0 ] || tail -n 60 "$log" >&2
  rm -f "$log"
  return $rc
}

PASSED=0
FAILED=0
# check NAME COMMAND...: a step that counts as one test.
check() {
  if step "$@"; then PASSED=$((PASSED + 1)); else FAILED=$((FAILED + 1)); fi
}
# count LINE: adds a line "N passed, N failed" to the sums.
count() {
  local p f
  p=$(sed -nE 's/.*\b([0-9]+) passed, ([0-9]+) failed.*/\1/p' <<< "$1")
  f=$(sed -nE 's/.*\b([0-9]+) passed, ([0-9]+) failed.*/\2/p' <<< "$1")
  PASSED=$((PASSED + ${p:-0}))
  FAILED=$((FAILED + ${f:-1}))
}
# local_suite NAME [SCENARIO...]: runs e2e/local/NAME.py, whose closing line counts.
local_suite() {
  local log
  say "$1"
  log=$(mktemp)
  python3 "$ROOT/e2e/local/$1.py" "${@:2}" 2>&1 | tee "$log" >&2 || true
  count "$(tail -n 1 "$log")"
  rm -f "$log"
}
# finish: the closing line of a stage.
finish() {
  echo "$PASSED passed, $FAILED failed"
  [ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
}

# build PRESET [TARGET...]: configures once, builds.
build() {
  local preset=$1
  shift
  [ -f "$ROOT/build/$preset/build.ninja" ] || step "configure $preset" cmake -S "$ROOT" --preset "$preset"
  step "build $preset" cmake --build "$ROOT/build/$preset" -j "$JOBS" ${1:+--target "$@"}
}

# kafka_jars: Apache Kafka 4.4.0 with what it needs, in $CACHE/peer, unless it is there.
kafka_jars() {
  local pom=$ROOT/e2e/diff/pom.xml
  cmp -s "$pom" "$CACHE/peer/complete" && return
  step "fetch Kafka 4.4.0" mvn -B -q -f "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$CACHE/peer" &&
    cp "$pom" "$CACHE/peer/complete"
}

# run_ctest PRESET ARGS...: those tests of a build; sets the sums. Says only what failed.
run_ctest() {
  local out total bad
  out=$(ctest --test-dir "$ROOT/build/$1" "${@:2}" -j "$JOBS" --output-on-failure 2>&1) || true
  grep -vE '^ *[0-9]+/[0-9]+ .*Passed|^ *Start ' <<< "$out" | tail -n 120 >&2
  total=$(sed -nE 's/.*tests failed out of ([0-9]+).*/\1/p' <<< "$out")
  bad=$(sed -nE 's/.*, ([0-9]+) tests failed out of.*/\1/p' <<< "$out")
  PASSED=$((${total:-0} - ${bad:-0}))
  FAILED=${bad:-1}
}
