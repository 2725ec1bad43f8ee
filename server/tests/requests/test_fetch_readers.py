"""Who reads for whom: the reader of a Fetch, by version, replica id, rack and the broker's selector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.kproto.messages import FetchRequest
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.requests.fetch.consumers import AnyReplicaReader, ConsumerReader, RackReader, ReaderWithoutZstd
from barnabas.server.requests.fetch.followers import FollowerReader
from barnabas.server.requests.fetch.reader import Reader
from barnabas.server.requests.fetch.readers import RACK_AWARE_SELECTOR, reader_for


def chosen(
    version: int, *, replica_id: int = -1, rack: str = "", selector: str = "", session: object = None, level: int = 0
) -> Reader:
    settings = {"replica.selector.class": selector} if selector else {}
    throttle = SimpleNamespace(refresh=lambda config: None)
    svc: Any = SimpleNamespace(
        config=BrokerConfig.from_values(settings),
        now=lambda: 7.0,
        partitions=SimpleNamespace(leader_throttle=throttle),
    )
    asked = FetchRequest(rack_id=rack, isolation_level=level)
    if version >= 15:
        asked.replica_state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=5)
    else:
        asked.replica_id = replica_id
    ctx: Any = SimpleNamespace(api_version=version, listener="PLAINTEXT")
    scope: Any = ({}, session, False)
    return reader_for(svc, ctx, asked, scope)


@pytest.mark.parametrize(
    ("version", "asked", "reader"),
    [
        (4, {}, ReaderWithoutZstd),
        (9, {"level": 1}, ReaderWithoutZstd),
        (10, {}, ConsumerReader),
        (18, {"level": 1}, ConsumerReader),
        (18, {"rack": "r"}, ConsumerReader),
        (18, {"rack": "r", "selector": RACK_AWARE_SELECTOR}, RackReader),
        (11, {"rack": "r", "selector": RACK_AWARE_SELECTOR}, RackReader),
        (18, {"selector": RACK_AWARE_SELECTOR}, ConsumerReader),
        (18, {"replica_id": -2, "rack": "r", "selector": RACK_AWARE_SELECTOR}, AnyReplicaReader),
        (14, {"replica_id": -2}, AnyReplicaReader),
        (14, {"replica_id": 0}, FollowerReader),
        (17, {"replica_id": 2}, FollowerReader),
    ],
)
def test_the_reader_of_a_request(version: int, asked: dict[str, Any], reader: type) -> None:
    made = chosen(version, **asked)
    assert type(made) is reader
    assert made.read_committed == bool(asked.get("level"))


@pytest.mark.parametrize(
    ("session", "selector", "tells"),
    [(None, RACK_AWARE_SELECTOR, False), (object(), RACK_AWARE_SELECTOR, True), (object(), "", False)],
)
def test_a_follower_that_consumers_read_from_gets_high_watermarks_immediately(
    session: object, selector: str, tells: bool
) -> None:
    made = chosen(17, replica_id=2, session=session, selector=selector)
    assert isinstance(made, FollowerReader)
    assert (made.replica_id, made.broker_epoch, made.notify_high_watermark) == (2, 5, tells)


def test_only_the_first_look_reports_a_followers_progress() -> None:
    made = chosen(17, replica_id=2)
    assert isinstance(made, FollowerReader)
    assert made.report
    made.next_part()
    assert made.report
    made.read_again()
    assert not made.report
