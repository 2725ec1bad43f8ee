"""What handlers and scrapes use of the room: the clients of one broker that push (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.kproto import ErrorCode, KafkaError, uuid_to_text
from barnabas.kproto.compression import GZIP, LZ4, SNAPPY, ZSTD, CorruptRecords, TooBig, decompress
from barnabas.server.telemetry.instances import Instance, Instances, idle_ms_max

if TYPE_CHECKING:
    from barnabas.server.telemetry.pushed import ClientSeries, PushedSeries, Ready

CODECS: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""How clients may compress, the best first: they take the first that they have."""
PLAIN_FACTOR: Final = 8
"""How much larger than `telemetry.max.bytes` what is pushed may be when decompressed."""
_PIECES_MAX: Final = 10_000


class Telemetry:
    """See the module. stored(), new_id(): see `Instances`. pushes, errors: pushes that were taken, and those that could
    not be read.
    """

    def __init__(self, stored: Callable[[], Mapping[str, Mapping[str, str]]], new_id: Callable[[], bytes]) -> None:
        self.instances = Instances(stored, new_id)
        self.pushes = 0
        self.errors = 0
        self._series: PushedSeries | None = None

    @property
    def dropped(self) -> int:
        """Points that were pushed and not kept."""
        return 0 if self._series is None else self._series.dropped

    @property
    def series_count(self) -> int:
        return 0 if self._series is None else len(self._series)

    def keep(
        self,
        instance_id: bytes,
        instance: Instance,
        pushed: Ready,
        now_ms: float,
        *,
        series_max: int,
        client_series_max: int,
    ) -> None:
        """Keep what a client has pushed."""
        from barnabas.server.telemetry.pushed import PushedSeries  # most brokers are never pushed to

        series = self._series
        if series is None:
            series = self._series = PushedSeries()
        caller = instance.caller
        info = {
            "client_instance_id": uuid_to_text(instance_id),
            "client_id": caller.client_id or "",
            "client_software_name": caller.software_name,
            "client_software_version": caller.software_version,
            "client_source_address": caller.host,
        }
        series.take(
            instance_id,
            info,
            pushed,
            now_ms,
            kept_ms=idle_ms_max(instance.told.interval_ms),
            series_max=series_max,
            client_series_max=client_series_max,
        )
        if instance.is_terminating:
            series.ended(instance_id, now_ms)

    def clients(self, now_ms: float) -> list[tuple[bytes, ClientSeries]]:
        """The clients that have pushed, as long as what they said counts, and their series; a new list."""
        return [] if self._series is None else self._series.clients(now_ms)


def unpacked(codec: int, data: bytes, size_max: int, points_max: int) -> Ready:
    """What is in a push. size_max: `telemetry.max.bytes`. Raises KafkaError: TELEMETRY_TOO_LARGE when it is too large
    decompressed, INVALID_RECORD when it cannot be read. Pure, and may take long: for a thread.
    """
    from barnabas.server.telemetry.otlp import BadTelemetry, read  # most brokers are never pushed to
    from barnabas.server.telemetry.pushed import ready

    try:
        plain = decompress(codec, data, max_bytes=PLAIN_FACTOR * size_max, pieces_max=_PIECES_MAX)
        return ready(read(plain, points_max))
    except TooBig as error:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from None
    except CorruptRecords as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    except BadTelemetry as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"OpenTelemetry's MetricsData: {error}") from None
