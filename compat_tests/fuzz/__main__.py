"""python -m compat_tests.fuzz [--seconds S] [--seed N] [--bootstrap HOST:PORT | --cluster] …; … replay FILE …"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from compat_tests.fuzz.campaign import REST_S, Campaign, Plan, Target, Totals, prepare, say, summary
from compat_tests.fuzz.findings import Findings
from compat_tests.fuzz.grammar import Limits
from compat_tests.fuzz.honest import Honest, Wronged
from compat_tests.fuzz.recording import read
from compat_tests.fuzz.replay import replay
from compat_tests.fuzz.watch import Log, memory_bytes
from compat_tests.harness.broker_process import Server

DEATHS_MAX = 30
REPLAY_PATIENCE_S = 3.0
"""Of what was damaged or taken out of a whole attack, much is never answered."""
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "5000",
}


def target_of(server: Server) -> Target:
    return Target(
        "the broker",
        ("127.0.0.1", server.port),
        server.pid,
        server.log,
        lambda: server.process is not None and server.process.poll() is None,
        lambda: restarted(server),
    )


def restarted(server: Server) -> int:
    """The pid of a new process on the same directory. Raises OSError when the old one does not stop in order."""
    if (code := server.stop()) != 0:
        raise OSError(f"the stop after the attack: exit code {code}")
    server.start()
    return server.pid


def address_of(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def campaign(options: argparse.Namespace) -> int:
    """The command without `replay`."""
    seed = options.seed
    plan = Plan(
        options.seconds, seed, options.clients, options.rate, Limits(huge_bytes=options.huge), rest_seconds=options.rest
    )
    findings, totals = Findings(options.findings, seed), Totals()
    say(f"seed {seed}")
    if options.cluster:
        from compat_tests.fuzz.cluster import attack_cluster

        attack_cluster(plan, findings, totals, say)
    elif options.bootstrap:
        target = Target(options.bootstrap, address_of(options.bootstrap))
        Campaign([target], plan, findings, totals, say).run(options.seconds, 0)
    else:
        until = time.monotonic() + options.seconds
        for life in range(DEATHS_MAX):
            if one_life(options, plan, findings, totals, until - time.monotonic(), life) or time.monotonic() > until:
                break
    print(summary(findings, totals))
    return 1 if findings.kinds else 0


def one_life(
    options: argparse.Namespace, plan: Plan, findings: Findings, totals: Totals, seconds: float, life: int
) -> bool:
    """A broker of ours with a fresh directory, until the time is over or it dies."""
    with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-") as temporary:
        settings = {**SETTINGS, **dict(setting.split("=", 1) for setting in options.set)}
        server = Server(Path(temporary), **settings)
        server.start()
        try:
            lived = Campaign([target_of(server)], plan, findings, totals, say).run(seconds, life)
            if lived and (code := server.stop()) != 0:
                findings.add("the stop after the attack", f"exit code {code}: {server.log_text()[-2000:]}")
        finally:
            if server.process is not None and server.process.poll() is None:
                server.kill()
        return lived


def replayed(options: argparse.Namespace) -> int:
    """The command `replay`: each file against a broker of its own, or all against one that runs."""
    failed = 0
    for path in options.files:
        steps = list(read(path.read_text()))
        if options.bootstrap:
            print(f"{path}: {replay(address_of(options.bootstrap), steps, REPLAY_PATIENCE_S)} answers")
            continue
        with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-") as temporary:
            settings = {**SETTINGS, **dict(setting.split("=", 1) for setting in options.set)}
            server = Server(Path(temporary), **settings)
            server.start()
            try:
                trouble = _replay_one(server, steps)
            finally:
                if server.process is not None and server.process.poll() is None:
                    server.kill()
        print(f"{path}: {trouble or 'well'}")
        failed += bool(trouble)
    return 1 if failed else 0


def _replay_one(server: Server, steps: list[object]) -> str:
    target = target_of(server)
    honest = Honest([target.address], "replay")
    honest.begin()
    prepare([target])
    before, begun = memory_bytes(server.pid), time.monotonic()
    answers = replay(target.address, steps, REPLAY_PATIENCE_S)  # type: ignore[arg-type]
    took = time.monotonic() - begun
    trouble = []
    try:
        honest.session()
    except Wronged as error:
        trouble.append(str(error))
    time.sleep(0.2)
    if not target.is_alive():
        trouble.append(f"the broker died: {server.log_text()[-1500:]}")
    trouble += [entry.text for entry in Log(server.log).errors(all_of_it=True)]
    say(f"{answers} answers in {took:.2f} s, {before >> 20} to {memory_bytes(server.pid) >> 20} MiB")
    return "\n".join(trouble)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.fuzz", description="Attack a broker with anything")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs, instead of one of our own")
    parser.add_argument("--cluster", action="store_true", help="three brokers of ours with ZooKeeper, and a load")
    parser.add_argument("--clients", type=int, default=48, metavar="N", help="connections at once")
    parser.add_argument("--rate", type=float, default=0, metavar="N", help="requests a second at most")
    parser.add_argument("--huge", type=int, default=200_000, metavar="BYTES", help="how large arrays become; 0: not")
    parser.add_argument("--rest", type=float, default=REST_S, metavar="S", help="how long memory may take to come back")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of our broker")
    parser.add_argument(
        "--findings", type=Path, default=Path(tempfile.gettempdir()) / "barnabas-fuzz-findings", metavar="DIRECTORY"
    )
    commands = parser.add_subparsers(dest="command")
    again = commands.add_parser("replay", help="send what was kept")
    again.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    return replayed(options) if options.command == "replay" else campaign(options)


if __name__ == "__main__":
    sys.exit(main())
