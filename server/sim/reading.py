"""How consumers of the simulated cluster read a partition: one Fetch after the other, from its leader.

`read` is the loop. What a consumer makes of the records, and what it checks, is its own: its `Reader`.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.sim.checks import TopicPartition
from barnabas.server.sim.client import Client, Gone

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_VERSION = 11


class Reader(Protocol):
    """Takes the records of one partition. position: the next offset to read."""

    @property
    def position(self) -> int: ...

    def take(self, partition: FetchResponse.PartitionData, records: bytes, leader: int) -> bool:
        """Process a leader's answer, with its records. False: it is an error; pause, and refresh the metadata."""


def fetch_request(key: TopicPartition, position: int, leader_epoch: int, isolation_level: int) -> FetchRequest:
    """A consumer's request for one partition. `leader_epoch`: without it a follower would answer too (KIP-392), and
    perhaps be far behind.
    """
    topic, index = key
    return FetchRequest(
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=position,
                        partition_max_bytes=1 << 16,
                    )
                ],
            )
        ],
    )


async def read(client: Client, key: TopicPartition, reader: Reader, isolation_level: int = READ_UNCOMMITTED) -> None:
    """Fetch the partition from `reader.position` on until cancelled."""
    while True:
        if not await _fetch(client, key, reader, isolation_level):
            await client.pause()
            await client.refresh()


async def _fetch(client: Client, key: TopicPartition, reader: Reader, isolation_level: int) -> bool:
    leader = await client.leader(*key)
    request = fetch_request(key, reader.position, client.leaders[key][0], isolation_level)
    try:
        response = await client.ask_broker(leader, request, _VERSION)
    except Gone:
        return False
    if response.error_code:
        return False
    partition = response.responses[0].partitions[0]
    return reader.take(partition, bytes(partition.records or b""), leader)
