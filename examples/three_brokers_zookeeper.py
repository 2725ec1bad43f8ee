"""A cluster on ZooKeeper, on one machine: ZooKeeper and three brokers, until Ctrl-C. (`barnabas cluster` needs none.)

    python3 run.py example three_brokers_zookeeper
    python3 run.py example three_brokers_zookeeper --data DIR           # keeps what is written, for the next start
    python3 run.py example three_brokers_zookeeper --zookeeper HOST:PORT/chroot    # yours, instead of its own

Every topic has three replicas unless its creator says otherwise, and a producer that waits for all of them (acks=all)
loses nothing when one broker dies: kill one with the pid that is printed, and look. A broker that ends is started again
after ten seconds.

ZooKeeper needs Java 11 or newer and its jars: those of PySpark, if it is installed (pip install "pyspark==4.2.0"), or
what ZOOKEEPER_CLASSPATH says. Besides that: `pip install .` in a checkout, or the environment that `run.py` makes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BROKERS = 3
START_S = 180
STOP_S = 60
RETURN_S = 10.0
# Of PySpark's many jars those that a ZooKeeper server needs; with all of them it does not run.
ZOOKEEPER_JARS = (
    *("zookeeper-*.jar", "netty-*.jar", "snappy-java-*.jar", "metrics-core-*.jar", "slf4j-api-*.jar"),
    *("commons-io-*.jar", "audience-annotations-*.jar"),
)


class Ended(Exception):
    """Ctrl-C or SIGTERM."""


def main() -> None:
    parser = argparse.ArgumentParser(description="ZooKeeper and three brokers on this machine, until Ctrl-C")
    parser.add_argument("--port", type=int, default=9092, help="the first broker's, the others' follow; 0: free ones")
    parser.add_argument("--data", type=Path, help="where everything is kept (default: a temporary directory)")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="a running ZooKeeper (default: start one)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all brokers")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    running: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory(prefix="three-brokers-") as temporary:
        home = (options.data or Path(temporary)).absolute()
        home.mkdir(parents=True, exist_ok=True)
        try:
            run(home, options, running)
        except Ended:
            print("\nstopping", flush=True)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            # The brokers first, ZooKeeper last: they want to say good-bye.
            for name in reversed(running):
                stop(name, running[name])


def run(home: Path, options: argparse.Namespace, running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Start everything into *running* and stay."""
    connect = options.zookeeper
    if connect is None:
        port = free_port()
        connect = f"127.0.0.1:{port}"
        running["ZooKeeper"] = start("ZooKeeper", zookeeper_command(home / "zookeeper", port), home / "zookeeper.log")
        wait_until(lambda: b"Zookeeper version" in ask(port, b"srvr"), running["ZooKeeper"], home / "zookeeper.log")
    ports = [options.port + index if options.port else free_port() for index in range(BROKERS)]
    commands = {}
    for number, port in enumerate(ports, 1):
        commands[f"broker {number}"] = broker_command(number, port, connect, home / f"broker-{number}", options.set)
    logs = {name: home / f"{name}.log" for name in commands}
    earlier = {name: log.stat().st_size if log.exists() else 0 for name, log in logs.items()}
    for name, command in commands.items():
        running[name] = start(name, command, logs[name])
    for name, log in logs.items():
        # It takes connections before; this it says when the controller has told it of the cluster.
        wait_until(lambda name=name, log=log: b" serves " in log.read_bytes()[earlier[name] :], running[name], log)
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    pids = ", ".join(f"{name} {process.pid}" for name, process in running.items())
    print(f"bootstrap={bootstrap}")
    print(f"zookeeper={connect}")
    print(f"pids: {pids}; data and logs: {home}")
    print(
        "\nTry, with any Kafka client:\n"
        f"  kafka-topics.sh --bootstrap-server {bootstrap} --create --topic events --partitions 6\n"
        f"  kafka-topics.sh --bootstrap-server {bootstrap} --describe --topic events\n"
        f"  kill -9 {running['broker 1'].pid}      # and describe it again\n"
        "Ctrl-C ends it all.",
        flush=True,
    )
    ended: dict[str, float] = {}
    while True:
        time.sleep(0.2)
        for name, process in list(running.items()):
            if process.poll() is None:
                continue
            if name not in commands:
                raise SystemExit(f"{name} ended:\n{tail(home / f'{name.lower()}.log')}")
            if name not in ended:
                ended[name] = time.monotonic()
                print(f"{name} ended ({process.returncode}); it is started again in {RETURN_S:.0f} s", flush=True)
            elif time.monotonic() > ended[name] + RETURN_S:
                del ended[name]
                running[name] = start(name, commands[name], home / f"{name}.log")
                print(f"{name} is back, pid {running[name].pid}", flush=True)


def broker_command(number: int, port: int, connect: str, data: Path, more: list[str]) -> list[str]:
    """Return what starts a broker. Only the first four settings are what makes it one of a cluster."""
    settings = [
        f"broker.id={number}",
        f"zookeeper.connect={connect}",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"log.dirs={data}",
        "default.replication.factor=3",
        "min.insync.replicas=2",
        "offsets.topic.replication.factor=3",
        # With the default of 18 s it takes longer until a dead broker's partitions are led by another.
        "zookeeper.session.timeout.ms=6000",
        "zookeeper.connection.timeout.ms=18000",  # when it starts; without this it waits as long as a session lasts
        *more,
    ]
    return [sys.executable, "-m", "barnabas", "serve", *(word for one in settings for word in ("--set", one))]


def zookeeper_command(directory: Path, port: int) -> list[str]:
    """Return what starts a ZooKeeper server."""
    directory.mkdir(exist_ok=True)
    settings = directory / "zoo.cfg"
    settings.write_text(
        f"dataDir={directory}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=1000\n"
        "4lw.commands.whitelist=srvr\nadmin.enableServer=false\n"
    )
    java = shutil.which("java")
    if java is None:
        raise SystemExit("ZooKeeper needs Java 11 or newer, and no `java` was found; or give --zookeeper HOST:PORT")
    words = ("-Xmx128m", "-XX:+UseSerialGC", "-cp", zookeeper_jars())
    return [java, *words, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)]


def zookeeper_jars() -> str:
    """Return the class path of a ZooKeeper server."""
    if os.environ.get("ZOOKEEPER_CLASSPATH"):
        return os.environ["ZOOKEEPER_CLASSPATH"]
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise SystemExit('no jars of ZooKeeper: pip install "pyspark==4.2.0", or set ZOOKEEPER_CLASSPATH')
    folder = Path(found.submodule_search_locations[0]) / "jars"
    return os.pathsep.join(str(jar) for pattern in ZOOKEEPER_JARS for jar in sorted(folder.glob(pattern)))


def start(name: str, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that Ctrl-C reaches this one alone."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def stop(name: str, process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, insist after a while."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    print(f"{name} has ended", flush=True)


def wait_until(ready: object, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a program to be ready. Ends this one with the log's last lines if it is not in time."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            if ready():  # type: ignore[operator]
                return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"it did not start; {log} ends with:\n{tail(log)}")
        time.sleep(0.05)


def ask(port: int, words: bytes) -> bytes:
    """Connect, send *words* if there are any, return the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        if not words:
            return b""
        connection.sendall(words)
        return connection.recv(4096)


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(*_: object) -> None:
    """The signal handler."""
    raise Ended


if __name__ == "__main__":
    main()
