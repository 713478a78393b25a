#!/usr/bin/env bash
# unit: every CUnit program under AddressSanitizer and UndefinedBehaviorSanitizer.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build lint
build asan >&2
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
out=$(ctest --test-dir "$ROOT/build/asan" -L "${KAAS_LABEL:-unit}" -j "$JOBS" --output-on-failure 2>&1) || true
grep -vE '^ *[0-9]+/[0-9]+ .*Passed|^ *Start ' <<< "$out" | tail -n 120 >&2
total=$(sed -nE 's/.*tests failed out of ([0-9]+).*/\1/p' <<< "$out")
bad=$(sed -nE 's/.*, ([0-9]+) tests failed out of.*/\1/p' <<< "$out")
PASSED=$((${total:-0} - ${bad:-0}))
FAILED=${bad:-1}
finish
