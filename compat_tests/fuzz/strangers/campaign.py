"""One campaign: a broker, strangers, and everybody who watches. Exit code 1 when something was found.

Memory is that of the process after the strangers have left and `REST_S` at most have passed, over that after the first
inputs (`WARM`), which load what is loaded on first use. The log is at ERROR or has no traceback, or that is a finding.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from compat_tests.fuzz.campaign import MEMORY_S, Target, prepare, say
from compat_tests.fuzz.honest import Honest, Wronged
from compat_tests.fuzz.memory import Memory, all_compressions
from compat_tests.fuzz.pools import FIXED_TOPICS
from compat_tests.fuzz.probe import LIMIT_MS, Probe
from compat_tests.fuzz.strangers.listeners import Ground, free_addresses, ground, listening, make_user
from compat_tests.fuzz.strangers.log_in import log_in
from compat_tests.fuzz.strangers.storm import Storm
from compat_tests.fuzz.strangers.talk import Talker
from compat_tests.fuzz.watch import Log, descriptors, memory_bytes
from compat_tests.harness.broker_process import Server

WARM = 5_000
REST_S = 120.0
HONEST_S = 1.0
LEFT_DESCRIPTORS = 10
SLOW_LOG_IN_S = 5.0


class Beside(threading.Thread):
    """Honest clients, one after the other. `slowest`: log-in, by listener."""

    def __init__(self, server: Server, addresses: dict[str, tuple[str, int]], ground: Ground) -> None:
        super().__init__(daemon=True)
        self._addresses = addresses
        self._ground = ground
        self._stop_wanted = threading.Event()
        self.honest = Honest([addresses["PLAINTEXT"]], "strangers")
        self.slowest = {"SASL_PLAINTEXT": 0.0, "SASL_SSL": 0.0}
        self.sessions = 0
        self.wronged: list[str] = []

    def begin(self) -> None:
        """Before anybody else. Raises Wronged."""
        self.honest.begin()
        prepare([Target("the broker", self._addresses["PLAINTEXT"])])
        all_compressions(self._addresses["PLAINTEXT"], FIXED_TOPICS)
        self.session()

    def session(self) -> None:
        """Raises Wronged."""
        self.honest.session()
        for listener in self.slowest:
            client = self._ground.client if listener == "SASL_SSL" else None
            took = log_in(self._addresses[listener], client)
            self.slowest[listener] = max(took, self.slowest[listener])
        self.sessions += 1

    def run(self) -> None:
        while not self._stop_wanted.wait(HONEST_S):
            try:
                self.session()
            except Wronged as error:
                self.wronged.append(str(error))

    def end(self) -> None:
        self._stop_wanted.set()
        self.join(120)


def started(directory: Path, ground: Ground, **settings: str) -> tuple[Server, dict[str, tuple[str, int]]]:
    """A broker of ours, and where its listeners are."""
    server = Server(directory, **ground.settings, **settings)
    addresses = {**free_addresses(), "PLAINTEXT": ("127.0.0.1", server.port)}
    server.settings["listeners"] = listening(addresses)
    server.start()
    make_user(addresses["PLAINTEXT"])
    return server, addresses


def campaign(directory: Path, inputs: int, seed: int, connections: int) -> int:
    """See the module."""
    say(f"seed {seed}")
    rng, rules = random.Random(seed), ground(directory)
    server, addresses = started(directory, rules)
    findings: list[str] = []
    memory = Memory()
    beside = Beside(server, addresses, rules)
    log, probe = Log(server.log), Probe(server.bootstrap, server.pid)
    storm = Storm(addresses, Talker(rng, rules.tokens), rng, rules.client, connections)
    try:
        beside.begin()
        held = descriptors(server.pid)
        while storm.inputs < WARM:
            storm.step()
        memory.start = memory_bytes(server.pid)
        beside.slowest = dict.fromkeys(beside.slowest, 0.0)
        probe.start()
        beside.start()
        begun = told = measured = time.monotonic()
        while storm.inputs < inputs + WARM and _lives(server):
            storm.step()
            now = time.monotonic()
            if now > measured + MEMORY_S:
                measured = now
                memory.peak = max(memory.peak, memory_bytes(server.pid))
            if now > told + 15:
                told = now
                findings += [entry.text for entry in log.errors()]
                say(f"{storm.inputs} inputs on {storm.visits} connections, {memory.peak >> 20} MiB")
        seconds = time.monotonic() - begun
        storm.close()
        beside.end()
        probe.stop()
        if _lives(server):
            findings += _afterwards(server, beside, memory, held)
        else:
            findings.append("the broker died")
        findings += beside.wronged + probe.lost + [entry.text for entry in log.errors(all_of_it=True)]
        findings += [
            f"a log-in on {name} took {took:.1f} s" for name, took in beside.slowest.items() if took > SLOW_LOG_IN_S
        ]
    finally:
        if _lives(server) and (code := server.stop()) != 0:
            findings.append(f"the stop after the attack: exit code {code}")
    print(
        f"{inputs} inputs in {seconds:.0f} s ({inputs / seconds:.0f}/s) on {storm.visits} connections, "
        f"{storm.answers} answers, {beside.sessions} honest sessions"
    )
    print(f"slowest answer to an honest client: {probe.longest:.3f} s (limit {LIMIT_MS} ms)")
    print("slowest honest log-in: " + ", ".join(f"{name} {took:.2f} s" for name, took in beside.slowest.items()))
    print(f"memory: {memory}")
    print(f"{len(findings)} findings" + "".join(f"\n  {text[:2000]}" for text in findings))
    return 1 if findings else 0


def _lives(server: Server) -> bool:
    return server.process is not None and server.process.poll() is None


def _afterwards(server: Server, beside: Beside, memory: Memory, held: int) -> list[str]:
    """Everybody has left: what is still there?"""
    found = []
    try:
        beside.session()
    except Wronged as error:
        found.append(f"after the attack: {error}")
    until = time.monotonic() + REST_S
    while time.monotonic() < until:
        memory.end = memory_bytes(server.pid)
        if not memory.has_grown and descriptors(server.pid) <= held + LEFT_DESCRIPTORS:
            break
        time.sleep(1)
    if memory.has_grown:
        found.append(f"memory that does not come back: {memory}")
    if descriptors(server.pid) > held + LEFT_DESCRIPTORS:
        found.append(f"{descriptors(server.pid)} descriptors are open, {held} were")
    return found
