#!/usr/bin/env bash
# up.sh: boots a Kubernetes cluster and waits until its nodes are Ready.
#
# Everything runs in own namespaces (mount, network, PID, UTS, IPC) below one `unshare`: nothing reaches a network
# outside, no file is left outside of $KC_RUN, and the end of the holder (process 1 inside) ends everything.
# Environment: see env.sh. Needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
export KC_HERE=$here
[ ! -e "$KC_RUN/holder.pid" ] || { echo "up.sh: already up: $KC_RUN/holder.pid" >&2; exit 1; }
for p in kube kubelet; do [ -x "$KC_BIN/$p" ] || { echo "up.sh: no $KC_BIN/$p; run build.sh first" >&2; exit 1; }; done
ls "$KC_IMAGES"/*.tar > /dev/null 2>&1 || { echo "up.sh: no image archives in $KC_IMAGES; run images.sh first" >&2; exit 1; }
# The cgroups of this cluster bear its name: a kubelet ends what it does not know in its own, so no two clusters
# may share one.
export KC_CG
KC_CG=kc-$(printf %s "$KC_RUN" | cksum | cut -d' ' -f1)
owners=$KC_CACHE/cgroups
mkdir -p "$owners"
t0=$(date +%s%N)
since() { printf '%5d.%ds %s\n' $((($(date +%s%N) - t0) / 1000000000)) $((($(date +%s%N) - t0) / 100000000 % 10)) "$*"; }
failed() {
  echo "up.sh: the cluster did not come up" >&2
  tail -n 20 "$KC_RUN/log/control.log" >&2 || true
  "$here/down.sh" || true
}
trap failed ERR

# A rig that was killed leaves empty cgroups behind: those whose owner is gone are removed.
for c in /sys/fs/cgroup/*/kc-*/; do
  [ -d "$c" ] || continue
  owner=$(cat "$owners/$(basename "$c")" 2> /dev/null || echo none)
  [ -d "/proc/$owner" ] || find "$c" -depth -type d -exec rmdir {} + 2> /dev/null || true
done
echo $$ > "$owners/$KC_CG"

rm -rf "$KC_RUN"
mkdir -p "$KC_RUN/log"
echo "$KC_CG" > "$KC_RUN/cgroup"
nodes=$(seq 0 $((KC_NODES - 1)))
# kubelet demands its cgroup in every hierarchy of version 1
for c in /sys/fs/cgroup/*/; do
  c=${c%/}
  [ "${c##*/}" != unified ] || continue
  for d in "$c/$KC_CG" $(for n in $nodes; do echo "$c/$KC_CG/node$n"; done); do
    mkdir -p "$d"
    [ ! -e "$d/cpuset.cpus" ] || { cat "$c/cpuset.cpus" > "$d/cpuset.cpus"; cat "$c/cpuset.mems" > "$d/cpuset.mems"; }
  done
done
# shellcheck disable=SC2046 # one argument a node
"$here/certs.sh" "$KC_RUN/pki" $(for n in $nodes; do echo "node$n=10.10.0.$((n + 10))"; done)
setsid unshare --mount --net --pid --uts --ipc --fork --kill-child=KILL --mount-proc --propagation private \
  "$here/control.sh" > "$KC_RUN/log/control.log" 2>&1 < /dev/null &
unshare_pid=$!
holder=
for _ in $(seq 100); do
  holder=$(cat "/proc/$unshare_pid/task/$unshare_pid/children" 2> /dev/null || true)
  holder=${holder%% *}
  [ -z "$holder" ] || break
  sleep 0.05
done
[ -n "$holder" ]
echo "$holder" > "$KC_RUN/holder.pid"
echo "$holder" > "$owners/$KC_CG"
for _ in $(seq 1200); do
  [ ! -e "$KC_RUN/ready" ] || { since "cluster of $KC_NODES node(s) ready"; exit 0; }
  [ -d "/proc/$holder" ]
  sleep 0.1
done
false
