#!/usr/bin/env bash
# sim: the decisions on virtual time (ctest label sim). KAAS_SOAK runs more seeds.
KAAS_LABEL=sim exec "$(dirname "$0")/unit.sh"
