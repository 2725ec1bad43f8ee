"""Who may commit, fetch and delete the offsets of a next-generation group, and when they expire."""

from __future__ import annotations

from barnabas.coordinator import OffsetToCommit
from barnabas.coordinator.tests.consumer_groups.consumer_kit import ConsumerKit
from barnabas.kproto import ErrorCode

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


def two_members() -> ConsumerKit:
    """`a` at epoch 2 still has both partitions; the target of epoch 3 gives one to `b`."""
    kit = ConsumerKit(t=2)
    kit.enter("a", "t")
    kit.enter("b", "t")
    return kit


def commit(kit: ConsumerKit, member_id: str, epoch: int, *partitions: tuple[str, int], version: int = 9) -> ErrorCode:
    offsets = dict.fromkeys(partitions or (T0,), 5)
    token = kit.commit_offsets(offsets, generation=epoch, member_id=member_id, version=version)
    (code,) = set(kit.answer(token))
    return ErrorCode(code)


def test_commits_go_with_the_epoch() -> None:
    kit = two_members()
    assert commit(kit, "a", 2) == E.NONE
    assert commit(kit, "a", 3) == E.STALE_MEMBER_EPOCH
    assert commit(kit, "a", -1) == E.STALE_MEMBER_EPOCH
    assert commit(kit, "b", 3, T1) == E.NONE, "the present epoch is not asked for partitions"
    assert commit(kit, "x", 3) == E.UNKNOWN_MEMBER_ID
    assert commit(kit, "", -1) == E.UNKNOWN_MEMBER_ID
    assert commit(kit, "a", 2, version=8) == E.UNSUPPORTED_VERSION
    kit.beat("a", -1)
    kit.beat("b", -1)
    assert commit(kit, "", -1) == E.NONE, "an administrator, as the group is empty"
    assert commit(kit, "a", 2) == E.UNKNOWN_MEMBER_ID


def test_a_member_may_commit_kept_partitions_with_its_former_epoch() -> None:
    kit = two_members()
    kit.beat("a", 2)
    kit.beat("a", 2, owned={"t": [0]})
    kit.beat("b", 3)
    assert commit(kit, "a", 2, T0) == E.NONE, "since epoch 2"
    assert commit(kit, "a", 2, T0, T1) == E.STALE_MEMBER_EPOCH, "the other is gone"
    assert commit(kit, "b", 2, T1) == E.STALE_MEMBER_EPOCH, "since epoch 3"
    assert commit(kit, "a", 2, ("nope", 0)) == E.STALE_MEMBER_EPOCH


def test_transactions_commit_likewise() -> None:
    kit = two_members()

    def txn(member_id: str, epoch: int) -> ErrorCode:
        token = kit.token()
        offsets = [OffsetToCommit("t", 0, 7)]
        kit.run(kit.shard.commit_in_transaction("g", epoch, member_id, None, offsets, token, kit.now))
        return ErrorCode(kit.answer(token)[0])

    assert txn("", -1) == E.NONE, "an old producer tells no member"
    assert txn("a", 2) == E.NONE
    assert txn("a", 4) == E.ILLEGAL_GENERATION
    assert txn("x", 2) == E.UNKNOWN_MEMBER_ID
    assert txn("b", 2) == E.ILLEGAL_GENERATION


def test_fetches_go_with_the_epoch_too() -> None:
    kit = two_members()
    check = kit.shard.check_fetch
    assert check("g", "a", 2) == E.NONE
    assert check("g", "a", 1) == E.STALE_MEMBER_EPOCH
    assert check("g", "x", 2) == E.UNKNOWN_MEMBER_ID
    assert check("g", None, -1) == E.NONE
    assert check("g", None, 5) == E.UNKNOWN_SERVER_ERROR
    assert check("nope", "a", 2) == E.NONE


def test_offsets_of_subscribed_topics_stay() -> None:
    kit = two_members()
    commit(kit, "a", 2)
    kit.commit_offsets({("u", 0): 1}, generation=2, member_id="a", version=9)

    def delete(*partitions: tuple[str, int]) -> list[ErrorCode]:
        token = kit.token()
        kit.run(kit.shard.delete_offsets("g", list(partitions), token))
        return list(kit.answer(token))

    assert delete(T0, ("u", 0)) == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE]
    assert kit.committed() == {T0: 5}
    assert kit.delete_group() == E.NON_EMPTY_GROUP
    kit.advance(46)
    assert delete(T0) == [E.NONE]
    assert kit.delete_group() == E.NONE


def test_offsets_expire_and_take_the_empty_group_along() -> None:
    kit = two_members()
    day = 24 * 3600
    kit.commit_offsets({T0: 1, ("u", 0): 1}, generation=2, member_id="a", version=9)
    for _ in range(8):
        kit.seconds += day
        kit.beat("a", 2, owned={"t": [0, 1]})
    kit.run_all(kit.shard.expire_offsets(kit.now))
    assert kit.committed() == {T0: 1}, "nobody subscribes to the other"
    kit.advance(60)
    kit.run_all(kit.shard.expire_offsets(kit.now))
    assert not kit.shard.groups
    kit.restart()
    assert not kit.shard.groups
