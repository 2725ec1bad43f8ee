"""What the fuzzer makes: right where it says so, wrong in many ways otherwise, and the same from the same seed."""

from __future__ import annotations

import random
import struct
from collections import Counter

import pytest

from barnabas.kproto import ApiKey, DecodeError, decoder, request_class, schema_versions
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import InitProducerIdResponse, JoinGroupResponse, MetadataResponse
from barnabas.kproto.records import check_batch
from compat_tests.fuzz import batches as batches_module
from compat_tests.fuzz.batches import Batches
from compat_tests.fuzz.damage import damaged_frame
from compat_tests.fuzz.grammar import Grammar, Limits, Request
from compat_tests.fuzz.pools import Member, Pool, Pools, Producer, Sent
from compat_tests.fuzz.schema_writer import form

EVERYTHING = {int(key): schema_versions(key) for key in ApiKey}


def grammar(seed: int, limits: Limits | None = None) -> Grammar:
    return Grammar(random.Random(seed), Pools(), EVERYTHING, limits)


def decoded(request: Request) -> object:
    header = parse_request_header(request.frame, 4)
    message, end = decoder(request_class(request.key), request.version)(request.frame, header.body_offset)
    assert end == len(request.frame) or not request.is_clean
    return message


@pytest.mark.parametrize("key", ApiKey)
def test_what_is_called_clean_is_what_the_decoder_takes(key: ApiKey) -> None:
    maker = grammar(5, Limits(damage=0.0))
    first, last = schema_versions(key)
    clean = 0
    for version in range(first, last + 1):
        for number in range(20):
            request = maker.request_of(key, version, number)
            if request.is_clean:
                clean += 1
                decoded(request)
    assert clean


def test_the_same_seed_gives_the_same_requests() -> None:
    one, two, other = grammar(1), grammar(1), grammar(2)
    first = [one.request(number).frame for number in range(300)]
    assert first == [two.request(number).frame for number in range(300)]
    assert first != [other.request(number).frame for number in range(300)]


def test_everything_that_is_promised_comes_up() -> None:
    maker = grammar(3)
    kinds: Counter[str] = Counter()
    for number in range(6000):
        request = maker.request(number)
        kinds["clean" if request.is_clean else "odd"] += 1
        kinds["damaged"] += request.is_damaged
        kinds["unserved"] += request.key not in EVERYTHING or request.version in (-1, 32_767)
        kinds["huge"] += len(request.frame) > 100_000
        if request.is_damaged or request.is_clean:
            continue
        try:
            decoded(request)
        except DecodeError:
            kinds["refused"] += 1
        # 10,923 bytes that are no UTF-8 are 32,769 when they are written again.
        kinds["grows"] += b"\xff" * 10_923 in request.frame
    assert kinds["clean"] > 3000, kinds
    for kind, at_least in {"damaged": 300, "unserved": 10, "huge": 5, "refused": 50, "grows": 5}.items():
        assert kinds[kind] >= at_least, (kind, kinds)


def test_without_what_is_odd_everything_is_clean() -> None:
    maker = grammar(4, Limits(odd_texts=False, huge_bytes=0, lies=False, damage=0.0, unserved=0.0))
    requests = [maker.request(number) for number in range(500)]
    assert all(request.is_clean for request in requests)


def test_the_values_of_this_run_are_used() -> None:
    pools = Pools()
    pools.see(ApiKey.JOIN_GROUP, Sent(group="g1"), JoinGroupResponse(member_id="alive", generation_id=77))
    pools.see(ApiKey.INIT_PRODUCER_ID, Sent(transactional_id="tx1"), InitProducerIdResponse(producer_id=4711))
    maker = Grammar(random.Random(1), pools, EVERYTHING)
    beats = [maker.request_of(ApiKey.HEARTBEAT, 0, 1).frame for _ in range(300)]
    assert sum(b"\x02g1" in beat and b"\x00\x00\x00\x4d\x00\x05alive" in beat for beat in beats) > 10
    ends = [maker.request_of(ApiKey.END_TXN, 0, 1).frame for _ in range(300)]
    assert sum(b"\x03tx1" in end and (4711).to_bytes(8, "big") in end for end in ends) > 5


def test_pools_forget_what_is_old_and_never_learn_a_secret() -> None:
    pool = Pool(("fixed",), 2)
    assert pool.learn("a")
    assert not pool.learn("a")
    pool.learn("b")
    pool.learn("c")
    assert pool.all == ["fixed", "b", "c"]
    pools = Pools(("honest-",))
    topics = [
        MetadataResponse.MetadataResponseTopic(name=name, topic_id=bytes(15) + bytes((number,)))
        for number, name in enumerate(("honest-1", "open"), 5)
    ]
    learnt = pools.see(ApiKey.METADATA, Sent(), MetadataResponse(topics=topics))
    assert learnt == [("topic id", bytes(15) + b"\x06")]
    assert "honest-1" not in pools.topics.all
    assert "open" in pools.topics.all
    assert pools.members.all[0] == Member("g0", "", -1)


def test_batches_are_right_or_lie() -> None:
    made = Batches(random.Random(1))
    right = wrong = signed = 0
    for _ in range(2000):
        records = made.records(Producer("tx0", 9, 3))
        if records is None or len(records) < 61:
            continue
        try:
            signed += check_batch(records).producer_id == 9
            right += 1
        except Exception:
            wrong += 1
    assert right > 1000, (right, wrong)
    assert wrong > 100, (right, wrong)
    assert signed > 300


@pytest.mark.parametrize("make", batches_module.SPECIAL, ids=lambda make: make.__name__)
def test_special_batches_have_a_right_header(make: object) -> None:
    batch = make(random.Random(1))  # type: ignore[operator]
    assert check_batch(batch).size == len(batch)


def test_damage_keeps_the_frame_in_step_most_of_the_time() -> None:
    rng = random.Random(1)
    frame = struct.pack(">i", 100) + bytes(range(100))
    damaged = [damaged_frame(rng, frame) for _ in range(500)]
    in_step = sum(len(one) >= 4 and struct.unpack_from(">i", one)[0] == len(one) - 4 for one in damaged)
    assert 400 < in_step < 500
    assert sum(one == frame for one in damaged) < 30


def test_a_version_without_schema_has_no_form() -> None:
    with pytest.raises(ValueError, match="no version 99"):
        form(ApiKey.HEARTBEAT, 99)
