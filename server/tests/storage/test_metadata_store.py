"""The metadata store of a broker alone: what cannot be stored is rejected alone, and a failing disk ends the broker in
order.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import CreateTopicsRequest, IncrementalAlterConfigsRequest
from barnabas.server.broker.broker import BrokerFailed
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic

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


async def test_a_name_too_long_to_be_stored_is_the_asker_s_trouble(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as broker:
        async with connected(broker) as client:
            answer = await client.ask(long_name(), 1)
            assert answer.responses[0].error_code == E.INVALID_CONFIG
        async with connected(broker) as client:
            assert (await client.ask(creation("next"), 5)).topics[0].error_code == E.NONE
    async with embedded_broker(tmp_path) as broker:
        assert set(broker.services.current_image().topics) == {"next"}


async def test_a_change_of_settings_meets_the_refusal_too(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written by its handler, not by the controller's loop."""

    def refused(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    change = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="5000")
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with embedded_broker(tmp_path) as broker, connected(broker) as client:
            await topic(broker)
            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", refused)
                answer = await client.ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1)
                assert answer.responses[0].error_code == E.NOT_CONTROLLER
            await broker.stopped()
    assert caught.group_contains(BrokerFailed, match="the metadata store could not be written")
    assert not [record for record in caplog.records if record.exc_info], "no stack: it is no fault of ours"
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    async with embedded_broker(tmp_path) as broker:
        assert broker.services.current_image().topics["t"].config == {}


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
