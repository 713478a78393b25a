#!/usr/bin/env bash
# down.sh: ends the cluster of $KC_RUN. The end of process 1 of its PID namespace ends every process in it, and with
# them its mounts and interfaces; only cgroups are left to remove. Logs stay in $KC_RUN/log.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
[ -e "$KC_RUN/cgroup" ] || exit 0
if [ -e "$KC_RUN/holder.pid" ]; then
  holder=$(cat "$KC_RUN/holder.pid")
  # only if it still is ours, and no later process of the same number
  if grep -qa control.sh "/proc/$holder/cmdline" 2> /dev/null; then kill -KILL "$holder"; fi
  for _ in $(seq 100); do [ -d "/proc/$holder" ] || break; sleep 0.1; done
fi
name=$(cat "$KC_RUN/cgroup")
for c in /sys/fs/cgroup/*/"$name"; do
  for _ in $(seq 25); do
    [ -d "$c" ] || break
    find "$c" -depth -type d -exec rmdir {} + 2> /dev/null || sleep 0.1
  done
  [ ! -d "$c" ] || echo "down.sh: left over: $c" >&2
done
rm -f "$KC_CACHE/cgroups/$name" "$KC_RUN/holder.pid" "$KC_RUN/ready" "$KC_RUN/cgroup"
