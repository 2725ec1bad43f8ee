"""Which requests a fault strikes: by example, and against a model that looks at the whole history each time."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.requests.faults.rules import (
    ENDINGS,
    KIT_CLIENT_ID,
    RULES_MAX,
    Act,
    Decision,
    Fault,
    FaultRules,
    Item,
    TooManyRules,
)

E = ErrorCode
T0, T1, U0 = Item("t", 0), Item("t", 1), Item("u", 0)


def refusing(*faults: Fault, left_alone: frozenset[ApiKey] = frozenset()) -> FaultRules:
    rules = FaultRules(left_alone)
    for fault in faults:
        rules.add(fault)
    return rules


def produced(rules: FaultRules, *items: Item, client_id: str | None = "c") -> Decision | None:
    return rules.decide(ApiKey.PRODUCE, client_id, items)


def test_only_what_is_named_fails() -> None:
    rules = refusing(Fault(topic="t", act=Act.ERROR, error=E.NOT_LEADER_OR_FOLLOWER))
    assert produced(rules, T0, U0, T1) == Decision(errors={0: E.NOT_LEADER_OR_FOLLOWER, 2: E.NOT_LEADER_OR_FOLLOWER})
    assert produced(rules, U0) is None
    assert produced(rules, Item()) is None
    (rule,) = rules
    assert (rule.seen, rule.hits) == (1, 1)


@pytest.mark.parametrize(
    ("filters", "strikes"),
    [
        ({}, True),
        ({"apis": frozenset((ApiKey.PRODUCE,))}, True),
        ({"apis": frozenset((ApiKey.FETCH,))}, False),
        ({"topic": "t", "partition": 1}, True),
        ({"topic": "t", "partition": 2}, False),
        ({"topic": "u", "partition": 1}, False),
        ({"client_id": "c"}, True),
        ({"client_id": "d"}, False),
        ({"group": "g"}, False),
        ({"transactional_id": "x"}, False),
    ],
)
def test_filters(filters: dict[str, Any], strikes: bool) -> None:
    rules = refusing(Fault(act=Act.DROP, **filters))
    assert (produced(rules, T0, T1, U0) is not None) is strikes


def test_groups_and_transactional_ids() -> None:
    rules = refusing(Fault(group="g", act=Act.ERROR, error=E.NOT_COORDINATOR))
    item = Item("t", 0, "g", "x")
    assert rules.decide(ApiKey.TXN_OFFSET_COMMIT, None, [item, item._replace(group="h")]) == Decision(
        errors={0: E.NOT_COORDINATOR}
    )


def test_from_the_nth_on_and_so_often() -> None:
    rules = refusing(Fault(act=Act.DROP, nth=3, times=2))
    struck = [produced(rules, T0) is not None for _ in range(6)]
    assert struck == [False, False, True, True, False, False]
    (rule,) = rules
    assert (rule.seen, rule.hits, rule.is_over, rules.is_idle) == (4, 2, True, True)


def test_what_brokers_and_the_kit_ask_is_left_alone() -> None:
    rules = refusing(Fault(act=Act.DROP), left_alone=frozenset((ApiKey.LEADER_AND_ISR,)))
    assert rules.decide(ApiKey.LEADER_AND_ISR, "1", [Item()]) is None
    assert rules.decide(ApiKey.METADATA, KIT_CLIENT_ID, [Item()]) is None
    assert not rules.may_concern(ApiKey.LEADER_AND_ISR, "1")
    assert rules.decide(ApiKey.METADATA, None, [Item()]) == Decision(ending=Act.DROP)
    rules = refusing(
        Fault(apis=frozenset((ApiKey.LEADER_AND_ISR,)), act=Act.DROP),
        Fault(client_id=KIT_CLIENT_ID, act=Act.HALF),
        left_alone=frozenset((ApiKey.LEADER_AND_ISR,)),
    )
    assert rules.decide(ApiKey.LEADER_AND_ISR, "1", [Item()]) == Decision(ending=Act.DROP)
    assert rules.decide(ApiKey.METADATA, KIT_CLIENT_ID, [Item()]) == Decision(ending=Act.HALF)


def test_several_at_once() -> None:
    """Delays add up, items have their first error, and nothing is seen behind the end of the connection."""
    rules = refusing(
        Fault(delay_ms=10),
        Fault(topic="t", partition=0, act=Act.ERROR, error=E.NOT_LEADER_OR_FOLLOWER),
        Fault(topic="t", act=Act.ERROR, error=E.REQUEST_TIMED_OUT, delay_ms=5),
        Fault(topic="t", partition=1, act=Act.ERROR, error=E.MESSAGE_TOO_LARGE),
        Fault(act=Act.DROP_ANSWER),
        Fault(act=Act.HALF),
    )
    assert produced(rules, T0, T1) == Decision(
        15, {0: E.NOT_LEADER_OR_FOLLOWER, 1: E.REQUEST_TIMED_OUT}, [], Act.DROP_ANSWER
    )
    assert [(rule.seen, rule.hits) for rule in rules] == [(1, 1), (1, 1), (1, 1), (1, 0), (1, 1), (0, 0)]


def test_there_is_an_end_to_rules() -> None:
    rules = refusing(*[Fault()] * RULES_MAX)
    with pytest.raises(TooManyRules):
        rules.add(Fault())
    assert rules.remove(1) is not None
    assert rules.remove(1) is None
    assert rules.add(Fault()).number == RULES_MAX + 1
    rules.clear()
    assert (list(rules), rules.is_idle) == ([], True)


# -- a model ---------------------------------------------------------------------------------------------------------


class Model:
    """Knows nothing but the past: what was added and asked, in order; counts again for each question."""

    def __init__(self) -> None:
        self.past: list[tuple[str, Any]] = []

    def decide(self, api: ApiKey, client_id: str | None, items: tuple[Item, ...]) -> Decision | None:
        self.past.append(("ask", (api, client_id, items)))
        return self.replayed()[1]

    def replayed(self) -> tuple[dict[int, list[int]], Decision | None]:
        faults: dict[int, Fault] = {}
        counts: dict[int, list[int]] = {}
        answer = None
        for what, value in self.past:
            if what == "add":
                faults[len(counts) + 1] = value
                counts[len(counts) + 1] = [0, 0]
            elif what == "remove":
                faults.pop(value, None)
            else:
                answer = self.answered(faults, counts, *value)
        return counts, answer

    @staticmethod
    def answered(
        faults: dict[int, Fault],
        counts: dict[int, list[int]],
        api: ApiKey,
        client_id: str | None,
        items: tuple[Item, ...],
    ) -> Decision | None:
        struck = []
        errors: dict[int, ErrorCode] = {}
        for number, fault in faults.items():
            if any(each.act in ENDINGS for each, _ in struck):
                break
            wanted = {
                "topic": fault.topic,
                "partition": fault.partition,
                "group": fault.group,
                "transactional_id": fault.transactional_id,
            }
            named = {
                at
                for at, item in enumerate(items)
                if all(getattr(item, kind) == value for kind, value in wanted.items() if value is not None)
            }
            if client_id != (KIT_CLIENT_ID if fault.client_id == KIT_CLIENT_ID else fault.client_id or client_id):
                continue
            if client_id == KIT_CLIENT_ID and fault.client_id is None:
                continue
            if not named or not (api in fault.apis or not fault.apis):
                continue
            if counts[number][1] == fault.times:
                continue
            counts[number][0] += 1
            if counts[number][0] < fault.nth:
                continue
            mine = named - errors.keys()
            if fault.act is Act.ERROR and not mine:
                continue
            if fault.act is Act.ERROR:
                errors |= dict.fromkeys(mine, fault.error)
            counts[number][1] += 1
            struck.append((fault, number))
        if not struck:
            return None
        last = struck[-1][0]
        return Decision(
            sum(fault.delay_ms for fault, _ in struck), errors, [], last.act if last.act in ENDINGS else Act.NOTHING
        )


def some_fault(rng: random.Random) -> Fault:
    def maybe(*values: Any) -> Any:
        return rng.choice(values) if rng.random() < 0.4 else None

    topic = maybe("t", "u")
    return Fault(
        frozenset(rng.sample([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP], rng.randrange(3))),
        topic,
        maybe(0, 1) if topic else None,
        maybe("g", "h"),
        maybe("x"),
        maybe("c", "d", KIT_CLIENT_ID),
        rng.choice([Act.NOTHING, Act.ERROR, Act.ERROR, Act.DROP, Act.HALF]),
        rng.choice([E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT]),
        rng.choice([0, 5]),
        rng.choice([1, 1, 2, 4]),
        maybe(1, 2, 5),
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("BARNABAS_FAULT_SEEDS", "40"))))
def test_the_model_decides_the_same(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    rules, model = FaultRules(), Model()
    added = 0
    for _ in range(60):
        if rng.random() < 0.15:
            fault = some_fault(rng)
            rules.add(fault)
            model.past.append(("add", fault))
            added += 1
        elif added and rng.random() < 0.05:
            number = rng.randint(1, added)
            rules.remove(number)
            model.past.append(("remove", number))
        api = rng.choice([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP])
        client_id = rng.choice([None, "c", "d", KIT_CLIENT_ID])
        items = tuple(
            Item(rng.choice(["t", "u", None]), rng.choice([0, 1]), rng.choice(["g", None]), rng.choice(["x", None]))
            for _ in range(rng.randrange(1, 4))
        )
        may = rules.may_concern(api, client_id)
        was_idle = rules.is_idle
        decided = rules.decide(api, client_id, items)
        assert decided == model.decide(api, client_id, items)
        assert decided is None or (may and not was_idle)
    counts, _ = model.replayed()
    assert {rule.number: [rule.seen, rule.hits] for rule in rules} == {
        rule.number: counts[rule.number] for rule in rules
    }
