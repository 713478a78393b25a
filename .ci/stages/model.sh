#!/usr/bin/env bash
# model: Spin searches the log's protocol (e2e/model) completely; every mutant of it must violate.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" model
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# search MODEL RUN_FLAGS -DFLAG...: builds and runs a search in a folder of its own; prints Spin's report.
search() {
  local model=$1 run=$2 dir
  shift 2
  dir=$(mktemp -d "$work/XXXX")
  cd "$dir"
  spin -a "$@" "$ROOT/e2e/model/$model"
  gcc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=6000 -o pan pan.c
  # shellcheck disable=SC2086
  ./pan $run
}
holds() {
  local out
  out=$(search "$@")
  grep -E 'states, stored|errors:' <<< "$out"
  grep -q 'errors: 0' <<< "$out" && ! grep -qiE 'max search depth too small|out of memory|search not completed' <<< "$out"
}
violates() {
  local out
  out=$(search "$@") || true
  grep 'errors:' <<< "$out"
  grep -q 'errors: 1' <<< "$out"
}

check "3 brokers, re-registration" holds chain.pml "-E -m1000000 -w25" -DNB=3 -DMAXG=2
check "2 partitions under one fence" holds chain.pml "-E -m1000000 -w25" -DNP=2 -DNB=2 -DMAXE=2 -DMAXB=1 -DMAXG=2
check "compaction of every older epoch" holds chain.pml "-E -m1000000 -w25" -DNB=3 -DMAXG=2 -DFULLC
if [ -n "${KAAS_SOAK-}" ]; then
  check "fenced at any time, 3 brokers" holds chain.pml "-E -m1000000 -w26" -DENV -DNB=3 -DMAXG=1
  check "fenced at any time, 2 brokers" holds chain.pml "-E -m1000000 -w26" -DENV -DNB=2 -DMAXG=2
fi
for m in M1 M2 M3 M4 M5 M6 M7 M8 M9 M9B M9D M10 M12 M13; do
  check "mutant $m violates" violates chain.pml "-E -m1000000 -w24" -DNB=3 -DMAXG=2 "-D$m"
done
finish
