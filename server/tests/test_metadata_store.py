"""The metadata store of a broker alone: what cannot be stored harms nobody, and a disk that refuses ends the broker in
order.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kproto import ErrorCode
from kproto.messages import CreateTopicsRequest, IncrementalAlterConfigsRequest
from server.app import BrokerFailed
from server.testing import Client, connected, embedded_broker
from server.tests.apis.test_produce import batch, only, request, topic

E = ErrorCode


def creation(name: str) -> CreateTopicsRequest:
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)


def long_name() -> IncrementalAlterConfigsRequest:
    """Settings of a group whose name takes 90,000 bytes as a path."""
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="consumer.session.timeout.ms", value="46000")
    group = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32, resource_name="/" * 30_000, configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[group])


async def attempt(client: Client, asked: Any, version: int) -> Any:
    """The answer, or None when the broker closes the connection."""
    try:
        return await client.ask(asked, version)
    except (EOFError, trio.BrokenResourceError):
        return None


async def test_a_name_too_long_to_be_stored_is_the_asker_s_trouble(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as broker:
        async with connected(broker) as client:
            answer = await attempt(client, long_name(), 1)
            assert answer is None or answer.responses[0].error_code != E.NONE
        async with connected(broker) as client:
            assert (await client.ask(creation("next"), 5)).topics[0].error_code == E.NONE
    async with embedded_broker(tmp_path) as broker:
        assert set(broker.services.current_image().topics) == {"next"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
async def test_a_disk_that_refuses_ends_the_broker_in_order(
    autojump_clock: MockClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
    call: str,
) -> None:
    def refused(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with embedded_broker(tmp_path) as broker, connected(broker) as client:
            await topic(broker)
            assert only(await client.ask(request(batch(b"a")), 9)).error_code == E.NONE
            with monkeypatch.context() as patch:
                patch.setattr(os, call, refused)
                answer = await client.ask(creation("refused"), 5)
                assert answer.topics[0].error_code == E.NOT_CONTROLLER, "whoever waits is answered"
            await broker.stopped()
    assert caught.group_contains(BrokerFailed, match=f"the metadata store could not be written: {os.strerror(code)}")
    assert not [record for record in caplog.records if record.exc_info], "no stack: it is no fault of ours"
    assert (tmp_path / ".kafka_cleanshutdown").exists(), "the logs were made safe"
    async with embedded_broker(tmp_path) as broker:
        assert set(broker.services.current_image().topics) == {"t"}
        assert broker.services.partitions.get("t", 0).high_watermark == 1
        async with connected(broker) as client:
            assert (await client.ask(creation("refused"), 5)).topics[0].error_code == E.NONE
