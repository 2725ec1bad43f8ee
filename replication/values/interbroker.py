"""Which versions brokers of one cluster speak to each other: `inter.broker.protocol.version` (IBP) as a value.

The sender of these requests does not ask for the receiver's versions first; during a rolling upgrade all brokers are
set to the IBP of the oldest one, so that each understands all others:

    controller → brokers   LeaderAndIsr, UpdateMetadata, StopReplica
    follower → leader      Fetch, ListOffsets, OffsetForLeaderEpoch

`InterBrokerProtocol.parse("2.7-IV2").version(ApiKey.FETCH)` says which. Releases had sub-versions while they were made
(`2.7-IV0`); the release itself (`2.7`, `2.7.1`) is its last one. Source: `MetadataVersion.java`,
`ControllerChannelManager.scala` (3.9).

Not here: 4.0 and later, which have no ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from barnabas.kproto import ApiKey

_ORDER = (
    *("0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2"),
    *("0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1"),
    *("2.1-IV0", "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0"),
    *("2.6-IV0", "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1", "3.1-IV0", "3.2-IV0"),
    *("3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1"),
    *("3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
)
_RANK = {text: rank for rank, text in enumerate(_ORDER)}
_LATEST = {text.partition("-")[0]: text for text in _ORDER}  # release → its last sub-version

_SINCE: dict[ApiKey, tuple[tuple[str, int], ...]] = {
    ApiKey.LEADER_AND_ISR: (
        ("3.4-IV0", 7),
        ("3.2-IV0", 6),
        ("2.8-IV1", 5),
        ("2.4-IV1", 4),
        ("2.4-IV0", 3),
        ("2.2-IV0", 2),
        ("1.0-IV0", 1),
    ),
    ApiKey.UPDATE_METADATA: (
        ("3.4-IV0", 8),
        ("2.8-IV1", 7),
        ("2.4-IV1", 6),
        ("2.2-IV0", 5),
        ("1.0-IV0", 4),
        ("0.10.2-IV0", 3),
        ("0.10.0-IV1", 2),
        ("0.9.0", 1),
    ),
    ApiKey.STOP_REPLICA: (("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1)),
    ApiKey.FETCH: (
        ("3.9-IV0", 17),
        ("3.7-IV4", 16),
        ("3.5-IV1", 15),
        ("3.5-IV0", 14),
        ("3.1-IV0", 13),
        ("2.7-IV1", 12),
        ("2.3-IV1", 11),
        ("2.1-IV2", 10),
        ("2.0-IV1", 8),
        ("1.1-IV0", 7),
        ("0.11.0-IV1", 5),
        ("0.11.0-IV0", 4),
        ("0.10.1-IV1", 3),
        ("0.10.0-IV0", 2),
        ("0.9.0", 1),
    ),
    ApiKey.LIST_OFFSETS: (
        ("3.9-IV0", 9),
        ("3.5-IV0", 8),
        ("3.0-IV1", 7),
        ("2.8-IV0", 6),
        ("2.2-IV1", 5),
        ("2.1-IV1", 4),
        ("2.0-IV1", 3),
        ("0.11.0-IV0", 2),
        ("0.10.1-IV2", 1),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1)),
    ApiKey.WRITE_TXN_MARKERS: (("2.8-IV0", 1),),
}
"""First IBP that uses a version, newest first; version 0 before the last row."""


@total_ordering
@dataclass(frozen=True, slots=True)
class InterBrokerProtocol:
    """One IBP; they are ordered. text: its full name (`3.9-IV0`)."""

    text: str

    @classmethod
    def parse(cls, text: str) -> InterBrokerProtocol:
        """As in the setting: `2.7`, `2.7.1`, `2.7-IV2`, `0.11.0.3`. Raises ValueError."""
        segments = text.split(".")
        key = ".".join(segments[: 3 if text.startswith("0.") else 2])
        found = key if key in _RANK else _LATEST.get(key)
        if found is None:
            raise ValueError(f"{text!r} is not an inter-broker protocol version from 0.8.0 to 3.9")
        return cls(found)

    def __lt__(self, other: InterBrokerProtocol) -> bool:
        return _RANK[self.text] < _RANK[other.text]

    def at_least(self, text: str) -> bool:
        """This protocol is `text` (a full name) or a later one."""
        return _RANK[self.text] >= _RANK[text]

    def version(self, key: ApiKey) -> int:
        """The version of a request to send. Raises KeyError for APIs whose version is negotiated."""
        for since, version in _SINCE[key]:
            if self.at_least(since):
                return version
        return 0

    @property
    def metadata_level(self) -> int | None:
        """The level of the feature `metadata.version` with the same name (KIP-584): 3.0-IV1 is 1. None before."""
        level = _RANK[self.text] - _RANK["3.0-IV1"] + 1
        return level if level > 0 else None

    @property
    def truncates_on_fetch(self) -> bool:
        """Followers find out where to truncate from the Fetch response (KIP-595), without OffsetForLeaderEpoch."""
        return self.at_least("2.7-IV1")

    @property
    def alter_partition(self) -> bool:
        """Leaders ask the controller to change an ISR (KIP-497); before, they wrote the store themselves."""
        return self.at_least("2.7-IV2")

    @property
    def topic_ids(self) -> bool:
        """Topics get ids (KIP-516)."""
        return self.at_least("2.8-IV0")

    @property
    def allocate_producer_ids(self) -> bool:
        """Blocks of producer ids come from the controller (KIP-730); before, from the store."""
        return self.at_least("3.0-IV0")

    @property
    def leader_recovery(self) -> bool:
        """A leader elected uncleanly is marked as recovering (KIP-704)."""
        return self.at_least("3.2-IV0")

    @property
    def epoch_rises_when_isr_shrinks(self) -> bool:
        """A shrinking ISR raises the leader epoch; from 3.6 on it does not (KAFKA-15021)."""
        return not self.at_least("3.6-IV0")


LATEST = InterBrokerProtocol(_ORDER[-1])
