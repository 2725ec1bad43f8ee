"""An attack with everybody who watches: runs for a time, tells each kind of trouble once, and sums up.

A stall is traced to its request: when one is seen, the attack pauses and what was in flight is sent again, one by one;
what holds the loop up alone is the finding. If nothing does, several did together, which counts from
`TOGETHER_S` on.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import NamedTuple

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ApiVersionsRequest, CreateTopicsRequest
from compat_tests.fuzz.attack import Attack
from compat_tests.fuzz.findings import SEVERAL, Findings
from compat_tests.fuzz.grammar import BETWEEN_BROKERS, Grammar, Limits
from compat_tests.fuzz.honest import PREFIX, Caller, Honest, Wronged
from compat_tests.fuzz.memory import Memory, all_compressions, tidied, tidied_if_possible
from compat_tests.fuzz.pools import FIXED_TOPICS, Pools
from compat_tests.fuzz.probe import LIMIT_MS, Probe, Stall, answered, measured
from compat_tests.fuzz.recording import Recorder, Step
from compat_tests.fuzz.watch import Log, memory_bytes

LOOK_S = 0.05
MEMORY_S = 0.5
HONEST_S = 2.0
TOGETHER_S = 0.25
REST_S = 270.0
"""The slowest of the broker's clocks, those of fetch sessions and of the heap, one after the other: see `memory`."""
TIDY_S = 30.0
WARM_ROUNDS = 5
"""Of random requests, one may be refused before it comes to the library or the record that it would have used."""
ALONE_MAX = 60
LAST_STEPS = 250
SECRET = (PREFIX, "load-")


class Target(NamedTuple):
    """A broker under attack. `pid` 0 and `log` None: one that nobody can look into. `restart`: on the same directory;
    the new pid.
    """

    name: str
    address: tuple[str, int]
    pid: int = 0
    log: Path | None = None
    is_alive: Callable[[], bool] = lambda: True
    restart: Callable[[], int] | None = None

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.address)


@dataclass
class Plan:
    seconds: float
    seed: int
    connections: int = 48
    rate: float = 0.0
    limits: Limits = field(default_factory=Limits)
    clustered: bool = False
    replicas: int = 1
    rest_seconds: float = REST_S


@dataclass
class Totals:
    """Over all lives of the brokers."""

    seconds: float = 0.0
    sent: int = 0
    answered: int = 0
    deaths: int = 0
    sessions: int = 0
    stalls: int = 0
    longest: float = 0.0
    memory: dict[str, Memory] = field(default_factory=dict)


class Campaign:
    """One life of the brokers: `run` returns True when the time is over, False when one of them has died."""

    def __init__(
        self, targets: Sequence[Target], plan: Plan, findings: Findings, totals: Totals, say: Callable[[str], None]
    ) -> None:
        self._targets = list(targets)
        self._plan = plan
        self._findings = findings
        self._totals = totals
        self._say = say
        self._recorder = Recorder()
        self._logs = [(target, Log(target.log)) for target in targets if target.log is not None]
        self._probes = [Probe(target.bootstrap, target.pid) for target in targets]
        self._wronged: SimpleQueue[str] = SimpleQueue()
        self._stop = threading.Event()
        self._last_step = time.monotonic()
        self._is_dead = False

    def run(self, seconds: float, life: int) -> bool:
        plan = self._plan
        honest = Honest([target.address for target in self._targets], f"{plan.seed}-{life}", plan.replicas)
        try:
            honest.begin()
            honest.session()
            served = prepare(self._targets, plan.replicas)
            for target in self._targets:
                all_compressions(target.address, FIXED_TOPICS)
        except Wronged as error:
            self._found("a valid request before the attack", str(error))
            self._read_logs()
            return self._all_alive()
        rng = Random(f"{plan.seed}/{life}")
        left_out = BETWEEN_BROKERS if plan.clustered else ()
        grammar = Grammar(rng, Pools(SECRET), served, plan.limits, left_out)
        attack = Attack(
            [target.address for target in self._targets],
            grammar,
            self._recorder,
            self._found_by_attack,
            connections=plan.connections,
            rate=plan.rate,
        )
        attack.has_no_log = not self._logs
        begun = time.monotonic()
        try:
            for target in self._targets:
                warm(target, grammar)
            honest.session()
            for target in self._targets:
                memory = self._totals.memory.setdefault(target.name, Memory())
                memory.start = memory.start or memory_bytes(target.pid)
            for probe in self._probes:
                probe.start()
            thread = threading.Thread(target=self._be_honest, args=(honest,), daemon=True)
            thread.start()
            self._attack(attack, begun + seconds)
        finally:
            attack.close()
            self._totals.sent += attack.sent
            self._totals.answered += attack.answered
            self._totals.seconds += time.monotonic() - begun
            self._stop.set()
            self._stop_probes()
        thread.join(120)
        self._read_logs()
        alive = self._all_alive()
        if alive:
            self._afterwards(honest, grammar)
        honest.close()
        return alive

    # -- parts of a life ---------------------------------------------------------------------------------------------

    def _attack(self, attack: Attack, until: float) -> None:
        look = memory_at = 0.0
        told = time.monotonic()
        while (now := time.monotonic()) < until and not self._is_dead:
            attack.step()
            if now - look > LOOK_S:
                look = now
                self._read_logs()
                self._is_dead = not self._all_alive()
                stalls = [
                    (target, stall)
                    for target, probe in zip(self._targets, self._probes, strict=True)
                    for stall in probe.stalls()
                ]
                if stalls and not self._is_dead:
                    self._trace(attack, *max(stalls, key=lambda one: one[1].seconds))
                self._hear_honest()
            if now - memory_at > MEMORY_S:
                memory_at = now
                self._measure()
            if now - told > 15:
                told = now
                self._say(
                    f"{attack.sent} sent, {attack.answered} answered, {len(self._findings.kinds)} kinds of findings, "
                    f"{max(memory.peak for memory in self._totals.memory.values()) >> 20} MiB at most"
                )
        if self._is_dead:
            self._mourn()

    def _mourn(self) -> None:
        """A broker has died: what was sent last is the finding."""
        time.sleep(0.2)
        self._read_logs(all_of_it=True)
        for target in self._targets:
            if not target.is_alive():
                tail = target.log.read_bytes()[-3000:].decode(errors="replace") if target.log else ""
                self._totals.deaths += 1
                raised = [line for line in tail.splitlines() if "Error" in line or "FATAL" in line]
                cause = raised[-1].strip(" |")[:120] if raised else "?"
                self._found(f"{target.name} died: {cause}", tail)

    def _be_honest(self, honest: Honest) -> None:
        while not self._stop.wait(HONEST_S):
            try:
                honest.session()
                self._totals.sessions += 1
            except Wronged as error:
                self._wronged.put(str(error))
            except Exception as error:
                self._wronged.put(f"an answer of another form: {error!r}")

    def _afterwards(self, honest: Honest, grammar: Grammar) -> None:
        """Everybody has left: is all well, and is the memory back?"""
        self._hear_honest()
        try:
            honest.session()
            honest.last()
            for target in self._targets:
                tidied(target.address)
        except Wronged as error:
            self._found("a valid request after the attack", str(error))
        begun = tidy = time.monotonic()
        while (now := time.monotonic()) < begun + self._plan.rest_seconds and self._grown():
            if now > tidy + TIDY_S:
                tidy = now
                for target in self._targets:
                    tidied_if_possible(target.address)
            time.sleep(1)
        for target in self._grown():
            memory = self._totals.memory[target.name]
            if target.restart is not None:
                pid = target.restart()
                honest.close()  # the connections that went with the old process
                try:
                    prepare([target], self._plan.replicas)
                    all_compressions(target.address, FIXED_TOPICS)
                    warm(target, grammar)
                    honest.session()
                except Wronged as error:
                    self._found("a valid request after a restart", str(error))
                memory.restarted = memory_bytes(pid)
            if memory.has_grown:
                self._found("memory that does not come back", f"{target.name}: {memory}")
        self._read_logs(all_of_it=True)

    def _grown(self) -> list[Target]:
        """Who has not given back what it took."""
        for target in self._targets:
            self._totals.memory[target.name].end = memory_bytes(target.pid)
        return [target for target in self._targets if self._totals.memory[target.name].has_grown]

    # -- looks -------------------------------------------------------------------------------------------------------

    def _all_alive(self) -> bool:
        return all(target.is_alive() for target in self._targets)

    def _measure(self) -> None:
        for target in self._targets:
            memory = self._totals.memory[target.name]
            memory.peak = max(memory.peak, memory_bytes(target.pid))

    def _read_logs(self, *, all_of_it: bool = False) -> None:
        for _, log in self._logs:
            for entry in log.errors(all_of_it=all_of_it):
                self._found(entry.kind, entry.text)

    def _hear_honest(self) -> None:
        while True:
            try:
                told = self._wronged.get_nowait()
            except Empty:
                return
            kind = told.partition(" was not answered")[0] + " was not answered" if "was not answered" in told else told
            self._found("a valid request during the attack: " + "".join(c for c in kind if not c.isdigit())[:100], told)

    def _found_by_attack(self, kind: str, details: str) -> None:
        self._found(kind, details)

    def _found(self, kind: str, details: str, steps: Sequence[Step] | None = None) -> None:
        kept = self._recorder.last(LAST_STEPS) if steps is None else steps
        if self._findings.add(kind, details, kept if kind not in self._findings.kinds else ()):
            found = self._findings.kinds[kind]
            self._say(f"FOUND {kind}" + (f"\n    {found.file}" if found.file else ""))

    def _stop_probes(self) -> None:
        for target, probe in zip(self._targets, self._probes, strict=True):
            for stall in probe.stop():
                self._note(stall)
                self._together(target, stall, [])
            self._totals.longest = max(self._totals.longest, probe.longest)

    # -- stalls ------------------------------------------------------------------------------------------------------

    def _note(self, stall: Stall) -> None:
        self._totals.stalls += 1
        self._totals.longest = max(self._totals.longest, stall.seconds)

    def _trace(self, attack: Attack, target: Target, stall: Stall) -> None:
        """Which request was it?"""
        self._note(stall)
        if stall.cpu_seconds < LIMIT_MS / 1000 * 0.8:
            return  # the loop waited for a disk, or for nothing that a request can be blamed for
        steps = self._recorder.between(stall.begin - 0.3, stall.begin + stall.seconds)
        candidates = sorted(steps, key=lambda step: -len(step.data))[:ALONE_MAX]
        attack.is_paused = True
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and not attack.is_idle():
            attack.step()
        guilty = 0
        for step in candidates:
            took = alone(target, step.data)
            if took >= LIMIT_MS / 1000:
                took = min(took, alone(target, step.data))  # it was no accident, as a collection of garbage would be
            if took >= LIMIT_MS / 1000:
                guilty += 1
                self._found(f"stall by {step.label} alone", f"{took:.3f} s of the loop's time", [step])
            if not target.is_alive():
                break
        attack.is_paused = False
        if not guilty:
            self._together(target, stall, steps)
        for probe in self._probes:
            probe.stalls()  # of our own making

    def _together(self, target: Target, stall: Stall, steps: Sequence[Step]) -> None:
        if stall.cpu_seconds >= TOGETHER_S:
            labels = ", ".join(f"{step.label} ({len(step.data)})" for step in steps[-40:])
            text = f"{target.name}: {stall.seconds:.3f} s, {stall.cpu_seconds:.3f} s of them busy; in flight: {labels}"
            self._found(SEVERAL, text, steps)


def alone(target: Target, data: bytes) -> float:
    """Seconds for which a request by itself holds up another client; only what the loop ran counts."""
    try:
        with (
            socket.create_connection(target.address, 30) as bad,
            socket.create_connection(target.address, 120) as other,
        ):
            answered(other)

            def ask() -> None:
                bad.sendall(data)
                # The first may be answered before what was sent has been read.
                answered(other)
                answered(other)

            one = measured(ask, target.pid)
    except (OSError, EOFError):
        return 0.0
    return min(one.seconds, one.cpu_seconds)


def warm(target: Target, grammar: Grammar) -> None:
    """Requests of each API and version, so that what is made on first use does not count as growth or stall."""
    limits, grammar.limits = grammar.limits, Limits(odd_texts=False, huge_bytes=0, lies=False, damage=0, unserved=0)
    for key, (low, high) in WARM_ROUNDS * list(grammar.served.items()):
        if key not in BETWEEN_BROKERS:
            for version in range(low, high + 1):
                send_alone(target.address, grammar.request_of(key, version, 1, lone=True).frame, 0.05)
    grammar.limits = limits


def send_alone(address: tuple[str, int], frame: bytes, seconds: float) -> None:
    """Send it, wait a little for an answer, go."""
    try:
        with socket.create_connection(address, 10) as sock:
            sock.sendall(frame)
            sock.settimeout(seconds)
            sock.recv(65536)
    except OSError:
        pass


def prepare(targets: Sequence[Target], replicas: int = 1) -> dict[int, tuple[int, int]]:
    """Make the topics that attackers know; the APIs and versions that the brokers serve."""
    settings: dict[str, tuple[tuple[str, str], ...]] = {
        "compacted": (("cleanup.policy", "compact"),),
        "stamped": (("message.timestamp.type", "LogAppendTime"),),
    }
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=2,
            replication_factor=replicas,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in settings.get(name, ())
            ],
        )
        for name in FIXED_TOPICS
    ]
    codes: set[int] = set()
    for target in targets:  # one of them is the controller
        caller = Caller(target.address)
        answer = caller.ask(CreateTopicsRequest(topics=topics, timeout_ms=20_000), 5)
        keys = caller.ask(ApiVersionsRequest(), 0).api_keys
        caller.close()
        codes = {one.error_code for one in answer.topics}
        if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            return {one.api_key: (one.min_version, one.max_version) for one in keys}
    raise Wronged(f"CreateTopics is answered with {sorted(codes)}")


def summary(findings: Findings, totals: Totals) -> str:
    """What is printed at the end."""
    seconds = max(totals.seconds, 0.001)
    lines = [
        f"{totals.sent} requests in {seconds:.0f} s ({totals.sent / seconds:.0f}/s), {totals.answered} answered, "
        f"{totals.sessions} honest sessions",
        f"{totals.deaths} deaths, {totals.stalls} answers later than {LIMIT_MS} ms, the longest {totals.longest:.3f} s",
        *(f"memory of {name}: {memory}" for name, memory in totals.memory.items() if memory.start),
        f"{len(findings.kinds)} kinds of findings",
    ]
    if findings.kinds:
        lines.append(str(findings))
    return "\n".join(lines)


def say(text: str) -> None:
    """Report progress on the error stream."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
