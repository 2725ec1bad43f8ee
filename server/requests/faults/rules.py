"""What is to go wrong, and for which requests. Values and a matcher: no IO, no clock.

A `Fault` is what somebody asked for; a `Rule` is one with its counts. `FaultRules.decide` is asked about each request
and counts it. A request names items (`Item`): a partition, a group; one that names nothing has a single empty item.

How several rules act on one request, in the order in which they were added:

- their delays add up;
- each item has the error of the first rule that wants one for it;
- the first that drops the request or cuts its answer ends the search: later rules do not see the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from barnabas.kproto import ApiKey, ErrorCode

RULES_MAX: Final = 1000
KIT_CLIENT_ID: Final = "barnabas-kit"
"""Of the test kit's own requests."""


class Act(Enum):
    """What becomes of a request beside its delay.

    ERROR: the fault's items fail. STALE: answered from the cluster as it was when the fault was added. DROP: not
    handled, and the connection is closed. DROP_ANSWER: handled, and the connection is closed instead of the answer.
    HALF: handled, half of the answer is sent, and the connection is closed.
    """

    NOTHING = "nothing"
    ERROR = "error"
    STALE = "stale"
    DROP = "drop"
    DROP_ANSWER = "drop-answer"
    HALF = "half"


ENDINGS: Final = frozenset((Act.DROP, Act.DROP_ANSWER, Act.HALF))
"""They close the connection."""


class Item(NamedTuple):
    """Something that a request names; None: of no such kind, or unknown."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """apis: empty for all that clients ask. topic … client_id: None for any. act, delay_ms: what happens. error: with
    `Act.ERROR`. nth: from the nth request on that is concerned, 1 for the first. times: how often; None: always.
    """

    apis: frozenset[ApiKey] = frozenset()
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    act: Act = Act.NOTHING
    error: ErrorCode = ErrorCode.NONE
    delay_ms: int = 0
    nth: int = 1
    times: int | None = None

    def names(self, item: Item) -> bool:
        """Whether it concerns this item."""
        return (
            (self.topic is None or self.topic == item.topic)
            and (self.partition is None or self.partition == item.partition)
            and (self.group is None or self.group == item.group)
            and (self.transactional_id is None or self.transactional_id == item.transactional_id)
        )

    def concerns(self, api: ApiKey, client_id: str | None, left_alone: frozenset[ApiKey] = frozenset()) -> bool:
        """Whether it may concern a request of this API and client. left_alone: APIs that a fault must name."""
        if api not in self.apis and (self.apis or api in left_alone):
            return False
        if self.client_id is None:
            return client_id != KIT_CLIENT_ID
        return self.client_id == client_id


@dataclass(slots=True)
class Rule:
    """A fault by number. seen: requests that it concerned until it was over; hits: those that it
    struck.
    """

    number: int
    fault: Fault
    seen: int = 0
    hits: int = 0

    @property
    def is_over(self) -> bool:
        """It strikes no more."""
        return self.fault.times is not None and self.hits >= self.fault.times


@dataclass(slots=True)
class Decision:
    """What becomes of a request. errors: by the number of the item in it. stale: the rules that want it answered from
    before. ending: NOTHING, or one of `ENDINGS`.
    """

    delay_ms: int = 0
    errors: dict[int, ErrorCode] = field(default_factory=dict)
    stale: list[Rule] = field(default_factory=list)
    ending: Act = Act.NOTHING


class TooManyRules(Exception):
    """There is no room for another one."""


class FaultRules:
    """The rules of one broker. left_alone: APIs that a fault must name to concern them."""

    def __init__(self, left_alone: frozenset[ApiKey] = frozenset()) -> None:
        self._left_alone = left_alone
        self._rules: dict[int, Rule] = {}
        self._last = 0

    def __iter__(self) -> Iterator[Rule]:
        return iter(list(self._rules.values()))

    def add(self, fault: Fault) -> Rule:
        """Begin with a fault. Raises TooManyRules."""
        if len(self._rules) >= RULES_MAX:
            raise TooManyRules
        self._last += 1
        rule = self._rules[self._last] = Rule(self._last, fault)
        return rule

    def find(self, number: int) -> Rule | None:
        return self._rules.get(number)

    def remove(self, number: int) -> Rule | None:
        """End a rule; None: there is none."""
        return self._rules.pop(number, None)

    def clear(self) -> None:
        """End all."""
        self._rules.clear()

    @property
    def is_idle(self) -> bool:
        """No rule can strike."""
        return all(rule.is_over for rule in self._rules.values())

    def may_concern(self, api: ApiKey, client_id: str | None) -> bool:
        """Whether any rule may strike a request of this API and client."""
        return any(
            not rule.is_over and rule.fault.concerns(api, client_id, self._left_alone) for rule in self._rules.values()
        )

    def decide(self, api: ApiKey, client_id: str | None, items: Sequence[Item]) -> Decision | None:
        """What becomes of a request, and count it; None: it is handled as usual."""
        decision = Decision()
        is_struck = False
        for rule in self._rules.values():
            fault = rule.fault
            if rule.is_over or not fault.concerns(api, client_id, self._left_alone):
                continue
            named = [number for number, item in enumerate(items) if fault.names(item)]
            if not named:
                continue
            rule.seen += 1
            if rule.seen < fault.nth:
                continue
            if fault.act is Act.ERROR:
                free = [number for number in named if number not in decision.errors]
                if not free:
                    continue
                decision.errors.update(dict.fromkeys(free, fault.error))
            elif fault.act is Act.STALE:
                decision.stale.append(rule)
            rule.hits += 1
            is_struck = True
            decision.delay_ms += fault.delay_ms
            if fault.act in ENDINGS:
                decision.ending = fault.act
                break
        return decision if is_struck else None
