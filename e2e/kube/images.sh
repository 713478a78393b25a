#!/usr/bin/env bash
# images.sh: makes the image archive that the rig itself needs ($KC_IMAGES/pause.tar).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=env.sh
. "$here/env.sh"
mkdir -p "$KC_IMAGES"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/rootfs"
gcc -O2 -static -s -o "$work/rootfs/pause" "$here/pause.c"
"$here/../image/mkimage.py" --name localhost/pause:1 --root "$work/rootfs" --entrypoint /pause --out "$KC_IMAGES/pause.tar"
