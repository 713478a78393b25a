#!/usr/bin/env bash
# tsan: what has threads, under ThreadSanitizer. By hand (./dev soak tsan): it takes a build of its own, and some ten minutes.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build lint
build tsan >&2
export TSAN_OPTIONS=exitcode=66:second_deadlock_stack=1
# The sweep on real files is the same code a thousand times over, and too slow here.
run_ctest tsan -R '^(storage|handlers|data|rt|groups|net)/' -E '^storage/sweep_fs$'
finish
