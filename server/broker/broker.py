"""The life of a broker: has its parts built once (`build.py`), starts and stops them in order.

Start: lock the log directories → open the metadata store, its own or ZooKeeper → determine cluster and broker id, and
check them against the directories → load the logs (recovering after an unclean stop) → bind the listeners → register,
perhaps become controller, lead and follow as the controller says → serve. Ready means: clients are answered.

Stop: in a cluster, hand the leaderships over (controlled shutdown) → stop accepting connections and requests →
answer requests that wait, let those in progress finish, until the deadline → stop the tasks → flush, checkpoint, mark
the clean stop → close the store, which ends the registration (`server/broker/stopping.py`). A
failed log directory gets no mark, so that the next start recovers it; the broker continues with the others, unless
there is none, or its metadata is in the failed one (`server/storage/log_dirs.py`). After a bug that ends the broker no
directory is marked, but all are flushed.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from random import Random, SystemRandom
from secrets import token_bytes
from typing import TYPE_CHECKING

import trio

from barnabas.kproto import uuid_to_text
from barnabas.logdir import Disk, LogDir, LogDirs
from barnabas.replication import (
    DEFAULT_ENTITY,
    BadNode,
    BrokerIdTaken,
    Endpoint,
    Image,
    Store,
    StoreError,
    StoreFailed,
    WrongCluster,
    new_uuid,
    read_broker_configs,
    read_topic_configs,
    settle_cluster_id,
    topic_names,
)
from barnabas.replication.tree.users import SECRET_BYTES, settle_secret
from barnabas.server.broker.build import Ground, Parts, build
from barnabas.server.broker.protection import protect
from barnabas.server.broker.stopping import FAILED_STOP_S, STOP_S, close_logs, finish_requests, save_logs
from barnabas.server.cluster.client import ControllerClient
from barnabas.server.cluster.identity import open_store, settle_broker_id, wait_for_old_registration
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.listener_changes import is_same, why_not_now, why_not_stored, with_listeners_of
from barnabas.server.config.topics import LogConfigs
from barnabas.server.coordinators.deleted_topics import forget_deleted_topics
from barnabas.server.network.listeners import NOTHING_BOUND, Bound, bind_all, sweep_idle
from barnabas.server.network.open_listeners import endpoints_of
from barnabas.server.network.peers import Connect, tcp_connect
from barnabas.server.network.stream_transport import StreamTransport
from barnabas.server.requests.services import Services
from barnabas.server.runtime import descriptors
from barnabas.server.runtime.containment import serve
from barnabas.server.runtime.offload import Offload, in_thread
from barnabas.server.storage.cleaner import Cleaner
from barnabas.server.storage.cleaner_process import OffloadCompactor, ProcessCompactor
from barnabas.server.storage.housekeeping import Housekeeping
from barnabas.server.storage.log_dirs import FailedDirs, load_dirs, make_dirs, metadata_dir

if TYPE_CHECKING:
    from barnabas.server.metrics.service import MetricsService
    from barnabas.server.requests.faults.injector import FaultInjector
    from barnabas.server.security.principals import Principal
    from barnabas.server.storage.adoption import Adoption

log = logging.getLogger("barnabas.broker")

IMAGE_S = 10.0
TOPICS_S = 5.0
"""How long a broker in a cluster waits for the controller's first image before it is ready."""
REGISTERED_S = 5.0
"""How long a change of listeners waits for an image with the new endpoints of this broker: there may be no controller.
"""


class BrokerFailed(Exception):
    """The broker had to stop; the message says why."""


class Broker:
    """One broker. `run` serves until `stop`; everything lives in its nursery, nothing outside.

    offload: where blocking work goes. wall_clock: seconds since the epoch. rng: for ids that need not be secret.
    store: opens a session with the metadata store, instead of the one that the settings choose; the settings must
    have a `zookeeper.connect` if other brokers share it. connect: opens connections to other brokers. disk: the
    operating system's files, or others for the logs. may_fail: `faults` can make requests fail. bound: sockets that
    listen already, by the listener's address: they are taken over, or closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        offload: Offload = in_thread,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        store: Callable[[], AbstractAsyncContextManager[Store]] | None = None,
        connect: Connect = tcp_connect,
        disk: Disk | None = None,
        may_fail: bool = False,
        bound: Bound = NOTHING_BOUND,
    ) -> None:
        self._may_fail, self._bound = may_fail, bound
        self._config = self._static_config = config
        self._given_store = store
        self._connect = connect
        self._protection = protect(config, connect)
        self._disk = disk
        self._offload = offload
        self._wall_clock = wall_clock
        self._rng = rng or SystemRandom()
        self._stop_wanted = trio.Event()
        self._start_scope = trio.CancelScope()
        self._life = trio.CancelScope()
        self._has_started = False
        self._hand_over_scope = trio.CancelScope()
        self._stopped = trio.Event()
        self._failure: str | None = None
        self._is_open = False
        self._log_config = LogConfigs(self._current_config)
        self._token: trio.lowlevel.TrioToken | None = None
        self._endpoints: tuple[Endpoint, ...] = ()
        self._topics_at_start: tuple[str, ...] = ()
        self._store_session: Store
        self._stand_in_secret: bytes
        self._failed_dirs: FailedDirs
        self._parts: Parts | None = None
        self._cleaner: Cleaner | None = None
        self._metrics: MetricsService | None = None

    # -- interface ---------------------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._config

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first advertised listener."""
        endpoint = self._endpoints[0]
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"{host}:{endpoint.port}"

    @property
    def parts(self) -> Parts:
        """Its parts, once `run` has built them; not before."""
        assert self._parts is not None, "the broker has not been built yet"
        return self._parts

    @property
    def services(self) -> Services:
        """The services of handlers; for tests."""
        return self.parts.services

    @property
    def faults(self) -> FaultInjector:
        """Makes requests fail; of a broker made with `may_fail`."""
        faults = self.parts.faults
        assert faults is not None, "the broker was made without may_fail"
        return faults.injector

    @property
    def metrics_address(self) -> str | None:
        """`http://host:port` of its metrics, once `run` has begun; None: there are none."""
        return None if self._metrics is None else self._metrics.address

    async def stop(self, *, now: bool = False) -> None:
        """Stop in order; returns when `run` is done. now: without a controlled shutdown.

        A start in progress is cancelled.
        """
        if not self._has_started:
            self._start_scope.cancel()
        if now:
            self._hand_over_scope.cancel()
        self._stop_wanted.set()
        await self._stopped.wait()

    async def stopped(self) -> None:
        """Returns when `run` is done."""
        await self._stopped.wait()

    async def abandon(self) -> None:
        """End it at once, as the end of the process would: nothing more is answered or saved. Returns when `run` is
        done, and its files and sockets are closed.
        """
        self._life.cancel()
        await self._stopped.wait()

    @property
    def is_abandoned(self) -> bool:
        """`abandon` was called."""
        return self._life.cancel_called

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The advertised listeners; empty until `run` has bound them."""
        return self._endpoints

    @property
    def is_open(self) -> bool:
        """Whether new connections are accepted."""
        return self._is_open

    @property
    def is_accepting(self) -> bool:
        """Connections to the listeners' sockets are taken up."""
        return self._parts is not None and self._parts.reactor.is_accepting

    def serve_stream(
        self,
        stream: trio.abc.Stream,
        client_host: str = "127.0.0.1",
        listener: str | None = None,
        *,
        principal: Principal | None = None,
    ) -> None:
        """Serve one client over a stream instead of a socket (tests, under a mock clock too).

        listener: the name of the one it came in on; None: the first. principal: who it is; None: anonymous.
        """
        parts = self.parts
        transport = StreamTransport(stream, parts.services.partitions.write_staged)
        connection = parts.admission.connection(listener or self._endpoints[0].listener, client_host, transport)
        if principal is not None:
            connection.session = replace(connection.session, principal=principal)
        parts.nursery.start_soon(transport.serve, connection)

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until stopped; started once clients are answered, or when it is stopped before that.

        Raises LogDirError, StoreError, WrongCluster, BrokerIdTaken, CannotListen, OSError when it cannot start,
        BrokerFailed when it had to stop. Anything else is a bug.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._life:
                if self._config.get_optional_str("metrics.listener") is None:
                    await self._run(self._disk, task_status)
                else:
                    from barnabas.server.broker.measured import measured  # not loaded by others

                    async with measured(self._current_config, self._offload, self._disk) as (self._metrics, disk):
                        await self._run(disk, task_status)
        finally:
            self._stopped.set()
        if self._failure is not None:
            raise BrokerFailed(self._failure)

    async def _run(self, disk: Disk | None, task_status: trio.TaskStatus[None]) -> None:
        dirs = make_dirs(self._config, disk=disk, wall_ms=self._wall_ms, rng=self._rng, on_failure=self._disk_failed)
        dirs.open()
        with self._start_scope as early:
            try:
                await self._run_on(dirs, task_status)
            except BaseException:
                dirs.abandon() if self.is_abandoned else dirs.unlock()
                raise
        if early.cancelled_caught:
            task_status.started()

    async def _run_on(self, dirs: LogDirs, task_status: trio.TaskStatus[None]) -> None:
        has_own_store = self._given_store is None and not self._config.is_clustered
        metadata = metadata_dir(dirs) if has_own_store else None
        async with self._open_store(metadata) as self._store_session:
            session = self._store_session
            await self._settle_identity(dirs)
            self._failed_dirs = FailedDirs(dirs, metadata, session, self._config.broker_id)
            self._apply_broker_configs(await read_broker_configs(session, self._unreadable))
            self._protect_dynamic()
            self._stand_in_secret = await self._settle_secret()
            configs = await self._topic_configs()
            self._topics_at_start = tuple(configs)
            adoption = await self._found_topics(dirs.online)
            if adoption is not None:
                configs = {**configs, **adoption.configs}
            await load_dirs(dirs, lambda topic: self._log_config(configs.get(topic, {})), self._offload)
            if adoption is not None:
                await adoption.enter(session, self._config.broker_id, dirs.online, self._offload)
            listening = self._bind()
            try:
                await self._serve(dirs, listening, task_status)
            except Exception:
                if self._has_started:
                    await save_logs(dirs, self.services.partitions, self._offload)
                raise
            finally:
                self._is_open = False
                for sock, _ in listening:
                    sock.close()
            await close_logs(dirs, self.services.partitions, self._offload, failed=self._failure is not None)
            log.info("broker %d stopped%s", self._config.broker_id, " after a failure" if self._failure else "")

    async def _serve(
        self, dirs: LogDirs, listening: list[tuple[socket.socket, str]], task_status: trio.TaskStatus[None]
    ) -> None:
        """Run all tasks. A failure of the metadata store stops the broker, and ends the tasks that notice it."""
        try:
            async with trio.open_nursery() as nursery:
                parts = self._parts = build(self._ground(dirs, nursery))
                self._is_open = True
                if self._metrics is not None:
                    self._attach(self._metrics, parts)
                self._start_scope = trio.CancelScope()  # from here on a stop is orderly
                with self._start_scope:
                    await self._start(parts, dirs, listening)
                    self._has_started = True
                task_status.started()
                await self._stop_wanted.wait()
                await self._hand_over(parts.controller_client)
                self._is_open = False
                seconds = STOP_S if self._failure is None else FAILED_STOP_S
                await finish_requests(parts.reactor, parts.services.partitions, seconds=seconds)
                nursery.cancel_scope.cancel()
        except* StoreFailed:
            if self._failure is None:
                raise
        finally:
            if self._parts is not None:
                self._parts.reactor.close()

    def _open_store(self, metadata: LogDir | None) -> AbstractAsyncContextManager[Store]:
        if self._given_store is not None:
            return self._given_store()
        directory = "" if metadata is None else metadata.path
        return open_store(self._config, self._offload, directory, lambda error: self._must_stop(str(error)))

    async def _settle_identity(self, dirs: LogDirs) -> None:
        """Determine the broker id, and check that the log directories belong to it and to this cluster."""
        session, meta = self._store_session, dirs.meta
        self._config = await settle_broker_id(self._config, meta, session)
        known = meta.cluster_id if meta is not None else None
        if meta is not None:
            dirs.check_identity(cluster_id=known, node_id=self._config.broker_id)
        if self._config.is_clustered:
            await settle_cluster_id(session, known, self._new_cluster_id)

    def _ground(self, dirs: LogDirs, nursery: trio.Nursery) -> Ground:
        return Ground(
            dirs=dirs,
            nursery=nursery,
            store=self._store_session,
            endpoints=self._endpoints,
            log_config=self._log_config,
            current_config=self._current_config,
            wall_ms=self._wall_ms,
            rng=self._rng,
            offload=self._offload,
            make_cluster_id=self._new_cluster_id,
            broker_configs_changed=self._apply_broker_configs,
            advertise=self._advertise,
            stand_in_secret=self._stand_in_secret,
            protection=self._protection,
            meter=None if self._metrics is None else self._metrics.counted.meter,
            may_fail=self._may_fail,
        )

    def _attach(self, metrics: MetricsService, parts: Parts) -> None:
        from barnabas.server.metrics.sources import Sources

        foreign_ends = None
        if self._config.is_clustered:
            from barnabas.server.metrics.foreign_ends import ForeignEnds

            services = parts.services
            foreign_ends = ForeignEnds(self._protection.connect, self._current_config, services.current_image)
        sources = Sources(
            metrics.counted, parts.services, parts.reactor, parts.admission, lambda: self._cleaner, foreign_ends
        )
        metrics.attach(sources, lambda: self._has_started, lambda: self._is_open)

    async def _start(self, parts: Parts, dirs: LogDirs, listening: list[tuple[socket.socket, str]]) -> None:
        nursery, services, reactor = parts.nursery, parts.services, parts.reactor
        nursery.start_soon(services.timers.run)
        nursery.start_soon(serve, log, "fetching producer ids", services.producer_ids.run)
        nursery.start_soon(services.groups.run)
        nursery.start_soon(services.transactions.run)
        nursery.start_soon(services.share_states.run)
        nursery.start_soon(services.shares.run)
        nursery.start_soon(services.verification.run)
        if parts.followers is not None:
            nursery.start_soon(parts.followers.run)
            session_s = self._config.get_int("zookeeper.session.timeout.ms") / 1000
            await wait_for_old_registration(self._store_session, self._config.broker_id, session_s)
        if parts.isr is not None:
            nursery.start_soon(parts.isr.run)
        await nursery.start(self._control, services.cluster)
        dirs.check_identity(cluster_id=services.image.cluster_id, node_id=self._config.broker_id)
        await services.features.load()
        if services.acls is not None:
            await services.acls.load()
            nursery.start_soon(partial(serve, log, "following the ACLs", services.acls.run, fatal=StoreFailed))
        if services.tokens is not None:
            await services.tokens.load()
            nursery.start_soon(partial(serve, log, "following the tokens", services.tokens.run, fatal=StoreFailed))
            sweep_tokens = partial(services.tokens.sweep, services.cluster)
            nursery.start_soon(partial(serve, log, "removing expired tokens", sweep_tokens, fatal=StoreFailed))
        nursery.start_soon(partial(serve, log, "following the features", services.features.run, fatal=StoreFailed))
        nursery.start_soon(
            partial(serve, log, "reporting failed directories", self._failed_dirs.run, fatal=StoreFailed)
        )
        if parts.moves is not None:
            nursery.start_soon(parts.moves.run)
        upkeep = services.partitions, self._current_config, self._wall_ms, self._offload
        if self._config.get_bool("log.cleaner.enable"):
            # A process sees only the system's files, and needs the real clock.
            in_process = self._disk is None and self._offload is in_thread
            compactor = ProcessCompactor if in_process else lambda: OffloadCompactor(self._offload)
            self._cleaner = Cleaner(*upkeep, compactor)
            nursery.start_soon(self._cleaner.run)
        sessions = services.fetch_sessions

        def close_idle() -> None:
            sessions.close_idle(trio.current_time())

        nursery.start_soon(Housekeeping(*upkeep, dirs, self._cleaner, close_idle).run)
        await nursery.start(parts.admission.hosts.run)
        await parts.listeners.begin(listening, self._protection.listeners, parts.logins, self._endpoints)
        listening.clear()
        nursery.start_soon(serve, log, "opening and closing listeners", parts.listeners.run)
        nursery.start_soon(reactor.run)
        nursery.start_soon(reactor.run_tail)
        sweep = partial(sweep_idle, reactor, self._current_config)
        nursery.start_soon(serve, log, "closing idle connections", sweep)
        if self._config.is_clustered:
            watched = services.current_image, services.cluster.image_until, services.groups, services.share_states
            nursery.start_soon(serve, log, "forgetting deleted topics", partial(forget_deleted_topics, *watched))
            nursery.start_soon(serve, log, "reading the cluster", partial(self._learn_of_cluster, services.cluster))
            with trio.move_on_after(IMAGE_S) as limit:
                await services.cluster.image_received.wait()
                await services.features.load()  # a new cluster's first controller has decided on them before
            if limit.cancelled_caught:
                log.warning("no controller has sent an image of the cluster within %g s: serving without", IMAGE_S)
        descriptors.warn_if_too_few(sum(len(each.logs) for each in dirs.online))
        log.info(
            "broker %d of cluster %s serves %s from %s",
            self._config.broker_id,
            services.image.cluster_id,
            ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in self._endpoints),
            ", ".join(each.path for each in dirs.online),
        )

    async def _control(self, member: ClusterMember, task_status: trio.TaskStatus[None]) -> None:
        """Run the membership. If the store fails or the broker id is taken, the broker stops in order."""
        try:
            await member.run(task_status)
        except* (StoreError, BrokerIdTaken, WrongCluster) as group:
            if not self._has_started:
                raise
            self._must_stop("; ".join(map(str, group.exceptions)))

    async def _learn_of_cluster(self, member: ClusterMember) -> None:
        """Wait until a controller has sent the brokers, and all topics that existed at the start: it sends the brokers
        first, and topics as it decides on them.
        """
        config, image_until = self._config, member.image_until
        await image_until(lambda image: config.broker_id in image.brokers)
        with trio.move_on_after(TOPICS_S):  # some may be deleted already, or soon
            await image_until(lambda image: all(name in image.topics for name in self._topics_at_start))
        self._topics_at_start = ()
        member.image_received.set()

    async def _hand_over(self, controller: ControllerClient) -> None:
        """In a cluster, hand over the leaderships while this broker still serves."""
        if self._config.is_clustered and self._has_started and self._failure is None:
            with self._hand_over_scope:
                if await controller.hand_over():
                    log.info("stopping: broker %d leads no partition any more", self._config.broker_id)
            await controller.close()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _bind(self) -> list[tuple[socket.socket, str]]:
        optional, bound = self._optional_listeners(), self._bound
        listening = bind_all(self._config, may_fail=optional, without=self._protection.without, bound=bound)
        ports = {name: sock.getsockname()[1] for sock, name in listening}
        self._endpoints = endpoints_of(self._config, defaultdict(int, ports), ports)
        return listening

    def _optional_listeners(self) -> list[str]:
        """Listeners that only dynamic settings define: a broker that cannot open one of them starts without it."""
        config = self._config
        needed = config.inter_broker_listener, config.controller_listener
        return [
            address.name
            for address in config.listeners
            if address.name not in needed and not is_same(address, self._static_config, config)
        ]

    def _protect_dynamic(self) -> None:
        """Load TLS and authentication of listeners that the dynamic settings define."""
        config = self._config
        if not all(is_same(address, self._static_config, config) for address in config.listeners):
            self._protection = protect(config, self._connect, may_fail=self._optional_listeners())

    async def _topic_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Topics' own settings, by name: the logs are opened with them."""
        session = self._store_session
        return await read_topic_configs(session, await topic_names(session), self._unreadable)

    async def _found_topics(self, log_dirs: Sequence[LogDir]) -> Adoption | None:
        """Topics on disk that are not in the metadata of a broker alone; usually None."""
        if self._config.is_clustered or not any(log_dir.holds_partitions() for log_dir in log_dirs):
            return None
        from barnabas.server.storage.adoption import find_topics  # not loaded by a new broker, or one in a cluster

        return await find_topics(self._store_session, log_dirs, self._config, self._rng, self._offload)

    async def _settle_secret(self) -> bytes:
        """The secret from which salts of unknown users are derived; stored where a listener has SCRAM."""
        if self._protection.listeners.has_scram:
            return await settle_secret(self._store_session, lambda: token_bytes(SECRET_BYTES))
        return token_bytes(SECRET_BYTES)

    def _new_cluster_id(self) -> str:
        return uuid_to_text(new_uuid(self._rng))

    def _current_config(self) -> BrokerConfig:
        return self._config

    def _wall_ms(self) -> int:
        return int(self._wall_clock() * 1000)

    def _apply_broker_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Dynamic settings of brokers changed: make a new `BrokerConfig`, and notify parts that depend on it."""
        before = self._config
        known = set(before.notices)
        cluster, own = configs.get(DEFAULT_ENTITY, {}), configs.get(str(before.broker_id), {})
        after = before.with_dynamic(cluster=cluster, broker=own)
        why = why_not_stored(own, after) or why_not_now(before, after)
        if self._parts is not None and why is not None:
            log.error("settings of listeners are left as they are: %s", why)
            after = before.with_dynamic(cluster=cluster, broker=with_listeners_of(own, before.broker_overrides))
        self._config = after
        for notice in self._config.notices:
            if notice not in known:
                log.warning("%s", notice.text)
        if self._parts is not None:
            services = self._parts.services
            self._parts.admission.config_changed()
            self._parts.listeners.config_changed()
            services.groups.config_changed()
            services.transactions.config_changed()
            services.share_states.config_changed()
            for name, topic in services.image.topics.items():
                services.partitions.config_changed(name, topic.config)

    async def _advertise(self, endpoints: Sequence[Endpoint]) -> None:
        """Register these endpoints. Returns when the image has them, or after `REGISTERED_S`."""
        self._endpoints = tuple(endpoints)
        member, wanted = self.services.cluster, frozenset(endpoints)
        member.advertise(self._endpoints)

        def is_registered(image: Image) -> bool:
            broker = image.brokers.get(self._config.broker_id)
            return broker is not None and frozenset(broker.endpoints) == wanted

        with trio.move_on_after(REGISTERED_S):
            await member.image_until(is_registered)

    @staticmethod
    def _unreadable(error: BadNode) -> None:
        log.error("%s", error)

    def _disk_failed(self, failed: LogDir) -> None:
        """As `_dir_failed`, also from a thread."""
        assert self._token is not None
        self._token.run_sync_soon(self._dir_failed, failed)

    def _dir_failed(self, failed: LogDir) -> None:
        """A log directory has failed: answer waiting requests with the error; stop if it is indispensable."""
        if self._parts is None:
            return
        self._parts.services.partitions.dir_failed(failed)
        why = self._failed_dirs.fatal(failed)
        if why is not None:
            self._must_stop(why)

    def _must_stop(self, why: str) -> None:
        if self._failure is None:
            log.error("stopping: %s", why)
            self._failure = why
            self._stop_wanted.set()
