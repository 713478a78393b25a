#!/usr/bin/env python3
"""Hand-written C: files of at most 600 lines, functions of at most 80 (the style asks for 70)."""

import re
import subprocess
import sys

FILE_MAX, FUNCTION_MAX = 600, 80


def long_functions(lines):
    """(name, first line, length) of functions: a '{' in column 0 opens a body, a '}' in column 0 ends it."""
    start = None
    for n, line in enumerate(lines, 1):
        if line.startswith("{") and n > 1 and lines[n - 2].rstrip().endswith(")"):
            start = n
        elif line.startswith("}") and start:
            if n - start - 1 > FUNCTION_MAX:
                k = start - 2
                while k > 0 and not re.match(r"[A-Za-z_]", lines[k]):
                    k -= 1
                yield lines[k].strip(), start, n - start - 1
            start = None


def main():
    bad = []
    files = subprocess.run(["git", "ls-files", "*.c", "*.h"], capture_output=True, text=True, check=True).stdout.split()
    for path in files:
        lines = open(path, encoding="utf-8").read().splitlines()
        if len(lines) > FILE_MAX:
            bad.append(f"{path}: {len(lines)} lines")
        bad += [f"{path}:{at}: {name}: {n} lines" for name, at, n in long_functions(lines)]
    print("\n".join(bad) or f"{len(files)} files within the limits")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
