"""Builds the client programs once and runs them. Everything is prepared before a test: a cluster's
network namespaces reach no registry."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
CLIENTS = HERE / "clients"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "kaas" / "clients"
KAFKA_VERSIONS = ("3.7.2", "4.4.0")


def _run(cmd, **kw):
    r = subprocess.run(cmd, capture_output=True, text=True, check=False, **kw)
    if r.returncode:
        raise RuntimeError(f"{' '.join(map(str, cmd))}: exit {r.returncode}\n{r.stdout[-2000:]}\n{r.stderr[-2000:]}")
    return r


def kafka_libs(version):
    """Folder of Apache Kafka's jars of a version (clients and command line tools), fetched by Maven."""
    libs = CACHE / f"kafka-{version}"
    if not (libs / "complete").exists():
        _run(["mvn", "-B", "-q", "-f", str(CLIENTS / "java/pom.xml"), f"-Dkafka.version={version}",
              "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"])
        (libs / "complete").touch()
    return libs


def _java(version):
    libs, out = kafka_libs(version), CACHE / f"java-{version}"
    out.mkdir(parents=True, exist_ok=True)
    for src in sorted((CLIENTS / "java").glob("*.java")):
        done = out / f"{src.stem}.class"
        if not done.exists() or done.stat().st_mtime < src.stat().st_mtime:
            _run(["javac", "-cp", f"{libs}/*", "-d", str(out), str(src)])
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
            f"{out}:{libs}/*", "Client"]


def _go():
    out = CACHE / "go-client"
    _run(["go", "build", "-mod=readonly", "-o", str(out), "."], cwd=CLIENTS / "go")
    return [str(out)]


def _node():
    out = CACHE / "node"
    out.mkdir(parents=True, exist_ok=True)
    for f in ("package.json", "package-lock.json", "client.js"):
        shutil.copy(CLIENTS / "node" / f, out / f)
    if not (out / "node_modules/kafkajs").exists():
        _run(["npm", "ci", "--no-audit", "--no-fund"], cwd=out)
    return ["node", str(out / "client.js")]


def _python():
    venv = CACHE / "venv"
    if not (venv / "complete").exists():
        _run([sys.executable, "-m", "venv", str(venv)])
        _run([str(venv / "bin/pip"), "-q", "install", "-r", str(CLIENTS / "python/requirements.txt")])
        (venv / "complete").touch()
    return [str(venv / "bin/python"), str(CLIENTS / "python/client.py")]


def _kcat():
    return [sys.executable, "-m", "kaaslib.kcat"]


MAKERS = {
    "kcat": _kcat,
    "confluent-kafka": _python,
    "franz-go": _go,
    "kafkajs": _node,
    "java-3.7": lambda: _java("3.7.2"),
    "java-4.4": lambda: _java("4.4.0"),
}
_commands = {}


def prepare(names=None):
    """Builds the named clients (all by default) and returns their names."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in names or MAKERS:
        _commands[name] = MAKERS[name]()
    return list(_commands)


def history_command(name):
    """The command of a client's history program (see ../clients/README.md)."""
    cmd = _commands[name]
    if name == "confluent-kafka":
        return [cmd[0], str(CLIENTS / "python/history.py")]
    if name == "franz-go":
        return [*cmd, "history"]
    return [*cmd[:-1], "History"]  # Java


class Client:
    """A running client program; result() waits and gives its JSON line."""

    def __init__(self, name, args, wrap=()):
        env = dict(os.environ, PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1")
        self.name = name
        self.proc = subprocess.Popen([*wrap, *_commands[name], *map(str, args)], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, env=env, cwd=HERE)

    def result(self, timeout_s=300):
        try:
            out, err = self.proc.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            out, err = self.proc.communicate()
            raise RuntimeError(f"{self.name}: no end within {timeout_s} s\n{err[-2000:]}") from None
        if self.proc.returncode:
            raise RuntimeError(f"{self.name}: exit {self.proc.returncode}\n{out[-1000:]}\n{err[-2000:]}")
        r = json.loads(out.strip().splitlines()[-1])
        r["stderr"] = err
        return r


def produce(name, bootstrap, topic, first, count, wrap=()):
    return Client(name, ["produce", bootstrap, topic, first, count], wrap)


def consume(name, bootstrap, topic, group, count, wrap=()):
    return Client(name, ["consume", bootstrap, topic, group, count], wrap)


def kafka_tool(version, main_class, *args, wrap=(), timeout_s=60):
    """Runs one of Apache Kafka's command line tools; returns its standard output."""
    cmd = [*wrap, "java", "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
           f"{kafka_libs(version)}/*", main_class, *map(str, args)]
    return _run(cmd, timeout=timeout_s).stdout


def committed(bootstrap, group):
    """The offsets that a group has committed, one a partition."""
    out = kafka_tool("4.4.0", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap, "--describe",
                     "--group", group)
    return [int(line.split()[3]) for line in out.splitlines() if line.startswith(group)]


if __name__ == "__main__":
    print("prepared:", ", ".join(prepare(sys.argv[1:] or None)))
