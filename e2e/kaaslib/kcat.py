"""kcat behind the command line of ../clients/README.md."""

import json
import subprocess
import sys
import threading

from . import records


def produce(bootstrap, topic, first, count):
    p = subprocess.Popen(["kcat", "-P", "-b", bootstrap, "-t", topic, "-K", "\t", "-X", "acks=all", "-X", "linger.ms=5"],
                         stdin=subprocess.PIPE)
    for i in range(first, first + count):
        p.stdin.write(f"k{i}\t".encode() + records.value(i) + b"\n")
    p.stdin.close()
    rc = p.wait()
    print(json.dumps({"sent": count if rc == 0 else 0, "failed": 0 if rc == 0 else count}))


def consume(bootstrap, topic, group, count):
    p = subprocess.Popen(["kcat", "-b", bootstrap, "-X", "auto.offset.reset=earliest", "-u", "-f", "%k\t%s\n", "-G", group, topic],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    watchdog = threading.Timer(120, p.kill)
    watchdog.start()
    seen, n, total = set(), 0, 0
    while len(seen) < count:
        line = p.stdout.readline()
        if not line:
            break
        key, _, val = line.rstrip(b"\n").partition(b"\t")
        n += 1
        if key not in seen:
            seen.add(key)
            total += records.one(key, val)
    watchdog.cancel()
    p.terminate()
    p.wait()
    print(json.dumps({"records": n, "unique": len(seen), "digest": f"{total % 2**64:016x}"}))


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        consume(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
