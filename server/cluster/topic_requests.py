"""Requests of handlers about topics: creation, deletion, more partitions, settings. All of them may wait.

Requests about single partitions are in `partition_requests.py`. Each calls the machine immediately (errors are known
before anything is written), hands its effects to the member's loop, and waits until the outcome is known *and* in this
broker's image, or until its time limit: then the answer is REQUEST_TIMED_OUT while the work continues, as in Apache
Kafka. A time limit of 0 or less means not to wait for the image.

Errors of a single topic are values (`TopicOutcome`); NOT_CONTROLLER is raised, as it concerns the whole request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import (
    BROKER_CONFIG,
    CLIENT_METRICS_CONFIG,
    DEFAULT_ENTITY,
    GROUP_CONFIG,
    GROUP_METADATA_TOPIC,
    MAX_NEW_PARTITIONS,
    SHARE_GROUP_STATE_TOPIC,
    TOPIC_CONFIG,
    TRANSACTION_STATE_TOPIC,
    CommitRefused,
    CommitTooLarge,
    Effect,
    Image,
    NewTopic,
    NoSuchNode,
    StoreError,
    TopicDefaults,
    TopicImage,
    TopicRequest,
    name_fault,
    new_partition_count,
    plan_creation,
    plan_expansion,
    read_deletions,
)
from barnabas.replication.tree import admin_tree
from barnabas.server.cluster.config_writes import EditConfig, write_entity
from barnabas.server.cluster.member import ClusterMember, Slot
from barnabas.server.config import changes as config_changes
from barnabas.server.config.broker import BrokerConfig

log = logging.getLogger("barnabas.controller")

_LOGGED_MAX = 20
"""Failed topics that are logged for one request."""

_AT_ONCE = 100
"""Topics planned between two rounds of the loop: one takes up to 50 us."""

_AT_ONCE_KNOWN = 1000
"""The same for requests without placement of replicas."""

AUTO_CREATE_WAIT_S = 1.0
"""How long `auto_create` waits for leaders. Seconds."""

TopicPartition = tuple[str, int]

Charge = Callable[[int], None]
"""Called with the number of partitions that a topic is about to gain or lose; raises KafkaError beyond a quota."""


def _nothing(count: int) -> None:
    """For requests without a client: no quota."""


@dataclass(slots=True)
class TopicOutcome:
    """The outcome for one topic. new: what was, or would be, created."""

    error: KafkaError | None = None
    new: NewTopic | None = None
    slot: Slot | None = field(default=None, repr=False)


class TopicRequests:
    """See the module. Time limits are milliseconds of trio's clock. rng: for topic ids and the placement of replicas.

    `auto_creating`: topics that `auto_create_soon` is creating.
    """

    def __init__(self, member: ClusterMember, config: Callable[[], BrokerConfig], rng: Random) -> None:
        self._member = member
        self._config = config
        self._rng = rng
        self.auto_creating: set[str] = set()

    async def create_topics(
        self,
        requests: Sequence[TopicRequest],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        charge: Charge = _nothing,
    ) -> dict[str, TopicOutcome]:
        """Create topics; one outcome per name (names must differ). Raises KafkaError NOT_CONTROLLER."""
        machine = self._member.machine()
        config = self._config()
        defaults = TopicDefaults(config.get_int("num.partitions"), config.get_int("default.replication.factor"))
        outcomes: dict[str, TopicOutcome] = {}
        effects: list[Effect] = []
        slots: list[Slot] = []
        for number, request in enumerate(requests, 1):
            outcome = outcomes[request.name] = TopicOutcome()
            try:
                machine = self._member.machine()
                outcome.new = plan_creation(
                    machine.image,
                    request,
                    defaults,
                    check_config=lambda after, name=request.name: config_changes.check_topic(config, name, after),  # type: ignore[misc]
                    rng=self._rng,
                    reserved=machine.reserved,
                    deleting=machine.deleting,
                )
                charge(len(outcome.new.assignments))
            except KafkaError as error:
                outcome.error = error.as_value()
                continue
            if not validate_only:
                outcome.slot = Slot()
                slots.append(outcome.slot)
                effects += machine.create(outcome.new, outcome.slot)
            if number % _AT_ONCE == 0:
                effects, slots = await self._pause(effects, slots)
        self._member.submit(effects, slots)

        def is_led(name: str, image: Image) -> bool:
            topic, new = image.topics.get(name), outcomes[name].new
            if topic is None or new is None or topic.topic_id != new.topic_id:
                return False
            return len(topic.partitions) == len(new.assignments) and all(p.leader >= 0 for p in topic.partitions)

        await self._conclude(outcomes, timeout_ms, is_led)
        return outcomes

    async def _pause(self, effects: list[Effect], slots: list[Slot]) -> tuple[list[Effect], list[Slot]]:
        """Submit what the machine has decided so far, and yield to other tasks; returns empty lists to refill."""
        self._member.submit(effects, slots)
        await trio.lowlevel.checkpoint()
        return [], []

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: int, charge: Charge = _nothing
    ) -> dict[str, TopicOutcome]:
        """Delete topics, and wait until they are removed. Raises KafkaError NOT_CONTROLLER."""
        machine = self._member.machine()
        outcomes: dict[str, TopicOutcome] = {}
        effects: list[Effect] = []
        slots: list[Slot] = []
        for number, name in enumerate(names, 1):
            outcome = outcomes[name] = TopicOutcome()
            try:
                if name not in machine.image.topics:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
                charge(len(machine.image.topics[name].partitions))
            except KafkaError as error:
                outcome.error = error.as_value()
            else:
                outcome.slot = Slot()
                slots.append(outcome.slot)
                effects += machine.delete(name, outcome.slot)
            if number % _AT_ONCE_KNOWN == 0:
                effects, slots = await self._pause(effects, slots)
                machine = self._member.machine()
        self._member.submit(effects, slots)
        await self._conclude(outcomes, timeout_ms, lambda name, image: name not in image.topics, slow=True)
        return outcomes

    async def create_partitions(
        self,
        requests: Iterable[tuple[str, int, Sequence[Sequence[int]] | None]],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        charge: Charge = _nothing,
    ) -> dict[str, TopicOutcome]:
        """Give topics (name, new number of partitions, manual replicas) more partitions. Raises NOT_CONTROLLER."""
        machine = self._member.machine()
        outcomes: dict[str, TopicOutcome] = {}
        counts: dict[str, int] = {}
        effects: list[Effect] = []
        slots: list[Slot] = []
        for number, (name, count, manual) in enumerate(requests, 1):
            outcome = outcomes[name] = TopicOutcome()
            counts[name] = count
            if number % _AT_ONCE == 0:
                effects, slots = await self._pause(effects, slots)
                machine = self._member.machine()
            try:
                if name in machine.deleting:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
                added = plan_expansion(machine.image, name, count, manual, rng=self._rng)
                charge(len(added))
            except KafkaError as error:
                outcome.error = error.as_value()
                continue
            if not validate_only:
                outcome.slot = Slot()
                slots.append(outcome.slot)
                effects += machine.expand(name, added, outcome.slot)
        self._member.submit(effects, slots)

        def is_led(name: str, image: Image) -> bool:
            topic = image.topics.get(name)
            return topic is not None and sum(p.leader >= 0 for p in topic.partitions) >= counts[name]

        await self._conclude(outcomes, timeout_ms, is_led)
        return outcomes

    async def alter_topic_config(self, topic: str, edit: EditConfig) -> None:
        """Replace a topic's own settings by `edit(settings)`, which raises KafkaError for invalid ones.

        `edit` is called again if they were changed meanwhile. On return they are in force here. Also raises KafkaError
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        if topic not in self._member.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
        try:
            await write_entity(self._member, TOPIC_CONFIG, topic, edit)
        except NoSuchNode:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.") from None

    async def alter_broker_config(self, broker_id: int | None, edit: EditConfig) -> None:
        """Replace the dynamic settings of a broker (None: of all brokers) by `edit(settings)`; as above."""
        name = DEFAULT_ENTITY if broker_id is None else str(broker_id)
        await write_entity(self._member, BROKER_CONFIG, name, edit)

    async def alter_group_config(self, group_id: str, edit: EditConfig) -> None:
        """Replace a group's settings by `edit(settings)`; as above. The group need not exist."""
        await write_entity(self._member, GROUP_CONFIG, group_id, edit)

    async def alter_client_metrics(self, name: str, edit: EditConfig) -> None:
        """Replace the settings of a client-metrics subscription by `edit(settings)`; as above. It need not exist, and
        without settings it exists no more.
        """
        await write_entity(self._member, CLIENT_METRICS_CONFIG, name, edit)

    async def auto_create(self, names: Collection[str]) -> dict[str, ErrorCode]:
        """Create topics that a client or a coordinator needs; NONE means that the image has them, with leaders.

        Waits a little for that: LEADER_NOT_AVAILABLE means that they are being created. Internal topics get their own
        settings. Topics beyond the partitions that a request may create (`MAX_NEW_PARTITIONS`) are rejected with
        POLICY_VIOLATION. A broker that is not the controller writes topics into the store, where the controller finds
        them.
        """
        codes: dict[str, ErrorCode] = {}
        requests = []
        config = self._config()
        defaults = TopicDefaults(config.get_int("num.partitions"), config.get_int("default.replication.factor"))
        room = MAX_NEW_PARTITIONS
        for name in dict.fromkeys(names):
            if name_fault(name) is not None:
                codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
                continue
            request = auto_topic(name, config)
            room -= new_partition_count(request, defaults)
            if room < 0:
                codes[name] = ErrorCode.POLICY_VIOLATION
            else:
                requests.append(request)
        return codes | await self.ensure_topics(requests)

    async def ensure_topics(
        self, requests: Sequence[TopicRequest], *, charge: Charge = _nothing
    ) -> dict[str, ErrorCode]:
        """Create topics unless they exist; the codes are those of `auto_create`. Of requests for one name the last
        counts. charge: as for `create_topics`; its refusal is the code of a topic.
        """
        codes: dict[str, ErrorCode] = {}
        requests = list({request.name: request for request in requests}.values())
        there = self._decided().keys() & {request.name for request in requests}
        try:
            outcomes = await self.create_topics(requests, timeout_ms=int(AUTO_CREATE_WAIT_S * 1000), charge=charge)
        except KafkaError:
            outcomes = await self._leave_topics(requests, charge)
        exist = [name for name, outcome in outcomes.items() if _exists(outcome)]
        if exist:
            with trio.move_on_after(AUTO_CREATE_WAIT_S):
                await self._member.image_until(
                    lambda image: all(
                        _has_leaders(image, name) or (name in there and self._is_leaving(name)) for name in exist
                    )
                )
        for name, outcome in outcomes.items():
            code = ErrorCode.NONE if outcome.error is None else outcome.error.code
            if name in exist:
                code = ErrorCode.NONE if _has_leaders(self._member.image, name) else ErrorCode.LEADER_NOT_AVAILABLE
            elif code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
                # being created; or the controller died, and its successor finds the topic, if it was written
                code = ErrorCode.LEADER_NOT_AVAILABLE
            codes[name] = code
        return codes

    def _decided(self) -> Mapping[str, TopicImage]:
        """The topics of the controller, if this broker is the controller."""
        return self._member.machine().image.topics if self._member.is_active else {}

    def _is_leaving(self, name: str) -> bool:
        """Whether a topic that was there is being deleted, or is gone: then waiting for its leaders is in vain."""
        return self._member.is_active and (name in self._member.machine().deleting or name not in self._decided())

    async def _leave_topics(self, requests: Iterable[TopicRequest], charge: Charge) -> dict[str, TopicOutcome]:
        """Write topics for the controller, another broker, to find; as Apache Kafka's brokers do.

        A topic written has the error TOPIC_ALREADY_EXISTS: the caller then waits for its leaders. One that is being
        deleted has LEADER_NOT_AVAILABLE: it is to be asked for again.
        """
        config = self._config()
        outcomes: dict[str, TopicOutcome] = {}
        try:
            deleting = await read_deletions(self._member.store)
        except StoreError as error:
            log.info("cannot create internal topics: %s", error)
            unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return {request.name: TopicOutcome(unknown) for request in requests}
        defaults = TopicDefaults(config.get_int("num.partitions"), config.get_int("default.replication.factor"))
        for request in requests:
            outcome = outcomes[request.name] = TopicOutcome()
            if request.name in deleting and not _has_leaders(self._member.image, request.name):
                outcome.error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "The topic is being deleted.")
                continue
            try:
                outcome.new = plan_creation(
                    self._member.image,
                    request,
                    defaults,
                    check_config=lambda after, name=request.name: config_changes.check_topic(config, name, after),  # type: ignore[misc]
                    rng=self._rng,
                    deleting=deleting,
                )
                charge(len(outcome.new.assignments))
                await admin_tree.leave_topic(self._member.store, outcome.new)
                outcome.error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
            except KafkaError as error:
                outcome.error = error.as_value()
            except CommitTooLarge:
                outcome.error = KafkaError(ErrorCode.POLICY_VIOLATION, "The topic is too large to store.")
            except CommitRefused:  # another broker was faster
                outcome.error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
            except StoreError as error:
                log.info("cannot create topic %s: %s", request.name, error)
                outcome.error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return outcomes

    def ensure_topics_soon(
        self,
        requests: Collection[TopicRequest],
        told: Callable[[Mapping[str, ErrorCode]], None],
        charge: Charge = _nothing,
    ) -> bool:
        """`ensure_topics` for callers that do not wait; `told` gets the codes, without those of a failure that was
        logged. False: nothing is done, as the broker is not running.
        """

        async def create() -> None:
            codes: Mapping[str, ErrorCode] = {}
            try:
                codes = await self.ensure_topics(list(requests), charge=charge)
            finally:
                told(codes)

        return self._member.attempt_soon(f"creating {len(requests)} topics", create)

    def auto_create_soon(self, names: Iterable[str]) -> None:
        """`auto_create` for callers that do not wait. Invalid names, and those being created, are ignored; so are those
        beyond the limit: for all callers together no more partitions are being created than one request may create.
        Callers try again later.
        """
        room = MAX_NEW_PARTITIONS // max(1, self._config().get_int("num.partitions")) - len(self.auto_creating)
        fresh = (name for name in names if name not in self.auto_creating and name_fault(name) is None)
        wanted = list(islice(fresh, max(0, room)))
        if not wanted:
            return

        async def create() -> None:
            try:
                codes = await self.auto_create(wanted)
            finally:
                self.auto_creating.difference_update(wanted)
            failed = [(name, code) for name, code in codes.items() if code is not ErrorCode.NONE]
            for name, code in failed[:_LOGGED_MAX]:
                log.info("cannot auto-create topic %s: %s", name, code.name)
            if len(failed) > _LOGGED_MAX:
                log.info("cannot auto-create %d more topics", len(failed) - _LOGGED_MAX)

        if self._member.attempt_soon(f"auto-creating {len(wanted)} topics", create):
            self.auto_creating.update(wanted)

    async def _conclude(
        self,
        outcomes: Mapping[str, TopicOutcome],
        timeout_ms: int,
        visible: Callable[[str, Image], bool],
        *,
        slow: bool = False,
    ) -> None:
        """Wait for the slots, then for the image. slow: the slots are filled at the very end.

        Even with a time limit of 0 the slots of quick requests are awaited: the answer says whether the store has
        accepted the request.
        """
        pending = {name: outcome for name, outcome in outcomes.items() if outcome.slot is not None}
        limit_s = max(0, timeout_ms) / 1000
        if timeout_ms <= 0 and not slow:
            await self._fill(pending.values())
        with trio.move_on_after(limit_s) as limit:
            await self._fill(pending.values())
            left = [name for name, outcome in pending.items() if outcome.error is None]
            await self._member.image_until(lambda image: all(visible(name, image) for name in left))
        if limit.cancelled_caught or timeout_ms <= 0:
            for name, outcome in pending.items():
                if outcome.error is None and (timeout_ms <= 0 or not visible(name, self._member.image)):
                    outcome.error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    @staticmethod
    async def _fill(outcomes: Iterable[TopicOutcome]) -> None:
        for outcome in outcomes:
            assert outcome.slot is not None
            outcome.error = await outcome.slot.wait()


def auto_topic(name: str, config: BrokerConfig) -> TopicRequest:
    """An auto-created topic: internal ones with the settings that their coordinators need."""
    if name == GROUP_METADATA_TOPIC:
        return TopicRequest(
            name,
            config.get_int("offsets.topic.num.partitions"),
            config.get_int("offsets.topic.replication.factor"),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.get_int("offsets.topic.segment.bytes"))),
            ),
            automatic=True,
        )
    if name == TRANSACTION_STATE_TOPIC:
        return TopicRequest(
            name,
            config.get_int("transaction.state.log.num.partitions"),
            config.get_int("transaction.state.log.replication.factor"),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(config.get_int("transaction.state.log.min.isr"))),
                ("segment.bytes", str(config.get_int("transaction.state.log.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            ),
            automatic=True,
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        # Not compacted: its coordinator cuts off what is redundant.
        return TopicRequest(
            name,
            config.get_int("share.coordinator.state.topic.num.partitions"),
            config.get_int("share.coordinator.state.topic.replication.factor"),
            configs=(
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(config.get_int("share.coordinator.state.topic.min.isr"))),
                ("retention.ms", "-1"),
                ("segment.bytes", str(config.get_int("share.coordinator.state.topic.segment.bytes"))),
            ),
            automatic=True,
        )
    return TopicRequest(name, automatic=True)


def _exists(outcome: TopicOutcome) -> bool:
    """The topic exists already, or was written for the controller."""
    return outcome.error is not None and outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS


def _has_leaders(image: Image, name: str) -> bool:
    topic = image.topics.get(name)
    return topic is not None and all(partition.leader >= 0 for partition in topic.partitions)
