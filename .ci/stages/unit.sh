#!/usr/bin/env bash
# unit: every CUnit program under AddressSanitizer and UndefinedBehaviorSanitizer.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build lint
build asan >&2
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
run_ctest asan -L "${KAAS_LABEL:-unit}"
finish
