"""What the fast paths share: forms of requests, forms of answers, and who keeps them."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, NamedTuple

import pytest

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ProduceResponse
from barnabas.server.apis.records.produce import API
from barnabas.server.requests.fast_paths.examples import MARKS, Form, Repeated, around_marks
from barnabas.server.requests.route import Route


@pytest.mark.parametrize("seed", range(40))
def test_a_form_knows_what_differs_in_numbers_only(seed: int) -> None:
    rng = Random(seed)
    frame = bytearray(rng.randbytes(rng.randrange(8, 80)))
    fields, end = [], 8
    while end + 8 <= len(frame) and rng.random() < 0.7:
        letter = rng.choice("hiq")
        fields.append((end + rng.randrange(len(frame) - end - 7), letter))
        end = fields[-1][0] + struct.calcsize(f">{letter}")
    form = Form(bytes(frame), fields)
    assert form.size == len(frame)
    may_differ = [(4, "i"), *fields]
    for _ in range(50):
        values = []
        for at, letter in may_differ:
            bits = 8 * struct.calcsize(f">{letter}")
            values.append(rng.getrandbits(bits) - (1 << bits - 1))
            struct.pack_into(f">{letter}", frame, at, values[-1])
        assert form.numbers(memoryview(frame)) == tuple(values), seed
    varying = {at + i for at, letter in may_differ for i in range(struct.calcsize(f">{letter}"))}
    for at in range(len(frame)):
        other = bytearray(frame)
        other[at] ^= 1 << rng.randrange(8)
        assert (form.numbers(memoryview(other)) is not None) == (at in varying), seed


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_an_answer_with_other_numbers(version: int, partitions: int) -> None:
    rng = Random(version)
    route = Route(API, version)

    def response(numbers: list[tuple[int, ...]]) -> ProduceResponse:
        answers = []
        for index, (base, time, start) in enumerate(numbers):
            answer = ProduceResponse.PartitionProduceResponse(index=index)
            answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = base, time, start
            answers.append(answer)
        topic = ProduceResponse.TopicProduceResponse(
            name="t" if version < 13 else "", topic_id=rng.randbytes(16), partition_responses=answers
        )
        return ProduceResponse(responses=[topic])

    rng.seed(7)
    constants = around_marks(route, response([MARKS] * partitions))
    numbers = [tuple(rng.getrandbits(63) for _ in range(3)) for _ in range(partitions)]
    body = constants[0]
    for constant, three in zip(constants[1:], numbers, strict=True):
        body += struct.pack(">qqq", *three) + constant
    rng.seed(7)
    expected = b"".join(bytes(part) for part in route.encode_frame(77, response(numbers)))  # type: ignore[arg-type]
    assert struct.pack(">ii", 4 + len(body), 77) + body == expected


class Numbered(NamedTuple):
    form: Form
    number: int

    def take(self, connection: Any, numbers: tuple[int, ...]) -> Any:
        return self.number, numbers


class Some(Repeated[Numbered]):
    EXAMPLES_MAX = 3


class Services:
    """`limits_requests`: of the quotas."""

    def __init__(self) -> None:
        self.quotas = self
        self.limits_requests = False


def test_examples_are_few_and_the_oldest_goes() -> None:
    services = Services()
    path = Some(services)  # type: ignore[arg-type]
    frames = [memoryview(bytes(size)) for size in range(10, 16)]

    def taken() -> list[int]:
        outcomes: list[Any] = [path.take(None, frame) for frame in frames]  # type: ignore[arg-type]
        for frame, outcome in zip(frames, outcomes, strict=True):
            assert outcome is None or not path.may_learn(frame)
        return [outcome[0] for outcome in outcomes if outcome is not None]

    assert taken() == []
    for number, frame in enumerate(frames[:5]):
        path.remember(Numbered(Form(bytes(frame), []), number))
    assert taken() == [2, 3, 4]
    path.remember(Numbered(Form(bytes(frames[2]), []), 9))
    assert taken() == [9, 3, 4]
    services.limits_requests = True
    assert path.take(None, frames[2]) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "least", "most"), [("alike", 1, 1), ("never alike", 30, 40), ("often new", 48, 50)])
def test_learning_becomes_rare_where_it_does_not_pay(kind: str, least: int, most: int) -> None:
    path = Some(Services())  # type: ignore[arg-type]
    learnt = 0
    for turn in range(1000):
        differs = {"alike": 0, "never alike": turn, "often new": turn // 20}[kind]
        frame = memoryview(bytes(8) + struct.pack(">i", differs) + bytes(8))
        if path.take(None, frame) is None and path.may_learn(frame):  # type: ignore[arg-type]
            path.remember(Numbered(Form(bytes(frame), []), turn))
            learnt += 1
    assert least <= learnt <= most


def test_a_frame_that_differs_is_not_taken() -> None:
    path = Some(Services())  # type: ignore[arg-type]
    path.remember(Numbered(Form(bytes(range(20)), [(8, "i")]), 0))
    frame = bytearray(range(20))
    assert ApiKey(frame[1]) is ApiKey.FETCH
    assert path.take(None, memoryview(frame)) == (0, (0x04050607, 0x08090A0B))  # type: ignore[arg-type, comparison-overlap]
    frame[12] ^= 1
    assert path.take(None, memoryview(frame)) is None  # type: ignore[arg-type]
