"""The reader of what clients push: OpenTelemetry's MetricsData (`metrics.proto` 1.x), in protobuf.

Only what is shown is read: of resources their attributes, of metrics name and data points. Bytes are a stranger's, and
each of them is looked at once at most: a field costs some microseconds, and what follows the first `FIELDS_MAX` is
left out; points beyond `points_max` are counted, and not read. What is not protobuf raises BadTelemetry. Texts are
cut, not refused.

The numbers of fields and wire types, so that no schema has to be loaded:

    MetricsData      1 ResourceMetrics*
    ResourceMetrics  1 Resource, 2 ScopeMetrics*
    Resource         1 KeyValue*
    ScopeMetrics     2 Metric*
    Metric           1 name, 5 Gauge, 7 Sum, 9 Histogram, 10 ExponentialHistogram, 11 Summary
    Gauge, Sum, …    1 points*, 2 aggregation temporality (1: differences), 3 is monotonic
    NumberDataPoint  4 double, 6 sfixed64, 7 KeyValue*, 8 flags (1: no value)
    HistogramDataPoint, Exponential…, SummaryDataPoint  4 count (fixed64), 5 sum (double), KeyValue* in 9, 1 and 7
    KeyValue         1 key, 2 AnyValue
    AnyValue         1 string, 2 bool, 3 int64, 4 double

Of histograms and summaries there are count and sum, as counters (summaries have no temporality, and are of all since
the start); no stock client pushes any. Attributes that are lists,
maps or bytes are left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import isfinite
from typing import Final, NamedTuple

FIELDS_MAX: Final = 50_000
ATTRIBUTES_MAX: Final = 10
"""Of one point, or one resource. More are left out."""
TEXT_LENGTH_MAX: Final = 256
"""Of names, keys and values. What is longer is cut."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
_SFIXED64: Final = struct.Struct("<q")
_DELTA: Final = 1
_NO_VALUE: Final = 1

_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL, _SUMMARY = 5, 7, 9, 10, 11
_ATTRIBUTES: Final = {_GAUGE: 7, _SUM: 7, _HISTOGRAM: 9, _EXPONENTIAL: 1, _SUMMARY: 7}
"""The field of a point's attributes, by the kind of its metric."""

Attributes = dict[str, str]


class BadTelemetry(ValueError):
    """What was pushed is no MetricsData."""


class _Enough(Exception):
    """There are more fields than are read."""


class Point(NamedTuple):
    """One value of a metric. is_counter: it only grows. is_delta: `value` is what came since the last push; else it is
    all since `started_ns` of the client's clock, or at this moment.
    """

    name: str
    attributes: Attributes
    value: float
    is_counter: bool
    is_delta: bool


class Pushed(NamedTuple):
    """What was pushed: the attributes of all resources together, points, and how many points were left out."""

    resource: Attributes
    points: list[Point]
    left_out: int


def read(data: bytes, points_max: int) -> Pushed:
    """What a client has pushed, decompressed. Raises BadTelemetry."""
    reader = _Reader(data, points_max)
    try:
        for number, wire, start, end in reader.fields(0, len(data)):
            if number == 1 and wire == _BYTES:
                reader.resource_metrics(start, end)
    except _Enough:
        reader.left_out += 1  # at least
    except (IndexError, struct.error):
        raise BadTelemetry("it ends inside a field") from None
    return Pushed(reader.resource, reader.points, reader.left_out)


class _Reader:
    def __init__(self, data: bytes, points_max: int) -> None:
        self._data = data
        self._points_max = points_max
        self._fields_left = FIELDS_MAX
        self.resource: Attributes = {}
        self.points: list[Point] = []
        self.left_out = 0

    def fields(self, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """The fields between two positions: number, wire type, where the content begins, and where it ends. A varint's
        value stands for its beginning.
        """
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise _Enough
            tag, position = self._varint(position)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise BadTelemetry(f"there is no field {number}")
            if wire == _VARINT:
                start, position = self._varint(position)
            elif wire == _BYTES:
                size, start = self._varint(position)
                position = start + size
            elif wire in (_FIXED64, _FIXED32):
                start, position = position, position + (8 if wire == _FIXED64 else 4)
            else:
                raise BadTelemetry(f"there is no wire type {wire}")
            if position > end:
                raise BadTelemetry("a field is longer than what it is in")
            yield number, wire, start, position

    def _varint(self, position: int) -> tuple[int, int]:
        data = self._data
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value, shift = byte & 0x7F, 7
        while True:
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position + 1
            shift += 7
            if shift > 63:
                raise BadTelemetry("a number has more than ten bytes")

    def _text(self, start: int, end: int) -> str:
        return self._data[start : min(end, start + 4 * TEXT_LENGTH_MAX)].decode(errors="replace")[:TEXT_LENGTH_MAX]

    def resource_metrics(self, start: int, end: int) -> None:
        for number, wire, first, last in self.fields(start, end):
            if wire != _BYTES:
                continue
            if number == 1:
                for inner, kind, begin, stop in self.fields(first, last):
                    if inner == 1 and kind == _BYTES:
                        self._attribute(begin, stop, self.resource)
            elif number == 2:
                for inner, kind, begin, stop in self.fields(first, last):
                    if inner == 2 and kind == _BYTES:
                        self._metric(begin, stop)

    def _metric(self, start: int, end: int) -> None:
        name = ""
        found = []
        for number, wire, first, last in self.fields(start, end):
            if wire != _BYTES:
                continue
            if number == 1:
                name = self._text(first, last)
            elif number in _ATTRIBUTES:
                found.append((number, first, last))
        for kind, first, last in found:
            self._values(name, kind, first, last)

    def _values(self, name: str, kind: int, start: int, end: int) -> None:
        is_delta = is_monotonic = False
        places = []
        for number, wire, first, last in self.fields(start, end):
            if number == 1 and wire == _BYTES:
                places.append((first, last))
            elif number == 2 and wire == _VARINT:
                is_delta = first == _DELTA
            elif number == 3 and wire == _VARINT:
                is_monotonic = bool(first)
        room = max(0, self._points_max - len(self.points))
        self.left_out += max(0, len(places) - room)
        for first, last in places[:room]:
            if kind in (_GAUGE, _SUM):
                self._number(name, first, last, kind == _SUM and is_monotonic, kind == _SUM and is_delta)
            else:
                self._count_and_sum(name, first, last, _ATTRIBUTES[kind], is_delta and kind != _SUMMARY)

    def _number(self, name: str, start: int, end: int, is_counter: bool, is_delta: bool) -> None:
        attributes: Attributes = {}
        value: float | None = None
        flags = 0
        for number, wire, first, last in self.fields(start, end):
            if number == 7 and wire == _BYTES:
                self._attribute(first, last, attributes)
            elif number == 4 and wire == _FIXED64:
                value = _DOUBLE.unpack_from(self._data, first)[0]
            elif number == 6 and wire == _FIXED64:
                value = _SFIXED64.unpack_from(self._data, first)[0]
            elif number == 8 and wire == _VARINT:
                flags = first
        if value is not None and not flags & _NO_VALUE:
            self.points.append(Point(name, attributes, value, is_counter, is_delta))

    def _count_and_sum(self, name: str, start: int, end: int, attributes_field: int, is_delta: bool) -> None:
        attributes: Attributes = {}
        count, total = 0, 0.0
        for number, wire, first, last in self.fields(start, end):
            if number == attributes_field and wire == _BYTES:
                self._attribute(first, last, attributes)
            elif number == 4 and wire == _FIXED64:
                count = _SFIXED64.unpack_from(self._data, first)[0]
            elif number == 5 and wire == _FIXED64:
                total = _DOUBLE.unpack_from(self._data, first)[0]
        for suffix, value in (("count", count), ("sum", total)):
            self.points.append(Point(f"{name}.{suffix}", attributes, value, True, is_delta))

    def _attribute(self, start: int, end: int, attributes: Attributes) -> None:
        key, value = "", None
        for number, wire, first, last in self.fields(start, end):
            if wire != _BYTES:
                continue
            if number == 1:
                key = self._text(first, last)
            elif number == 2:
                value = self._any(first, last)
        if key and value is not None and len(attributes) < ATTRIBUTES_MAX:
            attributes[key] = value

    def _any(self, start: int, end: int) -> str | None:
        value: str | None = None
        for number, wire, first, last in self.fields(start, end):
            if number == 1 and wire == _BYTES:
                value = self._text(first, last)
            elif number == 2 and wire == _VARINT:
                value = "true" if first else "false"
            elif number == 3 and wire == _VARINT:
                value = str(first - (1 << 64) if first >> 63 else first)
            elif number == 4 and wire == _FIXED64:
                number_value = _DOUBLE.unpack_from(self._data, first)[0]
                value = (
                    str(int(number_value))
                    if isfinite(number_value) and number_value.is_integer()
                    else str(number_value)
                )
        return value
