# shellcheck shell=bash
# env.sh - what the rig's scripts share: where things are. Every variable may be set from outside, so that
# several clusters stand side by side, each with a KC_RUN of its own.
KC_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/kaas-kube
export KC_CACHE
export KC_BIN=${KC_BIN:-$KC_CACHE/bin}          # the programs, made by build.sh
export KC_IMAGES=${KC_IMAGES:-$KC_CACHE/images} # OCI archives that every node imports
export KC_RUN=${KC_RUN:-$KC_CACHE/run}          # state, logs, kubeconfig of one cluster
export KC_NODES=${KC_NODES:-1}
