"""One term of the controller: carries out its machine's effects, in order, until another broker is controller.

Consecutive commits are written at the same time, so that they share a sync. Messages to this broker are calls
(`Receiver.receive`), the others go out through `ControllerChannels`; the brokers' answers go back into the machine.
A failed guard – /controller_epoch has another version – ends the term (`TermEnded`): the machine is dropped with all
its pending effects, as its successor reads the tree.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import (
    Answer,
    Commit,
    CommitRefused,
    Controller,
    Effect,
    Later,
    LeaderAndIsr,
    Message,
    Remove,
    SendMessage,
    SessionExpired,
    StopReplica,
    Store,
    ensure_nodes,
    is_over,
    read_states,
    remove_topic,
)

if TYPE_CHECKING:
    from barnabas.server.cluster.channels import ControllerChannels

log = logging.getLogger("barnabas.controller")

Receive = Callable[[Message], Awaitable[Mapping[tuple[str, int], ErrorCode]]]
NEWER_EPOCH = "there is a newer controller epoch"
SESSION_EXPIRED = "the session has expired"
_COMMITS_AT_ONCE = 100
"""Consecutive commits that are written together: the machine processes their outcomes, and the messages that follow, in
one step of the loop.
"""
_STATES_AT_ONCE = 1000
"""The same limit for the partition states in them."""
_REMOVALS_AT_ONCE = 250

_ORDINARY = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)  # the latter: it knew a newer one


class Slot:
    """Receives the outcome of a request to the controller, once."""

    __slots__ = ("_done", "error")

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self._done = trio.Event()

    def fill(self, error: KafkaError | None) -> None:
        """Called by the loop. A second outcome is ignored: the end of the term may have been the first."""
        if not self._done.is_set():
            self.error = error
            self._done.set()

    async def wait(self) -> KafkaError | None:
        """The outcome: None, or the error."""
        await self._done.wait()
        return self.error


class TermEnded(Exception):
    """Another broker is controller, or our session has expired."""


class ControllerTerm:
    """See the module. receive: takes the messages to this broker; channels: to the others; None: there are no others.

    `scope` holds the tasks that live as long as the term.
    """

    def __init__(
        self,
        machine: Controller,
        store: Store,
        receive: Receive,
        channels: ControllerChannels | None,
    ) -> None:
        self.machine = machine
        self.scope = trio.CancelScope()
        self.is_over = False
        self._store = store
        self._receive = receive
        self._channels = channels
        self._slots: set[Slot] = set()

    def register(self, slots: Iterable[Slot]) -> None:
        """Register slots: they are filled in any case, at the latest when the term ends."""
        self._slots.update(slots)

    def end(self) -> None:
        """End the term: nothing more is done or sent, and requests that wait are answered NOT_CONTROLLER."""
        self.is_over = True
        self.scope.cancel()
        if self._channels is not None:
            self._channels.close()
        for slot in self._slots:
            slot.fill(KafkaError(ErrorCode.NOT_CONTROLLER, "The controller has changed."))
        self._slots.clear()

    def brokers_changed(self) -> None:
        """The live brokers have changed: close connections to those that are no longer alive."""
        if self._channels is not None:
            self._channels.keep(self.machine.image.brokers)

    def answered(self, broker: int, message: Message, codes: Mapping[tuple[str, int], ErrorCode]) -> list[Effect]:
        """The effects of a broker's answer."""
        if isinstance(message, LeaderAndIsr):
            refused = {key: code.name for key, code in codes.items() if code not in _ORDINARY}
            if refused:
                log.warning("broker %d could not lead or follow %s", broker, refused)
            return self.machine.leader_and_isr_answered(broker, codes)
        if isinstance(message, StopReplica):
            wanted = {(stopped.topic, stopped.index) for stopped in message.partitions if stopped.delete}
            done = [key for key, code in codes.items() if code is ErrorCode.NONE and key in wanted]
            failed = {key: code.name for key, code in codes.items() if code is not ErrorCode.NONE}
            if failed:
                log.warning("broker %d could not stop %s", broker, failed)
            return self.machine.replicas_stopped(broker, done)
        return []

    async def perform(self, effects: Iterable[Effect]) -> None:
        """Carry out effects in order, and those that follow from them. Raises TermEnded, SessionExpired."""
        queue = deque(effects)
        while queue:
            if self.is_over:
                raise TermEnded("another broker is the controller")
            match queue[0]:
                case Commit():
                    commits: list[Commit] = []
                    states = 0
                    while queue and isinstance(head := queue[0], Commit):
                        states += len(head.states)
                        if commits and (states > _STATES_AT_ONCE or len(commits) == _COMMITS_AT_ONCE):
                            break
                        commits.append(head)
                        queue.popleft()
                    queue.extendleft(reversed(await self._commit_all(commits)))
                case Remove():
                    names: list[str] = []
                    while queue and isinstance(first := queue[0], Remove) and len(names) < _REMOVALS_AT_ONCE:
                        names.append(first.topic)
                        queue.popleft()
                    queue.extend(await self._remove_all(names))
                case SendMessage():
                    sends: list[SendMessage] = []
                    while queue and isinstance(ahead := queue[0], SendMessage):
                        sends.append(ahead)
                        queue.popleft()
                    queue.extend(await self._send_all(sends))  # at the end, so that removals become consecutive
                case Later(decide):
                    await trio.lowlevel.checkpoint()
                    if self.is_over:
                        raise TermEnded("another broker is the controller")
                    queue.popleft()
                    queue.extendleft(reversed(decide()))
                case Answer() as answer:
                    queue.popleft()
                    if isinstance(answer.token, Slot):
                        self._slots.discard(answer.token)
                        answer.token.fill(answer.error)

    async def _commit_all(self, commits: Sequence[Commit]) -> list[Effect]:
        refused: list[tuple[Commit, CommitRefused]] = []
        accepted: list[Commit] = []
        over: list[str] = []

        async def commit(one: Commit) -> None:
            try:
                if one.ensure:
                    await ensure_nodes(self._store, self.machine.guard, one.ensure)
                await self._store.commit(one.ops)
                accepted.append(one)
            except CommitRefused as exc:
                refused.append((one, exc.with_traceback(None)))  # its frames refer to the exception: a cycle
            except SessionExpired:
                over.append(SESSION_EXPIRED)

        if len(commits) == 1:
            await commit(commits[0])
        else:
            async with trio.open_nursery() as nursery:
                for one in commits:
                    nursery.start_soon(commit, one)
        if over or any(is_over(error) for _, error in refused):
            raise TermEnded(over[0] if over else NEWER_EPOCH)
        order = {id(one): number for number, one in enumerate(commits)}  # they ended in any order
        accepted.sort(key=lambda one: order[id(one)])
        effects = self.machine.committed(accepted)
        for one in accepted:
            if one.event:
                log.info("topic %s %s", one.topics[0].name, one.event)
        for one, error in sorted(refused, key=lambda pair: order[id(pair[0])]):
            log.info("the metadata store rejected a commit, reading again: %s", error)
            effects += self.machine.refused(one, error, await read_states(self._store, one.states))
        return effects

    async def _remove_all(self, names: Sequence[str]) -> list[Effect]:
        over: list[str] = []

        async def remove(name: str) -> None:
            while True:
                try:
                    await remove_topic(self._store, self.machine.guard, name)
                    return
                except CommitRefused as exc:
                    if is_over(exc):
                        over.append(NEWER_EPOCH)
                        return
                    log.info("cannot remove topic %s, retrying: %s", name, exc)
                except SessionExpired:
                    over.append(SESSION_EXPIRED)
                    return

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(remove, name)
        if over:
            raise TermEnded(over[0])
        for name in names:
            log.info("topic %s deleted", name)
        return self.machine.removed(names)

    async def _send_all(self, sends: Sequence[SendMessage]) -> list[Effect]:
        """In order for each broker. Other brokers first: opening thousands of logs here must not delay them."""
        mine = self.machine.broker_id
        for each in sends:
            if each.broker != mine:
                self._send(each.broker, each.message)
        effects: list[Effect] = []
        for each in sends:
            if each.broker == mine:
                effects += await self._receive_ourselves(each.message)
        return effects

    async def _receive_ourselves(self, message: Message) -> list[Effect]:
        try:
            codes = await self._receive(message)
        except KafkaError as error:
            if error.code is ErrorCode.STALE_BROKER_EPOCH:  # we have re-registered, and will get it again
                return []
            raise TermEnded(NEWER_EPOCH) from None
        return self.answered(self.machine.broker_id, message, codes)

    def _send(self, broker_id: int, message: Message) -> None:
        broker = self.machine.image.brokers.get(broker_id)
        if broker is None or broker.epoch > message.broker_epoch:  # dead; or re-registered, and sent everything since
            log.debug("dropped a message to broker %d, which is dead or has restarted: %s", broker_id, message)
        elif self._channels is None:
            log.error("cannot send to broker %d: this broker has no connections to others", broker_id)
        else:
            self._channels.send(broker, message)
