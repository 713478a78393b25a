#!/usr/bin/env bash
# sweep: every allocation and every file-system call fails, once and for good, at every point: the storage's scenarios and
# every crash state, and a whole broker that starts and serves. Under AddressSanitizer; ./dev soak sweep is the complete form.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build
TESTS=(storage/sweep_fs storage/sweep_mem storage/crash sweep/requests sweep/start)
TARGETS=("${TESTS[@]/#/test_}")
build asan "${TARGETS[@]//\//_}" >&2
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
sweep() {
  timeout "${KAAS_SWEEP_S:-14400}" "$ROOT/build/asan/unit/${1%/*}/test_${1/\//_}"
}
for t in "${TESTS[@]}"; do
  check "$t" sweep "$t"
done
finish
