"""The composition root: every part of a broker that answers requests is made here, and only here.

`build` makes them in the order in which they need one another, and starts nothing: `broker.py` runs what it returns.
Where two need each other, the one made first gets a function that is called once both are there (the
partitions' image, `transaction_version`, the reactor of admission).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from secrets import token_bytes
from typing import TYPE_CHECKING

import trio

from barnabas.kproto import KafkaError, uuid_to_text
from barnabas.logdir import LogDirs
from barnabas.replication import BrokerImage, Endpoint, Image, Store, new_uuid, partition_count
from barnabas.replication.tree.features import NEWEST, SHARE_VERSION, TRANSACTION_VERSION
from barnabas.replication.tree.users import SECRET_BYTES, settle_secret
from barnabas.server.apis import APIS
from barnabas.server.broker.protection import Protection
from barnabas.server.cluster.acls import StoredAcls
from barnabas.server.cluster.client import ControllerClient
from barnabas.server.cluster.client_quotas import ClientQuotas
from barnabas.server.cluster.features import Features
from barnabas.server.cluster.leader_balance import LeaderBalance
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.cluster.partition_requests import PartitionRequests
from barnabas.server.cluster.tokens import StoredTokens
from barnabas.server.cluster.topic_requests import TopicRequests
from barnabas.server.cluster.users import Users
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.topics import LogConfigs
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.groups import GroupCoordinator
from barnabas.server.coordinators.late_shares import LateShares
from barnabas.server.coordinators.marker_writer import MarkerWriter
from barnabas.server.coordinators.producer_ids import ProducerIds
from barnabas.server.coordinators.share_states import ShareStateCoordinator
from barnabas.server.coordinators.transactions import TransactionCoordinator
from barnabas.server.coordinators.verification import TxnVerification
from barnabas.server.network.admission import Admission
from barnabas.server.network.connection import Connection, Dispatch
from barnabas.server.network.open_listeners import ListenerLogin, OpenListeners
from barnabas.server.network.reactor import Reactor
from barnabas.server.partitions.registry import Partitions
from barnabas.server.partitions.roles import NO_LISTENER, RoleListeners
from barnabas.server.requests.api import AnyApi
from barnabas.server.requests.before_login import BeforeLogin
from barnabas.server.requests.dispatch import Dispatcher
from barnabas.server.requests.fetch.sessions import FetchSessions
from barnabas.server.requests.image_cache import ImageCache
from barnabas.server.requests.produce.held import HeldProduces
from barnabas.server.requests.services import Services
from barnabas.server.requests.throttling import Throttle
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.timers import Timers
from barnabas.server.runtime.turns import Turns
from barnabas.server.security.acls.settings import authorizer_of
from barnabas.server.security.quotas.connections import ConnectionLimits
from barnabas.server.security.quotas.rates import Window
from barnabas.server.security.tokens.known import KnownTokens
from barnabas.server.security.tokens.settings import token_settings

if TYPE_CHECKING:
    from barnabas.server.config.sasl import SaslSettings
    from barnabas.server.metrics.meter import Meter
    from barnabas.server.partitions.followers import Followers
    from barnabas.server.partitions.in_sync import IsrManager
    from barnabas.server.requests.faults.entrance import Faults
    from barnabas.server.requests.faults.injector import FaultInjector
    from barnabas.server.storage.dir_moves import Moves
    from barnabas.server.telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ground:
    """What the parts are built from, known once the logs are loaded and the listeners bound.

    `current_config()`: the settings in force. `wall_ms()`: milliseconds since the epoch. `rng`: for ids that need not
    be secret. `broker_configs_changed`: called with the dynamic settings of brokers, by id, when they change.
    `advertise`: registers other endpoints of this broker. `stand_in_secret`: salts of unknown users are derived from
    it. `meter`: counts requests. `may_fail`: requests can be made to fail, for a test suite.
    """

    dirs: LogDirs
    nursery: trio.Nursery
    store: Store
    endpoints: tuple[Endpoint, ...]
    log_config: LogConfigs
    current_config: Callable[[], BrokerConfig]
    wall_ms: Callable[[], int]
    rng: Random
    offload: Offload
    make_cluster_id: Callable[[], str]
    broker_configs_changed: Callable[[Mapping[str, Mapping[str, str]]], None]
    advertise: Callable[[Sequence[Endpoint]], Awaitable[None]]
    stand_in_secret: bytes
    protection: Protection
    meter: Meter | None = None
    may_fail: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parts:
    """The parts of a broker. `services`: what handlers use. `followers`, `isr`: in a cluster only;
    `moves`: with several log directories only. `logins`: how clients authenticate at the start, by listener. `faults`:
    if requests can be made to fail.
    """

    nursery: trio.Nursery
    services: Services
    controller_client: ControllerClient
    followers: Followers | None
    isr: IsrManager | None
    moves: Moves | None
    admission: Admission
    reactor: Reactor
    listeners: OpenListeners
    logins: Mapping[str, ListenerLogin]
    faults: Faults | None


def build(ground: Ground) -> Parts:
    """Make every part. Runs in trio, and starts no task."""
    config, timers = ground.current_config(), Timers()
    now = trio.lowlevel.current_clock().current_time  # as `trio.current_time`, in a third of its time

    partitions = _partitions(ground, lambda: member.image)
    member = _member(ground, partitions)
    current_image = member.current_image
    topics = TopicRequests(member, ground.current_config, ground.rng)
    controller = PartitionRequests(member)
    users = Users(member, ground.stand_in_secret)
    quotas = _quotas(config, member)
    controller_client = ControllerClient(
        member,
        controller,
        ground.store,
        ground.protection.connect,
        current_config=ground.current_config,
        current_image=current_image,
    )
    producer_ids = ProducerIds(controller_client.allocate_producer_ids)

    create_topic = partial(_create_internal_topic, topics)
    coordinator_ground = CoordinatorGround(
        partitions,
        timers,
        current_image=current_image,
        current_config=ground.current_config,
        create_topic=create_topic,
        now=now,
        wall_ms=ground.wall_ms,
    )
    share_states = ShareStateCoordinator(coordinator_ground)
    shares = LateShares(coordinator_ground, share_states, ground.protection.connect)
    groups = GroupCoordinator(
        coordinator_ground,
        random=ground.rng,
        offload=ground.offload,
        persister=shares.persister,
        topic_maker=topics,
    )
    markers = MarkerWriter(partitions, groups, timers, current_config=ground.current_config, wall_ms=ground.wall_ms)
    transactions = TransactionCoordinator(
        coordinator_ground,
        next_producer_id=producer_ids.next_id,
        write_markers=lambda request, token: markers.write(request, token),
        connect=ground.protection.connect,
        partition_count=partial(partition_count, ground.store),
        transaction_version=lambda: features.level(TRANSACTION_VERSION),
    )
    verification = TxnVerification(
        transactions,
        partitions,
        timers,
        ground.protection.connect,
        current_config=ground.current_config,
        current_image=current_image,
        now=now,
    )

    def levels_changed() -> None:
        groups.config_changed()
        transactions.config_changed()
        shares.level_changed(features.level(SHARE_VERSION))

    features = Features(
        ground.store,
        config.broker_id,
        clustered=config.is_clustered,
        metadata_level=config.inter_broker_protocol.metadata_level,
        uses_zookeeper=config.uses_zookeeper,
        changed=levels_changed,
    )

    followers, isr = _replication(ground, partitions, member, controller, current_image)
    moves = _moves(ground, partitions)
    partitions.listen(
        RoleListeners(
            groups,
            transactions,
            share_states,
            followers=NO_LISTENER if followers is None else followers,
            isr=NO_LISTENER if isr is None else isr,
            moves=NO_LISTENER if moves is None else moves,
        )
    )

    turns = Turns(ground.offload, ground.nursery)
    authorizer = authorizer_of(config)
    tokens = _tokens(config, member.store, ground.wall_ms)
    telemetry = _telemetry(ground, current_image)
    apis = [api for api in APIS if api.is_served(clustered=config.is_clustered, telemetry=telemetry is not None)]

    def logins_of(settings: SaslSettings) -> Mapping[str, ListenerLogin]:
        return _logins(ground, services, entrance, apis, settings)

    async def keep_secret() -> None:
        users.scram.secret = await settle_secret(member.store, lambda: token_bytes(SECRET_BYTES))

    listeners = OpenListeners(
        lambda: reactor,
        lambda: admission,
        ground.nursery,
        ground.offload,
        current_config=ground.current_config,
        make_logins=logins_of,
        keep_secret=keep_secret,
        advertise=ground.advertise,
    )
    services = Services(
        served=apis,
        partitions=partitions,
        cluster=member,
        topics=topics,
        controller=controller,
        users=users,
        quotas=quotas,
        throttle=Throttle(quotas, timers, trio.current_time, time.thread_time),
        groups=groups,
        transactions=transactions,
        share_states=share_states,
        shares=shares,
        verification=verification,
        markers=markers,
        features=features,
        producer_ids=producer_ids,
        fetch_sessions=FetchSessions(config.get_int("max.incremental.fetch.session.cache.slots"), ground.rng),
        image_cache=ImageCache(),
        timers=timers,
        turns=turns,
        held=HeldProduces(ground.offload, ground.nursery, turns.mine, partitions.allowance, partitions.write_staged),
        offload=ground.offload,
        authorizer=authorizer,
        acls=None if authorizer is None else StoredAcls(member.store, authorizer, ground.wall_ms),
        tokens=tokens,
        telemetry=telemetry,
        listeners=listeners,
        now=now,
        wall_ms=ground.wall_ms,
        current_config=ground.current_config,
        current_image=current_image,
    )
    meter = ground.meter
    dispatch = Dispatcher(apis, services, ground.nursery, None if meter is None else meter.watch)
    faults = _faults(ground, services, dispatch) if ground.may_fail else None
    entrance: Dispatch = faults or dispatch
    sasl = ground.protection.listeners.sasl
    logins = {} if sasl is None else logins_of(sasl)
    limits = ConnectionLimits(
        [address.name for address in config.listeners],
        config.inter_broker_listener,
        _quota_window(config),
        quotas.connections,
    )
    admission = Admission(entrance, lambda: reactor, ground.current_config, limits, timers, meter)
    for name, one in logins.items():
        admission.set_login(name, one.service)

    def closed(connection: Connection) -> None:
        admission.closed(connection)
        shares.connection_closed(connection)

    reactor = Reactor(partitions.write_staged, now, closed, limits, meter=meter)
    return Parts(
        ground.nursery,
        services,
        controller_client,
        followers,
        isr,
        moves,
        admission,
        reactor,
        listeners,
        logins,
        faults,
    )


def _faults(ground: Ground, services: Services, dispatch: Dispatcher) -> Faults:
    from barnabas.server.requests.faults.entrance import Faults

    def make(faults: Faults) -> FaultInjector:
        from barnabas.server.requests.faults.injector import FaultInjector

        return FaultInjector(dispatch, services, ground.nursery, faults.no_fast_paths)

    return Faults(dispatch, make)


def _logins(
    ground: Ground, services: Services, dispatch: Dispatch, apis: Sequence[AnyApi], settings: SaslSettings
) -> Mapping[str, ListenerLogin]:
    """How clients authenticate, by listener."""
    from barnabas.server.broker.logins import make_logins
    from barnabas.server.network.login import LoginService

    tokens = None if services.tokens is None else services.tokens.known
    made = make_logins(settings, services.users.scram, tokens, trio.current_time)
    return {
        name: ListenerLogin(
            LoginService(
                rules=rules,
                served=partial(BeforeLogin, apis, services),
                dispatch=dispatch,
                timers=services.timers,
                now=trio.current_time,
                wall_ms=ground.wall_ms,
                delay_s=lambda: ground.current_config().get_int("connection.failed.authentication.delay.ms") / 1000,
                frame_bytes_before=settings.listeners[name].max_receive_bytes,
                frame_bytes=lambda: ground.current_config().get_int("socket.request.max.bytes"),
            ),
            made.jwks[name],
        )
        for name, rules in made.rules.items()
    }


def _partitions(ground: Ground, current_image: Callable[[], Image]) -> Partitions:
    return Partitions(
        ground.current_config().broker_id,
        ground.dirs,
        ground.log_config,
        current_image,
        now=trio.current_time,
        wall_ms=ground.wall_ms,
        lag_ms=lambda: ground.current_config().get_int("replica.lag.time.max.ms"),
        offload=ground.offload,
    )


def _member(ground: Ground, partitions: Partitions) -> ClusterMember:
    config, meta = ground.current_config(), ground.dirs.meta
    member = ClusterMember(
        ground.store,
        BrokerImage(config.broker_id, ground.endpoints, config.rack),
        partitions,
        config=ground.current_config,
        wall_ms=ground.wall_ms,
        rng=ground.rng,
        make_cluster_id=ground.make_cluster_id,
        connect=ground.protection.connect if config.is_clustered else None,
        cluster_id=meta.cluster_id if meta else None,
        recovered=not ground.dirs.was_clean,
        broker_configs_changed=ground.broker_configs_changed,
        new_levels=NEWEST if config.store_socket is not None else {},
    )
    member.run_beside("electing preferred leaders", LeaderBalance(member, ground.current_config).run)
    return member


def _quotas(config: BrokerConfig, member: ClusterMember) -> ClientQuotas:
    mutation_window = Window(
        config.get_int("controller.quota.window.num"), config.get_int("controller.quota.window.size.seconds")
    )
    quotas = ClientQuotas(member, _quota_window(config), mutation_window)
    member.run_beside("resolving hosts with connection limits", quotas.run)
    return quotas


def _tokens(config: BrokerConfig, store: Store, wall_ms: Callable[[], int]) -> StoredTokens | None:
    settings = token_settings(config)
    if settings is None:
        return None
    rng = SystemRandom()
    known = KnownTokens(settings.secret_key, token_bytes)
    return StoredTokens(store, known, settings, wall_ms, new_id=lambda: uuid_to_text(new_uuid(rng)))


def _telemetry(ground: Ground, current_image: Callable[[], Image]) -> Telemetry | None:
    """Where metrics are served, those that clients push are, too, unless none may be kept."""
    config = ground.current_config()
    if ground.meter is None or not config.get_int("metrics.telemetry.series.max"):
        return None
    from barnabas.server.telemetry.telemetry import Telemetry

    return Telemetry(lambda: current_image().client_metrics, lambda: new_uuid(ground.rng))


def _quota_window(config: BrokerConfig) -> Window:
    return Window(config.get_int("quota.window.num"), config.get_int("quota.window.size.seconds"))


async def _create_internal_topic(topics: TopicRequests, name: str) -> None:
    for code in (await topics.auto_create([name])).values():
        if code:
            raise KafkaError(code)


def _replication(
    ground: Ground,
    partitions: Partitions,
    member: ClusterMember,
    controller: PartitionRequests,
    current_image: Callable[[], Image],
) -> tuple[Followers | None, IsrManager | None]:
    """Followers and ISR proposals. A broker alone has neither, and does not load them."""
    config = ground.current_config()
    if not config.is_clustered:
        return None, None
    from barnabas.server.partitions.followers import Followers
    from barnabas.server.partitions.in_sync import IsrManager

    isr = IsrManager(
        partitions,
        member,
        controller,
        ground.store,
        ground.protection.connect,
        current_config=ground.current_config,
        current_image=current_image,
    )
    followers = Followers(
        config.broker_id,
        ground.protection.connect,
        current_config=ground.current_config,
        current_image=current_image,
        broker_epoch=lambda: member.broker_epoch,
        offload=ground.offload,
    )
    return followers, isr


def _moves(ground: Ground, partitions: Partitions) -> Moves | None:
    """Moves of replicas between log directories. With one directory there are none, and nothing is loaded."""
    if len(ground.dirs.dirs) == 1:
        return None
    from barnabas.server.storage.dir_moves import Moves

    return Moves(partitions, ground.offload, ground.current_config)
