"""This broker as a member of the cluster, and perhaps its controller: session, registration, election, events.

`ClusterMember.run` registers the broker and stands for controller. The winner reads the tree into an image, and a
`ControllerTerm` carries out what the machine (`barnabas.replication.Controller`) decides. Changes in the store are
processed in batches: what changed is read again and given to the machine.

    request ──► machine ──► effects ──┐                      ┌► Receiver, or a connection to another broker
    store.changes ──► read ──► machine ├► ControllerTerm ──► ┼► commit ──► machine ──► …
    answers of brokers ──► machine ────┘  one task, in order └► slots of requests filled

While another broker is controller there is no term: requests are rejected with NOT_CONTROLLER, and this broker obeys
that controller's messages. When /controller is removed, all brokers stand again. A lost session or a failed guard ends
the term. After a lost session the broker waits until its old registration is removed, re-registers – with a higher
broker epoch, so that the controller sends it everything – and stands again. A lost connection is waited for
(`SteadyStore`).

Every broker watches for the controller and for changed settings; the controller alone watches brokers, topics and
requests. Source: `KafkaController.scala`, `KafkaServer.scala` (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import (
    BROKER_CONFIG,
    CLIENT_METRICS_CONFIG,
    CONFIG_CHANGES,
    GROUP_CONFIG,
    TOPIC_CONFIG,
    WATCHED,
    WATCHED_BY_ALL,
    BadNode,
    BrokerIdTaken,
    BrokerImage,
    Changed,
    CommitRefused,
    Controller,
    Effect,
    Endpoint,
    Image,
    Message,
    SessionBack,
    SessionExpired,
    SessionLost,
    Store,
    StoreError,
    StoreEvent,
    StoreFailed,
    Term,
    TopicImage,
    WrongCluster,
    concerns,
    decode_config_change,
    extent,
    fold,
    is_over,
    leave_controller,
    make_roots,
    read_broker,
    read_broker_configs,
    read_brokers,
    read_cluster,
    read_config,
    read_configs,
    read_controller,
    read_deletions,
    read_topics,
    register_broker,
    settle_cluster_id,
    stand_for_controller,
    topic_names,
    update_broker,
)
from barnabas.replication.tree import admin_tree, client_nodes
from barnabas.server.cluster.admin_nodes import read_admin_nodes
from barnabas.server.cluster.change_notices import ChangeNotices
from barnabas.server.cluster.identity import wait_for_old_registration
from barnabas.server.cluster.receiver import Codes, LocalReplicas, Receiver
from barnabas.server.cluster.steady_store import SteadyStore
from barnabas.server.cluster.term import NEWER_EPOCH, SESSION_EXPIRED, ControllerTerm, Slot, TermEnded
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.peers import Connect
from barnabas.server.runtime.containment import RESTART_S, attempt, contain, serve
from barnabas.server.runtime.wakeup import Wakeup

__all__ = ["ClusterMember", "LocalReplicas", "Slot"]

log = logging.getLogger("barnabas.controller")

_CONTROLLER_WATCHES = tuple(place for place in WATCHED if place not in WATCHED_BY_ALL)


ClientWatcher = Callable[[str, str, Mapping[str, str]], None]
"""Called with the kind and the name of a user, a client id or an address (`barnabas.replication.tree.client_nodes`),
and all that is stored of it: quotas, and a user's credentials; empty when there is nothing.
"""


class _Readvertise:
    """This broker has other endpoints to register."""


class ClusterMember:
    """See the module. One per broker; `run` once.

    broker: id, endpoints and rack to register. connect: opens connections to other brokers; None: there are none.
    cluster_id: of the log directory, or None; make_cluster_id: for the first broker of a cluster. recovered: logs of
    this broker may have lost their ends since it last ran, so partitions that it leads get new leader epochs if no
    other controller has seen it register. broker_configs_changed: called with the dynamic settings of brokers, by id
    and '<default>'. new_levels: of features, which a new cluster begins with.
    """

    def __init__(
        self,
        store: Store,
        broker: BrokerImage,
        partitions: LocalReplicas,
        *,
        config: Callable[[], BrokerConfig],
        wall_ms: Callable[[], int],
        rng: Random,
        make_cluster_id: Callable[[], str],
        connect: Connect | None = None,
        cluster_id: str | None = None,
        recovered: bool = False,
        broker_configs_changed: Callable[[Mapping[str, Mapping[str, str]]], None] | None = None,
        new_levels: Mapping[str, int] | None = None,
    ) -> None:
        self.store = SteadyStore(store)
        """The store that waits for lost connections; for other users than the controller."""
        self._broker = broker
        self._endpoints = broker.endpoints  # wanted; `_broker` has the registered ones
        self._config = config
        self._wall_ms = wall_ms
        self._rng = rng
        self._make_cluster_id = make_cluster_id
        self._connect = connect
        self._cluster_id = cluster_id
        self._recovered = recovered
        self._broker_configs_changed = broker_configs_changed
        self._new_levels = new_levels or {}
        self._receiver = Receiver(
            broker.id, partitions, self.store, broker_epoch=lambda: self._broker.epoch, decided=self._decided
        )
        self.current_image = self._receiver.current_image
        self._notices = ChangeNotices(
            self.store,
            CONFIG_CHANGES,
            decode_config_change,
            wall_ms,
            lambda entity: self.reload_config(*entity),
            self._unreadable,
        )
        self._term: ControllerTerm | None = None
        self._won: Term | None = None  # the last election that this broker won
        self._watching: trio.CancelScope | None = None
        self._session_lost = False  # and we have not rejoined
        self._inbox: list[Effect | StoreEvent | _Readvertise] = []
        self._mail = Wakeup()
        self._beside: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._client_watchers: list[ClientWatcher] = []
        self._nursery: trio.Nursery | None = None
        self.image_received = trio.Event()  # see `has_image`
        if connect is None:
            self.image_received.set()

    # -- interface ---------------------------------------------------------------------------------------------------

    def run_beside(self, what: str, task: Callable[[], Awaitable[None]]) -> None:
        """Have `run` start a task (`what` names it in the log), once this broker serves."""
        self._beside.append((what, task))

    def attempt_soon(self, what: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Start a task, if `run` is running; otherwise do nothing, and return False."""
        if self._nursery is None:
            return False
        self._nursery.start_soon(attempt, log, what, step)
        return True

    @property
    def has_image(self) -> bool:
        """The image is complete: in a cluster, a controller has sent this broker everything."""
        return self.image_received.is_set()

    @property
    def image(self) -> Image:
        """The latest image of the cluster; replaced as a whole."""
        return self._receiver.image

    @property
    def is_active(self) -> bool:
        """This broker is the controller."""
        return self._term is not None

    @property
    def newest_commit(self) -> int:
        """Id of the newest commit to the store that this broker has made or read."""
        return self.store.newest_commit

    @property
    def unclean_elections(self) -> int:
        """As controller: leaders outside their ISR that were elected in this term. Else 0."""
        return 0 if self._term is None else self._term.machine.unclean_elections

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's present registration; -1 before there is one."""
        return self._broker.epoch

    def advertise(self, endpoints: Sequence[Endpoint]) -> None:
        """Register other endpoints of this broker."""
        self._endpoints = tuple(endpoints)
        self._post([_Readvertise()])

    async def image_until(self, ready: Callable[[Image], bool]) -> None:
        """Wait until the image fulfils the condition. It is checked with every new image, and at least once."""
        await self._receiver.image_until(ready)

    def machine(self) -> Controller:
        """The controller's machine; hand its effects to `submit` before the next await.

        Raises KafkaError NOT_CONTROLLER.
        """
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
        return self._term.machine

    def submit(self, effects: Iterable[Effect], slots: Iterable[Slot] = ()) -> None:
        """Have the loop carry out effects of the machine. slots: tokens in `effects`, filled in any case."""
        if self._term is None:
            for slot in slots:
                slot.fill(KafkaError(ErrorCode.NOT_CONTROLLER, "The controller has changed."))
            return
        self._term.register(slots)
        self._post(effects)

    async def receive(self, message: Message) -> Codes:
        """Apply a message of a controller, ours or another broker's; returns error codes by partition.

        Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
        """
        codes = await self._receiver.receive(message)
        if message.controller_id != self._broker.id:
            self._recovered = False  # that controller has seen our new registration
        return codes

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started once this broker is registered and, as controller, leads its partitions.

        Raises BrokerIdTaken, WrongCluster, StoreError.
        """
        async with self.store.changes(WATCHED_BY_ALL) as changes:
            await self._join()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._watch, changes)
                nursery.start_soon(serve, log, "reopening logs", self._receiver.run)
                try:
                    await self._step(self._elect)
                    for what, task in self._beside:
                        nursery.start_soon(serve, log, what, task)
                    task_status.started()
                    while True:
                        await self._mail.wait()
                        mail, self._inbox = self._inbox, []
                        await self._handle(mail)
                except* StoreFailed:
                    self._resign("the metadata store has failed")  # requests that wait are answered
                    raise
                finally:
                    self._nursery = None

    # -- sessions and terms ------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Start the first session: register, and read the settings."""
        await make_roots(self.store)
        self._cluster_id = await settle_cluster_id(self.store, self._cluster_id, self._make_cluster_id)
        await self._notices.skip()
        configs = await read_broker_configs(self.store, self._unreadable)
        groups = await read_configs(self.store, GROUP_CONFIG, self._unreadable)
        subscriptions = await read_configs(self.store, CLIENT_METRICS_CONFIG, self._unreadable)
        for (kind, name), config in (await client_nodes.read_clients(self.store, self._unreadable)).items():
            self._client_changed(kind, name, config)
        self._receiver.replace_image(
            replace(
                self.image,
                cluster_id=self._cluster_id,
                broker_configs=configs,
                group_configs=groups,
                client_metrics=subscriptions,
            )
        )
        if self._broker_configs_changed is not None:
            self._broker_configs_changed(configs)
        await self._register()

    async def _rejoin(self) -> None:
        """Start another session: re-register, read changed settings, stand for controller."""
        registered = await read_broker(self.store, self._broker.id)
        # Sessions may have changed several times: what was registered or won in the present one is valid.
        if registered is None or registered.epoch != self._broker.epoch:
            session_s = self._config().get_int("zookeeper.session.timeout.ms") / 1000
            await wait_for_old_registration(self.store, self._broker.id, session_s)
            await self._register()
            log.info("re-registered broker %d with epoch %d", self._broker.id, self._broker.epoch)
        else:
            await self._readvertise()
        if self._won is not None:
            await leave_controller(self.store, self._won)
        self._session_lost = False
        await self._notices.refresh()
        await self._elect()

    async def _register(self) -> None:
        broker = replace(self._broker, endpoints=self._endpoints)
        self._broker = await register_broker(self.store, broker, self._wall_ms())

    async def _readvertise(self) -> None:
        """Update the endpoints of the registration. If it is gone, the next one has them."""
        broker = replace(self._broker, endpoints=self._endpoints)
        if broker != self._broker and await update_broker(self.store, broker, self._wall_ms()):
            self._broker = broker
            log.info(
                "registered other endpoints of broker %d: %s",
                broker.id,
                ", ".join(f"{each.listener}://{each.host}:{each.port}" for each in broker.endpoints),
            )

    async def _elect(self) -> None:
        """Stand for controller; if we win, the term begins."""
        if self._term is not None:
            return
        term = await stand_for_controller(self.store, self._broker.id, self._wall_ms())
        if term is None:
            log.info("broker %s is the controller", await self._controller())
            return
        assert self._nursery is not None
        self._won = term
        config = self._config
        # Watch before reading, so that nothing is missed.
        self._watching = await self._nursery.start(self._watch_as_controller)
        image, returned = await read_cluster(self.store, Image(cluster_id=self._cluster_id or ""), self._unreadable)
        machine = Controller(
            self._broker.id,
            term.epoch,
            term.version,
            image,
            unclean_allowed=lambda topic: _is_true(
                topic.get("unclean.leader.election.enable"), config().get_bool("unclean.leader.election.enable")
            ),
            rng=self._rng,
            deletion_enabled=config().get_bool("delete.topic.enable"),
        )
        channels = None
        if self._connect is not None:
            from barnabas.server.cluster.channels import ControllerChannels  # a broker alone starts without them

            channels = ControllerChannels(
                self._nursery, self._connect, self._broker.id, config=config, answered=self._answered
            )
        self._term = ControllerTerm(machine, self.store, self.receive, channels)
        log.info("elected controller: epoch %d, %d topics", term.epoch, len(image.topics))
        restarted = [self._broker.id] if self._recovered else []
        self._recovered = False
        requests = await admin_tree.begin_admin_nodes(self.store, machine.guard, self._unreadable, self._new_levels)
        deletions = await read_deletions(self.store)
        await self._perform(
            machine.elected(
                deletions,
                restarted,
                returned,
                reassignments=requests.reassignments,
                elections=requests.elections,
            )
        )
        await self._refresh_topics(frozenset())

    def _resign(self, why: str) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        self._inbox = [item for item in self._inbox if isinstance(item, StoreEvent | _Readvertise)]
        if self._term is not None:
            log.warning("controller epoch %d ended: %s", self._term.machine.epoch, why)
            term, self._term = self._term, None
            term.end()

    # -- events ------------------------------------------------------------------------------------------------------

    def _post(self, items: Iterable[Effect | StoreEvent | _Readvertise]) -> None:
        self._inbox.extend(items)
        self._mail.set()

    def _answered(
        self, broker: int, message: Message, error: ErrorCode, codes: Mapping[tuple[str, int], ErrorCode]
    ) -> None:
        """Called with another broker's answer to a message of this term."""
        if self._term is None:
            return
        if error is ErrorCode.STALE_CONTROLLER_EPOCH:  # it knows a newer controller
            self._post([Changed(frozenset(WATCHED_BY_ALL))])
        elif error is ErrorCode.NONE:
            self._post(self._term.answered(broker, message, codes))

    async def _watch(self, changes: AsyncIterator[StoreEvent]) -> None:
        async for event in changes:
            self._post([event])

    async def _watch_as_controller(self, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            async with self.store.changes(_CONTROLLER_WATCHES) as changes:
                task_status.started(scope)
                async for event in changes:
                    if isinstance(event, Changed):  # sessions are the other watch's
                        self._post([event])

    async def _handle(self, mail: Sequence[Effect | StoreEvent | _Readvertise]) -> None:
        """Process one batch. Effects first: they were decided before the store's events are read."""
        effects: list[Effect] = []
        changed: set[str] = set()
        back = moved = False
        for item in mail:
            match item:
                case _Readvertise():
                    moved = True
                case Changed():
                    changed |= item.paths
                case SessionLost():
                    self._session_lost = True
                    effects.clear()
                    back = False
                    self._resign(SESSION_EXPIRED)
                case SessionBack():
                    back = True
                case _:
                    effects.append(item)
        await self._attempt(partial(self._perform, effects))
        if back:
            await self._attempt(self._rejoin)
        elif not self._session_lost:  # rejoining reads and writes everything
            if moved:
                await self._attempt(self._readvertise)
            if changed:
                await self._attempt(partial(self._refresh, changed))

    async def _attempt(self, step: Callable[[], object]) -> None:
        """A `_step`. If it fails by a bug, the controller's decisions may be carried out in part: another term must
        read the tree again, another broker's if there is one.
        """
        try:
            await self._step(step)
        except Exception as error:
            if _ends_broker(error):
                raise
            contain(log, "a step of the controller", error)
            self._resign("a step failed")
            await trio.sleep(RESTART_S)
            if self._won is not None:
                won, self._won = self._won, None
                await self._step(partial(leave_controller, self.store, won))  # all brokers stand again

    async def _step(self, step: Callable[[], object]) -> None:
        """Run a step that may end with the term or the session."""
        try:
            await step()  # type: ignore[misc]
        except TermEnded as ended:
            self._resign(str(ended))
        except SessionExpired:
            self._resign(SESSION_EXPIRED)  # SessionLost and SessionBack will follow
        except CommitRefused as error:
            if not is_over(error):
                raise
            self._resign(NEWER_EPOCH)

    async def _perform(self, effects: Iterable[Effect]) -> None:
        if self._term is not None:
            await self._term.perform(effects)

    async def _refresh(self, changed: set[str]) -> None:
        about = concerns(changed)
        if about.controller:
            controller = await self._controller()
            if controller is None:
                self._resign("/controller was removed")
                await self._elect()
            elif controller != self._broker.id and self._term is not None:
                raise TermEnded(f"broker {controller} is the controller")
        if self._term is not None:
            machine = self._term.machine
            if about.brokers:
                effects = machine.brokers_changed(await read_brokers(self.store, self._unreadable))
                self._term.brokers_changed()
                await self._perform(effects)
            if about.topics_changed:
                await self._refresh_topics(about.topics)
            if about.deletions:
                await self._perform(machine.deletions_seen(await read_deletions(self.store)))
            await read_admin_nodes(self.store, machine, about, self._perform, self._unreadable)
        if about.configs:
            await self._notices.refresh()

    async def _refresh_topics(self, touched: frozenset[str]) -> None:
        """Give the machine topics that other brokers have written: new ones, and those `touched`."""
        machine = self.machine()
        names = await topic_names(self.store)
        present = set(names)
        known = machine.image.topics
        wanted = [name for name in names if name not in known or name in touched]
        gone = [name for name in known if name not in present]
        seen = await read_topics(self.store, wanted, self._unreadable)
        for topic in seen:
            if topic.name not in machine.image.topics and fold(topic.name) not in machine.reserved:
                log.info(
                    "topic %s found in the store: %s",
                    topic.name,
                    extent([each.replicas for each in topic.node.partitions.values()]),
                )
        await self._perform(machine.topics_seen(seen, gone))

    async def reload_config(self, kind: str, name: str) -> None:
        """Read the settings of a topic, of brokers, of a group, of clients or of a subscription to their metrics again
        and apply them. Other kinds are ignored. Brokers' settings decide whether topics may elect uncleanly.
        """
        config = await read_config(self.store, kind, name, self._unreadable)
        if kind == TOPIC_CONFIG:
            self._receiver.topic_config_changed(name, config)
            if self._term is not None:
                self._post(self._term.machine.config_changed(name, config))
        elif kind == BROKER_CONFIG:
            if self.image.broker_configs.get(name, {}) != config:
                self._receiver.replace_image(self.image.with_broker_config(name, config))
            # Even if nothing has changed: the content of a file that it names may have.
            if self._broker_configs_changed is not None:
                self._broker_configs_changed(self.image.broker_configs)
        elif kind == GROUP_CONFIG:
            self._receiver.replace_image(self.image.with_group_config(name, config))
        elif kind == CLIENT_METRICS_CONFIG:
            self._receiver.replace_image(self.image.with_client_metrics(name, config))
        elif client_nodes.is_client_kind(kind):
            self._client_changed(kind, name, config)
        if kind == BROKER_CONFIG and self._term is not None:
            self._post(self._term.machine.reconsider())

    def watch_clients(self, watcher: ClientWatcher) -> None:
        """Notify `watcher` of all users, client ids and addresses when this broker joins the cluster, and then of each
        that changes.
        """
        self._client_watchers.append(watcher)

    def _client_changed(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        for watcher in self._client_watchers:
            watcher(kind, name, config)

    # -- helpers ------------------------------------------------------------------------------------------------------

    async def _controller(self) -> int | None:
        """The id of the present controller; −1 if the entry cannot be read."""
        try:
            return await read_controller(self.store)
        except BadNode as error:
            self._unreadable(error)
            return -1

    def _decided(self, topic: str) -> TopicImage | None:
        return None if self._term is None else self._term.machine.image.topics.get(topic)

    @staticmethod
    def _unreadable(error: BadNode) -> None:
        log.error("skipping an unreadable node: %s", error)


def _ends_broker(error: BaseException) -> bool:
    """Whether the broker must leave the cluster, or has no store. A rejected commit is merely our bug."""
    if isinstance(error, BaseExceptionGroup):
        return any(_ends_broker(one) for one in error.exceptions)
    return isinstance(error, (BrokerIdTaken, WrongCluster, StoreError)) and not isinstance(error, CommitRefused)


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"
