"""How much memory an attack leaves behind: what is measured, and when.

All sizes are resident bytes of the broker's process.

- **Start**: after a warm-up, five well-formed requests of each API and version, a batch of each compression
  (`all_compressions`), and a session of the honest client. Codecs are compiled and libraries loaded on first use; they
  are part of the program.
- **End**: after the attack, when clients have deleted what clients can delete (`tidied`: topics, with their records;
  groups, with offsets and members), and after a rest in which the broker's own clocks run: members' timeouts (45 s),
  fetch sessions (`barnabas.server.requests.fetch.sessions`: two to three minutes), deleted files, free memory
  (`barnabas.server.runtime.heap`: a minute). The rest ends as soon as the end is small enough.
- **Restarted**: of a broker of our own that is still too large, a process on the same directory, warmed up likewise.
  What it has read is what nobody can delete: producer ids, transactional ids, logs of internal topics.

`has_grown`: the end is more than 20 % above the start, or the restarted one where that is larger.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from barnabas.kproto.compression import GZIP, LZ4, SNAPPY, ZSTD
from barnabas.kproto.messages import (
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch
from compat_tests.fuzz.honest import PREFIX, Caller, Wronged

GROWTH = 1.2
KEPT = (PREFIX, "load-", "__")
AT_ONCE = 500
T = TypeVar("T")


@dataclass
class Memory:
    """Of one broker. 0: not measured."""

    start: int = 0
    peak: int = 0
    end: int = 0
    restarted: int = 0

    @property
    def has_grown(self) -> bool:
        return self.end > GROWTH * max(self.start, self.restarted)

    def __str__(self) -> str:
        told = f"{self.start >> 20} MiB at the start, {self.peak >> 20} at most, {self.end >> 20} after a rest"
        return told + (f", {self.restarted >> 20} restarted on the same data" if self.restarted else "")


def all_compressions(address: tuple[str, int], topics: Sequence[str]) -> None:
    """Have the broker use the library of each, whoever leads the partitions: random requests may leave one of them out,
    which would be 4 MiB. `topics`: of two partitions. Raises Wronged.
    """
    caller = Caller(address)
    try:
        for codec in (0, GZIP, SNAPPY, LZ4, ZSTD):
            batch = bytes(build_batch([Record(0, int(time.time() * 1000), b"k", b"v" * 100)], codec=codec))
            data = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in (0, 1)]
            asked = [ProduceRequest.TopicProduceData(name=name, partition_data=data) for name in topics]
            caller.ask(ProduceRequest(acks=1, timeout_ms=20_000, topic_data=asked), 9)
    finally:
        caller.close()


def tidied(address: tuple[str, int]) -> int:
    """Delete what attackers made, as far as a client can; how many groups are still there. Raises Wronged."""
    caller = Caller(address)
    try:
        _remove_topics(caller)
        return _remove_groups(caller)
    finally:
        caller.close()


def _remove_topics(caller: Caller) -> None:
    known = caller.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9).topics
    for names in _portions([one.name for one in known if one.name and not one.name.startswith(KEPT)]):
        caller.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=20_000), 4)


def _remove_groups(caller: Caller) -> int:
    """Those of the newer protocol go when their members have been silent for long enough."""
    known = [one.group_id for one in caller.ask(ListGroupsRequest(), 4).groups if not one.group_id.startswith(KEPT)]
    left = 0
    for names in _portions(known):
        for group in caller.ask(DescribeGroupsRequest(groups=names), 5).groups:
            members = [LeaveGroupRequest.MemberIdentity(member_id=one.member_id) for one in group.members]
            if members:
                caller.ask(LeaveGroupRequest(group_id=group.group_id, members=members), 4)
        answer = caller.ask(DeleteGroupsRequest(groups_names=names), 2)
        left += sum(one.error_code != 0 for one in answer.results)
    return left


def tidied_if_possible(address: tuple[str, int]) -> None:
    """Once more, while the broker rests."""
    with suppress(Wronged):
        tidied(address)


def _portions(names: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(names), AT_ONCE):
        yield list(names[at : at + AT_ONCE])
