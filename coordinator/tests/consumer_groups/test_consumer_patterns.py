"""Members that subscribe by a regular expression: looked up outside the machine, kept in the log, refreshed."""

from __future__ import annotations

from barnabas.coordinator.group.consumer.stored import Pattern
from barnabas.coordinator.tests.consumer_groups.consumer_kit import JOIN, ConsumerKit
from barnabas.kproto import ErrorCode

E = ErrorCode


def enter(kit: ConsumerKit, member_id: str, pattern: str) -> int:
    return kit.enter(member_id, subscribed_topic_regex=pattern).member_epoch


def test_topics_come_with_the_next_heartbeat() -> None:
    kit = ConsumerKit(a1=1, a2=1, b=1)
    assert enter(kit, "m", "a.*") == 1, "nothing is known yet"
    assert kit.parts(kit.beat("m", 1)) is None
    assert kit.look_up() == 1
    assert not kit.look_up(), "one look-up at a time"
    answer = kit.beat("m", 1)
    assert (answer.member_epoch, kit.parts(answer)) == (2, {"a1": [0], "a2": [0]})
    # The second member has the same pattern; its topics are known.
    answer = kit.enter("n", subscribed_topic_regex="a.*")
    assert (answer.member_epoch, kit.epochs()) == (3, (3, 3))
    assert not kit.look_up()


def test_new_topics_are_found_ten_seconds_later_at_the_earliest() -> None:
    kit = ConsumerKit(a1=1)
    enter(kit, "m", "a.*")
    kit.look_up()
    kit.beat("m", 1)
    kit.set_topics(a2=2)
    kit.advance(9)
    kit.beat("m", 2)
    assert not kit.look_up()
    kit.advance(2)
    kit.beat("m", 2)
    assert kit.look_up() == 1
    assert kit.parts(kit.beat("m", 2)) == {"a1": [0], "a2": [0, 1]}
    kit.set_topics(a2=None)
    kit.advance(11)
    assert kit.parts(kit.beat("m", 3)) == {"a1": [0]}, "what is gone is seen at once"
    assert not kit.look_up()
    kit.beat("m", 3, owned={"a1": [0]})
    for minute in range(21):
        kit.advance(30)
        assert kit.code("m", 4, owned={"a1": [0]}) == E.NONE
        assert kit.look_up() == (minute == 19), "and every ten minutes anyway"


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    kit = ConsumerKit(t=1)
    answer = kit.beat("m", 0, **JOIN, subscribed_topic_regex="(")
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert answer.error_message
    assert not kit.log
    assert not kit.look_up()


def test_patterns_and_names_together() -> None:
    kit = ConsumerKit(a=1, b=1, c=1)
    enter(kit, "m", "a|b")
    kit.look_up()
    kit.beat("m", 1)
    assert kit.parts(kit.beat("m", 2, subscribed_topic_names=["c"])) == {"a": [0], "b": [0], "c": [0]}
    answer = kit.beat("m", 3, subscribed_topic_regex="")
    assert (answer.member_epoch, kit.parts(answer)) == (3, {"c": [0]})
    assert [record.resolved for record in kit.records() if isinstance(record, Pattern)][-1] is None
    assert kit.beat("m", 3, owned={"c": [0]}).member_epoch == 4


def test_the_last_member_takes_its_pattern_along() -> None:
    kit = ConsumerKit(a=1)
    for member_id in ("m", "n"):
        enter(kit, member_id, "a")
        kit.look_up()
    kit.beat("m", -1)
    assert "a" in kit.shard.groups["g"].patterns
    kit.beat("n", -1)
    assert not kit.shard.groups["g"].patterns
    assert not kit.shard.groups["g"].subscribed


def test_a_result_that_comes_too_late_or_not_at_all() -> None:
    kit = ConsumerKit(a=1)
    enter(kit, "m", "a")
    (effect,) = kit.effects
    kit.run(kit.shard.patterns_resolved(effect, None, 0, kit.now))
    kit.effects.clear()
    kit.beat("m", 1)
    assert len(kit.effects) == 1, "it is tried again"
    (effect,) = kit.effects
    kit.beat("m", 1, subscribed_topic_regex="b")
    kit.run(kit.shard.patterns_resolved(effect, {"a": ["a"]}, 0, kit.now))
    assert not [record for record in kit.records() if isinstance(record, Pattern) and record.resolved]
    kit.beat("m", -1)
    kit.delete_group()
    kit.run(kit.shard.patterns_resolved(effect, {"a": ["a"]}, 0, kit.now))
    assert not kit.shard.groups


def test_another_coordinator_looks_again() -> None:
    kit = ConsumerKit(a=1)
    enter(kit, "m", "a.*")
    kit.look_up()
    kit.beat("m", 1)
    kit.set_topics(a2=1)
    kit.restart()
    kit.beat("m", 2)
    assert not kit.look_up()
    kit.advance(11)
    kit.beat("m", 2)
    assert kit.look_up() == 1
    assert kit.parts(kit.beat("m", 2)) == {"a": [0], "a2": [0]}


def test_what_was_found_and_could_not_be_written_is_looked_up_again() -> None:
    kit = ConsumerKit(a1=1)
    enter(kit, "m", "a.*")
    kit.look_up()
    kit.beat("m", 1)
    kit.set_topics(a2=1)
    kit.advance(11)
    kit.beat("m", 2)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.look_up()
    kit.refuse = None
    kit.beat("m", 2)
    assert kit.look_up() == 1
    assert kit.parts(kit.beat("m", 2)) == {"a1": [0], "a2": [0]}
