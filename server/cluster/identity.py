"""A broker's identity: which store holds the metadata, which id the broker has, when it may register.

With `zookeeper.connect` the store is ZooKeeper, with `metadata.store.socket` that of this machine, shared with the
other brokers of the cluster; without them the broker runs alone and the store is a journal in one of its log
directories.

The id is that of the settings, of the log directory's meta.properties, or generated: the version of /brokers/seqid
counts its writes, so each writer gets a number of its own, which is added to `reserved.broker.max.id`. Source:
`KafkaServer.getOrGenerateBrokerId`, `KafkaZkClient.generateBrokerId` (3.9).

The registration of a killed broker stays until its session times out. A broker that restarts meanwhile waits for that
(Apache Kafka ends with an error), and fails when it stays: then another broker is alive with this id.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import trio

from barnabas.logdir import MetaProperties
from barnabas.replication import (
    BrokerIdTaken,
    DirectoryFiles,
    EmbeddedStore,
    Store,
    StoreFailed,
    take_broker_number,
    watch_registration,
)
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.outside import outside_of_this_loop

log = logging.getLogger("barnabas.broker")

REGISTRATION_GRACE_S = 2.0
"""How much longer than a session an old registration may stay: ZooKeeper expires sessions in ticks. Seconds."""


def open_store(
    config: BrokerConfig, offload: Offload, directory: str, on_failure: Callable[[StoreFailed], None]
) -> AbstractAsyncContextManager[Store]:
    """The store of the settings' choice, opened by entering the context. Of a broker alone, directory: where its store
    is; on_failure: called when it cannot be written any more.
    """
    if config.store_socket is not None:
        from barnabas.replication.store.socket_store import socket_store  # not loaded by a broker alone
        from barnabas.server.network.unix_socket import connect

        return socket_store(
            partial(connect, config.store_socket),
            timeout_ms=config.get_int("zookeeper.session.timeout.ms"),
            connect_within_ms=config.get_optional_int("zookeeper.connection.timeout.ms"),
            name=f"broker {config.broker_id}" if config.broker_id >= 0 else "a broker without an id",
            outside=outside_of_this_loop(),
        )
    if config.is_clustered:
        # kazoo is imported only if it is used
        from barnabas.replication.store.zk import zookeeper_store
        from barnabas.server.cluster.zookeeper import zookeeper_settings

        return zookeeper_store(zookeeper_settings(config))
    return _embedded_store(directory, offload, on_failure)


@asynccontextmanager
async def _embedded_store(
    directory: str, offload: Offload, on_failure: Callable[[StoreFailed], None]
) -> AsyncIterator[Store]:
    store = EmbeddedStore.open(DirectoryFiles(directory), run_io=offload)
    store.on_failure = on_failure
    try:
        yield store.connect()
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def settle_broker_id(config: BrokerConfig, meta: MetaProperties | None, store: Store) -> BrokerConfig:
    """The settings with the id of this broker. Raises StoreError."""
    if config.broker_id >= 0:
        return config
    if meta is not None and meta.node_id is not None:
        return config.with_broker_id(meta.node_id)
    number = config.get_int("reserved.broker.max.id") + await take_broker_number(store)
    log.info("generated broker id %d", number)
    return config.with_broker_id(number)


async def wait_for_old_registration(store: Store, broker_id: int, session_timeout_s: float) -> None:
    """Return when `broker_id` is not registered. Raises BrokerIdTaken if the registration stays, StoreError."""
    async with watch_registration(store, broker_id) as registration:
        if not await registration.is_there():
            return
        limit_s = session_timeout_s + REGISTRATION_GRACE_S
        log.warning(
            "broker.id %d is still registered, perhaps from its last run: waiting up to %g s", broker_id, limit_s
        )
        with trio.move_on_after(limit_s):
            await registration.until_gone()
            return
    raise BrokerIdTaken(
        f"another broker is alive with broker.id {broker_id}: its registration has outlived a session of "
        f"{session_timeout_s:g} s; stop that one, or give this broker another id"
    )
