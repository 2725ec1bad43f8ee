"""The machine of GetTelemetrySubscriptions and PushTelemetry, by client instance (KIP-714).

A client asks what to push, with an instance id that it is given at the first time, and pushes once in an interval.
What it may do is Apache Kafka's to the letter (`ClientMetricsManager.java`, `ClientMetricsInstance.java`, 4.3.1):

| request | error | when |
| --- | --- | --- |
| Get | THROTTLING_QUOTA_EXCEEDED | within the interval of the last Get or push, but after one of the errors marked * |
| push | INVALID_REQUEST | no instance id, or a reserved one; or after a terminating push |
| push | THROTTLING_QUOTA_EXCEEDED | within the interval of the last one, unless after a Get or terminating |
| push | UNKNOWN_SUBSCRIPTION_ID * | not with the present subscription id |
| push | UNSUPPORTED_COMPRESSION_TYPE * | unknown compression |
| push | TELEMETRY_TOO_LARGE | larger than `telemetry.max.bytes` |

Instances are soft state. One is forgotten when the connection that made it has closed, when it was silent for three
intervals and a minute at least, or when 16,384 others came after it; then it is as new, and with the same subscriptions
it has the same subscription id. When subscriptions change, each instance is as new at its next request, but for what is
known of its client.

Not obvious: a push after a terminating one is refused once, and then the instance counts as not terminating. So it is
in Apache Kafka, whose clients do not push after that.

Milliseconds of any clock that does not go back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Final, Protocol

from barnabas.kproto import ZERO_UUID, ErrorCode, KafkaError
from barnabas.server.config.client_metrics import Subscription
from barnabas.server.telemetry.subscribers import Caller, Subscribed, subscribed, subscriptions_of

INSTANCES_MAX: Final = 16_384
IDLE_MS_LEAST: Final = 60_000
IDLE_INTERVALS: Final = 3
CODECS: Final = range(5)
RESERVED_IDS: Final = (ZERO_UUID, ZERO_UUID[:15] + b"\x01")
_SWEEP_MS: Final = 30_000


class Link(Protocol):
    """The connection of a client."""

    @property
    def closed(self) -> bool: ...


class Instance:
    """One client. `push_interval_ms`, `subscription_id`, `metrics`: what it was told, or would be."""

    __slots__ = (
        "_link",
        "caller",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "seen_ms",
        "told",
        "version",
    )

    def __init__(self, caller: Caller, told: Subscribed, version: int, link: Link, now_ms: float) -> None:
        self.caller = caller
        self.told = told
        self.version = version
        self.seen_ms = now_ms
        self.last_get_ms = self.last_push_ms = -inf
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self._link = weakref.ref(link)

    def is_gone(self, now_ms: float) -> bool:
        """Its connection has closed, or it was silent for too long."""
        link = self._link()
        return link is None or link.closed or now_ms - self.seen_ms >= self.idle_ms_max

    @property
    def idle_ms_max(self) -> int:
        return idle_ms_max(self.told.interval_ms)


def idle_ms_max(interval_ms: int) -> int:
    """After what silence a client with this interval is forgotten."""
    return max(IDLE_MS_LEAST, IDLE_INTERVALS * interval_ms)


class Instances:
    """See the module. stored(): the subscriptions by name, the same mapping as long as none has changed. new_id():
    random ids. throttled, unknown_subscriptions: requests with these errors.
    """

    def __init__(self, stored: Callable[[], Mapping[str, Mapping[str, str]]], new_id: Callable[[], bytes]) -> None:
        self._stored = stored
        self._new_id = new_id
        self._instances: dict[bytes, Instance] = {}  # the one that was used last at the end
        self._seen: Mapping[str, Mapping[str, str]] | None = None
        self._subscriptions: list[Subscription] = []
        self._version = 0
        self._swept_ms = -inf
        self.throttled = 0
        self.unknown_subscriptions = 0

    def get(self, instance_id: bytes, caller: Caller, link: Link, now_ms: float) -> tuple[bytes, Subscribed]:
        """A client asks what to push. Returns its instance id, given or new, and the answer. Raises KafkaError."""
        if instance_id == ZERO_UUID:
            instance_id = self._unused_id()
        instance = self._instance(instance_id, caller, link, now_ms)
        if now_ms - max(instance.last_get_ms, instance.last_push_ms) >= instance.told.interval_ms:
            instance.last_get_ms = now_ms
        elif instance.last_error not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance_id, instance.told

    def push(
        self,
        instance_id: bytes,
        caller: Caller,
        link: Link,
        now_ms: float,
        *,
        subscription_id: int,
        terminating: bool,
        codec: int,
        size: int,
        size_max: int,
    ) -> Instance:
        """A client pushes `size` bytes, compressed. Returns the instance, if what is pushed may be looked at; its
        `last_error` is then the caller's to set. Raises KafkaError.
        """
        if instance_id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(instance_id, caller, link, now_ms)
        code = self._check(instance, now_ms, subscription_id, terminating, codec, size, size_max)
        instance.is_terminating = terminating
        instance.last_error = code
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return instance

    def _check(
        self,
        instance: Instance,
        now_ms: float,
        subscription_id: int,
        terminating: bool,
        codec: int,
        size: int,
        size_max: int,
    ) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        follows_get = instance.last_get_ms > instance.last_push_ms
        if follows_get or now_ms - instance.last_push_ms >= instance.told.interval_ms:
            instance.last_push_ms = now_ms
        elif not terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != instance.told.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if codec not in CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size > size_max:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def count(self, now_ms: float) -> int:
        """How many clients there are."""
        self._sweep(now_ms)
        return len(self._instances)

    def __iter__(self) -> Iterator[tuple[bytes, Instance]]:
        """All that are known; for tests."""
        return iter(self._instances.items())

    # -- instances ---------------------------------------------------------------------------------------------------

    def _instance(self, instance_id: bytes, caller: Caller, link: Link, now_ms: float) -> Instance:
        self._read()
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._sweep(now_ms)
        instance = self._instances.pop(instance_id, None)
        if instance is not None and instance.is_gone(now_ms):
            instance = None
        if instance is None or instance.version != self._version:
            caller = caller.cut() if instance is None else instance.caller
            told = subscribed(self._subscriptions, instance_id, caller)
            instance = Instance(caller, told, self._version, link, now_ms)
        instance.seen_ms = now_ms
        self._instances[instance_id] = instance
        if len(self._instances) > INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        return instance

    def _read(self) -> None:
        stored = self._stored()
        if stored is not self._seen:
            self._seen = stored
            self._version += 1
            self._subscriptions = subscriptions_of(stored)

    def _unused_id(self) -> bytes:
        while True:
            instance_id = self._new_id()
            if instance_id not in self._instances and instance_id not in RESERVED_IDS:
                return instance_id

    def _sweep(self, now_ms: float) -> None:
        self._swept_ms = now_ms
        for instance_id in [key for key, each in self._instances.items() if each.is_gone(now_ms)]:
            del self._instances[instance_id]
