"""InitProducerId for idempotent producers; transactional ones: `test_transaction_apis.py`."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import InitProducerIdRequest
from barnabas.server.apis.transactions.init_producer_id import API
from barnabas.server.tests.apis.data_world import data_world

VERSIONS = range(6)


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path) as made:
        yield made


async def ask(world, version: int = 5, **fields) -> tuple[int, int, int]:
    """(error, producer id, epoch)"""
    response = await world.ask(API, InitProducerIdRequest(**{"transactional_id": None, **fields}), version)
    return response.error_code, response.producer_id, response.producer_epoch


async def test_fresh_ids_in_all_versions(world):
    assert [await ask(world, version) for version in VERSIONS] == [(0, 4000 + i, 0) for i in VERSIONS]


async def test_a_producer_that_had_an_id_gets_a_fresh_one(world):
    """KIP-360: only with a transactional id the epoch would be bumped instead."""
    assert await ask(world, producer_id=3999, producer_epoch=7) == (0, 4000, 0)


async def test_half_an_identity(world):
    nobody = (ErrorCode.INVALID_REQUEST, -1, -1)
    assert await ask(world, 3, producer_id=5) == nobody
    assert await ask(world, 3, producer_epoch=5) == nobody
    assert await ask(world, 3, transactional_id="t", producer_epoch=5) == nobody


async def test_no_ids_at_the_moment(world):
    world.producer_ids.failure = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await ask(world) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
