"""Limits of requests, by API: bytes of the frame, and elements in it.

The cost of a request is not its bytes alone. An element of an array takes one byte in the frame and a hundred in
memory, so the elements of all levels are counted while a request is decoded (`barnabas.kproto.codec.decode` says what
counts). A peer that exceeds a limit is disconnected before memory is allocated.

    elements         decoded (one core)    memory
     20,000              5 to 20 ms         4 MB
    100,000             15 to 100 ms    1 to 20 MB

The bounds are far above what clients ask for. 4 MiB hold 10,000 topic names of full length (249 bytes), or a Fetch of
100,000 partitions; 100,000 elements are 10,000 topics of nine partitions each. APIs that need more have
a row below.

Produce has no bound of bytes but `socket.request.max.bytes`, as it carries records, which stay where they were
received. The rest of it counts as well: names and unknown tags a unit for each KiB. So it can be 20 MiB.

Responses of other brokers, which our own clients read, are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.kproto import ApiKey

_MIB: Final = 1024 * 1024


class Bounds(NamedTuple):
    """`frame_bytes`: the longest frame, without the four bytes of its length; `elements`: the decoder's limit."""

    frame_bytes: int
    elements: int


GENERAL: Final = Bounds(4 * _MIB, 100_000)
"""For every API that is not in `BOUNDS`, and for unknown keys."""

_LARGE_VALUES: Final = Bounds(16 * _MIB, 100_000)
"""Texts and bytes without bound in the protocol: subscriptions and assignments, metadata of offsets, settings."""

_CLUSTER: Final = Bounds(16 * _MIB, 2_000_000)
"""A controller sends a new broker all partitions at once: 280,000 with three replicas are 16 MiB, and seven elements
each. Brokers without a cluster do not serve these.
"""

BOUNDS: Final[Mapping[int, Bounds]] = MappingProxyType(
    {
        # A producer sends a batch per partition: 10,000 partitions, each in a topic of its own.
        ApiKey.PRODUCE: Bounds(0x7FFFFFFF, 20_000),
        ApiKey.JOIN_GROUP: _LARGE_VALUES,
        ApiKey.SYNC_GROUP: _LARGE_VALUES,
        ApiKey.OFFSET_COMMIT: _LARGE_VALUES,
        ApiKey.TXN_OFFSET_COMMIT: _LARGE_VALUES,
        ApiKey.CREATE_TOPICS: _LARGE_VALUES,
        ApiKey.ALTER_CONFIGS: _LARGE_VALUES,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _LARGE_VALUES,
        # A member's topics and partitions are compared with what the group has, in one step.
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Bounds(4 * _MIB, 25_000),
        # The tools move all partitions of a plan in one request.
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Bounds(16 * _MIB, 400_000),
        ApiKey.LEADER_AND_ISR: _CLUSTER,
        ApiKey.STOP_REPLICA: _CLUSTER,
        ApiKey.UPDATE_METADATA: _CLUSTER,
        ApiKey.ALTER_PARTITION: _CLUSTER,
    }
)


def bounds_of(api_key: int) -> Bounds:
    """The limits for this API key, known or not."""
    return BOUNDS.get(api_key, GENERAL)
