"""Sends transaction markers: `barnabas.coordinator.txn.MarkerQueues` says which broker gets which, this sends them.

This broker's own partitions are marked by a direct call; every other broker gets its WriteTxnMarkers over a connection
that is kept for the purpose, in the newest version that it serves. Markers are sent at the end of the write that
decided them, so a transaction whose partitions are all led here is complete before its client gets the answer.

A broker that lost its power neither answers nor closes the connection: when the image shows a partition with another
leader, or another leader epoch, than when the request was sent, the request is cancelled, and the markers are sent
again. (A second marker does no harm. Apache Kafka waits for `request.timeout.ms`.)

A partition that is missing in the image, as when this broker has just been started, counts as deleted, and is skipped,
only when the store does not know it either.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import trio

from barnabas.coordinator import Callback
from barnabas.coordinator.txn import Leader, Marked, MarkerQueues, MarkersToWrite, ToSend
from barnabas.kproto import ApiKey
from barnabas.kproto.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.replication import Image, StoreError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.timers import Timer, Timers

log = logging.getLogger("barnabas.transactions")

_NEWEST_VERSION = 2
_COMPLAIN_EVERY = 100  # attempts between two log lines about the same broker
_LOOK_UP_S = 1.0
"""How long the store's number of partitions of a topic is cached. Seconds."""
_STALE_CHECK_S = 1.0
"""How often requests in flight are compared with the image. Seconds."""


class _Found(NamedTuple):
    """The store's number of partitions of a topic that the image lacks; None: the store failed. at: seconds."""

    at: float
    partitions: int | None


class _Sending(NamedTuple):
    """A request in flight, and the image that it was made from."""

    request: WriteTxnMarkersRequest
    image: Image
    scope: trio.CancelScope


class MarkerSender:
    """See the module. nursery: for requests to other brokers. write_here: appends to partitions led here. marked:
    notified of what is settled. soon: calls back at the end of the write that is under way, or soon. partition_count:
    of a topic as the store knows it, as `barnabas.replication.partition_count`. now: seconds of trio's clock.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        timers: Timers,
        broker_id: int,
        connect: Connect,
        *,
        write_here: Callable[[WriteTxnMarkersRequest, Any], None],
        marked: Callable[[Marked], None],
        soon: Callable[[Callable[[], None]], None],
        current_image: Callable[[], Image],
        current_config: Callable[[], BrokerConfig],
        partition_count: Callable[[str], Awaitable[int | None]],
        now: Callable[[], float],
    ) -> None:
        self._nursery = nursery
        self._timers = timers
        self._broker_id = broker_id
        self._connect = connect
        self._write_here = write_here
        self._told_marked = marked
        self._soon = soon
        self._image = current_image
        self._config = current_config
        self._partition_count = partition_count
        self._now = now
        self._queues = MarkerQueues()
        self._answers: list[tuple[int, WriteTxnMarkersResponse | None]] = []
        self._peers: dict[int, PeerConnection] = {}
        self._failures: Counter[int] = Counter()
        self._sending: dict[int, _Sending] = {}
        self._found: dict[str, _Found] = {}
        self._looked_up: set[str] = set()
        self._is_checking = False
        self._timer: Timer | None = None
        self._is_due = False

    def __len__(self) -> int:
        """Partitions that still need a marker."""
        return len(self._queues)

    def add(self, source: Hashable, markers: MarkersToWrite) -> None:
        """Deliver `markers`; every partition of them is in one `Marked` of `source`, sooner or later."""
        self._queues.add(source, markers)
        self._work_soon()

    def remove(self, source: Hashable) -> None:
        """Drop what `source` added: it has been closed."""
        self._queues.remove(source)

    async def close(self) -> None:
        """Close the connections."""
        for peer in self._peers.values():
            await peer.close()

    def _work_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._soon(self._work)

    def _work(self) -> None:
        """Process the answers, then send what can be sent."""
        self._is_due = False
        now = self._now()
        answers, self._answers = self._answers, []
        for broker_id, response in answers:
            self._settled(self._queues.answered(broker_id, response, now))
        to_send, gone = self._queues.requests(self._leader_of, now)
        self._settled(gone)
        for each in to_send:
            if each.broker_id == self._broker_id:
                what = "this broker's own request to write transaction markers"
                own = Callback(partial(self._answered, each.broker_id), what)
                try:
                    self._write_here(each.request, own)
                except Exception as error:
                    contain(log, "writing transaction markers here", error, own)
            else:
                self._nursery.start_soon(self._send, each)
        self._arm()

    def _settled(self, all_marked: list[Marked]) -> None:
        for marked in all_marked:
            try:
                self._told_marked(marked)
            except Exception as error:
                contain(log, f"what follows from the markers of {marked.markers.transactional_id!r}", error)

    def _answered(self, broker_id: int, response: WriteTxnMarkersResponse | None) -> None:
        self._answers.append((broker_id, response))
        self._work_soon()

    def _arm(self) -> None:
        deadline = self._queues.deadline()
        if deadline is None:
            return
        timer = self._timer
        if timer is not None:
            if timer.callback is not None and timer.deadline <= deadline:
                return
            timer.cancel()
        self._timer = self._timers.at(deadline, self._work_soon)

    def _leader_of(self, topic: str, index: int) -> int | Leader:
        image = self._image()
        known = image.partition(topic, index)
        if known is None:
            return self._leader_of_unknown(topic, index)
        return known.leader if known.leader in image.brokers else Leader.UNKNOWN

    def _leader_of_unknown(self, topic: str, index: int) -> Leader:
        """The leader of a partition that is missing in the image: the store decides whether it is deleted."""
        found = self._found.get(topic)
        if found is not None and self._now() - found.at <= _LOOK_UP_S:
            return Leader.UNKNOWN if found.partitions is None or index < found.partitions else Leader.GONE
        if topic not in self._looked_up:
            self._looked_up.add(topic)
            self._nursery.start_soon(self._look_up, topic)
        return Leader.UNKNOWN

    async def _look_up(self, topic: str) -> None:
        partitions = None
        try:
            partitions = await self._partition_count(topic)
        except StoreError as error:
            log.warning("transaction markers for topic %s are delayed: %s", topic, error)
        except Exception as error:
            contain(log, f"looking up topic {topic}, which needs transaction markers,", error)
        self._looked_up.discard(topic)
        now = self._now()
        self._found = {name: found for name, found in self._found.items() if now - found.at <= _LOOK_UP_S}
        self._found[topic] = _Found(now, partitions)

    async def _send(self, to_send: ToSend) -> None:
        """Send a request to another broker; without an answer the queues send its markers again."""
        broker_id = to_send.broker_id
        response: WriteTxnMarkersResponse | None = None
        sending = self._sending[broker_id] = _Sending(to_send.request, self._image(), trio.CancelScope())
        if not self._is_checking:
            self._is_checking = True
            self._timers.after(_STALE_CHECK_S, self._cancel_stale)
        try:
            with sending.scope:
                response = await self._ask(broker_id, to_send.request)
        except PeerError as error:
            if self._failures[broker_id] % _COMPLAIN_EVERY == 0:
                log.warning("cannot send transaction markers to broker %d, retrying: %s", broker_id, error)
            self._failures[broker_id] += 1
        except Exception as error:
            contain(log, f"sending transaction markers to broker {broker_id}", error)
        else:
            if response is not None and self._failures.pop(broker_id, 0):
                log.info("transaction markers reach broker %d again", broker_id)
        del self._sending[broker_id]
        self._answered(broker_id, response)

    def _cancel_stale(self) -> None:
        """Cancel requests whose partitions have moved."""
        image = self._image()
        for broker_id, sending in self._sending.items():
            if image is not sending.image and _has_moved(sending, image):
                log.info("transaction markers to broker %d are sent again: their partitions have moved", broker_id)
                sending.scope.cancel()
        self._is_checking = bool(self._sending)
        if self._is_checking:
            self._timers.after(_STALE_CHECK_S, self._cancel_stale)

    async def _ask(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        broker = self._image().brokers.get(broker_id)
        config = self._config()
        endpoint = None if broker is None else broker.endpoint(config.inter_broker_listener)
        if endpoint is None:
            raise PeerError("its address is not known")
        peer = self._peers.get(broker_id)
        if peer is None:
            client_id = f"broker-{self._broker_id}-txn-marker-sender"
            timeout_s = config.get_int("request.timeout.ms") / 1000
            peer = self._peers[broker_id] = PeerConnection(self._connect, client_id, timeout_s)
        served = (await peer.versions(endpoint)).get(ApiKey.WRITE_TXN_MARKERS)
        if served is None:
            raise PeerError("it knows no transaction markers")
        response: WriteTxnMarkersResponse = await peer.ask(endpoint, request, min(served[1], _NEWEST_VERSION))
        return response


def _has_moved(sending: _Sending, image: Image) -> bool:
    """Whether a partition of the request has another leader, or the same one in a later epoch."""
    for marker in sending.request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                then, now = sending.image.partition(topic.name, index), image.partition(topic.name, index)
                if then is not now and (
                    then is None or now is None or (then.leader, then.leader_epoch) != (now.leader, now.leader_epoch)
                ):
                    return True
    return False
