#!/usr/bin/env python3
"""Generates the Kafka wire codec's C from proto/kafka/*.kw (Python standard library only).

    kwgen.py --out DIR FILE.kw ...    writes DIR/wire/kw_*.{h,c} and DIR/wire/kw_api_table.c
    kwgen.py --coverage FILE.kw ...   prints the table of APIs and versions
"""

import argparse
import os
import sys

import kw_emit
import kw_emit_table
from kw_model import SchemaError
from kw_parse import parse_file


def load(paths):
    files = [parse_file(p) for p in paths]
    for what in ("stem", "key"):
        values = [getattr(f, what) for f in files if getattr(f, what) != -1]
        twice = {v for v in values if values.count(v) > 1}
        if twice:
            raise SchemaError(f"two files share the {what} {', '.join(map(str, sorted(twice)))}")
    return files


def write(directory, name, text):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
        f.write(text)


def generate(files, out):
    directory = os.path.join(out, "wire")
    os.makedirs(directory, exist_ok=True)
    for f in files:
        write(directory, f"kw_{f.stem}.h", kw_emit.header(f))
        write(directory, f"kw_{f.stem}.c", kw_emit.source(f))
    write(directory, "kw_api_table.c", kw_emit_table.table(files))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", metavar="DIR")
    what.add_argument("--coverage", action="store_true")
    parser.add_argument("files", nargs="+", metavar="FILE.kw")
    args = parser.parse_args()
    try:
        files = load(args.files)
    except (SchemaError, OSError) as e:
        print(f"kwgen: {e}", file=sys.stderr)
        return 1
    if args.coverage:
        sys.stdout.write(kw_emit_table.coverage(files))
    else:
        generate(files, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
