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


# later NAME COMMAND...: starts a search as soon as one of a few cores is free; report_all counts the results.
NAMES=()
PIDS=()
CORES=$((JOBS < 4 ? JOBS : 4)) # a search takes up to 1.5 GB
later() {
  local n=${#NAMES[@]} t0
  NAMES+=("$1")
  shift
  while [ "$(jobs -rp | wc -l)" -ge "$CORES" ]; do
    wait -n || true # its result is in its file
  done
  t0=$(date +%s)
  { "$@" > "$work/$n.out" 2>&1 && echo 0 > "$work/$n.rc" || echo 1 > "$work/$n.rc"
    echo "$(($(date +%s) - t0)) s of its own" >> "$work/$n.out"; } &
  PIDS+=($!)
}
result() {
  cat "$work/$1.out"
  return "$(cat "$work/$1.rc")"
}
report_all() {
  local n
  for n in "${!NAMES[@]}"; do
    wait "${PIDS[$n]}" || true
    check "${NAMES[$n]}" result "$n"
  done
}
full() { later "$1" holds "$2" "-E -m1000000 -w25" "${@:3}"; }
mutants() {
  local model=$1 flags=$2 m
  shift 2
  for m in "$@"; do
    # shellcheck disable=SC2086
    later "${model%.pml}: mutant $m violates" violates "$model" "-E -m1000000 -w24" $flags "-D$m"
  done
}
TWO_PARTS="-DNP=2 -DMAXE=2 -DMAXB=1"
ONE_INC="-DNOC -DMAXG=1"

# shellcheck disable=SC2086
{
  full "2 partitions, 3 brokers" chain.pml $TWO_PARTS -DNB=3 $ONE_INC
  full "2 partitions under one fence" chain.pml $TWO_PARTS -DNB=2 -DMAXG=2
  full "compaction of every older epoch" chain.pml -DNB=3 -DMAXG=2 -DFULLC
  full "3 brokers, re-registration" chain.pml -DNB=3 -DMAXG=2
  full "reads, 2 batches an epoch" chain.pml -DREADS $ONE_INC -DNB=2
  full "reads, 3 brokers" chain.pml -DREADS $ONE_INC -DMAXB=1
  full "claim files are removed" chain.pml -DCLAIMF $ONE_INC -DMAXE=2 -DMAXB=1
  full "planned and cancelled moves" move.pml
  full "topic deletion, 2 brokers" delete.pml -DNB=2
  full "topic deletion, 3 brokers" delete.pml -DNB=3 -DMAXC=2
  full "links without a reply" link.pml
  full "links without a reply, 3 records" link.pml -DNA=3
  full "server crash" crash.pml
  full "server crash, a window of 2" crash.pml -DMAXB=3 -DW=2 -DNB=2
  full "two server crashes" crash.pml -DCRASHES=2
  full "crash of a machine with a disk" crash.pml -DLOCAL
  full "crash, nobody told past the acks" crash.pml -DC1N
  full "journal, 3 brokers" journal.pml -DNP=1 -DMAXE=3
  full "journal, 2 partitions" journal.pml -DSPLIT -DMAXB=1
  full "journal, files synced directly, too" journal.pml -DNP=1 -DDIRECT
  full "journals of a dead broker go" journal.pml -DNP=1 -DSWEEP
  full "journal, two server crashes" journal.pml -DNP=1 -DCRASHES=2
  full "journal, claimants have their own" journal.pml -DNP=1 -DNO=2 -DMAXB=1
  full "COMPACT, TRIM, links without a reply" maint.pml
  if [ -n "${KAAS_SOAK-}" ]; then
    full "journal, 3 epochs, files synced directly" journal.pml -DNP=1 -DMAXE=3 -DDIRECT
    full "journals of a dead broker go, 3 epochs" journal.pml -DNP=1 -DMAXE=3 -DSWEEP
    full "2 partitions, 3 brokers, COMPACT" chain.pml $TWO_PARTS -DNB=3 -DMAXG=1
    full "topic deletion, 3 brokers, 3 claims" delete.pml -DNB=3
    full "fenced at any time, 3 brokers" chain.pml -DENV -DNB=3 -DMAXG=1
    full "fenced at any time, 2 brokers" chain.pml -DENV -DNB=2 -DMAXG=2
    full "claim files, 3 epochs" chain.pml -DCLAIMF $ONE_INC -DNB=2
    full "topic deletion and adoption" delete.pml -DNB=2 -DADOPT
  fi
}
mutants chain.pml "-DNB=3 -DMAXG=2" M1 M2 M3 M4 M5 M6 M7 M8 M9 M9B M9D M10 M12 M13
mutants chain.pml "-DREADS $ONE_INC -DNB=2" R1 R2 R3 R4
mutants chain.pml "-DCLAIMF $ONE_INC -DMAXE=2 -DMAXB=1" F2 F3
mutants move.pml "" V1 V2 V3 V4 V5
mutants delete.pml "-DNB=2" D1 D2 D3 D4 D5 D6 D7
mutants link.pml "" L1 L2 L3 L4 L5
mutants crash.pml "" SYNC C1 C1D C1R C3 C4
mutants crash.pml "-DCRASHES=2" SYNC2
mutants journal.pml "-DNP=1" J1 J2 J3 J4 J5 J6 J6B J7 J7B J8 J9 J9B J14 J15
mutants journal.pml "-DNP=1 -DSWEEP" J10
mutants journal.pml "-DNP=1 -DMAXE=3" J12
mutants journal.pml "-DSPLIT -DMAXB=1" J3B J11
mutants maint.pml "" K1 K2 K3 K4 K5 K6 K7 K8 T1 T2 T3 T4
report_all
finish
