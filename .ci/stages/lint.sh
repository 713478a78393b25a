#!/usr/bin/env bash
# lint: form, layers, sizes, purity, scripts, schemas. No service is started.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build lint
cd "$ROOT"
mapfile -t c_files < <(git ls-files '*.c' '*.h')
mapfile -t sh_files < <(git ls-files | xargs -r grep -d skip -lE '^#!.*\b(ba)?sh$|^# shellcheck shell=bash' --)
mapfile -t text_files < <(git ls-files ':!*.sum' ':!*lock*' ':!unit/fuzz/corpus/*')
mapfile -t py_dirs < <(git ls-files '*.py' | xargs -rn1 dirname | sort -u)
mapfile -t yaml_files < <(git ls-files '*.yaml' '*.yml' ':!helm/*/templates/*')

no_symbols() { build dev kaas_policy && .ci/symbols.sh build/dev/common/policy/libkaas_policy.a; }
banned() { # functions that docs/STYLE.md bans
  ! grep -nE '\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|gets|uv_queue_work|uv_getaddrinfo|uv_fs_(open|read|write|stat|scandir|close))[[:space:]]*\(' "${c_files[@]}"
}
no_paths() { ! git grep -nIE '(^|[^a-zA-Z"}])(/(work|farm|root)/|/home/[a-z])' -- . ':!*.lock' ':!go.sum' ':!.ci/stages/lint.sh'; }

check "clang-format" clang-format --dry-run --Werror "${c_files[@]}"
check "layers" python3 .ci/layers.py
check "sizes" python3 .ci/sizes.py
check "banned functions" banned
check "rules have tests" python3 unit/mutants/table.py
check "policy is pure" no_symbols
check "shellcheck" shellcheck -x -S warning "${sh_files[@]}"
check "yamllint" yamllint -s -d '{extends: relaxed, rules: {line-length: {max: 180}}}' "${yaml_files[@]}"
check "codespell" codespell -q 3 --ignore-words-list=crate,fpr,ser,te,ot,nd,cas,afterall,inout,hel,ans,inflight "${text_files[@]}"
check "python" python3 -m compileall -q "${py_dirs[@]}"
check "no paths of one machine" no_paths
finish
