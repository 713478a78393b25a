#!/usr/bin/env python3
"""One small fault for each rule, and the test that has to notice it.

Each *.patch beside this file breaks one rule of docs/requirements.md on purpose. Its head says which, how, and which test is there for it:

    Rule: R5
    Breaks: an update of one slice removes what another slice lists.
    Test: policy_registry R5_two_slices_updated_in_turn_lose_nobody

The sources are copied to build/mutants; there every named test must pass as things are, then each patch is applied alone, the test's program
built, and that very test must fail (an assertion, a sanitizer's report or a crash in it; a program that no longer builds counts as a
broken patch). Rules without a patch fail, except those of EXEMPT.

    mutate.py [WORD...]    only patches whose name or rule is one of the words
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = ROOT / "build/mutants/src"
BUILD = ROOT / "build/mutants/build"
JOBS = os.environ.get("JOBS", str(os.cpu_count()))
TEST_TIMEOUT_S = 120
RULES = [f"R{n}" for n in range(1, 64)] + [f"W{n}" for n in range(1, 9)]
EXEMPT = {"R44": "left out: concerns a listener kind that does not exist here"}


class Broken(Exception):
    """A patch that says nothing about its rule: it does not apply, build or name a test."""


class Patch:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        head = dict(re.findall(r"^(Rule|Breaks|Test): (.+)$", path.read_text(), re.M))
        if set(head) != {"Rule", "Breaks", "Test"}:
            raise Broken(f"{path.name}: its head must name Rule, Breaks and Test")
        self.rules = head["Rule"].split()
        self.breaks = head["Breaks"]
        self.program, self.test = head["Test"].split()
        for rule in self.rules:
            if rule not in self.test.split("_"):
                raise Broken(f"{path.name}: the name of its test does not say {rule}")


def run(*command, cwd=COPY, timeout=900):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)


def mirror():
    """The tracked files as they are in the tree, copied where they differ, so that little is built again."""
    names = run("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=ROOT).stdout.split("\0")
    wanted = {n for n in names if n and (ROOT / n).is_file() and not n.startswith(("docs/", "e2e/kube/"))}
    for name in wanted:
        src, dst = ROOT / name, COPY / name
        if not dst.exists() or dst.read_bytes() != src.read_bytes():
            dst.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(src, dst)
            os.utime(dst)
    for dst in [p for p in COPY.rglob("*") if p.is_file()]:
        if str(dst.relative_to(COPY)) not in wanted:
            dst.unlink()


def build(programs):
    if not (BUILD / "build.ninja").exists():
        r = run("cmake", "-S", str(COPY), "-B", str(BUILD), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DKAAS_SANITIZE=address,undefined")
        if r.returncode:
            raise Broken(r.stdout + r.stderr)
    r = run("cmake", "--build", str(BUILD), "-j", JOBS, "--target", *sorted({f"test_{p}" for p in programs}))
    if r.returncode:
        raise Broken("does not build:\n" + r.stdout[-3000:])


def red(patch):
    """Whether the patch's test fails now; raises where it did not even begin."""
    found = list(BUILD.glob(f"unit/**/test_{patch.program}"))
    if len(found) != 1:
        raise Broken(f"no program test_{patch.program}")
    try:
        r = run(str(found[0]), patch.test, timeout=TEST_TIMEOUT_S)
        out, code = r.stdout, r.returncode
    except subprocess.TimeoutExpired as e:
        out, code = (e.stdout or b"").decode(errors="replace"), -1
    begun = re.search(rf"Test: {re.escape(patch.test)} \.\.\.(passed|FAILED)?", out)
    if not begun:
        raise Broken(f"test_{patch.program} has no test {patch.test}:\n{out[-1500:]}")
    return code != 0 and begun.group(1) != "passed"


def apply(patch, *options):
    r = run("patch", "-p1", "--no-backup-if-mismatch", "-r", "-", "-s", *options, "-i", str(patch.path))
    if r.returncode:
        raise Broken("does not apply:\n" + r.stdout)


def touched(patch):
    return re.findall(r"^\+\+\+ b/(\S+)", patch.path.read_text(), re.M)


def judge(patch):
    """None, or what is wrong with the pair of patch and test."""
    try:
        apply(patch)
        build([patch.program])
        return None if red(patch) else f"{patch.test} stays green although {patch.breaks}"
    except Broken as e:
        return str(e)
    finally:
        for name in touched(patch):
            shutil.copy2(ROOT / name, COPY / name)
            os.utime(COPY / name)


def main(words):
    patches = [Patch(p) for p in sorted(HERE.glob("*.patch"))]
    if words:
        patches = [p for p in patches if p.name in words or set(p.rules) & set(words)]
    passed, failed = 0, []
    mirror()
    build({p.program for p in patches})
    fails_anyway = {p.name for p in patches if red(p)}
    for p in patches:
        t0 = time.monotonic()
        wrong = "its test fails without the patch" if p.name in fails_anyway else judge(p)
        print(f"{'ok  ' if not wrong else 'FAIL'} {p.name:<8} {p.breaks} ({time.monotonic() - t0:.1f} s)", flush=True)
        if wrong:
            failed.append(p.name)
            print("     " + wrong.replace("\n", "\n     "), flush=True)
        else:
            passed += 1
    covered = {r for p in patches for r in p.rules}
    missing = [] if words else [r for r in RULES if r not in covered and r not in EXEMPT]
    for rule in missing:
        print(f"FAIL {rule}: no patch breaks it")
    print(f"{passed} passed, {len(failed) + len(missing)} failed")
    return 0 if passed and not failed and not missing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
