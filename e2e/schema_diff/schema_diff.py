#!/usr/bin/env python3
"""Compares proto/kafka with the message specifications inside Kafka's jars, field by field.

    schema_diff.py --schemas proto/kafka NEWEST.jar [OLDER.jar ...]

For each version of each message the newest jar that has it is the reference: names, order, types, null, tags, defaults,
flexible or not; what may be ignored and the names of structs, which have changed over time, are those of the newest jar
that has the message. Where an older jar has the version, too, its form on the wire must be the same, unless it was
unstable there. One check an API (or a record that a jar specifies); exit 0 when all pass.
"""

import argparse
import glob
import json
import os
import re
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "proto", "gen"))

from kw_model import NONE, OPEN, SchemaError  # noqa: E402
from kw_parse import parse_file, parse_range  # noqa: E402

# Between brokers and controllers: not for clients, not described by kaas.
INTERNAL = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87, 94}
# How much of a field is compared.
WIRE, NAMES, ALL = 0, 1, 2
# Versions that carry record formats 0 and 1, which kaas does not read.
OLDEST = {0: 3, 1: 4}


class Spec:
    """One message/*.json of a jar."""

    def __init__(self, doc):
        self.name = doc["name"]
        self.kind = doc["type"]
        self.key = doc.get("apiKey", -1)
        self.fields = doc.get("fields", [])
        self.common = {s["name"]: s["fields"] for s in doc.get("commonStructs", [])}
        versions = parse_range(doc["validVersions"])
        self.json_versions = range(versions.low, versions.high + 1) if versions else range(0)
        self.unstable = {versions.high} if doc.get("latestVersionUnstable") else set()
        flexible = parse_range(doc.get("flexibleVersions", "none"))
        self.flexible = flexible.low if flexible else OPEN

    def version_map(self):
        """Our version number -> the one in the JSON. Since 4.0 a coordinator's key has version 0, and what
        kind of key it is in apiKey; before, and here, the kind was its version."""
        if self.kind == "coordinator-key":
            return {self.key: 0}
        return {v: v for v in self.json_versions}


def load_jar(path):
    out = []
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = jar.read(name).decode("utf-8")
                text = re.sub(r'^((?:[^"\n]|"[^"\n]*")*?)//.*$', r"\1", text, flags=re.M)
                out.append(Spec(json.loads(text)))
    unstable = {s.key: s.unstable for s in out if s.kind == "request"}
    for s in out:
        if s.kind == "response":  # only requests say it
            s.unstable = unstable.get(s.key, set())
    return out


def spec_default(f):
    """As kw_model has it: None, "null", an int or a bool."""
    d = f.get("default")
    if d is None or d == "":
        return None
    if str(d) == "null":
        return "null"
    if f["type"] == "bool":
        return True if str(d).lower() == "true" else None
    if f["type"] in ("string", "bytes"):
        return d
    return int(str(d), 0) or None


def spec_layout(spec, fields, version, level):
    """Fields of a version as comparable rows."""
    untagged, tagged = [], []
    for f in fields:
        versions = parse_range(f.get("versions", f.get("taggedVersions")))
        if version not in versions:
            continue
        base = f["type"].removeprefix("[]")
        sub = f.get("fields") or spec.common.get(base)
        nullable = parse_range(f["nullableVersions"]) if "nullableVersions" in f else NONE
        row = {"array": f["type"].startswith("[]"), "nullable": version in nullable,
               "type": "struct" if sub else base, "tag": f.get("tag", -1)}
        if level >= NAMES:
            default = spec_default(f)
            row["name"] = f["name"][0].upper() + f["name"][1:]
            row["default"] = None if default == "null" and nullable == NONE else default
        if level == ALL:
            row["ignorable"] = bool(f.get("ignorable", False))
            row["struct"] = base if sub else None
        if sub:
            row["fields"] = spec_layout(spec, sub, version, level)
        (tagged if row["tag"] >= 0 else untagged).append(row)
    return untagged + sorted(tagged, key=lambda r: r["tag"])


def our_layout(struct, version, level):
    rows = []
    for f in struct.wire_order():
        if version not in f.versions:
            continue
        row = {"array": f.array, "nullable": version in f.nullable,
               "type": "struct" if f.struct else f.type, "tag": f.tag}
        if level >= NAMES:
            row["name"] = f.name[0].upper() + f.name[1:]
            row["default"] = None if f.default in (0, False) else f.default
        if level == ALL:
            row["ignorable"] = f.ignorable
            row["struct"] = f.type if f.struct else None
        if f.struct:
            row["fields"] = our_layout(f.struct, version, level)
        rows.append(row)
    return rows


def compare(ours, theirs, where):
    """Differences as text."""
    out = []
    for i in range(max(len(ours), len(theirs))):
        a = ours[i] if i < len(ours) else None
        b = theirs[i] if i < len(theirs) else None
        name = (a or b).get("name") or f"field {i}"
        if not a or not b:
            out.append(f"{where}.{name}: only {'ours' if a else 'theirs'}")
            continue
        for key in a:
            if key != "fields" and a[key] != b[key]:
                out.append(f"{where}.{name}: {key} is {a[key]}, theirs {b[key]}")
        if "fields" in a and "fields" in b:
            out += compare(a["fields"], b["fields"], f"{where}.{name}")
    return out


def check_message(message, specs, is_record):
    """specs: newest first, one a jar that has the message. Returns differences."""
    out = []
    seen = set()
    for spec in specs:
        for version, theirs_version in spec.version_map().items():
            if version not in message.versions:
                if version >= message.versions.low:
                    out.append(f"{message.name} v{version} is missing")
                continue
            level = WIRE if version in seen else ALL if spec is specs[0] else NAMES
            if level == WIRE and (is_record or version in spec.unstable):
                continue
            seen.add(version)
            where = f"{message.name} v{version}"
            if (version >= message.flexible) != (theirs_version >= spec.flexible):
                out.append(f"{where}: flexible differs")
            out += compare(our_layout(message.root, version, level),
                           spec_layout(spec, spec.fields, theirs_version, level), where)
    for version in range(message.versions.low, message.versions.high + 1):
        if version not in seen:
            out.append(f"{message.name} v{version}: no jar has it")
    return out


def check_api(file, jars):
    out = []
    for message, kind in zip(file.messages, ("request", "response")):
        specs = [s for jar in jars for s in jar if s.key == file.key and s.kind == kind and s.json_versions]
        if not specs:
            out.append(f"{message.name}: no jar has it")
            continue
        if specs[0].name != message.name:
            out.append(f"{message.name}: named {specs[0].name} there")
        lowest = max(min(s.json_versions.start for s in specs), OLDEST.get(file.key, 0))
        if message.versions.low != lowest:
            out.append(f"{message.name}: begins at {message.versions.low}, theirs at {lowest}")
        out += check_message(message, specs, False)
    return out


def missing_apis(files, jars):
    ours = {f.key for f in files}
    theirs = {s.key: s.name for jar in jars for s in jar if s.kind == "request" and s.json_versions}
    return [f"{name} (key {key}) is not described" for key, name in sorted(theirs.items())
            if key not in ours and key not in INTERNAL]


def report(name, differences):
    for d in differences:
        print(f"FAIL {name}: {d}")
    return not differences


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--schemas", required=True, metavar="DIR")
    parser.add_argument("jars", nargs="+", metavar="JAR")
    args = parser.parse_args()
    try:
        files = [parse_file(p) for p in sorted(glob.glob(os.path.join(args.schemas, "*.kw")))]
    except SchemaError as e:
        print(f"FAIL {e}\n0 passed, 1 failed")
        return 1
    jars = [load_jar(j) for j in args.jars]
    results = [report("coverage", missing_apis(files, jars))]
    for file in files:
        if file.key >= 0:
            results.append(report(file.name, check_api(file, jars)))
            continue
        for message in file.messages:
            specs = [s for jar in jars for s in jar if s.name in (message.name, "Legacy" + message.name)]
            if specs:
                results.append(report(message.name, check_message(message, specs, True)))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
