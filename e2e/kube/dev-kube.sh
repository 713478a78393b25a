#!/usr/bin/env bash
# dev-kube.sh: a real Kubernetes on this machine with kaas installed by Helm (./dev kube). All of it may be repeated.
#
#   up [NODES]    builds what is missing, boots the cluster, installs or upgrades kaas, applies demo.yaml, waits for Ready
#   down          ends the cluster; the data go with it, the logs stay
#   kubectl …     kubectl in it; likewise helm …, run COMMAND…
#   logs          where the logs are
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$here/../.." && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
# shellcheck source=../../.ci/lib.sh
. "$ROOT/.ci/lib.sh"
kubectl() { "$here/kenv" kubectl "$@"; }
helm() { "$here/kenv" helm "$@" 2> >(grep -v 'found symbolic link in path' >&2); }

boot() { # NODES
  if [ -e "$KC_RUN/holder.pid" ] && kubectl get --raw /readyz > /dev/null 2>&1; then
    say "  Kubernetes is up already ($(kubectl get nodes --no-headers | wc -l) nodes)"
    return
  fi
  "$here/down.sh"
  step "boot Kubernetes, $1 node(s)" env KC_NODES="$1" "$here/up.sh"
}

# A node imports the archives when it boots (node.sh); a running one is told.
import() {
  local n
  for n in $(kubectl get nodes -o 'jsonpath={.items[*].metadata.name}'); do
    "$here/kenv" -n "${n#node}" ctr -a /run/kc/containerd.sock -n k8s.io images import "$KC_RUN/images/kaas.tar"
  done
}

install() { # IMAGE
  kubectl apply --server-side --force-conflicts -f "$ROOT/crds"
  kubectl wait --for=condition=established --timeout=30s crd/kaas{clusters,brokers,topics,users}.kaas.dev
  helm upgrade --install kaas "$ROOT/helm/kaas" --namespace kaas-system --create-namespace --skip-crds \
    --set image.repository="${1%:*}" --set image.tag="${1##*:}" --wait --timeout 120s
}

demo() {
  # brokers run as user 65532, and hostPath volumes keep the owner they have
  "$here/kenv" sh -c 'mkdir -p /srv/shared/demo && chmod 1777 /srv/shared/demo'

  for _ in 1 2 3 4 5; do # a new kind may be unknown for a second after it is established
    kubectl apply --server-side --force-conflicts -f "$here/demo.yaml" && return
    sleep 0.5
  done
  return 1
}

# Ready is true while brokers of an older image serve, so the rollout comes first.
ready() { # IMAGE
  kubectl wait --for=create statefulset/demo --timeout=60s
  kubectl wait --for=jsonpath='{.spec.template.spec.containers[0].image}'="$1" statefulset/demo --timeout=60s
  kubectl wait --for=condition=Progressing=False kaascluster/demo --timeout=300s
  kubectl wait --for=condition=Ready kaascluster/demo --timeout=180s
}

# After a failure: what people look at first.
explain() {
  kubectl get kaasclusters,kaasbrokers,pods -A -o wide >&2 || true
  kubectl get events -A --sort-by=.lastTimestamp 2> /dev/null | tail -n 15 >&2 || true
  kubectl logs -n kaas-system -l app.kubernetes.io/component=operator --tail=15 --prefix >&2 || true
  kubectl logs -l app.kubernetes.io/component=broker --tail=5 --prefix >&2 || true
}

up() {
  local nodes=${1:-$KC_NODES} image
  [ "$(id -u)" = 0 ] || { say "dev kube: needs root (namespaces, containers)"; exit 1; }
  build release kaas-broker kaas-operator
  step "build Kubernetes and Helm (9 minutes if new)" "$here/build.sh"
  [ -e "$KC_IMAGES/pause.tar" ] || step "image of the pause container" "$here/images.sh"
  boot "$nodes"
  image=$("$ROOT/e2e/image/build.sh" "$KC_RUN/images" "$ROOT/build/release")
  step "import $image" import
  step "install kaas" install "$image" || { explain; exit 1; }
  step "apply KaasCluster demo" demo
  step "wait until it is ready" ready "$image" || { explain; exit 1; }
  kubectl get kaasclusters,kaasbrokers
  cat << TXT

kubectl:   ./dev kube kubectl get kaasclusters,kaasbrokers,kaastopics
clients:   ./dev kube run kcat -L -b demo-bootstrap.default.svc.cluster.local:9092
logs:      $KC_RUN/log
end:       ./dev kube down
TXT
}

case ${1-} in
up) up "${2-}" ;;
down) "$here/down.sh" ;;
kubectl | helm) exec "$here/kenv" "$@" ;;
run) shift; exec "$here/kenv" "$@" ;;
logs) echo "$KC_RUN/log" ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
