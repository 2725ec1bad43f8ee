"""The trio side of the controller: the term of office, the event loop, and this broker's own picture.

`ControllerLoop.run` registers the broker, stands for controller, and then carries out what the machine
(`replication.Controller`) asks for, in order: commits – those that stand together at the same time, so that they share
a sync – and messages. A message to this broker is a call (`receive`); the cluster's inter-broker connections will carry
the others. Changes in the store are looked at in batches: what changed is read again and given to the machine.

    request ──► machine ──► effects ──┐                        ┌► partitions.become_leader / delete
    store.changes ──► read ──► machine ├► commit ──► machine ──┼► image replaced, waiters woken
                                       └ one task, in order    └► slots of requests filled

The picture (`image`) only ever changes in `receive` (what a controller tells) and on notice of changed settings. While
another broker is controller the machine is None; requests are then refused with NOT_CONTROLLER. A lost session or a
refused guard ends the term: the machine is dropped with all it had in mind, for its successor reads the tree.

Not here: messages to other brokers, the follower's side of LeaderAndIsr, StopReplica without deletion.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Protocol

import trio

from kproto import ErrorCode, KafkaError
from replication import (
    BROKER_CONFIG,
    TOPIC_CONFIG,
    WATCHED,
    Answer,
    BadNode,
    BrokerImage,
    Changed,
    Commit,
    CommitRefused,
    Controller,
    Effect,
    Image,
    LeaderAndIsr,
    Message,
    PartitionChange,
    PartitionImage,
    Remove,
    SessionExpired,
    SessionLost,
    StopReplica,
    Store,
    StoreEvent,
    Tell,
    UpdateMetadata,
    apply_update,
    concerns,
    drop_config_changes,
    ensure_nodes,
    is_over,
    make_roots,
    read_broker_configs,
    read_brokers,
    read_cluster,
    read_config,
    read_config_changes,
    read_controller,
    read_deletions,
    read_states,
    read_topic_configs,
    read_topics,
    register_broker,
    remove_topic,
    settle_cluster_id,
    stand_for_controller,
    topic_names,
)
from server.config import BrokerConfig

log = logging.getLogger("barnabas.controller")

NOTIFICATION_LIFE_MS = 15 * 60 * 1000
_LEAD_AT_ONCE = 8  # logs to open or create between two checkpoints; each takes 0.1 to 4 ms


class LocalReplicas(Protocol):
    """What the controller's messages do to this broker (`server.partitions.Partitions`)."""

    def become_leader(
        self, topic: str, topic_id: bytes, image: PartitionImage, config: Mapping[str, str]
    ) -> object: ...

    def delete(self, topic: str, index: int) -> None: ...

    def config_changed(self, topic: str, config: Mapping[str, str]) -> None: ...


class Slot:
    """Where the outcome of a request to the controller arrives, once."""

    __slots__ = ("_done", "error")

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self._done = trio.Event()

    def fill(self, error: KafkaError | None) -> None:
        """Called by the loop. A second outcome is ignored: the first one may have been the end of the term."""
        if not self._done.is_set():
            self.error = error
            self._done.set()

    async def wait(self) -> KafkaError | None:
        """The outcome: None, or why not."""
        await self._done.wait()
        return self.error


class _TermOver(Exception):
    """Somebody else is controller, or our session is gone."""


class ControllerLoop:
    """See the module. One per broker; `run` once.

    broker: id, endpoints and rack to register. cluster_id: what the log directory says, or None; make_cluster_id: for
    the first broker of a cluster. recovered: logs of this broker may have lost their ends since it last ran, so what it
    leads gets new leader epochs. broker_configs_changed: told the dynamic settings of brokers, by id and '<default>'.
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
        cluster_id: str | None = None,
        recovered: bool = False,
        broker_configs_changed: Callable[[Mapping[str, Mapping[str, str]]], None] | None = None,
    ) -> None:
        self._store = store
        self._broker = broker
        self._partitions = partitions
        self._config = config
        self._wall_ms = wall_ms
        self._rng = rng
        self._make_cluster_id = make_cluster_id
        self._cluster_id = cluster_id
        self._recovered = recovered
        self._broker_configs_changed = broker_configs_changed
        self._image = Image()
        self._image_moved = trio.Event()
        self._machine: Controller | None = None
        self._inbox: list[Effect | StoreEvent] = []
        self._mail = trio.Event()
        self._slots: set[Slot] = set()
        self._auto_creating: set[str] = set()
        self._nursery: trio.Nursery | None = None
        self._notified: dict[str, int] = {}  # config change notifications seen → when (wall clock)

    # -- what others use ---------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The cluster as this broker knows it; replaced whole."""
        return self._image

    @property
    def is_active(self) -> bool:
        """This broker is the controller."""
        return self._machine is not None

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's present registration; -1 before there is one."""
        return self._broker.epoch

    async def image_until(self, ready: Callable[[Image], bool]) -> None:
        """Wait until the picture is as wanted. Looks at every new picture, at least once."""
        await trio.lowlevel.checkpoint()
        while not ready(self._image):
            await self._image_moved.wait()

    def machine(self) -> Controller:
        """The controller, to ask something of; hand its effects to `submit` before the next await.

        Raises KafkaError NOT_CONTROLLER.
        """
        if self._machine is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
        return self._machine

    def submit(self, effects: Iterable[Effect], slots: Iterable[Slot] = ()) -> None:
        """Have the loop carry out what the machine wants. slots: tokens in `effects`, filled in any case."""
        self._slots.update(slots)
        self._post(effects)

    async def receive(self, message: Message) -> None:
        """Do what a controller tells this broker. Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
        if message.controller_epoch < self._image.controller_epoch:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if message.broker_epoch < self._broker.epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        match message:
            case LeaderAndIsr():
                await self._lead(message.partitions)
            case UpdateMetadata():
                configs = await self._configs_of(message.partitions)
                self._replace_image(apply_update(self._image, message, configs))
            case StopReplica():
                for stopped in message.partitions:
                    if stopped.delete:
                        self._attempt(
                            "deleting", stopped, partial(self._partitions.delete, stopped.topic, stopped.index)
                        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve for ever; started once this broker is registered and leads what it has to lead.

        Raises BrokerIdTaken, WrongCluster, StoreError.
        """
        async with self._store.changes(WATCHED) as changes:
            await self._begin()
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._watch, changes)
                task_status.started()
                try:
                    while True:
                        await self._mail.wait()
                        self._mail = trio.Event()
                        mail, self._inbox = self._inbox, []
                        await self._handle(mail)
                finally:
                    self._nursery = None

    # -- the term ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """A session begins: be known, learn the settings, and perhaps become controller."""
        await make_roots(self._store)
        self._cluster_id = await settle_cluster_id(self._store, self._cluster_id, self._make_cluster_id)
        self._notified.update(
            dict.fromkeys(await read_config_changes(self._store, (), self._unreadable), self._wall_ms())
        )
        configs = await read_broker_configs(self._store, self._unreadable)
        self._replace_image(replace(self._image, cluster_id=self._cluster_id, broker_configs=configs))
        if self._broker_configs_changed is not None:
            self._broker_configs_changed(configs)
        self._broker = await register_broker(self._store, self._broker, self._wall_ms())
        await self._elect()

    async def _elect(self) -> None:
        if self._machine is not None:
            return
        term = await stand_for_controller(self._store, self._broker.id, self._wall_ms())
        if term is None:
            log.info("broker %s is the controller", await read_controller(self._store))
            return
        image = await read_cluster(self._store, Image(cluster_id=self._cluster_id or ""), self._unreadable)
        config = self._config
        self._machine = Controller(
            self._broker.id,
            term.epoch,
            term.version,
            image,
            unclean_allowed=lambda topic: _is_true(
                topic.get("unclean.leader.election.enable"), config().bool("unclean.leader.election.enable")
            ),
            rng=self._rng,
            deletion_enabled=config().bool("delete.topic.enable"),
        )
        log.info("controller epoch %d begins with %d topics", term.epoch, len(image.topics))
        bounced = [self._broker.id] if self._recovered else []
        self._recovered = False
        try:
            await self._perform(self._machine.elected(await read_deletions(self._store), bounced))
            await self._look_at_topics(frozenset())
        except _TermOver as over:
            self._resign(str(over))

    def _resign(self, why: str) -> None:
        if self._machine is not None:
            log.warning("no longer the controller: %s", why)
        self._machine = None
        self._inbox = [item for item in self._inbox if isinstance(item, StoreEvent)]
        for slot in self._slots:
            slot.fill(KafkaError(ErrorCode.NOT_CONTROLLER, "The controller has changed."))
        self._slots.clear()

    # -- events ------------------------------------------------------------------------------------------------------

    def _post(self, items: Iterable[Effect | StoreEvent]) -> None:
        self._inbox.extend(items)
        self._mail.set()

    async def _watch(self, changes: AsyncIterator[StoreEvent]) -> None:
        async for event in changes:
            self._post([event])

    async def _handle(self, mail: Sequence[Effect | StoreEvent]) -> None:
        """One batch. Effects first: they were decided before the store's events are looked at."""
        effects: list[Effect] = []
        changed: set[str] = set()
        back = False
        for item in mail:
            if isinstance(item, Changed):
                changed |= item.paths
            elif isinstance(item, SessionLost):
                effects.clear()
                self._resign("the session has expired")
            elif isinstance(item, StoreEvent):
                back = True
            else:
                effects.append(item)

        async def begin_or_look() -> None:
            if back:
                await self._begin()
            elif changed:
                await self._look(changed)

        for step in (partial(self._perform, effects), begin_or_look):
            try:
                await step()
            except _TermOver as over:
                self._resign(str(over))
            except SessionExpired:
                self._resign("the session has expired")  # SessionLost and SessionBack are on their way

    async def _look(self, changed: set[str]) -> None:
        about = concerns(changed)
        if about.controller:
            controller = await read_controller(self._store)
            if controller is None:
                await self._elect()
            elif controller != self._broker.id and self._machine is not None:
                raise _TermOver(f"broker {controller} is")
        machine = self._machine
        if machine is not None:
            if about.brokers:
                await self._perform(machine.brokers_changed(await read_brokers(self._store, self._unreadable)))
            if about.topics_changed:
                await self._look_at_topics(about.topics)
            if about.deletions:
                await self._perform(machine.deletions_seen(await read_deletions(self._store)))
        if about.configs:
            await self._look_at_configs()

    async def _look_at_topics(self, touched: frozenset[str]) -> None:
        """Give the machine topics that others have written: new ones, and those `touched`."""
        machine = self.machine()
        names = await topic_names(self._store)
        present = set(names)
        known = machine.image.topics
        wanted = [name for name in names if name not in known or name in touched]
        gone = [name for name in known if name not in present]
        await self._perform(machine.topics_seen(await read_topics(self._store, wanted, self._unreadable), gone))

    async def _look_at_configs(self) -> None:
        """Settings have changed somewhere: read what the notifications name."""
        now_ms = self._wall_ms()
        changes = await read_config_changes(self._store, self._notified.keys(), self._unreadable)
        self._notified.update(dict.fromkeys(changes, now_ms))
        for entity in dict.fromkeys(changes.values()):
            if entity is not None:
                await self.reload_config(*entity)
        old = [name for name, seen_ms in self._notified.items() if now_ms - seen_ms > NOTIFICATION_LIFE_MS]
        await drop_config_changes(self._store, old)
        for name in old:
            del self._notified[name]

    async def reload_config(self, kind: str, name: str) -> None:
        """Read the settings of a topic or of brokers again and put them in force. Other kinds are not ours yet."""
        config = await read_config(self._store, kind, name, self._unreadable)
        if kind == TOPIC_CONFIG:
            topic = self._image.topics.get(name)
            if topic is not None and topic.config != config:
                self._replace_image(self._image.with_topics([replace(topic, config=config)]))
                self._partitions.config_changed(name, config)
            if self._machine is not None:
                self._post(self._machine.config_changed(name, config))
        elif kind == BROKER_CONFIG and self._image.broker_configs.get(name, {}) != config:
            self._replace_image(self._image.with_broker_config(name, config))
            if self._broker_configs_changed is not None:
                self._broker_configs_changed(self._image.broker_configs)

    # -- effects -----------------------------------------------------------------------------------------------------

    async def _perform(self, effects: Iterable[Effect]) -> None:
        """Carry out effects in order, with what follows from them. Raises _TermOver."""
        queue = deque(effects)
        while queue:
            machine = self._machine
            if machine is None:
                raise _TermOver("another broker is")
            match queue[0]:
                case Commit():
                    commits: list[Commit] = []
                    while queue and isinstance(head := queue[0], Commit):
                        commits.append(head)
                        queue.popleft()
                    queue.extendleft(reversed(await self._commit_all(machine, commits)))
                case Remove():
                    names: list[str] = []
                    while queue and isinstance(first := queue[0], Remove):
                        names.append(first.topic)
                        queue.popleft()
                    queue.extend(await self._remove_all(machine, names))
                case Tell() as tell:
                    queue.popleft()
                    queue.extend(await self._tell(machine, tell))  # at the end: removals come to stand together
                case Answer() as answer:
                    queue.popleft()
                    if isinstance(answer.token, Slot):
                        self._slots.discard(answer.token)
                        answer.token.fill(answer.error)

    async def _commit_all(self, machine: Controller, commits: Sequence[Commit]) -> list[Effect]:
        refused: list[tuple[Commit, CommitRefused]] = []
        accepted: list[Commit] = []

        async def commit(one: Commit) -> None:
            try:
                if one.ensure:
                    await ensure_nodes(self._store, machine.guard, one.ensure)
                await self._store.commit(one.ops)
                accepted.append(one)
            except CommitRefused as exc:
                refused.append((one, exc))
            except SessionExpired:
                over.append("the session has expired")

        over: list[str] = []
        if len(commits) == 1:
            await commit(commits[0])
        else:
            async with trio.open_nursery() as nursery:
                for one in commits:
                    nursery.start_soon(commit, one)
        if over or any(is_over(error) for _, error in refused):
            raise _TermOver(over[0] if over else "a newer controller epoch has begun")
        order = {id(one): number for number, one in enumerate(commits)}  # the scheduler has shuffled them
        effects = machine.committed(sorted(accepted, key=lambda one: order[id(one)]))
        for one, error in refused:
            log.info("the store refused %s; looking again", error)
            effects += machine.refused(one, error, await read_states(self._store, one.states))
        return effects

    async def _remove_all(self, machine: Controller, names: Sequence[str]) -> list[Effect]:
        over: list[CommitRefused] = []

        async def remove(name: str) -> None:
            while True:
                try:
                    await remove_topic(self._store, machine.guard, name)
                    return
                except CommitRefused as exc:
                    if is_over(exc):
                        over.append(exc)
                        return
                    log.info("removing topic %s: %s; looking again", name, exc)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(remove, name)
        if over:
            raise _TermOver("a newer controller epoch has begun")
        return [effect for name in names for effect in machine.removed(name)]

    async def _tell(self, machine: Controller, tell: Tell) -> list[Effect]:
        if tell.broker != self._broker.id:
            log.error("broker %d cannot be reached: this broker has no connections to others", tell.broker)
            return []
        message = tell.message
        await self.receive(message)
        if isinstance(message, StopReplica):
            done = [(stopped.topic, stopped.index) for stopped in message.partitions if stopped.delete]
            return machine.replicas_stopped(self._broker.id, done)
        return []

    # -- this broker -------------------------------------------------------------------------------------------------

    async def _lead(self, changes: Sequence[PartitionChange]) -> None:
        configs = await self._configs_of(changes)
        for count, change in enumerate(changes, 1):
            if change.partition.leader == self._broker.id:
                config = configs.get(change.topic)
                if config is None:
                    config = self._image.topics[change.topic].config
                lead = partial(self._partitions.become_leader, change.topic, change.topic_id, change.partition, config)
                self._attempt("leading", change, lead)
            if count % _LEAD_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()  # thousands of logs must not hold up everybody else

    async def _configs_of(self, changes: Sequence[PartitionChange]) -> Mapping[str, Mapping[str, str]]:
        """Settings of those topics that are new to our picture."""
        configs: dict[str, Mapping[str, str]] = {}
        unknown: dict[str, None] = {}
        for change in changes:
            known = self._image.topics.get(change.topic)
            if known is None or known.topic_id != change.topic_id:
                decided = self._machine.image.topics.get(change.topic) if self._machine else None
                if decided is not None and decided.topic_id == change.topic_id:
                    configs[change.topic] = decided.config
                else:
                    unknown[change.topic] = None
        if unknown:
            configs.update(await read_topic_configs(self._store, list(unknown), self._unreadable))
        return MappingProxyType(configs)

    @staticmethod
    def _attempt(what: str, where: object, work: Callable[[], object]) -> None:
        """One partition that cannot be opened or deleted must not take the others with it."""
        try:
            work()
        except (KafkaError, OSError):
            log.exception("%s %s failed", what, where)

    def _replace_image(self, image: Image) -> None:
        if image is not self._image:
            self._image = image
            moved, self._image_moved = self._image_moved, trio.Event()
            moved.set()

    def _unreadable(self, error: BadNode) -> None:
        log.error("left out, because it cannot be read: %s", error)


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"
