"""What share coordinators are asked ↔ the requests between brokers that ask it: InitializeShareGroupState (83),
ReadShareGroupState (84), WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87).

All are built alike: one group, its topics by id, their partitions; and so are the answers, with an error for each
partition. What is sent comes as it is; what cannot be is the machine's to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas.coordinator.share import ShareKey, StateRead, Stored, Summary, WriteState, listed_batches, read_batches
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from barnabas.server.coordinators.share_states import ShareStateCoordinator


class Initialize(NamedTuple):
    """Begin anew. `start_offset` −1: the leader finds it."""

    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """What is stored, for the leader of this epoch."""

    leader_epoch: int


class Delete(NamedTuple):
    """Forget it."""


class Summarize(NamedTuple):
    """Where it stands, for administrators."""

    leader_epoch: int = -1


Asked = Initialize | Read | WriteState | Delete | Summarize
Told = Stored | StateRead | Summary


class Wire(NamedTuple):
    """One of the requests. `newest`: the last version known. `to_request(group_id, asked)` and `from_response` are the
    asking broker's; `from_request` and `to_response` the coordinator's. `failed`: the answer of an error.
    `act(states, key, asked, token)`: the operation; it raises KafkaError.
    """

    key: ApiKey
    newest: int
    to_request: Callable[[str, Mapping[ShareKey, Any]], Any]
    from_request: Callable[[Any], Iterable[tuple[ShareKey, Any]]]
    to_response: Callable[[Iterable[tuple[ShareKey, Any]]], Any]
    from_response: Callable[[str, Any], dict[ShareKey, Any]]
    failed: Callable[[ErrorCode, str | None], Any]
    act: Callable[[ShareStateCoordinator, ShareKey, Any, Any], None]


def wire_of(asked: Asked) -> Wire:
    """How it is asked."""
    return WIRES[type(asked)]


def _wire(
    key: ApiKey,
    newest: int,
    request: Any,
    topic_data: Any,
    response: Any,
    result: Any,
    ask: Callable[[int, Any], Any],
    asked: Callable[[Any], Any],
    tell: Callable[[int, Any], Any],
    told: Callable[[Any], Any],
    failed: Callable[[ErrorCode, str | None], Any],
    act: Callable[[ShareStateCoordinator, ShareKey, Any, Any], None],
) -> Wire:
    """request, topic_data, response, result: the messages, and what they have for each topic. ask, asked, tell, told:
    one partition of them.
    """

    def to_request(group_id: str, all_asked: Mapping[ShareKey, Any]) -> Any:
        topics: dict[bytes, list[Any]] = {}
        for place, what in all_asked.items():
            topics.setdefault(place.topic_id, []).append(ask(place.partition, what))
        return request(
            group_id=group_id,
            topics=[topic_data(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )

    def from_request(message: Any) -> Iterable[tuple[ShareKey, Any]]:
        for topic in message.topics:
            for each in topic.partitions:
                yield ShareKey(message.group_id, topic.topic_id, each.partition), asked(each)

    def to_response(all_told: Iterable[tuple[ShareKey, Any]]) -> Any:
        results: list[Any] = []
        for place, what in all_told:
            if not results or results[-1].topic_id != place.topic_id:
                results.append(result(topic_id=place.topic_id, partitions=[]))
            results[-1].partitions.append(tell(place.partition, what))
        return response(results=results)

    def from_response(group_id: str, message: Any) -> dict[ShareKey, Any]:
        return {
            ShareKey(group_id, topic.topic_id, each.partition): told(each)
            for topic in message.results
            for each in topic.partitions
        }

    return Wire(key, newest, to_request, from_request, to_response, from_response, failed, act)


def _stored(partition: Any) -> Stored:
    return Stored(ErrorCode.of(partition.error_code), partition.error_message)


def _tell_stored(result: Any) -> Callable[[int, Stored], Any]:
    def tell(partition: int, told: Stored) -> Any:
        return result(partition=partition, error_code=told.code, error_message=told.message)

    return tell


_InitializeData = InitializeShareGroupStateRequest.PartitionData
_ReadData = ReadShareGroupStateRequest.PartitionData
_ReadResult = ReadShareGroupStateResponse.PartitionResult
_WriteData = WriteShareGroupStateRequest.PartitionData
_DeleteData = DeleteShareGroupStateRequest.PartitionData
_SummaryData = ReadShareGroupStateSummaryRequest.PartitionData
_SummaryResult = ReadShareGroupStateSummaryResponse.PartitionResult


def _ask_write(partition: int, asked: WriteState) -> Any:
    return _WriteData(
        partition=partition,
        state_epoch=asked.state_epoch,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        delivery_complete_count=asked.delivery_complete_count,
        state_batches=listed_batches(WriteShareGroupStateRequest.StateBatch, asked.batches),
    )


def _tell_read(partition: int, told: StateRead) -> Any:
    return _ReadResult(
        partition=partition,
        error_code=told.code,
        error_message=told.message,
        state_epoch=told.state_epoch,
        start_offset=told.start_offset,
        state_batches=listed_batches(ReadShareGroupStateResponse.StateBatch, told.batches),
    )


WIRES: Final[Mapping[type[Any], Wire]] = MappingProxyType(
    {
        Initialize: _wire(
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            0,
            InitializeShareGroupStateRequest,
            InitializeShareGroupStateRequest.InitializeStateData,
            InitializeShareGroupStateResponse,
            InitializeShareGroupStateResponse.InitializeStateResult,
            lambda partition, asked: _InitializeData(
                partition=partition, state_epoch=asked.state_epoch, start_offset=asked.start_offset
            ),
            lambda each: Initialize(each.state_epoch, each.start_offset),
            _tell_stored(InitializeShareGroupStateResponse.PartitionResult),
            _stored,
            Stored,
            lambda states, place, asked, token: states.initialize(place, asked.state_epoch, asked.start_offset, token),
        ),
        Read: _wire(
            ApiKey.READ_SHARE_GROUP_STATE,
            0,
            ReadShareGroupStateRequest,
            ReadShareGroupStateRequest.ReadStateData,
            ReadShareGroupStateResponse,
            ReadShareGroupStateResponse.ReadStateResult,
            lambda partition, asked: _ReadData(partition=partition, leader_epoch=asked.leader_epoch),
            lambda each: Read(each.leader_epoch),
            _tell_read,
            lambda each: StateRead(
                ErrorCode.of(each.error_code),
                each.error_message,
                each.state_epoch,
                each.start_offset,
                read_batches(each.state_batches),
            ),
            StateRead,
            lambda states, place, asked, token: states.read(place, asked.leader_epoch, token),
        ),
        WriteState: _wire(
            ApiKey.WRITE_SHARE_GROUP_STATE,
            1,
            WriteShareGroupStateRequest,
            WriteShareGroupStateRequest.WriteStateData,
            WriteShareGroupStateResponse,
            WriteShareGroupStateResponse.WriteStateResult,
            _ask_write,
            lambda each: WriteState(
                each.state_epoch,
                each.leader_epoch,
                each.start_offset,
                each.delivery_complete_count,
                read_batches(each.state_batches),
            ),
            _tell_stored(WriteShareGroupStateResponse.PartitionResult),
            _stored,
            Stored,
            lambda states, place, asked, token: states.write(place, asked, token),
        ),
        Delete: _wire(
            ApiKey.DELETE_SHARE_GROUP_STATE,
            0,
            DeleteShareGroupStateRequest,
            DeleteShareGroupStateRequest.DeleteStateData,
            DeleteShareGroupStateResponse,
            DeleteShareGroupStateResponse.DeleteStateResult,
            lambda partition, asked: _DeleteData(partition=partition),
            lambda each: Delete(),
            _tell_stored(DeleteShareGroupStateResponse.PartitionResult),
            _stored,
            Stored,
            lambda states, place, asked, token: states.delete(place, token),
        ),
        Summarize: _wire(
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            1,
            ReadShareGroupStateSummaryRequest,
            ReadShareGroupStateSummaryRequest.ReadStateSummaryData,
            ReadShareGroupStateSummaryResponse,
            ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
            lambda partition, asked: _SummaryData(partition=partition, leader_epoch=asked.leader_epoch),
            lambda each: Summarize(each.leader_epoch),
            lambda partition, told: _SummaryResult(
                partition=partition,
                error_code=told.code,
                error_message=told.message,
                state_epoch=told.state_epoch,
                leader_epoch=told.leader_epoch,
                start_offset=told.start_offset,
                delivery_complete_count=told.delivery_complete_count,
            ),
            lambda each: Summary(
                ErrorCode.of(each.error_code),
                each.error_message,
                each.state_epoch,
                each.leader_epoch,
                each.start_offset,
                each.delivery_complete_count,
            ),
            Summary,
            lambda states, place, asked, token: states.summary(place, token),
        ),
    }
)
"""By what is asked."""
