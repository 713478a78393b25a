#!/usr/bin/env bash
# node.sh N: process 1 of one node's namespaces: container runtime, kubelet, kube-proxy. To kill it is to pull the
# node's plug.
set -euo pipefail
n=$1 ip=10.10.0.$(($1 + 10)) name=node$1
P=$KC_RUN/pki L=$KC_RUN/log/$name
start() { local name=$1; shift; "$@" > "$L/$name.log" 2>&1 < /dev/null & echo $! > "/run/kc/$name.pid"; }
since() { printf '%4ds %s\n' "$SECONDS" "$*"; }
hostname "$name"
mount --make-rshared /
mkdir -p /run/kc/lan; mount --bind /run/kc/lan /mnt   # control.sh's "apiserver-ready" stays visible
mount -t tmpfs -o mode=755 "$name" /run
mkdir -p /run/kc/{containerd,containerd-state,cni,sysctl} /var/lib/kubelet /var/log/pods /var/log/containers /var/lib/cni
for d in /var/lib/kubelet /var/lib/cni; do mount -t tmpfs -o mode=755 kc "$d"; done
mkdir -p "$L/pods" "$L/containers"
mount --bind "$L/pods" /var/log/pods
mount --bind "$L/containers" /var/log/containers
# kubelet insists on three settings of the whole machine: let it see and
# write stand-ins, so that the machine keeps its own.
fake() { echo "$2" > "/run/kc/sysctl/${1##*/}"; mount --bind "/run/kc/sysctl/${1##*/}" "/proc/sys/$1"; }
fake vm/overcommit_memory 1; fake kernel/panic 10; fake kernel/panic_on_oops 1
: > /run/kc/resolv.empty

ip link set lo up
for _ in $(seq 200); do ! ip -o link show eth0 2>/dev/null | grep -q eth0 || break; sleep 0.02; done
ip addr add "$ip/24" dev eth0; ip link set eth0 up; ip route add default via 10.10.0.1
for m in $(seq 0 9); do [ "$m" = "$n" ] || ip route add "10.244.$m.0/24" via "10.10.0.$((m + 10))"; done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
# The pods' bridge is made here, with an address of its own, since the plugin's
# first calls, when concurrent, race to make it ("could not set bridge's mac").
ip link add cni0 address "02:00:0a:f4:0$n:01" type bridge
ip addr add "10.244.$n.1/24" dev cni0; ip link set cni0 up
cat > /run/kc/cni/10-bridge.conflist <<J
{"cniVersion": "0.4.0", "name": "e2e", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
cat > /run/kc/containerd.toml <<'T'
version = 2
root = "/run/kc/containerd"
state = "/run/kc/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "/run/kc/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/kc/cni"
T
start containerd containerd --config /run/kc/containerd.toml
# Faults follow one another here: a container that ended is started again after a second, not after pauses that double.
cat > /run/kc/kubelet.yaml <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ip
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $P/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $P/$name.crt
tlsPrivateKeyFile: $P/$name.key
containerRuntimeEndpoint: unix:///run/kc/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$KC_CG/$name
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
clusterDNS: [10.10.0.1]
clusterDomain: cluster.local
resolvConf: /run/kc/resolv.empty
podLogsDir: /var/log/pods
serializeImagePulls: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 200Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 12
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
Y
cat > /run/kc/proxy.yaml <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: 10.244.0.0/16
hostnameOverride: $name
clientConnection: {kubeconfig: $P/proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
Y
for _ in $(seq 200); do [ ! -S /run/kc/containerd.sock ] || ! ctr -a /run/kc/containerd.sock version > /dev/null 2>&1 || break; sleep 0.05; done
since "containerd answers"
for i in "$KC_IMAGES"/*.tar "$KC_RUN"/images/*.tar; do
  [ ! -e "$i" ] || ctr -a /run/kc/containerd.sock -n k8s.io images import "$i" > /dev/null
done
since "images imported"
for _ in $(seq 600); do [ ! -e /mnt/apiserver-ready ] || break; sleep 0.1; done
start kubelet "$KC_BIN/kubelet" --config=/run/kc/kubelet.yaml --kubeconfig="$P/$name.kubeconfig" \
  --hostname-override="$name" --node-ip="$ip" --root-dir=/var/lib/kubelet --v=2
start kube-proxy "$KC_BIN/kube-proxy" --config=/run/kc/proxy.yaml
since "kubelet started"
while :; do wait -n || true; sleep 1; done
