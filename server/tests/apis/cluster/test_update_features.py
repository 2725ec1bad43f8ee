"""Feature levels over the wire: listed by ApiVersions, changed by UpdateFeatures, kept over a restart, the same in a
cluster.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ApiVersionsRequest, UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.replication.tree import features
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster

E = ErrorCode
TV, GV, MV = "transaction.version", "group.version", "metadata.version"
SV, KV = "share.version", "streams.version"


async def levels(client: Client, version: int = 4) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    """Supported, finalised, epoch."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = await client.ask(request, version)
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    return (
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features},
        {each.name: each.max_version_level for each in answer.finalized_features},
        answer.finalized_features_epoch,
    )


async def update(
    client: Client, *updates: tuple[str, int], down: bool = False, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    fields: dict[str, object] = {"allow_downgrade": down} if version == 0 else {"upgrade_type": 2 if down else 1}
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, **fields)  # type: ignore[arg-type]
            for name, level in updates
        ]
    )
    if version > 0:
        request.validate_only = validate_only
    response = await client.ask(request, version)
    assert isinstance(response, UpdateFeaturesResponse)
    return response


async def test_a_broker_alone_has_the_newest_levels(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        assert await levels(client) == (
            {GV: (0, 1), SV: (0, 1), KV: (0, 1), TV: (0, 2), MV: (21, 21)},
            {GV: 1, SV: 1, KV: 1, TV: 2, MV: 21},
            0,
        )
        # Older clients cannot read a lowest level of 0.
        assert await levels(client, 3) == ({MV: (21, 21)}, {GV: 1, SV: 1, KV: 1, TV: 2, MV: 21}, 0)
        plain = await client.ask(ApiVersionsRequest(), 2)
        assert plain.finalized_features == []


@pytest.mark.parametrize("version", range(3))
async def test_every_version_changes_levels(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        told = await update(client, (TV, 1), (GV, 0), down=True, version=version)
        assert (told.error_code, told.error_message) == (E.NONE, None)
        results = [(each.feature, each.error_code) for each in told.results]
        assert results == ([] if version == 2 else [(TV, E.NONE), (GV, E.NONE)])
        assert (await levels(client))[1:] == ({SV: 1, KV: 1, TV: 1, MV: 21}, 1)
        assert broker.services.features.level(TV) == 1
        assert (await update(client, (TV, 2), version=version)).error_code == E.NONE
        assert (await levels(client))[1:] == ({SV: 1, KV: 1, TV: 2, MV: 21}, 2)


async def test_all_or_nothing(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        told = await update(client, (TV, 1), ("x", 1), down=True)
        assert told.error_code == E.INVALID_UPDATE_VERSION
        assert told.error_message == (
            "The update failed for all features since the following feature had an error: Invalid update version 1 "
            "for feature x. Local controller 1 does not support this feature."
        )
        told = await update(client, (TV, 1))
        assert told.error_code == E.INVALID_UPDATE_VERSION
        assert "without setting the upgrade type" in (told.error_message or "")
        assert (await update(client, (TV, 1), down=True, validate_only=True)).error_code == E.NONE
        assert (await levels(client))[1:] == ({GV: 1, SV: 1, KV: 1, TV: 2, MV: 21}, 0)


async def test_levels_outlast_a_restart(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        await update(client, (TV, 0), down=True)
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        assert (await levels(client))[1] == {GV: 1, SV: 1, KV: 1, MV: 21}


async def test_coordinators_are_notified_of_a_change(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        heard: list[int] = []
        transactions = broker.services.transactions
        transactions.config_changed = lambda: heard.append(broker.services.features.level(TV))  # type: ignore[method-assign]
        await update(client, (TV, 1), down=True)
        await update(client, (TV, 1), down=True)
        assert heard == [1]


async def test_in_a_cluster_only_levels_that_all_brokers_support_are_finalised(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(2) as cluster:
        brokers = [cluster.members[i].broker for i in (1, 2)]
        first, other = sorted(brokers, key=lambda broker: not broker.services.cluster.is_active)
        async with connected(first) as client, connected(other) as away:
            supported, finalised, _ = await levels(away)
            assert (supported[MV], finalised) == ((21, 21), {})  # as brokers of 3.9 with ZooKeeper say it
            assert (await update(away, (TV, 2))).error_code == E.NOT_CONTROLLER
            assert (await update(client, (TV, 2))).error_code == E.NONE
            await trio.testing.wait_all_tasks_blocked()
            assert (await levels(away))[1] == (await levels(client))[1] == {TV: 2}
            assert (await update(client, (TV, 0), down=True)).error_code == E.NONE
            await trio.testing.wait_all_tasks_blocked()
            assert (await levels(away))[1] == {}
            node = await first._store_session.get(features.NODE)
            assert node is not None
            assert node.data == b'{"version":2,"status":1,"features":{}}'


async def test_the_level_of_metadata_is_that_of_the_protocol_between_brokers(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(inter_broker_protocol_version="3.6") as broker, connected(broker) as client:
        supported, finalised, _ = await levels(client)
        assert (supported[MV], finalised[MV]) == ((14, 14), 14)
        assert (await update(client, (MV, 14), (TV, 1), down=True)).error_code == E.NONE
        assert (await levels(client))[1:] == ({GV: 1, SV: 1, KV: 1, TV: 1, MV: 14}, 1)
        node = await broker._store_session.get(features.NODE)
        assert node is not None
        assert MV not in node.data.decode()
        told = await update(client, (MV, 21))
        assert told.error_code == E.INVALID_UPDATE_VERSION
        assert (told.error_message or "").endswith("Local controller 1 only supports versions 14-14")
    async with embedded_broker(inter_broker_protocol_version="2.8") as broker, connected(broker) as client:
        supported, finalised, _ = await levels(client)
        assert MV not in supported
        assert MV not in finalised
