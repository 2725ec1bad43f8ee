"""Logs as lists, and a leader that answers a follower's requests from them; for tests of the follower's side."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.replication.replica.fetch_session import Key
from barnabas.replication.replica.follower import Append, FollowerAction, Restart, Truncate


class Entry(NamedTuple):
    offset: int
    epoch: int
    value: int


class FakeLog:
    """One replica's log: entries with rising offsets, where each epoch starts, a high watermark. Part of
    `ReplicaLog`.
    """

    def __init__(self, *epochs: int, start: int = 0) -> None:
        """One record of each of `epochs`, from `start` on."""
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []
        self.log_start_offset = self.log_end_offset = self.high_watermark = start
        for epoch in epochs:
            self.append(Entry(self.log_end_offset, epoch, self.log_end_offset))

    def __repr__(self) -> str:
        return f"{self.log_start_offset}..{self.log_end_offset} hw {self.high_watermark} {self.epochs}"

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if not self.epochs or epoch < 0 or epoch > self.latest_epoch:
            return -1, -1
        floor, end = epoch, self.log_end_offset
        for known, start in reversed(self.epochs):
            if known <= epoch:
                return known, end
            end = start
        return floor, end

    def assign(self, epoch: int) -> None:
        """An epoch begins at the end of the log."""
        self.epochs = [(e, s) for e, s in self.epochs if e < epoch and s < self.log_end_offset]
        self.epochs.append((epoch, self.log_end_offset))

    def append(self, entry: Entry) -> None:
        assert entry.offset >= self.log_end_offset
        if entry.epoch != self.latest_epoch:
            self.epochs = [(e, s) for e, s in self.epochs if e < entry.epoch and s < entry.offset]
            self.epochs.append((entry.epoch, entry.offset))
        self.entries.append(entry)
        self.log_end_offset = entry.offset + 1

    def truncate(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry.offset < offset]
        self.log_end_offset = min(self.log_end_offset, offset)
        self.epochs = [(e, s) for e, s in self.epochs if s < self.log_end_offset]
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def restart(self, offset: int) -> None:
        self.entries, self.epochs = [], []
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.entries = [entry for entry in self.entries if entry.offset >= offset]
            below = [epoch for epoch, start in self.epochs if start <= offset]
            if below:
                self.epochs = [(below[-1], offset), *((e, s) for e, s in self.epochs if s > offset)]

    def read(self, offset: int, most: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.offset >= offset][:most]


def carry_out(action: FollowerAction) -> None:
    """Do to a FakeLog what a follower's action says; records are lists of entries here."""
    log: Any = action.partition.log
    if isinstance(action, Append):
        for entry in action.records or ():
            log.append(entry)
        log.high_watermark = max(log.high_watermark, min(action.high_watermark, log.log_end_offset))
        log.start_at(min(action.log_start_offset, log.high_watermark))
    elif isinstance(action, Truncate):
        log.truncate(action.offset)
    else:
        assert isinstance(action, Restart)
        log.restart(action.offset)


class Told(NamedTuple):
    """What a session knows of a partition."""

    asked: FetchRequest.FetchPartition
    topic: str
    topic_id: bytes
    high_watermark: int
    log_start_offset: int


class FakeLeader:
    """Answers from `logs`, with sessions as KIP-227 has them. `refuse`: an error code for a partition; `epochs`: the
    leader epoch of each.
    """

    def __init__(self, *, sessions: bool = True, most: int = 3) -> None:
        self.logs: dict[Key, FakeLog] = {}
        self.epochs: dict[Key, int] = {}
        self.ids: dict[bytes, str] = {}
        self.refuse: dict[Key, int] = {}
        self.session: dict[Key, Told] = {}
        self.session_id = self.session_epoch = 0
        self.sessions = sessions
        self.most = most
        self.fetched: dict[Key, int] = {}
        self._next_id = 100

    def answer(self, request: Any, version: int) -> Any:
        if isinstance(request, FetchRequest):
            return self._fetch(request, version)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epochs(request)
        assert isinstance(request, ListOffsetsRequest)
        return self._offsets(request)

    def _check(self, key: Key, epoch: int) -> int:
        if key in self.refuse:
            return self.refuse[key]
        if key not in self.logs:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch < self.epochs[key]:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > self.epochs[key] else ErrorCode.NONE

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        by_id = version >= 13
        full = request.session_epoch <= 0
        if full:
            self.session = {}
        elif request.session_id != self.session_id or self.session_id == 0:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif request.session_epoch != self.session_epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for topic in request.topics:
            name = self.ids.get(topic.topic_id, "?") if by_id else topic.topic
            for asked in topic.partitions:
                known = self.session.get((name, asked.partition))
                told = (known.high_watermark, known.log_start_offset) if known else (-2, -2)
                self.session[name, asked.partition] = Told(asked, name, topic.topic_id, *told)
        for gone in request.forgotten_topics_data:
            name = self.ids.get(gone.topic_id, "?") if by_id else gone.topic
            for index in gone.partitions:
                del self.session[name, index]  # KeyError: it was never there
        response = FetchResponse(responses=[])
        for key, told in list(self.session.items()):
            data = self._read(key, told.asked, version)
            news = (data.high_watermark, data.log_start_offset)
            if (
                full
                or data.error_code
                or data.records
                or data.diverging_epoch.epoch >= 0
                or news != (told.high_watermark, told.log_start_offset)
            ):
                response.responses.append(
                    FetchResponse.FetchableTopicResponse(topic=told.topic, topic_id=told.topic_id, partitions=[data])
                )
            self.session[key] = told._replace(high_watermark=news[0], log_start_offset=news[1])
        if self.sessions and version >= 7 and self.session:
            if full:
                self._next_id += 1
                self.session_id, self.session_epoch = self._next_id, 1
            else:
                self.session_epoch += 1
            return FetchResponse(responses=response.responses, session_id=self.session_id)
        self.session_id = 0
        return response

    def _read(self, key: Key, asked: FetchRequest.FetchPartition, version: int) -> FetchResponse.PartitionData:
        code = self._check(key, asked.current_leader_epoch)
        if code:
            return FetchResponse.PartitionData(
                partition_index=key[1], error_code=code, high_watermark=-1, log_start_offset=-1
            )
        log = self.logs[key]
        answer: dict[str, Any] = {
            "partition_index": key[1],
            "high_watermark": log.high_watermark,
            "log_start_offset": log.log_start_offset,
            "records": [],
        }
        if version >= 12 and asked.last_fetched_epoch >= 0:
            epoch, end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch < 0:
                answer["error_code"] = ErrorCode.OFFSET_OUT_OF_RANGE
                return FetchResponse.PartitionData(**answer)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                answer["diverging_epoch"] = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
                return FetchResponse.PartitionData(**answer)
        if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
            answer["error_code"] = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            self.fetched[key] = asked.fetch_offset
            answer["records"] = log.read(asked.fetch_offset, self.most)
        return FetchResponse.PartitionData(**answer)

    def _epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                key = (topic.topic, asked.partition)
                code = self._check(key, asked.current_leader_epoch)
                epoch, end = (-1, -1) if code else self.logs[key].end_offset_for_epoch(asked.leader_epoch)
                partitions.append(
                    OffsetForLeaderEpochResponse.EpochEndOffset(
                        partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)
            )
        return OffsetForLeaderEpochResponse(topics=topics)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                key = (topic.name, asked.partition_index)
                code = self._check(key, asked.current_leader_epoch)
                offset = -1
                if not code:
                    log = self.logs[key]
                    offset = {-1: log.log_end_offset, -2: log.log_start_offset}[asked.timestamp]
                partitions.append(
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)
