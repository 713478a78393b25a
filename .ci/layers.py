#!/usr/bin/env python3
"""Checks every #include "module/header" against the table of who may use whom (docs/architecture.md)."""

import re
import subprocess
import sys

COMMON = {
    "base": set(),
    "rt": {"base"},
    "policy": {"base"},
    "image": {"base", "policy"},
    "hb": {"base", "policy"},
    "k8s": {"base", "rt"},
}
BROKER = {
    "wire": {"base"},
    "storage": {"base", "rt", "policy"},
    "data": {"base", "rt", "policy", "image", "storage", "wire"},
    "groups": {"base", "rt", "policy", "image", "storage", "data", "wire", "app"},
    "cluster": {"base", "rt", "policy", "image", "hb", "k8s", "storage", "data", "health", "app", "wire"},
    "health": {"base", "rt", "policy", "storage"},
    "net": {"base", "rt", "wire", "image", "app"},
    "handlers": {"base", "rt", "policy", "image", "storage", "data", "groups", "cluster", "net", "wire", "app", "health"},
    "app": {"base", "rt", "policy", "image", "hb", "k8s", "storage", "data", "groups", "cluster", "health", "net",
            "handlers", "wire"},
}
OPERATOR = {
    "store": {"base", "rt", "k8s"},
    "crd": {"base", "policy", "image"},
    "build": {"base", "policy", "image", "crd"},
    "control": {"base", "rt", "policy", "image", "hb", "store"},
    "reconcile": {"base", "rt", "policy", "image", "store", "crd", "build", "control"},
    "local": {"base", "rt", "store", "crd", "build"},
    "app": {"base", "rt", "policy", "image", "hb", "k8s", "store", "crd", "build", "control", "reconcile", "local"},
}
TREES = {"common": COMMON, "broker": BROKER, "operator": OPERATOR}
# only the request's own interface may be used by the parts below the app
APP_SEAMS = {"app/kb_req.h", "app/kb_admin.h", "app/kb_config.h"}


def main():
    files = subprocess.run(["git", "ls-files", "common/*.[ch]", "broker/*.[ch]", "operator/*.[ch]"], capture_output=True,
                           text=True, check=True).stdout.split()
    bad = []
    for path in files:
        tree, _, rest = path.partition("/")
        module = rest.split("/")[0] if "/" in rest else "app"  # main.c belongs to the app
        allowed = TREES[tree].get(module)
        if allowed is None:
            bad.append(f"{path}: module {module} is not in the table")
            continue
        known = set(COMMON) | (set(TREES[tree]) if tree != "common" else set())
        for n, line in enumerate(open(path, encoding="utf-8"), 1):
            m = re.match(r'\s*#\s*include\s+"([a-z0-9]+)/([^"]+)"', line)
            if not m or m[1] == module or m[1] not in known | set(BROKER) | set(OPERATOR):
                continue
            if m[1] not in allowed:
                bad.append(f"{path}:{n}: {module} may not use {m[1]}")
            elif m[1] == "app" and module != "app" and f"{m[1]}/{m[2]}" not in APP_SEAMS and module != "handlers":
                bad.append(f"{path}:{n}: only {sorted(APP_SEAMS)} of app may be used here")
    print("\n".join(bad) or f"{len(files)} files, all includes allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
