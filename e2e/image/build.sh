#!/usr/bin/env bash
# build.sh OUT_DIR [BUILD_DIR]: the kaas image as an OCI archive OUT_DIR/kaas.tar, made without a container daemon: the
# two programs of BUILD_DIR (build/release), the shared libraries they name, and nothing else. The same content as
# the Containerfile's, but for the base system around it. Prints the image's name; its tag is the content's hash.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1 build=${2:-$here/../../build/release}
for p in kaas-broker kaas-operator; do [ -x "$build/bin/$p" ] || { echo "build.sh: no $build/bin/$p; build it first" >&2; exit 1; }; done
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
r=$work/root
mkdir -p "$r"/{etc,data,tmp,usr/bin,var/run}
chmod 1777 "$r/tmp"
for p in kaas-broker kaas-operator; do objcopy --strip-debug "$build/bin/$p" "$r/usr/bin/$p"; done
chmod 755 "$r"/usr/bin/*
printf 'root:x:0:0:root:/:/sbin/nologin\nkaas:x:65532:65532::/:/sbin/nologin\n' > "$r/etc/passwd"
printf 'root:x:0:\nkaas:x:65532:\n' > "$r/etc/group"
printf 'hosts: files dns\n' > "$r/etc/nsswitch.conf"
# Every library at its own path, the loader included; glibc 2.34 and newer look up hosts by themselves.
{ ldd "$r"/usr/bin/* | grep -oE '/[^ ]+\.so[^ ]*' | sort -u; } | while read -r so; do
  mkdir -p "$r$(dirname "$so")"
  cp -L "$so" "$r$so"
done
tag=$(cd "$r" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-12)
name=localhost/kaas:$tag
if [ "$(cat "$out/kaas.name" 2> /dev/null)" != "$name" ] || [ ! -e "$out/kaas.tar" ]; then
  "$here/mkimage.py" --name "$name" --root "$r" --out "$out/kaas.tar" --user 65532:65532 --cmd=kaas-broker --cmd=--help \
    --label org.opencontainers.image.title=kaas > /dev/null
  echo "$name" > "$out/kaas.name"
fi
echo "$name"
