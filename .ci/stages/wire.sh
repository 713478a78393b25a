#!/usr/bin/env bash
# wire: the schemas of proto/kafka against the specifications inside Kafka's jars, and random messages of
# the codec against Kafka's own classes.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"
"$ROOT/.ci/deps.sh" build java
here=$ROOT/e2e/schema_diff
jars=$CACHE/schema_diff
seed=${KAAS_SEED:-$(date +%s)}

fetch() {
  mvn -B -q -f "$here/pom.xml" dependency:copy -DoutputDirectory="$jars" && cp "$here/pom.xml" "$jars/complete"
}
cmp -s "$here/pom.xml" "$jars/complete" || step "fetch Kafka's jars" fetch

build dev wire_samples
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# counted COMMAND...: shows its output, adds its closing line to the sums.
counted() {
  "$@" > "$out/log" 2>&1 || true
  cat "$out/log" >&2
  count "$(tail -n 1 "$out/log")"
}

say "schemas against 4.4.0 and 3.7.2"
counted python3 -B "$here/schema_diff.py" --schemas "$ROOT/proto/kafka" "$jars/kafka-clients-4.4.0.jar" \
  "$jars/kafka-group-coordinator-4.4.0.jar" "$jars/kafka-transaction-coordinator-4.4.0.jar" \
  "$jars/kafka-clients-3.7.2.jar" "$jars/kafka-group-coordinator-3.7.2.jar"
"$ROOT/build/dev/unit/wire/wire_samples" "$seed" 25 > "$out/samples"
for v in 4.4.0 3.7.2; do
  say "random messages read and written by $v (KAAS_SEED=$seed replays)"
  counted java -cp "$jars/kafka-clients-$v.jar:$jars/slf4j-api-1.7.36.jar:$jars/slf4j-nop-1.7.36.jar" \
    "$here/PeerCheck.java" < "$out/samples"
done
finish
