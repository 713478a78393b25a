#!/usr/bin/env bash
# diff: Apache Kafka and kaas are asked the same random things and must answer the same.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build java
here=$ROOT/e2e/diff
jars=$CACHE/peer
fetch() {
  mvn -B -q -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars" && cp "$here/pom.xml" "$jars/complete"
}
cmp -s "$here/pom.xml" "$jars/complete" || step "fetch Kafka 4.4.0" fetch
build release kaas-broker >&2
exec python3 -B "$here/suite.py" "$@"
