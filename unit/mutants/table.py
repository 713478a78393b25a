#!/usr/bin/env python3
"""Checks docs/requirements.md, the table from rules to code, tests, faults and scenarios: every rule has a row, in order, with code, a unit
test and a fault of its own, and nothing is named that does not exist."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "docs/requirements.md"
RULES = [f"R{n}" for n in range(1, 64)] + [f"W{n}" for n in range(1, 9)]
EXEMPT = {"R44": "left out: concerns a listener kind that does not exist here"}


def head_of(patch):
    """What a patch says of itself: Rule, Breaks and Test."""
    return dict(re.findall(r"^(Rule|Breaks|Test): (.+)$", patch.read_text(), re.M))


def unit_tests():
    """{program: {test}}: of what each program registers, by the name of its CMake target."""
    tests = {}
    for path in ROOT.glob("unit/*/test_*.c"):
        text = path.read_text()
        registered = set(re.findall(r"\bKT\((\w+)\)", text))
        tests[f"{path.parent.name}_{path.stem.removeprefix('test_')}"] = {t for t in registered if f"static void {t}(void)" in text}
    return tests


def scenarios():
    """{"suite scenario"} of the scenarios under e2e."""
    found = set()
    for path in ROOT.glob("e2e/*/*.py"):
        suite = f"{path.parent.name}/{path.stem}"
        found |= {f"{suite} {name}" for name in re.findall(r"^@(?:scenario|fault\(.*\))\ndef (\w+)\(", path.read_text(), re.M)}
    return found


def cell(text):
    return re.findall(r"`([^`]+)`", text)


def rows():
    for line in TABLE.read_text().splitlines():
        if re.match(r"\| [RW]\d", line):
            yield [c.strip() for c in line.strip("|").split("|")]


def check_code(refs):
    for ref in refs:
        path, _, symbol = ref.partition(" ")
        if not (ROOT / path).is_file():
            yield f"no file {path}"
        elif not symbol or not re.search(rf"\b{re.escape(symbol)}\b", (ROOT / path).read_text()):
            yield f"{path} has no {symbol or 'symbol named'}"
    if not refs:
        yield "no code is named"


def check_tests(rule, refs, tests):
    for ref in refs:
        program, _, name = ref.partition(" ")
        if name not in tests.get(program, ()):
            yield f"no test {ref}"
    if not any(rule in ref.partition(" ")[2].split("_") for ref in refs):
        yield "no unit test is named after it"


def check_faults(rule, named, refs, heads):
    want = sorted(n for n, h in heads.items() if rule in h["Rule"].split())
    if sorted(named) != want:
        yield f"faults are {' '.join(want) or 'none'}, the table says {' '.join(named) or 'none'}"
    if not want:
        yield "no fault breaks it"
    for n in want:
        if heads[n]["Test"] not in refs:
            yield f"the test of {n} is missing: {heads[n]['Test']}"


def main():
    tests, known = unit_tests(), scenarios()
    heads = {p.stem: head_of(p) for p in (ROOT / "unit/mutants").glob("*.patch")}
    bad, seen, with_scenario = [], [], 0
    for rule, _, code, unit, faults, e2e in rows():
        seen.append(rule)
        with_scenario += bool(cell(e2e))
        wrong = [*check_code(cell(code)), *check_tests(rule, cell(unit), tests), *check_faults(rule, faults.split(), cell(unit), heads)]
        wrong += [f"no scenario {s}" for s in cell(e2e) if s not in known]
        bad += [f"{rule}: {w}" for w in wrong]
    if seen != [r for r in RULES if r not in EXEMPT]:
        bad.append("the rows are not R1 to R63 without R44, then W1 to W8, once each")
    print("\n".join(bad) or f"{len(seen)} rules, {len(heads)} faults, {with_scenario} rules with a scenario")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
