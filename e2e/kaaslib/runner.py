"""Runs scenarios in order and ends with one line "N passed, N failed"."""

import sys
import time
import traceback

SCENARIOS = []


def scenario(fn):
    """Registers a test function; it takes the suite's context and raises to fail."""
    SCENARIOS.append(fn)
    return fn


class Failed(AssertionError):
    pass


def check(condition, *message):
    if not condition:
        raise Failed(" ".join(str(m) for m in message) or "check failed")


def eventually(probe, timeout_s=30, every_s=0.1, what="condition"):
    """Calls probe until it returns something true; errors count as not yet. Returns that value."""
    end, last = time.monotonic() + timeout_s, None
    while True:
        try:
            value = probe()
            if value:
                return value
            last = value
        except Exception as e:  # noqa: BLE001 - any failure of a probe means "not yet"
            last = e
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {timeout_s} s; last: {last!r}")
        time.sleep(every_s)


def hold(probe, seconds, every_s=0.1, what="condition"):
    """Checks that probe stays true all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        check(probe(), f"{what} did not hold")
        time.sleep(every_s)


def run(context, names=(), on_failure=None, rounds=1):
    """Runs the registered scenarios whose name contains one of names (all if none given), that many times in a row."""
    passed = failed = 0
    chosen = [fn for fn in SCENARIOS if not names or any(n in fn.__name__ for n in names)]
    for i, fn in enumerate(chosen * rounds):
        if rounds > 1 and i % len(chosen) == 0:
            print(f"     round {i // len(chosen) + 1} of {rounds}", flush=True)
        t0 = time.monotonic()
        try:
            note = fn(context)
            passed += 1
            print(f"ok   {time.monotonic() - t0:6.1f}s {fn.__name__}" + (f": {note}" if note else ""), flush=True)
        except Exception as e:  # noqa: BLE001 - one scenario's failure must not hide the others
            failed += 1
            print(f"FAIL {time.monotonic() - t0:6.1f}s {fn.__name__}: {e}", flush=True)
            if not isinstance(e, Failed):
                traceback.print_exc(file=sys.stdout)
            if on_failure:
                on_failure(fn.__name__)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not failed else 1
