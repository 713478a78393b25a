#!/usr/bin/env bash
# symbols.sh ARCHIVE: the policy library links nothing but string functions, sorting, and the pure
# part of the base library: no I/O, no clock, no randomness, no threads, no logging. Names what else it finds.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -f "$1" ]; then
  echo "usage: $0 libkaas_policy.a" >&2
  exit 2
fi

# Undefined somewhere in the archive and defined nowhere in it.
found=$(nm "$1" | awk '
  NF >= 2 && $(NF - 1) == "U" { wanted[$NF] = 1 }
  NF == 3 && $2 ~ /^[TDBRtdbrCWV]$/ { defined[$3] = 1 }
  END { for (s in wanted) if (!(s in defined)) print s }' | sort)

# Sanitizers, stack protection and coverage bring symbols of the compiler; they are not calls of ours.
allowed='^(mem(cpy|move|set|cmp|chr)|str(len|cmp|ncmp|chr|rchr|nlen)|qsort|bsearch|(s|vs)nprintf|kc_(zalloc|alloc|realloc|try_alloc|try_zalloc|try_realloc|free|assert_fail|fail|strerror)|kc_uuid_(eq|is_zero|hash)|kc_(hash64|hash64_mix|java_hash|coordinator_slot)|__(asan|ubsan|tsan|gcov|llvm|sanitizer|sancov)_.*|__stack_chk_fail|__(memcpy|memmove|memset|snprintf|strcpy)_chk|_GLOBAL_OFFSET_TABLE_)$'
bad=$(grep -Ev "$allowed" <<< "$found" || true)
if [ -n "$bad" ]; then
  while read -r symbol; do
    echo "$1: links $symbol, which the policy library may not use" >&2
  done <<< "$bad"
  exit 1
fi
