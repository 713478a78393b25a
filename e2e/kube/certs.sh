#!/usr/bin/env bash
# certs.sh DIR NODE_NAME=NODE_IP...: a throw-away CA, one certificate a component, one kubeconfig a client.
# P-256 keys, since they are quick to make; all in parallel.
set -euo pipefail
dir=$1
shift
api_ip=10.10.0.1 server=https://10.10.0.1:6443
mkdir -p "$dir"
cd "$dir"
umask 077
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
sign() { # NAME SUBJECT EXTENDED_KEY_USAGE [SUBJECT_ALT_NAME]
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" 2> /dev/null |
    openssl x509 -req -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 8)" -days 3650 -out "$1.crt" \
      -extfile <(printf 'extendedKeyUsage=%s\nkeyUsage=digitalSignature\n' "$3"; [ -z "${4-}" ] || printf 'subjectAltName=%s\n' "$4") 2> /dev/null
}
kubeconfig() { # NAME
  cat > "$1.kubeconfig" << Y
apiVersion: v1
kind: Config
current-context: e2e
clusters: [{name: e2e, cluster: {server: "$server", certificate-authority: "$dir/ca.crt"}}]
users: [{name: me, user: {client-certificate: "$dir/$1.crt", client-key: "$dir/$1.key"}}]
contexts: [{name: e2e, context: {cluster: e2e, user: me}}]
Y
}
client() { sign "$1" "$2" clientAuth && kubeconfig "$1"; } # NAME SUBJECT
jobs=()
spawn() { "$@" & jobs+=($!); }
account() { key sa && openssl pkey -in sa.key -pubout -out sa.pub; }
node() { sign "${1%=*}" "/O=system:nodes/CN=system:node:${1%=*}" serverAuth,clientAuth "DNS:${1%=*},IP:${1#*=}" && kubeconfig "${1%=*}"; }

key ca
openssl req -x509 -new -key ca.key -subj /CN=e2e-ca -days 3650 -out ca.crt 2> /dev/null
spawn sign apiserver /CN=kube-apiserver serverAuth \
  "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$api_ip,IP:10.96.0.1"
spawn sign apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
spawn client admin /O=system:masters/CN=admin
spawn client kcm /CN=system:kube-controller-manager
spawn client scheduler /CN=system:kube-scheduler
spawn client proxy /CN=system:kube-proxy
spawn client coredns /CN=system:coredns
for n in "$@"; do spawn node "$n"; done
spawn account
for j in "${jobs[@]}"; do wait "$j" || { echo "certs.sh: openssl failed" >&2; exit 1; }; done
