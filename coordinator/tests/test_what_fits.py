"""A client's texts must fit into records and into the answers to others: 32,767 bytes of UTF-8 for a string. What
does not is the failure of that one request, and leaves nothing behind.

Decoded requests are bounded already; here the machines are asked directly.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.stored import fits, made_id
from barnabas.coordinator.tests.consumer_groups.consumer_kit import JOIN, ConsumerKit
from barnabas.coordinator.tests.consumer_groups.test_migration import CLASSIC, mixed
from barnabas.coordinator.tests.kit import Kit, subscription
from barnabas.coordinator.tests.txn.txn_kit import TxnKit
from barnabas.kproto import ErrorCode, encode
from barnabas.kproto.errors import EncodeError

E = ErrorCode
LONG = "x" * 32_768
WIDE = "\ufffd" * 10_923
"""What 10,923 bytes that are no UTF-8 become: 32,769."""


def test_what_fits() -> None:
    assert fits("", None, "x" * 32_767, "\ufffd" * 10_922)
    assert not any(map(fits, (LONG, WIDE, "\ud800")))


@pytest.mark.parametrize("name", ["client", "", "x" * 32_730])
def test_ids_are_made_as_ever(name: str) -> None:
    assert made_id(name, "u" * 36) == f"{name}-{'u' * 36}"


@pytest.mark.parametrize("name", [LONG, "x" * 32_731, "é" * 16_383, "x" + "é" * 16_383, "\ufffd" * 20_000, "𝄞" * 9_000])
def test_of_a_long_name_an_id_takes_the_beginning(name: str) -> None:
    made = made_id(name, "u" * 36)
    assert 32_764 <= len(made.encode()) <= 32_767
    assert made.endswith("-" + "u" * 36)
    assert name.startswith(made[:-37])


@pytest.mark.parametrize("version", [3, 9])
def test_a_member_with_a_long_client_id_joins_as_any_other(version: int) -> None:
    kit = Kit()
    token = kit.join(client_id="x" * 32_767, version=version)
    if version >= 4:
        token = kit.join(kit.answer(token).member_id, client_id="x" * 32_767)
    answer = kit.joined(token)
    encode(answer, version)
    kit.assignment(kit.sync(answer.member_id, 1, {answer.member_id: b"a"}))
    kit.restart()
    assert kit.heartbeat(answer.member_id, 1) == E.NONE


@pytest.mark.parametrize(
    "what",
    [
        {"instance": LONG},
        {"instance": WIDE},
        {"client_id": WIDE},
        {"protocol_type": LONG},
        {"protocols": ((WIDE, subscription("t")), ("range", subscription("t")))},
    ],
)
def test_a_member_that_does_not_fit_is_refused_and_the_others_go_on(what: dict[str, Any]) -> None:
    kit = Kit()
    a, b = kit.stable(2)
    before = len(kit.log)
    assert kit.error(kit.join(version=3, **what)) == E.UNKNOWN_SERVER_ERROR
    assert (kit.state(), len(kit.log)) == ("Stable", before)
    assert kit.heartbeat(a, 2) == kit.heartbeat(b, 2) == E.NONE
    # Also as the first of a group, which leaves none behind, and in a group of the next generation.
    assert kit.error(kit.join(version=3, group="other", **what)) == E.UNKNOWN_SERVER_ERROR
    assert set(kit.shard.groups) == {"g"}
    modern = ConsumerKit(t=2)
    mixed(modern)
    refused = modern.error(modern.join("z", version=3, **{**CLASSIC, **what}))
    assert refused in (E.UNKNOWN_SERVER_ERROR, E.INCONSISTENT_GROUP_PROTOCOL)
    assert "z" not in modern.members()


@pytest.mark.parametrize(
    "what",
    [
        {"member_id": LONG},
        {"group": WIDE},
        {"instance_id": LONG},
        {"rack_id": WIDE},
        {"subscribed_topic_names": ["t", WIDE]},
        {"subscribed_topic_regex": LONG},
    ],
)
def test_a_heartbeat_that_does_not_fit_is_an_invalid_request(what: dict[str, Any]) -> None:
    kit = ConsumerKit(t=2)
    fields = {"member_id": "a", "epoch": 0, "subscribed_topic_names": ["t"], **JOIN, **what}
    answer = kit.beat(**fields)
    assert answer.error_code == E.INVALID_REQUEST
    encode(answer, 1)
    assert not kit.log
    assert not kit.shard.groups


def test_messages_with_a_client_s_words_are_short() -> None:
    kit = ConsumerKit(t=2)
    name = "x" * 32_767
    for answer in (
        kit.beat("a", 5, group=name),
        kit.beat("a", 0, **JOIN, subscribed_topic_names=["t"], server_assignor=name),
        kit.beat("a", -2, instance_id=name),
    ):
        assert answer.error_code != E.NONE
        encode(answer, 1)
        assert len(answer.error_message or "") < 1_100
    assert len(kit.shard.describe(name, 6).error_message or "") < 1_100
    assert len(kit.shard.consumer_describe(name).error_message or "") < 1_100


def test_group_ids_that_do_not_fit_are_invalid() -> None:
    kit = Kit()
    assert kit.error(kit.join(group=WIDE)) == E.INVALID_GROUP_ID
    assert kit.answer(kit.commit_offsets({("t", 0): 1}, group=LONG)) == [E.INVALID_GROUP_ID]
    assert not kit.shard.groups


def test_metadata_of_offsets_is_counted_in_utf_16_units_and_must_fit() -> None:
    kit = Kit()
    for metadata, code in (
        ("x" * 4_096, E.NONE),
        ("x" * 4_097, E.OFFSET_METADATA_TOO_LARGE),
        ("é" * 4_096, E.NONE),
        ("é" * 4_097, E.OFFSET_METADATA_TOO_LARGE),
        ("😀" * 2_048, E.NONE),
        ("😀" * 2_048 + "x", E.OFFSET_METADATA_TOO_LARGE),
    ):
        assert kit.answer(kit.commit_offsets({("t", 0): 1}, metadata=metadata)) == [code], (metadata[0], len(metadata))
    kit.shard.set_config(kit.config.__class__(offset_metadata_max_bytes=2**31 - 1))
    assert kit.answer(kit.commit_offsets({("t", 0): 1}, metadata=WIDE)) == [E.OFFSET_METADATA_TOO_LARGE]
    assert kit.answer(kit.commit_offsets({("t", 0): 1}, metadata=LONG)) == [E.OFFSET_METADATA_TOO_LARGE]


def test_a_generation_that_cannot_be_written_is_the_leader_s_failure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is known leads there; but who waits must not be lost over it."""
    kit = Kit()
    first, second = kit.stable(2)
    tokens = [kit.join(first), kit.join(second)]
    generation = {kit.joined(token).generation_id for token in tokens}.pop()
    waiting = kit.sync(second, generation)

    def fails(*_: Any) -> Any:
        raise EncodeError("too long")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.coordinator.group.classic.syncing.group_record", fails)
        with pytest.raises(EncodeError):
            kit.sync(first, generation, {first: b"a", second: b"b"})
    kit.open.discard(max(kit.open))  # answered by whoever caught that
    kit.check_tokens()
    token = kit.sync(first, generation, {first: b"a", second: b"b"})
    assert (kit.assignment(token), kit.assignment(waiting)) == (b"a", b"b")


def test_a_transactional_id_that_does_not_fit_is_an_invalid_request() -> None:
    kit = TxnKit()
    for name in (LONG, WIDE):
        assert kit.error(kit.init(name)) == E.INVALID_REQUEST
    assert not kit.shard.ids
    assert not kit.wanted_ids
