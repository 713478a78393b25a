#!/usr/bin/env bash
# deps.sh [GROUP...]: installs what is missing, by group (build, lint, java, clients, disk, kube, model, rules, nfs). Says nothing when all is there.
ROOT=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=.ci/lib.sh
. "$ROOT/.ci/lib.sh"

declare -A PACKAGES=(
  [build]="gcc libc6-dev cmake ninja-build ccache pkg-config python3 protobuf-c-compiler libuv1-dev libcurl4-openssl-dev libjansson-dev libyaml-dev libprotobuf-c-dev libssl-dev libcunit1-dev zlib1g-dev liblz4-dev libzstd-dev libsnappy-dev libisal-dev"
  [lint]="clang clang-format libclang-rt-14-dev llvm shellcheck yamllint codespell"
  [java]="maven openjdk-17-jdk-headless"
  [clients]="kcat python3-venv"
  [disk]="e2fsprogs xfsprogs"
  [kube]="containerd runc containernetworking-plugins iptables iproute2 busybox-static curl openssl e2fsprogs"
  [model]="spin gcc"
  [rules]="patch"
  [nfs]="nfs-ganesha nfs-ganesha-vfs user-mode-linux kmod busybox-static iproute2"
)

missing=()
for group in "${@:-build}"; do
  for p in ${PACKAGES[$group]}; do
    dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'ok installed' || missing+=("$p")
  done
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  export DEBIAN_FRONTEND=noninteractive
  step "apt-get update" $sudo apt-get -o DPkg::Lock::Timeout=300 update -qq
  step "install ${#missing[@]} packages" $sudo apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}"
fi
