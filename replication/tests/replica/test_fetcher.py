"""A follower's conversation with one leader: what it asks, what each answer makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto import ZERO_UUID, ErrorCode, encode
from barnabas.kproto.messages import FetchRequest, FetchResponse, ListOffsetsRequest, OffsetForLeaderEpochRequest
from barnabas.replication.replica.fetcher import Fetcher
from barnabas.replication.replica.follower import (
    Append,
    Ask,
    Do,
    FetcherSettings,
    FollowerAction,
    Restart,
    State,
    Truncate,
    Wait,
)
from barnabas.replication.tests.replica.logs import FakeLeader, FakeLog, carry_out

TOPIC_ID = bytes([7]) * 16
KEY = ("t", 0)
NEW = FetcherSettings(broker_id=2, backoff_s=1.0)
OLD = FetcherSettings(
    broker_id=2, fetch_version=11, epoch_version=3, list_offsets_version=5, truncates_on_fetch=False, backoff_s=1.0
)


def made(*logs: FakeLog, settings: FetcherSettings = NEW, epoch: int = 5, topic_id: bytes = TOPIC_ID) -> Fetcher:
    fetcher = Fetcher(settings)
    for index, log in enumerate(logs):
        fetcher.add(("t", index), topic_id, epoch, log)
    return fetcher


def ask(fetcher: Fetcher, now: float = 0.0) -> Ask:
    step = fetcher.next(now, 30)
    assert isinstance(step, Ask), step
    encode(step.request, step.version)  # it has no fields that the version cannot carry
    return step


def partition(code: int = 0, index: int = 0, **fields: Any) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(partition_index=index, error_code=code, **fields)


def response(*partitions: FetchResponse.PartitionData, session_id: int = 9, **fields: Any) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=list(partitions))
    return FetchResponse(responses=[topic] if partitions else [], session_id=session_id, **fields)


def do(fetcher: Fetcher, actions: list[FollowerAction], now: float = 0.0) -> None:
    for action in actions:
        carry_out(action)
        fetcher.done(action, now)


def asked(step: Ask) -> dict[int, FetchRequest.FetchPartition]:
    return {each.partition: each for topic in step.request.topics for each in topic.partitions}


# ---- asking


def test_what_is_asked_of_a_leader() -> None:
    step = ask(made(FakeLog(3, 4, 4)))
    request = step.request
    assert step.version == 17
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (-1, 2, 30)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    assert (request.session_id, request.session_epoch, request.isolation_level) == (0, 0, 0)
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == ("t", TOPIC_ID)
    (of,) = topic.partitions
    assert (of.partition, of.current_leader_epoch, of.fetch_offset, of.last_fetched_epoch) == (0, 5, 3, 4)
    assert (of.log_start_offset, of.partition_max_bytes) == (0, 1_048_576)


def test_older_versions() -> None:
    fetcher = made(FakeLog(3), settings=FetcherSettings(2, fetch_version=13))
    assert ask(fetcher).request.replica_id == 2
    fetcher = made(FakeLog(3), settings=FetcherSettings(2, fetch_version=5, truncates_on_fetch=False))
    do(fetcher, [Truncate(fetcher.partitions[KEY], 1, True)])
    step = ask(fetcher)
    assert (step.version, asked(step)[0].last_fetched_epoch) == (5, -1)


def test_topic_without_id_is_asked_for_by_name() -> None:
    fetcher = made(FakeLog(3), topic_id=ZERO_UUID)
    assert ask(fetcher).version == 12
    fetcher.add(KEY, TOPIC_ID, 5, fetcher.partitions[KEY].log)
    assert ask(fetcher).version == 17


def test_log_without_epochs_is_cut_to_its_high_watermark_first() -> None:
    log = FakeLog(start=4)
    fetcher = made(log)
    step = fetcher.next(0.0, 30)
    assert isinstance(step, Do)
    (action,) = step.actions
    assert isinstance(action, Truncate)
    assert action.offset == 4
    do(fetcher, step.actions)
    assert asked(ask(fetcher))[0].last_fetched_epoch == -1


def test_nothing_to_do() -> None:
    assert Fetcher(NEW).next(0.0, 30) == Wait(None)
    fetcher = made(FakeLog(1))
    fetcher.remove(KEY)
    assert fetcher.next(0.0, 30) == Wait(None)


def test_unchanged_partitions_are_not_sent_again() -> None:
    fetcher = made(*(FakeLog(1) for _ in range(50)))
    step = ask(fetcher)
    assert len(asked(step)) == 50
    do(fetcher, fetcher.answered(step, response(*(partition(index=i) for i in range(50))), 0.0))
    for _ in range(3):
        step = ask(fetcher)
        assert not step.request.topics
        assert fetcher.answered(step, response(), 1.0) == []
    assert step.request.session_epoch == 3


# ---- answers with errors

NOT_YET = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
]
RESTS = [
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
]


@pytest.mark.parametrize("code", RESTS)
def test_error_lets_a_partition_rest(code: ErrorCode) -> None:
    fetcher = made(FakeLog(1), FakeLog(1))
    step = ask(fetcher)
    do(fetcher, fetcher.answered(step, response(partition(code), partition(index=1)), 0.0))
    step = ask(fetcher, 0.5)
    assert [each.partitions for each in step.request.forgotten_topics_data] == [[0]]
    assert asked(step) == {}
    fetcher.answered(step, response(), 0.9)
    step = ask(fetcher, 1.0)
    assert list(asked(step)) == [0], "after the rest"
    assert not step.request.forgotten_topics_data


@pytest.mark.parametrize("code", RESTS)
def test_rest_of_the_only_partition(code: ErrorCode) -> None:
    fetcher = made(FakeLog(1))
    fetcher.answered(ask(fetcher), response(partition(code)), 0.0)
    step = ask(fetcher, 0.1)
    assert step.request.forgotten_topics_data
    fetcher.answered(step, response(session_id=0), 0.2)
    assert fetcher.next(0.2, 30) == Wait(1.0)
    assert ask(fetcher, 1.0).request.session_epoch == 0


@pytest.mark.parametrize("code", NOT_YET)
def test_leader_that_does_not_know_yet_is_asked_again_soon(code: ErrorCode) -> None:
    fetcher = made(FakeLog(1))
    now, rests = 0.0, []
    for _ in range(9):
        step = ask(fetcher, now)
        assert list(asked(step)) == [0]
        fetcher.answered(step, response(partition(code)), now)
        fetcher.answered(ask(fetcher, now), response(session_id=0), now)
        rest = fetcher.next(now, 30)
        assert isinstance(rest, Wait)
        assert rest.until is not None
        rests.append(round(rest.until - now, 3))
        now = rest.until
    assert rests == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]
    do(fetcher, fetcher.answered(ask(fetcher, now), response(partition()), now), now)
    fetcher.answered(ask(fetcher, now), response(partition(code)), now)
    assert fetcher.partitions[KEY].due == pytest.approx(now + 0.02), "it knew meanwhile"


def test_fenced_waits_for_the_controller() -> None:
    fetcher = made(FakeLog(1), FakeLog(1))
    step = ask(fetcher)
    do(fetcher, fetcher.answered(step, response(partition(ErrorCode.FENCED_LEADER_EPOCH), partition(index=1)), 0.0))
    assert list(fetcher.failed) == [KEY]
    assert [each.partitions for each in ask(fetcher, 9.0).request.forgotten_topics_data] == [[0]]
    fetcher.add(KEY, TOPIC_ID, 6, FakeLog(1))
    assert not fetcher.failed
    assert fetcher.partitions[KEY].leader_epoch == 6


def test_fenced_answer_to_an_older_request() -> None:
    fetcher = made(FakeLog(1))
    step = ask(fetcher)
    fetcher.add(KEY, TOPIC_ID, 6, FakeLog(1))
    fetcher.answered(step, response(partition(ErrorCode.FENCED_LEADER_EPOCH)), 0.0)
    assert fetcher.partitions[KEY].state is State.FETCHING
    assert asked(ask(fetcher))[0].current_leader_epoch == 6


@pytest.mark.parametrize(
    ("code", "session_id"), [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9)]
)
def test_session_lost_begins_anew_at_once(code: ErrorCode, session_id: int) -> None:
    fetcher = made(FakeLog(1))
    do(fetcher, fetcher.answered(ask(fetcher), response(partition()), 0.0))
    assert fetcher.answered(ask(fetcher), FetchResponse(error_code=code), 0.0) == []
    step = ask(fetcher)
    assert (step.request.session_id, step.request.session_epoch) == (session_id, 0)
    assert list(asked(step)) == [0]
    fetcher.answered(step, FetchResponse(error_code=code), 0.0)
    assert fetcher.next(0.0, 30) == Wait(1.0), "but not twice in a row"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_refused_request_lets_all_rest(code: ErrorCode) -> None:
    fetcher = made(FakeLog(1))
    fetcher.answered(ask(fetcher), FetchResponse(error_code=code), 0.0)
    assert fetcher.next(0.0, 30) == Wait(1.0)
    assert ask(fetcher, 1.0).request.session_epoch == 0


def test_no_answer_lets_all_rest_until_something_is_added() -> None:
    fetcher = made(FakeLog(1))
    do(fetcher, fetcher.answered(ask(fetcher), response(partition()), 0.0))
    fetcher.unanswered(ask(fetcher, 3.0), 3.5)
    assert fetcher.next(3.6, 30) == Wait(4.5)
    fetcher.add(("t", 1), TOPIC_ID, 5, FakeLog(1))
    step = ask(fetcher, 3.6)
    assert (step.request.session_id, step.request.session_epoch) == (9, 0)
    fetcher.unanswered(step, 3.7, rest=False)
    assert len(asked(ask(fetcher, 3.7))) == 2


@pytest.mark.parametrize(
    "answer",
    [
        response(),
        response(partition(), partition(index=1), partition(index=2)),
        response(partition(), partition()),
        response(partition(), partition(index=5)),
    ],
    ids=["missing", "extra", "twice", "other"],
)
def test_answers_that_do_not_fit_are_not_used(answer: FetchResponse) -> None:
    fetcher = made(FakeLog(1), FakeLog(1))
    assert fetcher.answered(ask(fetcher), answer, 0.0) == []
    assert fetcher.next(0.0, 30) == Wait(1.0)
    assert len(asked(ask(fetcher, 1.0))) == 2


def test_throttled_by_the_leader() -> None:
    fetcher = made(FakeLog(1))
    do(fetcher, fetcher.answered(ask(fetcher), response(partition(), throttle_time_ms=2500), 0.0))
    assert fetcher.next(0.0, 30) == Wait(2.5)


def test_leader_that_never_waits_does_not_spin() -> None:
    fetcher = made(FakeLog(1))
    do(fetcher, fetcher.answered(ask(fetcher), response(partition()), 0.0))
    requests = 0
    while isinstance(step := fetcher.next(0.0, 30), Ask):
        fetcher.answered(step, response(), 0.0)
        requests += 1
    assert requests < 20
    assert step == Wait(0.5)


# ---- answers with content


def test_append() -> None:
    log = FakeLog(4)
    fetcher = made(log)
    leader = FakeLeader()
    leader.logs[KEY], leader.epochs[KEY], leader.ids[TOPIC_ID] = FakeLog(4, 4, 5, 5, 5), 5, "t"
    leader.logs[KEY].high_watermark = 3
    step = ask(fetcher)
    (action,) = fetcher.answered(step, leader.answer(step.request, step.version), 0.0)
    assert isinstance(action, Append)
    assert (action.high_watermark, action.log_start_offset, len(action.records)) == (3, 0, 3)
    do(fetcher, [action])
    followed = fetcher.partitions[KEY]
    assert (followed.fetch_offset, followed.last_fetched_epoch, followed.lag) == (4, 5, 0)
    assert followed.in_sync
    step = ask(fetcher)
    assert (asked(step)[0].fetch_offset, asked(step)[0].last_fetched_epoch) == (4, 5)


def test_stale_answers_are_dropped() -> None:
    fetcher = made(FakeLog(1), FakeLog(1), FakeLog(1))
    step = ask(fetcher)
    fetcher.remove(("t", 0))
    fetcher.add(("t", 1), TOPIC_ID, 6, FakeLog(1))
    actions = fetcher.answered(step, response(*(partition(index=i) for i in range(3))), 0.0)
    assert [action.partition.index for action in actions] == [2]


def test_actions_of_a_partition_that_left_meanwhile_change_nothing() -> None:
    fetcher = made(FakeLog(1))
    (action,) = fetcher.answered(ask(fetcher), response(partition(high_watermark=1)), 0.0)
    fetcher.remove(KEY)
    assert not fetcher.is_current(action.partition)
    fetcher.done(action, 0.0)
    fetcher.not_done(action, ErrorCode.KAFKA_STORAGE_ERROR, 0.0)
    assert not fetcher.partitions
    assert not fetcher.failed


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD])
def test_bad_records_are_fetched_again(code: ErrorCode) -> None:
    fetcher = made(FakeLog(1))
    (action,) = fetcher.answered(ask(fetcher), response(partition()), 0.0)
    fetcher.not_done(action, code, 0.0)
    step = ask(fetcher, 0.1)
    assert step.request.forgotten_topics_data
    fetcher.answered(step, response(session_id=0), 0.1)
    assert asked(ask(fetcher, 1.0))[0].fetch_offset == 1


def test_disk_error_fails_a_partition_and_a_full_disk_lets_it_rest() -> None:
    fetcher = made(FakeLog(1), FakeLog(1))
    first, second = fetcher.answered(ask(fetcher), response(partition(), partition(index=1)), 0.0)
    fetcher.not_done(first, ErrorCode.KAFKA_STORAGE_ERROR, 0.0)
    fetcher.not_done(second, ErrorCode.KAFKA_STORAGE_ERROR, 0.0, rest=True)
    assert list(fetcher.failed) == [KEY]
    assert list(fetcher.partitions) == [("t", 1)]
    assert fetcher.partitions["t", 1].due == 1.0


def diverging(epoch: int, end: int, index: int = 0) -> FetchResponse.PartitionData:
    return partition(index=index, diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end))


def test_diverging_epoch_truncates_and_goes_on_at_once() -> None:
    log = FakeLog(1, 1, 2, 2, 2)
    fetcher = made(log)
    actions = fetcher.answered(ask(fetcher), response(diverging(2, 3)), 0.0)
    assert actions == [Truncate(fetcher.partitions[KEY], 3, True)]
    do(fetcher, actions)
    of = asked(ask(fetcher))[0]
    assert (of.fetch_offset, of.last_fetched_epoch) == (3, 2)


def test_diverging_epoch_without_effect_is_not_repeated_at_once() -> None:
    fetcher = made(FakeLog(1, 1))
    do(fetcher, fetcher.answered(ask(fetcher), response(diverging(1, 2)), 0.0))
    assert fetcher.partitions[KEY].due == 1.0


def test_what_came_with_a_diverging_epoch_is_not_said_again() -> None:
    """The leader's session does not repeat its high watermark, so it is taken from there once the logs agree."""
    log = FakeLog(1, 1, 2, 2, 2)
    fetcher = made(log)
    answer = diverging(2, 3)
    answer.high_watermark, answer.log_start_offset = 3, 1
    do(fetcher, fetcher.answered(ask(fetcher), response(answer), 0.0))
    assert (log.high_watermark, log.log_start_offset) == (0, 0), "they may diverge further down"
    actions = fetcher.answered(ask(fetcher), response(), 0.5)
    assert actions == [Append(fetcher.partitions[KEY], None, 3, 1)]
    do(fetcher, actions)
    assert (log.high_watermark, log.log_start_offset) == (3, 1)
    assert fetcher.answered(ask(fetcher), response(), 1.0) == []


def test_offsets_reported_in_an_earlier_epoch_are_dropped() -> None:
    log = FakeLog(1, 1)
    fetcher = made(log)
    step = ask(fetcher)
    fetcher.add(KEY, TOPIC_ID, 6, log)
    assert fetcher.answered(step, response(partition(high_watermark=2, log_start_offset=0)), 0.0) == []
    actions = fetcher.answered(ask(fetcher), response(), 0.5)
    assert actions == [Append(fetcher.partitions[KEY], None, 2, 0)]


def list_offsets(step: Ask) -> tuple[int, int]:
    assert isinstance(step.request, ListOffsetsRequest)
    assert (step.request.replica_id, step.request.isolation_level) == (2, 0)
    ((of,),) = (topic.partitions for topic in step.request.topics)
    return of.timestamp, of.current_leader_epoch


@pytest.mark.parametrize("settings", [NEW, OLD], ids=["new", "old"])
@pytest.mark.parametrize(
    ("leader_start", "leader_end", "expected"),
    [(0, 1, Truncate), (0, 3, None), (2, 9, None), (3, 9, None), (4, 9, Restart), (9, 9, Restart)],
)
def test_out_of_range(
    settings: FetcherSettings, leader_start: int, leader_end: int, expected: type[Truncate | Restart] | None
) -> None:
    log = FakeLog(1, 1, 1)
    fetcher = made(log, settings=settings)
    leader = FakeLeader()
    leader.logs[KEY] = FakeLog(start=leader_start)
    leader.logs[KEY].log_end_offset = leader_end
    leader.epochs[KEY], leader.ids[TOPIC_ID] = 5, "t"
    if settings is OLD:
        do(fetcher, [Truncate(fetcher.partitions[KEY], 3, True)])
    fetcher.answered(ask(fetcher), response(partition(ErrorCode.OFFSET_OUT_OF_RANGE)), 0.0)
    step = ask(fetcher)
    assert step.version == settings.list_offsets_version
    assert list_offsets(step) == (-1, 5)
    actions = fetcher.answered(step, leader.answer(step.request, step.version), 0.0)
    if expected is Truncate:
        assert actions == [Truncate(fetcher.partitions[KEY], 1, True)]
    else:
        assert actions == []
        step = ask(fetcher)
        assert list_offsets(step) == (-2, 5)
        actions = fetcher.answered(step, leader.answer(step.request, step.version), 0.0)
        assert actions == ([] if expected is None else [Restart(fetcher.partitions[KEY], leader_start)])
    do(fetcher, actions)
    followed = fetcher.partitions[KEY]
    assert followed.state is State.FETCHING
    assert followed.due == (1.0 if expected is None else 0.0), "what did not help is not repeated at once"
    assert followed.fetch_offset == (1 if expected is Truncate else leader_start if expected is Restart else 3)


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.OFFSET_NOT_AVAILABLE, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
@pytest.mark.parametrize("phase", [1, 2])
def test_errors_of_list_offsets(code: ErrorCode, fails: bool, phase: int) -> None:
    fetcher = made(FakeLog(1))
    leader = FakeLeader()
    leader.logs[KEY], leader.epochs[KEY], leader.ids[TOPIC_ID] = FakeLog(1, 1, 1), 5, "t"
    fetcher.answered(ask(fetcher), response(partition(ErrorCode.OFFSET_OUT_OF_RANGE)), 0.0)
    if phase == 2:
        step = ask(fetcher)
        fetcher.answered(step, leader.answer(step.request, step.version), 0.0)
    leader.refuse[KEY] = code
    step = ask(fetcher)
    assert fetcher.answered(step, leader.answer(step.request, step.version), 0.0) == []
    assert (KEY in fetcher.failed) is fails
    if not fails:
        step = ask(fetcher, 0.01)
        assert step.request.forgotten_topics_data
        fetcher.answered(step, response(session_id=0), 0.01)
        assert fetcher.next(0.01, 30) == Wait(0.02 if code in NOT_YET else 1.0)
        assert isinstance(ask(fetcher, 1.0).request, ListOffsetsRequest)


# ---- before IBP 2.7-IV1


def epochs_asked(step: Ask) -> dict[int, tuple[int, int]]:
    assert isinstance(step.request, OffsetForLeaderEpochRequest)
    assert (step.request.replica_id, step.version) == (2, 3)
    return {
        of.partition: (of.current_leader_epoch, of.leader_epoch)
        for topic in step.request.topics
        for of in topic.partitions
    }


def test_old_protocol_asks_for_epochs_first() -> None:
    """KIP-279: the leader's epoch 2 is unknown here, so it takes two questions."""
    log = FakeLog(1, 1, 3, 3)
    fetcher = made(log, FakeLog(), settings=OLD)
    leader = FakeLeader()
    leader.logs[KEY], leader.epochs[KEY] = FakeLog(1, 2, 2, 2, 4), 5
    leader.ids[TOPIC_ID] = "t"
    step = fetcher.next(0.0, 30)
    assert isinstance(step, Do)
    assert [action.partition.index for action in step.actions] == [1], "no epochs: high watermark"
    do(fetcher, step.actions)
    answers = []
    while True:
        asking = ask(fetcher)
        if isinstance(asking.request, FetchRequest):
            break
        answers.append(epochs_asked(asking))
        do(fetcher, fetcher.answered(asking, leader.answer(asking.request, asking.version), 0.0))
    assert answers == [{0: (5, 3)}, {0: (5, 1)}]
    assert log.log_end_offset == 1
    assert (asked(asking)[0].fetch_offset, asked(asking)[0].last_fetched_epoch) == (1, -1)


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_errors_of_the_epoch_question(code: ErrorCode, fails: bool) -> None:
    fetcher = made(FakeLog(1), settings=OLD)
    leader = FakeLeader()
    leader.refuse[KEY] = code
    step = ask(fetcher)
    assert fetcher.answered(step, leader.answer(step.request, step.version), 0.0) == []
    assert (KEY in fetcher.failed) is fails
    assert fetcher.next(0.0, 30) == Wait(None if fails else 0.02 if code in NOT_YET else 1.0)
    if not fails:
        assert epochs_asked(ask(fetcher, 1.0)) == {0: (5, 1)}


def test_unanswered_epoch_question() -> None:
    fetcher = made(FakeLog(1), settings=OLD)
    fetcher.unanswered(ask(fetcher), 0.0)
    assert fetcher.next(0.0, 30) == Wait(1.0)
    assert epochs_asked(ask(fetcher, 1.0)) == {0: (5, 1)}


def test_epoch_that_came_while_asking() -> None:
    log = FakeLog(1, 1)
    fetcher = made(log, settings=OLD)
    step = ask(fetcher)
    fetcher.add(KEY, TOPIC_ID, 6, log)
    leader = FakeLeader()
    leader.logs[KEY], leader.epochs[KEY] = FakeLog(1), 5
    assert fetcher.answered(step, leader.answer(step.request, step.version), 0.0) == []
    assert epochs_asked(ask(fetcher)) == {0: (6, 1)}


# ---- throttles


def test_throttled_partitions_rest_while_they_are_behind() -> None:
    fetcher = made(FakeLog(1), FakeLog(1), FakeLog(1))
    answer = response(*(partition(index=i, high_watermark=9 if i else 1) for i in range(3)))
    do(fetcher, fetcher.answered(ask(fetcher), answer, 0.0))
    throttled = {("t", 0), ("t", 1)}
    step = fetcher.next(0.0, 30, throttled.__contains__)
    assert isinstance(step, Ask)
    assert [each.partitions for each in step.request.forgotten_topics_data] == [[1]], "0 is in sync, 2 not throttled"
    assert fetcher.answered(step, response(), 0.5) == []
    step = fetcher.next(1.0, 30, None)
    assert isinstance(step, Ask)
    assert list(asked(step)) == [1]


def test_all_held_back() -> None:
    fetcher = made(FakeLog(1))
    step = fetcher.next(0.0, 30, lambda key: True)
    assert step == Wait(1.0), "looked at again after a rest"
    assert isinstance(fetcher.next(1.0, 30, None), Ask)
