#!/usr/bin/env bash
# fuzz: every libFuzzer target for a million executions, from its committed corpus on.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build lint
cd "$ROOT"
mapfile -t targets < <(sed -nE 's/^kaas_fuzz_test\((\w+) .*/\1/p' unit/fuzz/CMakeLists.txt)
build fuzz "${targets[@]/#/fuzz_}" >&2
for t in "${targets[@]}"; do
  check "$t" ctest --test-dir build/fuzz -R "^fuzz/$t\$" --output-on-failure --no-tests=error
done
finish
