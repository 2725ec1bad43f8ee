"""The clock of a cluster under test: `cluster.clock`. It is the clocks of its brokers, which are moved in step.

Each broker is a process, and what is due in one often wants an answer of another. So all clocks stand still; all go on
to the next deadline of any broker, and wait there until no broker has anything to do and no answer is on its way; then
to the next one. A follower asks its leader twice a second of a broker's time. A week of that would be a million steps;
as with the clock of one broker (`barnabas.server.runtime.virtual_clock`), those that are far from both ends of an
advance are at least `GRAIN` of the way to the nearer one.

The store that keeps the metadata has no such clock, and brokers count no time against each other's answers.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from barnabas.child import BrokerError

if TYPE_CHECKING:
    from http.client import HTTPConnection

__all__ = ["ClusterClock"]

GRAIN: Final = 0.1
GRAIN_MIN_S: Final = 0.5
"""As often as followers ask. A broker is to say something to the store every two seconds of its own, or is given up."""
PATIENCE_S: Final = 1.0
LOOKS: Final = 20
"""How long to wait, in real time, for brokers that do not come to rest, and how often to look at least: clients may ask
without a pause, and a store that is away answers nobody; but one who had no core did not look.
"""
CROWDED_S: Final = 0.01
CROWDED_LOOKS: Final = 2
"""The same, once that has happened in an advance."""
ANSWER_S: Final = 120.0


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the cluster, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


class ClusterClock:
    """See the module. urls(): the control channels of the brokers that run."""

    def __init__(self, urls: Callable[[], Sequence[str]]) -> None:
        self._urls = urls
        self.ahead_s = 0.0
        """How far the brokers are ahead of the clock on the wall; those that start, too."""

    def __repr__(self) -> str:
        return f"<barnabas clock of a cluster, {self.ahead_s:g} s ahead>"

    def now(self) -> datetime:
        """In UTC. For the timestamps of records, which clients otherwise take from their own clock."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int((time.time() + self.ahead_s) * 1000)

    def advance(self, by: str | float | timedelta) -> None:
        """As `barnabas.Broker.clock` does it, for all brokers that run. Raises ValueError, BrokerError."""
        from barnabas.server.control.durations import seconds_of

        seconds = by.total_seconds() if isinstance(by, timedelta) else seconds_of(by)
        if not seconds >= 0:  # nor nan
            raise ValueError(f"by: the clock cannot be advanced by {seconds:g} seconds")
        with self.held() as brokers:
            moved = 0.0
            next_s = brokers.come_to_rest()
            while moved < seconds:
                least_s = max(GRAIN_MIN_S, GRAIN * min(moved, seconds - moved))
                step_s = min(max(least_s, next_s), seconds - moved)
                moved += step_s
                self.ahead_s += step_s
                brokers.step(step_s)
                next_s = brokers.come_to_rest()

    @contextmanager
    def held(self) -> Iterator[Held]:
        """All clocks stand still in the block. Raises BrokerError."""
        urls = self._urls()
        if not urls:
            raise BrokerError("no broker of the cluster is running")
        held = Held(urls)
        try:
            held.begin()
            try:
                yield held
            finally:
                held.ask_all("POST", "/v1/clock/release")
        finally:
            held.close()


class Held:
    """Brokers whose clocks stand still, each asked over one connection, all at the same time."""

    def __init__(self, urls: Sequence[str]) -> None:
        from http.client import HTTPConnection

        self._brokers: list[HTTPConnection] = [
            HTTPConnection(url.removeprefix("http://"), timeout=ANSWER_S) for url in urls
        ]
        self._did: list[HTTPConnection] = []
        """Those that did what all were asked last."""
        self._patience_s, self._looks = PATIENCE_S, LOOKS

    def __len__(self) -> int:
        """How many there are that answer."""
        return len(self._brokers)

    def begin(self) -> None:
        """Hold all clocks, or none. Raises BrokerError."""
        try:
            self.ask_all("POST", "/v1/clock/hold")
        except BaseException:
            # Those that did it stand still for ever otherwise. Another's who holds clocks are not let go.
            self._brokers = self._did
            with suppress(BrokerError, ValueError):
                self.ask_all("POST", "/v1/clock/release")
            raise

    def step(self, seconds: float) -> list[Any]:
        """Send all brokers so much further; how they stand. Raises BrokerError, ValueError."""
        return self._ask("POST", "/v1/clock/step", {"by": seconds})

    def come_to_rest(self) -> float:
        """Wait until nothing happens in any broker; after how many seconds the next thing is due in one. Zero if they
        do not come to rest.
        """
        until = time.monotonic() + self._patience_s
        for looks in itertools.count(1):
            stood = self.step(0)
            if all(each["at_rest"] for each in stood):
                return min(float("inf") if each["next_s"] is None else float(each["next_s"]) for each in stood)
            if time.monotonic() > until and looks >= self._looks:
                self._patience_s, self._looks = CROWDED_S, CROWDED_LOOKS
                break
        return 0.0

    def ask_all(self, method: str, path: str) -> list[Any]:
        """The answers of all. Raises BrokerError, ValueError."""
        return self._ask(method, path, None)

    def close(self) -> None:
        """Close the connections."""
        for broker in self._brokers:
            broker.close()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> list[Any]:
        """Ask all, then read all: they work at the same time. One that does not answer is not asked again."""
        import http.client

        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if data else {}
        answers: list[Any] = []
        problems: list[Exception] = []
        lost: list[HTTPConnection] = []
        did: list[HTTPConnection] = []
        self._did = did
        for broker in self._brokers:
            try:
                broker.request(method, path, data, headers)
            except (OSError, http.client.HTTPException) as error:
                lost.append(broker)
                problems.append(_silent(broker, path, error))
        for broker in [each for each in self._brokers if each not in lost]:
            try:
                response = broker.getresponse()
                status, said = response.status, json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                lost.append(broker)
                problems.append(_silent(broker, path, error))
                continue
            if status == 200:
                answers.append(said)
                did.append(broker)
            elif status == 400:
                problems.append(ValueError(str(said.get("error"))))
            else:
                problems.append(BrokerError(f"{path}: {said.get('error')}"))
        for broker in lost:
            broker.close()
            self._brokers.remove(broker)
        if problems:
            raise problems[0]
        return answers


def _silent(broker: HTTPConnection, path: str, error: Exception) -> BrokerError:
    return BrokerError(f"the control channel at {broker.host}:{broker.port} does not answer {path}: {error}")
