#!/usr/bin/env python3
"""Packs a root file system into an OCI image archive without any container tool. Equal input, equal bytes.

mkimage.py --name localhost/kaas:dev --root DIR --out X.tar [--entrypoint A --entrypoint B] [--user 65532:65532] ...
One uncompressed layer, so that its digest is also its diff id. Prints the manifest's digest."""

import argparse
import hashlib
import io
import json
import os
import platform
import tarfile

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}


def layer_of(root):
    """The layer's bytes: sorted names, owner 0, time 0."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        names = []
        for folder, dirs, files in os.walk(root):
            names += [os.path.relpath(os.path.join(folder, n), root) for n in dirs + files]
        for name in sorted(names):
            info = tar.gettarinfo(os.path.join(root, name), arcname=name)
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            if info.isreg():
                with open(os.path.join(root, name), "rb") as f:
                    tar.addfile(info, f)
            else:
                tar.addfile(info)
    return out.getvalue()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--name", required=True, help="repository:tag")
    p.add_argument("--root", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--entrypoint", action="append", default=[])
    p.add_argument("--cmd", action="append", default=[])
    p.add_argument("--user", default="")
    p.add_argument("--env", action="append", default=["PATH=/usr/local/bin:/usr/bin:/bin"])
    p.add_argument("--label", action="append", default=[])
    a = p.parse_args()

    blobs = {}

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"digest": "sha256:" + digest, "size": len(data)}

    def put_json(doc):
        return put(json.dumps(doc, separators=(",", ":"), sort_keys=True).encode())

    layer = put(layer_of(a.root))
    run = {"Env": a.env}
    if a.entrypoint:
        run["Entrypoint"] = a.entrypoint
    if a.cmd:
        run["Cmd"] = a.cmd
    if a.user:
        run["User"] = a.user
    if a.label:
        run["Labels"] = dict(x.split("=", 1) for x in a.label)
    config = put_json({"architecture": ARCH[platform.machine()], "os": "linux", "config": run,
                       "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}})
    kind = "application/vnd.oci.image."
    manifest = put_json({"schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
                         "config": {"mediaType": kind + "config.v1+json", **config},
                         "layers": [{"mediaType": kind + "layer.v1.tar", **layer}]})
    index = {"schemaVersion": 2, "manifests": [
        {"mediaType": kind + "manifest.v1+json", **manifest,
         "annotations": {"io.containerd.image.name": a.name, "org.opencontainers.image.ref.name": a.name.rsplit(":", 1)[1]}}]}

    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(),
             **{"blobs/sha256/" + d: data for d, data in blobs.items()}}
    with tarfile.open(a.out + ".new", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    os.replace(a.out + ".new", a.out)
    print(manifest["digest"])


if __name__ == "__main__":
    main()
