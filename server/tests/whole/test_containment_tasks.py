"""What the broker's tasks come across ends neither them nor the broker: in a whole broker, or in three, under virtual
time, each thing that they call raises once. The log says so once, it is called again, and a client notices nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from unittest.mock import ANY

import pytest
import trio

from barnabas.coordinator import GroupShard
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.txn import TxnShard
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
)
from barnabas.logdir import Checkpoints, PartitionLog
from barnabas.logdir.files.removal import Removals
from barnabas.replication import Controller
from barnabas.server.cluster.channels import _Channel
from barnabas.server.cluster.partition_requests import PartitionRequests
from barnabas.server.cluster.receiver import Receiver
from barnabas.server.network.reactor import Reactor
from barnabas.server.partitions.in_sync import IsrManager
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.storage.cleaner import Cleaner
from barnabas.server.testing import connected, embedded_cluster
from barnabas.server.tests.whole.cluster_users import User

SETTINGS = {
    "log_initial_task_delay_ms": "0",
    "log_retention_check_interval_ms": "1000",
    "log_flush_start_offset_checkpoint_interval_ms": "1000",
    "log_flush_offset_checkpoint_interval_ms": "1000",
    "replica_high_watermark_checkpoint_interval_ms": "1000",
    "producer_id_expiration_check_interval_ms": "1000",
    "offsets_retention_check_interval_ms": "1000",
    "transaction_remove_expired_transaction_cleanup_interval_ms": "1000",
    "log_cleaner_backoff_ms": "1000",
    "transaction_state_log_min_isr": "1",
    "replica_lag_time_max_ms": "10000",
}


class Once:
    """Replaces a method: its first call raises, the others go through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.calls = 0
        self.again = trio.Event()
        method = getattr(owner, name)

        def called(*args: Any, **keywords: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise ValueError("by the test")
            self.again.set()
            return method(*args, **keywords)

        monkeypatch.setattr(owner, name, called)


Do = Callable[[User], Awaitable[object]]


async def nothing(user: User) -> None:
    await trio.lowlevel.checkpoint()


async def producer_ids(user: User) -> None:
    """The first one is refused, or told to try again."""
    async with connected(user.cluster[1]) as client:
        await client.ask(FindCoordinatorRequest(key="txn", key_type=1), 3)
        for _ in range(20):
            answer = await client.ask(InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=1000), 4)
            if answer.error_code == 0:
                return
            await trio.sleep(0.5)


async def a_laggard(user: User) -> None:
    """Dies without a word."""
    await user.cluster.kill(3, session_lasts_s=600)
    await user.produce("t", b"x")


async def joins(user: User) -> None:
    """A member that is not heard of again."""
    asked = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    await user.ask(await user.coordinator("g"), asked, 3)


async def another_topic(user: User) -> None:
    for number in range(2):
        topic = CreateTopicsRequest.CreatableTopic(name=f"n{number}", num_partitions=1, replication_factor=-1)
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
        while True:
            controller = max(user.cluster.controller(), 1)
            code = (await user.ask(controller, asked, 5)).topics[0].error_code
            if code == ErrorCode.TOPIC_ALREADY_EXISTS:
                break
            assert code in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
            await trio.sleep(0.5)


async def deletions(user: User) -> None:
    await another_topic(user)
    await user.ask(1, DeleteTopicsRequest(topic_names=["n0"], timeout_ms=1000), 3)
    await user.ask(1, DeleteTopicsRequest(topic_names=["n1"], timeout_ms=1000), 3)


async def settings(user: User) -> None:
    await another_topic(user)
    for number in range(2):
        await user.configure(1, 2, f"n{number}", "retention.ms", "1000000")


class Case(NamedTuple):
    """owner, name: what raises once; do: what makes the broker call it, and again."""

    owner: type
    name: str
    do: Do = nothing


ALONE = [
    Case(PartitionLog, "retain"),
    Case(PartitionLog, "expire_producers"),
    Case(Checkpoints, "recovery_points"),
    Case(Checkpoints, "log_starts"),
    Case(Checkpoints, "high_watermarks"),
    Case(Removals, "take"),
    Case(Cleaner, "_dirtiest"),
    Case(Reactor, "sweep"),
    Case(GroupShard, "expire_offsets"),
    Case(ClassicGroup, "expire", joins),
    Case(TxnShard, "remove_expired", producer_ids),
    Case(PartitionRequests, "allocate_producer_ids", producer_ids),
    Case(Partitions, "config_changed", settings),
    Case(GroupShard, "topics_deleted", deletions),
    Case(Controller, "committed", another_topic),
]
CLUSTER = [
    Case(Partition, "shrink_isr"),
    Case(IsrManager, "_ask", a_laggard),
    Case(Partition, "isr_accepted", a_laggard),
    Case(_Channel, "_deliver", another_topic),
    Case(Partitions, "become_follower", another_topic),
    Case(Receiver, "_lead_and_follow", another_topic),
]


def title(case: Case) -> str:
    return f"{case.owner.__name__}.{case.name}"


@pytest.mark.parametrize("case", [*ALONE, *CLUSTER], ids=title)
async def test_the_task_goes_on(
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.abc.Clock,
) -> None:
    async with embedded_cluster(3 if case in CLUSTER else 1, None, **SETTINGS) as cluster:  # type: ignore[arg-type]
        with trio.fail_after(1000):
            user = User(cluster)
            await user.topic("t", replicas=len(cluster.running))
            await user.commit("mine", 1)
            caplog.clear()
            once = Once(monkeypatch, case.owner, case.name)
            await case.do(user)
            await once.again.wait()
            assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [ANY]
            (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
            assert record.exc_info is not None
            assert "by the test" in str(record.exc_info[1])
            assert sorted(cluster.running)[0] == 1
            offset = await user.produce("t", b"served")
            assert await user.end_offset("t") == offset + 1
            await user.commit("mine", 2)
            assert await user.committed("mine") == 2
