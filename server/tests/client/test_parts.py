"""The client's parts without IO: versions, view, verdicts, errands, partitions of keys."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kproto import ApiKey, ErrorCode, schema_versions
from barnabas.kproto.messages import MetadataResponse
from barnabas.server.client.errands import Errands
from barnabas.server.client.failures import MEANING, Failed, Unsupported
from barnabas.server.client.partitioner import murmur2, partition_of
from barnabas.server.client.retrying import Pauses, Verdict, of_controllers, of_coordinators, verdict
from barnabas.server.client.versions import SPOKEN, choose, is_offered
from barnabas.server.client.view import ClusterView
from barnabas.server.tests.client.rig import KAFKA_0_11

# -- versions ----------------------------------------------------------------------------------------------------------


def test_what_is_spoken_has_schemas() -> None:
    for key, (first, last) in SPOKEN.items():
        known = schema_versions(key)
        assert known[0] <= first <= last <= known[1], key


def test_the_highest_common_version() -> None:
    offered = {ApiKey.FETCH: (4, 18), ApiKey.METADATA: (0, 5), ApiKey.PRODUCE: (0, 2)}
    assert choose(offered, ApiKey.FETCH) == 12
    assert choose(offered, ApiKey.METADATA) == 5
    assert is_offered(offered, ApiKey.METADATA, 5)
    assert not is_offered(offered, ApiKey.METADATA, 6)
    with pytest.raises(Unsupported, match=r"old:1 speaks Produce 0 to 2, and this client 3 to 12; .* from 0\.11 on"):
        choose(offered, ApiKey.PRODUCE, "old:1")
    with pytest.raises(Unsupported, match=r"the broker does not offer ListTransactions; .* from 3\.0 on"):
        choose(offered, ApiKey.LIST_TRANSACTIONS)


@pytest.mark.parametrize("key", [key for key in KAFKA_0_11 if key is not ApiKey.API_VERSIONS])
def test_brokers_since_0_11_are_spoken_to(key: ApiKey) -> None:
    assert choose(KAFKA_0_11, key) <= KAFKA_0_11[key][1]


# -- view --------------------------------------------------------------------------------------------------------------


def answer(
    *topics: tuple[str, int, int, int], topic_id: bytes = b"i" * 16, brokers: tuple[int, ...] = (1, 2)
) -> MetadataResponse:
    """topics: name, partition's leader, its epoch, error code of the topic."""
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=each, host="h", port=each) for each in brokers],
        controller_id=1,
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=name,
                error_code=code,
                topic_id=topic_id,
                partitions=[]
                if code
                else [
                    MetadataResponse.MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
                ],
            )
            for name, leader, epoch, code in topics
        ],
    )


def test_an_answer_speaks_of_what_was_asked() -> None:
    view = ClusterView().after(answer(("a", 1, 0, 0), ("b", 2, 0, 0)), None)
    assert view.leader("a", 0) == 1
    assert view.leader("c", 0) is None
    assert isinstance(view.leader("a", 1), Failed)
    view = view.after(answer(("a", 2, 1, 0)), ["a"])
    assert (view.leader("a", 0), view.leader("b", 0)) == (2, 2)
    view = view.after(answer(("a", 0, 0, 3)), ["a", "b"])  # b is left out: it may not be seen
    gone = view.leader("a", 0)
    assert isinstance(gone, Failed)
    assert gone.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert view.leader("b", 0) is None
    assert view.after(answer(("z", 1, 0, 0)), None).topics.keys() == {"z"}


def test_a_broker_that_lags_behind_does_not_take_a_leader_back() -> None:
    view = ClusterView().after(answer(("a", 1, 5, 0)), None)
    assert view.after(answer(("a", 2, 4, 0)), None).leader("a", 0) == 1
    assert view.after(answer(("a", 2, 6, 0)), None).leader("a", 0) == 2
    assert view.after(answer(("a", 2, 0, 0), topic_id=b"j" * 16), None).leader("a", 0) == 2, "made anew"
    assert view.after(answer(("a", 2, -1, 0)), None).leader("a", 0) == 2, "before 2.1"


def test_a_leader_that_is_not_there_is_not_known() -> None:
    view = ClusterView().after(answer(("a", 7, 1, 0), ("b", -1, 1, 0)), None)
    assert view.leader("a", 0) is None
    assert view.leader("b", 0) is None
    assert view.after(answer(("a", 0, 0, 5)), ["a"]).leader("a", 0) is None, "LEADER_NOT_AVAILABLE passes"


# -- verdicts and pauses -----------------------------------------------------------------------------------------------


def test_verdicts() -> None:
    assert verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.ELSEWHERE
    assert verdict(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is Verdict.AGAIN
    assert verdict(ErrorCode.TOPIC_AUTHORIZATION_FAILED) is Verdict.FINAL
    assert of_coordinators(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is Verdict.FINAL
    assert of_coordinators(ErrorCode.NOT_COORDINATOR) is Verdict.ELSEWHERE
    assert of_controllers(ErrorCode.NOT_CONTROLLER) is Verdict.ELSEWHERE
    assert of_controllers(ErrorCode.REQUEST_TIMED_OUT) is Verdict.FINAL, "it may be under way"


def test_pauses_grow_to_a_second() -> None:
    pauses = Pauses(Random(1))
    found = [pauses.after(tries) for tries in range(1, 100)]
    assert 0.04 <= found[0] <= 0.06
    assert all(0.8 <= each <= 1.2 for each in found[6:])


def test_failures_are_sentences() -> None:
    assert str(Failed.of(36)) == "the topic exists already (TOPIC_ALREADY_EXISTS)"
    assert str(Failed.of(36, "Topic 't' already exists.")) == "Topic 't' already exists (TOPIC_ALREADY_EXISTS)"
    assert str(Failed.of(9999)) == "error 9999, which is unknown here (UNKNOWN_SERVER_ERROR)"
    assert str(Failed.of(22)) == "ILLEGAL_GENERATION"
    assert not any(text[0].isupper() or text.endswith(".") for text in MEANING.values())


# -- errands -----------------------------------------------------------------------------------------------------------


def errands(*items: str, limit_s: float = 10, portion: int = 2, repeatable: bool = True) -> Errands[str, int]:
    return Errands(items, now=0.0, limit_s=limit_s, pauses=Pauses(Random(1)), portion=portion, repeatable=repeatable)


def test_items_are_split_by_broker_and_into_portions() -> None:
    work = errands("a1", "b2", "c1", "d1")
    first = work.plan(lambda item: int(item[1]), 0.0)
    assert [(trip.broker_id, trip.items) for trip in first] == [(1, ["a1", "c1"]), (2, ["b2"])]
    assert [trip.items for trip in work.plan(lambda item: int(item[1]), 0.0)] == [["d1"]]
    for item in ("a1", "b2", "c1", "d1"):
        work.answered(item, 7, 0.0)
    assert work.is_done
    assert set(work.results.values()) == {7}


def test_an_item_is_looked_up_once_before_it_waits() -> None:
    work = errands("a")
    assert work.plan(lambda _: None, 0.0) == []
    assert work.lookups(0.0) == ["a"], "at once"
    work.looked_up(["a"])
    assert work.plan(lambda _: None, 0.0) == []
    assert work.lookups(0.0) == []
    assert 0 < work.due(0.0) < 0.1
    assert work.lookups(work.due(0.0)) == ["a"]


def test_a_moved_leader_is_looked_up_and_others_do_not_wait() -> None:
    work = errands("a", "b")
    (trip,) = work.plan(lambda _: 1, 0.0)
    work.answered("a", Failed(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0)
    work.answered("b", 3, 0.0)
    work.unanswered(trip, 0.0)
    due = work.due(0.0)
    assert work.plan(lambda _: 2, 0.0) == []
    assert work.lookups(due) == ["a"]
    work.looked_up(["a"])
    (again,) = work.plan(lambda _: 2, due)
    assert again == (2, ["a"])
    work.answered("a", 4, due)
    assert work.results == {"a": 4, "b": 3}


def test_what_is_final_ends_an_item() -> None:
    work = errands("a", "b", "c")
    trips = work.plan(lambda item: Failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if item == "c" else 1, 0.0)
    work.answered("a", Failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0.0)
    work.answered("nobody asked", 1, 0.0)
    work.unanswered(trips[0], 0.0)
    assert work.is_done
    assert [result.code for result in work.results.values() if isinstance(result, Failed)] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]


def test_the_end_of_the_time_keeps_the_last_error() -> None:
    work = errands("a", "b", limit_s=1)
    (trip,) = work.plan(lambda _: 1, 0.0)
    work.lost(trip, "cannot connect to h:1", 0.0, sent=False)
    now = 0.0
    while not work.is_done:
        now = work.due(now)
        work.looked_up(work.lookups(now))
        for _ in work.plan(lambda _: 1, now):
            work.answered("a", Failed(ErrorCode.NOT_LEADER_OR_FOLLOWER), now)
    assert now <= 1
    assert [result.code.name for _, result in sorted(work.results.items()) if isinstance(result, Failed)] == [
        "NOT_LEADER_OR_FOLLOWER",
        "NETWORK_EXCEPTION",
    ]


def test_what_may_not_be_repeated_is_not() -> None:
    work = errands("a", repeatable=False)
    (trip,) = work.plan(lambda _: 1, 0.0)
    work.lost(trip, "cannot connect", 0.0, sent=False)
    assert not work.is_done
    now = work.due(0.0)
    work.looked_up(work.lookups(now))
    (trip,) = work.plan(lambda _: 1, now)
    work.lost(trip, "connection lost", now, sent=True)
    assert "whether it was done is not known" in str(work.results["a"])


@given(st.integers(), st.lists(st.integers(0, 3), min_size=1, max_size=20))
@settings(deadline=None)
def test_every_item_gets_one_result_in_time(seed: int, kinds: list[int]) -> None:
    """Whatever brokers do."""
    rng = Random(seed)
    work: Errands[int, int] = Errands(range(len(kinds)), now=0.0, limit_s=5, pauses=Pauses(rng), portion=3)
    now = 0.0
    steps = 0
    while not work.is_done:
        steps += 1
        assert steps < 10_000
        work.looked_up(work.lookups(now))
        trips = work.plan(lambda item: [1, 2, None, Failed(ErrorCode.INVALID_TOPIC_EXCEPTION)][kinds[item]], now)
        for trip in trips:
            chance = rng.random()
            if chance < 0.3:
                work.lost(trip, "lost", now, sent=chance < 0.1)
                continue
            for item in trip.items:
                code = rng.choice(
                    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_RECORD, None]
                )
                work.answered(item, item if code is None else Failed(code), now)
        now = max(now, work.due(now)) if not trips else now
    assert work.results.keys() == set(range(len(kinds)))
    assert now <= 5


# -- partitions of keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_as_java_hashes(key: str, signed: int) -> None:
    """Values of Apache Kafka's `Utils.murmur2`."""
    assert murmur2(key.encode()) == signed & 0xFFFFFFFF
    assert partition_of(key.encode(), 7) == (signed & 0x7FFFFFFF) % 7
