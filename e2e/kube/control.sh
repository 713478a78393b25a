#!/usr/bin/env bash
# control.sh: process 1 of the cluster's namespaces (see up.sh): the LAN that the nodes hang on, the control plane,
# DNS, and the nodes as its children. Nothing is restarted: a part that dies is a finding, its log is in $KC_RUN/log.
set -euo pipefail
since() { printf '%4ds %s\n' "$SECONDS" "$*"; }
hostname control
mount --make-rshared /
mount -t tmpfs -o mode=755 kc-run /run
mount -t tmpfs -o mode=755 kc-srv /srv
mkdir -p /run/kc/etcd /run/kc/lan /srv/shared
chmod 1777 /srv/shared
P=$KC_RUN/pki L=$KC_RUN/log
start() { local name=$1; shift; "$@" > "$L/$name.log" 2>&1 < /dev/null & echo $! > "/run/kc/$name.pid"; }

ip link set lo up
ip link add lan0 address 02:00:0a:0a:00:01 type bridge
ip addr add 10.10.0.1/24 dev lan0; ip link set lan0 up
echo 1 > /proc/sys/net/ipv4/ip_forward
# a service address is rewritten by node0's kube-proxy, also for callers here
ip route add 10.96.0.0/16 via 10.10.0.10
for n in $(seq 0 $((KC_NODES - 1))); do ip route add "10.244.$n.0/24" via "10.10.0.$((n + 10))"; done
printf 'nameserver 10.10.0.1\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' > /run/kc/resolv.conf
mount --bind /run/kc/resolv.conf /etc/resolv.conf

start etcd "$KC_BIN/etcd" --name e2e --data-dir /run/kc/etcd --unsafe-no-fsync \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster e2e=http://127.0.0.1:2380 --log-level warn
start kube-apiserver "$KC_BIN/kube-apiserver" \
  --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port=6443 --advertise-address=10.10.0.1 \
  --service-cluster-ip-range=10.96.0.0/16 --allow-privileged=true \
  --client-ca-file="$P/ca.crt" --tls-cert-file="$P/apiserver.crt" --tls-private-key-file="$P/apiserver.key" \
  --kubelet-certificate-authority="$P/ca.crt" --kubelet-client-certificate="$P/apiserver-kubelet.crt" \
  --kubelet-client-key="$P/apiserver-kubelet.key" --kubelet-preferred-address-types=InternalIP \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file="$P/sa.pub" --service-account-signing-key-file="$P/sa.key" \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --profiling=false
for n in $(seq 0 $((KC_NODES - 1))); do "$KC_HERE/node-up.sh" "$n"; done
ready() { curl -sf --cacert "$P/ca.crt" https://10.10.0.1:6443/readyz > /dev/null; }
for _ in $(seq 600); do ! ready || break; sleep 0.1; done
ready; since "apiserver ready"
touch /run/kc/lan/apiserver-ready
# The others need the roles that the apiserver makes before it is ready.
start kube-controller-manager "$KC_BIN/kube-controller-manager" \
  --kubeconfig="$P/kcm.kubeconfig" --authentication-kubeconfig="$P/kcm.kubeconfig" --authorization-kubeconfig="$P/kcm.kubeconfig" \
  --bind-address=127.0.0.1 --leader-elect=false --use-service-account-credentials=true --profiling=false \
  --service-account-private-key-file="$P/sa.key" --root-ca-file="$P/ca.crt" \
  --cluster-signing-cert-file="$P/ca.crt" --cluster-signing-key-file="$P/ca.key" \
  --pvclaimbinder-sync-period=1s --node-monitor-period=2s --node-monitor-grace-period=16s
start kube-scheduler "$KC_BIN/kube-scheduler" --kubeconfig="$P/scheduler.kubeconfig" \
  --authentication-kubeconfig="$P/scheduler.kubeconfig" --authorization-kubeconfig="$P/scheduler.kubeconfig" \
  --bind-address=127.0.0.1 --leader-elect=false --profiling=false
export KUBECONFIG=$P/admin.kubeconfig
"$KC_BIN/kubectl" apply -f "$KC_HERE/addons.yaml" > "$L/addons.log" 2>&1
cat > /run/kc/Corefile <<C
.:53 {
  bind 10.10.0.1
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $P/coredns.kubeconfig
    pods insecure
    ttl 1
  }
  template ANY ANY {
    rcode NXDOMAIN
  }
}
C
# Other names get NXDOMAIN at once: there is no uplink, and a client would retry a SERVFAIL for long.
start coredns "$KC_BIN/coredns" -conf /run/kc/Corefile
since "control plane started"
api() { curl -sf --cacert "$P/ca.crt" --cert "$P/admin.crt" --key "$P/admin.key" "https://10.10.0.1:6443$1"; }
all_up() {
  for n in $(seq 0 $((KC_NODES - 1))); do
    api "/api/v1/nodes/node$n" | tr -d ' \n' | grep -q '"type":"Ready","status":"True"' || return 1
  done
  api /api/v1/namespaces/default/serviceaccounts/default > /dev/null && curl -sf http://127.0.0.1:8181/ready > /dev/null
}
for _ in $(seq 600); do ! all_up || break; sleep 0.2; done
all_up; since "nodes, service account and DNS ready"
touch "$KC_RUN/ready"
while :; do wait -n || true; sleep 1; done
