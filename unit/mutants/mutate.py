#!/usr/bin/env python3
"""One small fault for each rule, and the test that has to notice it.

Each *.patch beside this file breaks one rule of docs/requirements.md on purpose. Its head says which, how, and which test is there for it:

    Rule: R5
    Breaks: an update of one slice removes what another slice lists.
    Test: policy_registry R5_two_slices_updated_in_turn_lose_nobody

The sources are copied to build/mutants; there every named test must pass as things are, then each patch is applied alone, the test's program
built, and that very test must fail (an assertion or a crash in it; a program that no longer builds counts as a broken patch). A rule
without a patch fails (table.py names the exceptions).

    mutate.py [WORD...]    only patches whose name or rule is one of the words
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import table

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = ROOT / "build/mutants/src"
BUILD = ROOT / "build/mutants/build"
JOBS = os.environ.get("JOBS", str(os.cpu_count()))
AT_ONCE = 2 * int(JOBS)  # tests
TEST_TIMEOUT_S = 120


class Broken(Exception):
    """A patch that says nothing about its rule: it does not apply, build or name a test."""


class Patch:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        head = table.head_of(path)
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
        r = run("cmake", "-S", str(COPY), "-B", str(BUILD), "--preset", "dev")
        if r.returncode:
            raise Broken(r.stdout + r.stderr)
    r = run("cmake", "--build", str(BUILD), "-j", JOBS, "--target", *sorted({f"test_{p}" for p in programs}))
    if r.returncode:
        raise Broken("does not build:\n" + r.stdout[-3000:])


def program_of(patch):
    found = list(BUILD.glob(f"unit/**/test_{patch.program}"))
    if len(found) != 1:
        raise Broken(f"no program test_{patch.program}")
    return found[0]


def red(patch, program):
    """Whether the patch's test fails in this program; raises where it did not even begin."""
    try:
        r = run(str(program), patch.test, timeout=TEST_TIMEOUT_S)
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


def verdict(patch, program):
    """None, or what is wrong with the pair of patch and test."""
    try:
        return None if red(patch, program) else f"{patch.test} stays green although {patch.breaks}"
    except Broken as e:
        return str(e)


def judge(patch, pool, where):
    """A future of the verdict. Tests wait for clocks more than they work: the next patch is built meanwhile, so a changed program
    is run as a copy; a patch of anything else is judged before it is taken back."""
    try:
        apply(patch)
        build([patch.program])
        copy = pathlib.Path(shutil.copy2(program_of(patch), where / patch.name))
        future = pool.submit(verdict, patch, copy)
        if not all(name.endswith((".c", ".h", ".def")) for name in touched(patch)):
            future.result()
        return future
    except Broken as e:
        return pool.submit(str, e)
    finally:
        for name in touched(patch):
            shutil.copy2(ROOT / name, COPY / name)
            os.utime(COPY / name)


def fail_anyway(patches, pool):
    """Those whose test is red as things are. One that other load upset may have a second try, alone."""
    tests = {(p.program, p.test): p for p in patches}
    first = list(pool.map(lambda p: red(p, program_of(p)), tests.values()))
    bad = {t for (t, p), r in zip(tests.items(), first) if r and red(p, program_of(p))}
    return {p.name for p in patches if (p.program, p.test) in bad}


def main(words):
    patches = [Patch(p) for p in sorted(HERE.glob("*.patch"))]
    if words:
        patches = [p for p in patches if p.name in words or set(p.rules) & set(words)]
    mirror()
    build({p.program for p in patches})
    failed = 0
    with tempfile.TemporaryDirectory(dir=BUILD) as where, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        hopeless = fail_anyway(patches, pool)
        futures = [None if p.name in hopeless else judge(p, pool, pathlib.Path(where)) for p in patches]
        for p, future in zip(patches, futures):
            wrong = future.result() if future else "its test fails without the patch"
            failed += bool(wrong)
            print(f"{'FAIL' if wrong else 'ok  '} {p.name:<6} {p.breaks}")
            if wrong:
                print("     " + wrong.replace("\n", "\n     "))
    covered = {r for p in patches for r in p.rules}
    missing = [] if words else [r for r in table.RULES if r not in covered and r not in table.EXEMPT]
    for rule in missing:
        print(f"FAIL {rule}: no patch breaks it")
    passed = len(patches) - failed
    print(f"{passed} passed, {failed + len(missing)} failed")
    return 0 if passed and not failed and not missing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
