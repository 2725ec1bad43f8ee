"""Topologies beside topics: counts, tasks, what is to be made, and each thing that stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.coordinator.group.streams.configured import ConfiguredTopology, InternalTopic, Status, configure
from barnabas.coordinator.group.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from barnabas.kproto import ErrorCode, KafkaError

COMPACT = (("cleanup.policy", "compact"),)


def run(partitions: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    return configure(Topology(3, {each.subtopology_id: each for each in subtopologies}), partitions)


def reads(*topics: TopicInfo | str, group: bool = False) -> dict[str, Any]:
    """Repartition topics of a subtopology, by name or with a count; of one copartition group, if wanted."""
    infos = tuple(topic if isinstance(topic, TopicInfo) else TopicInfo(topic) for topic in topics)
    groups = (CopartitionGroup((), (), tuple(range(len(infos)))),) if group else ()
    return {"repartition_source_topics": infos, "copartition_groups": groups}


def counts(configured: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in configured.wanted.items()}


def refused(partitions: Mapping[str, int], *subtopologies: Subtopology) -> str:
    with pytest.raises(KafkaError) as caught:
        run(partitions, *subtopologies)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    return str(caught.value.message)


def problem(configured: ConfiguredTopology) -> tuple[Status, str]:
    assert configured.problem is not None
    assert not configured.is_ready
    return configured.problem


def test_a_small_topology_may_not_have_all_tasks_that_there_is_memory_for() -> None:
    many = [Subtopology(str(number), ("in",)) for number in range(10)]
    assert run({"in": 10_000}, *many).is_ready
    assert refused({"in": 10_000}, *many, Subtopology("one-more", ("in",))) == (
        "The topology has 110000 tasks; it may have 100000."
    )
    fixed = Subtopology("1", repartition_source_topics=(TopicInfo("r", 2**31 - 1),))
    assert "may have 100000" in refused({"in": 1}, Subtopology("0", ("in",), repartition_sink_topics=("r",)), fixed)


def test_details_name_some_topics_and_no_more() -> None:
    names = [f"{number:03}" + "t" * 246 for number in range(300)]
    group = CopartitionGroup(tuple(range(300)))
    status, detail = problem(
        run({name: 1 + (name > "299") for name in names}, Subtopology("0", tuple(names), copartition_groups=(group,)))
    )
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail.count("(1)") + detail.count("(2)") == 3
    assert "297 more" in detail
    assert "(1)" in detail
    assert "(2)" in detail


COUNT = (
    Subtopology("0", ("words",), repartition_sink_topics=("by-word",)),
    Subtopology(
        "1",
        (),
        (),
        (TopicInfo("counts", 0, 2, COMPACT),),
        (),
        (TopicInfo("by-word", 0, 0, (("retention.ms", "-1"),)),),
    ),
)


def test_a_word_count_wants_its_topics_and_then_is_ready() -> None:
    found = run({"words": 4}, *COUNT)
    assert problem(found)[0] is Status.MISSING_INTERNAL_TOPICS
    assert found.epoch == 3
    assert found.wanted == {
        "by-word": InternalTopic("by-word", 4, 0, (("retention.ms", "-1"),)),
        "counts": InternalTopic("counts", 4, 2, COMPACT),
    }
    assert found.subtopologies is not None
    assert {key: (each.tasks, each.is_stateful) for key, each in found.subtopologies.items()} == {
        "0": (4, False),
        "1": (4, True),
    }
    there = run({"words": 4, **counts(found)}, *COUNT)
    assert there.is_ready
    assert there.wanted == {}
    assert there.subtopologies == found.subtopologies
    assert there.unknown_task("1", (3, 0)) is None
    assert there.unknown_task("1", (4, 3)) == 4
    assert there.unknown_task("1", (3, -1)) == -1
    assert there.unknown_task("2", (0,)) == 0


def test_missing_source_topics_end_it() -> None:
    found = run({"c": 1}, Subtopology("0", ("e", "b", "c")), Subtopology("1", ("d", "a")))
    status, detail = problem(found)
    assert status is Status.MISSING_SOURCE_TOPICS
    assert "a, b, d and 1 more" in detail
    assert found.subtopologies is None
    assert found.unknown_task("0", (0,)) == 0
    assert not found.wanted


def test_a_topology_without_subtopologies_is_ready() -> None:
    assert run({}).is_ready


def test_partitions_pass_from_one_repartition_topic_to_the_next() -> None:
    chain = [
        Subtopology("0", **reads("third")),
        Subtopology("1", **reads("second"), repartition_sink_topics=("third",)),
        Subtopology("2", **reads("first"), repartition_sink_topics=("second",)),
        Subtopology("3", ("in",), repartition_sink_topics=("first",)),
    ]
    assert counts(run({"in": 7}, *chain)) == {"first": 7, "second": 7, "third": 7}


def test_a_repartition_topic_follows_the_largest_topic_that_its_writer_reads() -> None:
    found = run({"in": 2, "too": 5}, Subtopology("0", ("in", "too"), repartition_sink_topics=("r",)), READER)
    assert counts(found) == {"r": 5}


READER = Subtopology("1", **reads("r"))


def test_a_fixed_count_stays_and_passes_on() -> None:
    found = run(
        {"in": 2},
        Subtopology("0", ("in",), repartition_sink_topics=("r",)),
        Subtopology("1", **reads(TopicInfo("r", 9)), repartition_sink_topics=("s",)),
        Subtopology("2", **reads("s")),
    )
    assert counts(found) == {"r": 9, "s": 9}


def test_a_loop_of_repartition_topics_is_refused() -> None:
    message = refused(
        {"in": 2},
        Subtopology("0", ("in",)),
        Subtopology("1", **reads("r"), repartition_sink_topics=("s",)),
        Subtopology("2", **reads("s"), repartition_sink_topics=("r",)),
    )
    assert "loop" in message


def test_a_loop_that_a_source_topic_enters_is_not() -> None:
    found = run(
        {"in": 2},
        Subtopology("1", ("in",), **reads("r"), repartition_sink_topics=("s",)),
        Subtopology("2", **reads("s"), repartition_sink_topics=("r",)),
    )
    assert counts(found) == {"r": 2, "s": 2}


def test_a_repartition_topic_that_nobody_writes_is_refused() -> None:
    assert "r" in refused({"in": 1}, Subtopology("0", ("in",), **reads("r")))
    assert counts(run({"in": 1}, Subtopology("0", ("in",), **reads(TopicInfo("r", 3))))) == {"r": 3}


def test_a_subtopology_that_reads_nothing_is_refused() -> None:
    assert "reads no topic" in refused({"in": 1}, Subtopology("0", ("in",)), Subtopology("1"))


def writers(*topics: str, to: str = "in") -> Subtopology:
    return Subtopology(f"w{to}", (to,), repartition_sink_topics=topics)


def test_copartitioned_source_topics_must_agree() -> None:
    group = CopartitionGroup((0, 1))
    status, detail = problem(run({"a": 2, "b": 3}, Subtopology("0", ("a", "b"), copartition_groups=(group,))))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "a (2), b (3)" in detail
    assert run({"a": 2, "b": 2}, Subtopology("0", ("a", "b"), copartition_groups=(group,))).is_ready
    assert run({"a": 2, "b": 3}, Subtopology("0", ("a", "b"))).is_ready, "a merge needs no equal counts"


def joined(info: TopicInfo) -> Subtopology:
    """A source topic and a repartition topic."""
    return Subtopology(
        "0", ("a",), repartition_source_topics=(info,), copartition_groups=(CopartitionGroup((0,), (), (0,)),)
    )


def test_a_repartition_topic_follows_the_source_topic_beside_it() -> None:
    assert counts(run({"a": 2, "in": 6}, writers("r"), joined(TopicInfo("r")))) == {"r": 2}
    assert counts(run({"a": 2, "in": 6}, writers("r"), joined(TopicInfo("r", 2)))) == {"r": 2}
    status, detail = problem(run({"a": 2, "in": 6}, writers("r"), joined(TopicInfo("r", 6))))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "r has 6" in detail


def test_repartition_topics_among_themselves() -> None:
    two = (writers("r", to="in"), writers("s", to="other"))
    partitions = {"in": 3, "other": 5}
    assert counts(run(partitions, *two, Subtopology("0", **reads("r", "s", group=True)))) == {"r": 5, "s": 5}
    fixed = Subtopology("0", **reads(TopicInfo("r", 2), "s", group=True))
    assert counts(run(partitions, *two, fixed)) == {"r": 2, "s": 2}
    apart = Subtopology("0", **reads(TopicInfo("r", 2), TopicInfo("s", 4), group=True))
    assert problem(run(partitions, *two, apart))[0] is Status.INCORRECTLY_PARTITIONED_TOPICS


def test_fixed_counts_elsewhere_are_not_the_groups() -> None:
    """Apache Kafka 4.3 refuses this one."""
    found = run(
        {"in": 3, "other": 5},
        writers("r", to="in"),
        writers("s", to="other"),
        Subtopology("0", **reads("r", "s", group=True)),
        Subtopology("1", **reads(TopicInfo("t", 7))),
        Subtopology("2", **reads(TopicInfo("u", 8))),
    )
    assert counts(found) == {"r": 5, "s": 5, "t": 7, "u": 8}


def test_internal_topics_that_are_there_must_have_the_count() -> None:
    for wrong in ({"by-word": 3}, {"counts": 5}):
        status, detail = problem(run({"words": 4, "by-word": 4, "counts": 4, **wrong}, *COUNT))
        assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
        assert next(iter(wrong)) in detail


def test_repartition_topics_of_a_group_that_are_there_are_kept() -> None:
    """Made when one of the source topics was larger than it is made now."""
    both = Subtopology("0", **reads("r", "s", group=True))
    assert run({"in": 3, "r": 7, "s": 7}, writers("r", "s"), both).is_ready


def test_a_fixed_repartition_topic_that_is_there_must_have_its_count() -> None:
    alone = Subtopology("0", **reads(TopicInfo("r", 5), group=True))
    status, detail = problem(run({"in": 3, "r": 6}, writers("r"), alone))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "r exists with 6" in detail


def test_few_of_many_missing_topics_are_named() -> None:
    logs = tuple(TopicInfo(f"c{number}") for number in range(9))
    status, detail = problem(run({"in": 1}, Subtopology("0", ("in",), state_changelog_topics=logs)))
    assert status is Status.MISSING_INTERNAL_TOPICS
    assert "c0, c1, c2 and 6 more" in detail
