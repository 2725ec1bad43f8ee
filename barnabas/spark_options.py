"""What a Spark query asks of `barnabas-log`: its options and its filters. `barnabas/spark.py` says what they mean.

Offsets count records, sizes are bytes, times milliseconds since 1970; filters on `timestamp` come as datetimes with
microseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["EARLIEST", "HIGHEST", "LATEST", "LOWEST", "TYPES", "Bound", "Narrowing", "Options", "TopicPartition"]

TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
EARLIEST, LATEST = -2, -1
LOWEST, HIGHEST = -(1 << 63), 1 << 63
"""Bounds that leave nothing out."""

TopicPartition = tuple[str, int]


class Options:
    """What the user asked for. Raises ValueError, one sentence that names the option."""

    KNOWN: Final = (
        *("path", "paths", "topic", "subscribe", "subscribePattern", "assign", "partitions"),
        *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("includeHeaders", "isolation", "kafka.isolation.level", "failOnDataLoss", "highWatermark"),
        *("columns", "maxPartitionBytes", "minPartitionBytes"),
    )

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        unknown = sorted(self._given.keys() - {key.lower() for key in self.KNOWN})
        if unknown:
            raise ValueError(f"barnabas-log has no option {', '.join(unknown)}; options are {', '.join(self.KNOWN)}")
        self.paths = self._paths()
        self.topics, self.assigned = self._topics()
        self.pattern = self._pattern()
        if sum(chosen is not None for chosen in (self.topics, self.pattern, self.assigned)) > 1:
            raise ValueError("barnabas-log: give one of subscribe, subscribePattern, assign")
        self.partitions = self._partitions()
        self.start = Bound.of(self._given, "starting", EARLIEST)
        self.end = Bound.of(self._given, "ending", LATEST)
        self.late_is_error = self._one_of("startingOffsetsByTimestampStrategy", "error", "latest") == "error"
        self.headers = self._one_of("includeHeaders", "false", "true") == "true"
        levels = ("read_uncommitted", "read_committed")
        self.committed = self._one_of("isolation", *levels, also="kafka.isolation.level") == "read_committed"
        self.strict = self._one_of("failOnDataLoss", "true", "false") == "true"
        self.high_watermark = self._one_of("highWatermark", "ignore", "checkpoint") == "checkpoint"
        self.columns = self._columns()
        self.max_bytes = self._bytes("maxPartitionBytes", 128 << 20, 1)
        self.min_bytes = self._bytes("minPartitionBytes", 0, 0)

    def _get(self, key: str) -> str | None:
        return self._given.get(key.lower())

    def _one_of(self, key: str, *allowed: str, also: str | None = None) -> str:
        text = self._get(key) or (self._get(also) if also else None)
        value = allowed[0] if text is None else text.strip().lower()
        if value not in allowed:
            raise ValueError(f"{key} is {text!r}, allowed are {' and '.join(sorted(allowed))}")
        return value

    def _bytes(self, key: str, default: int, least: int) -> int:
        text = self._get(key)
        if text is None:
            return default
        match = re.fullmatch(r"\s*([0-9]+)\s*([kmg]?)b?\s*", text.lower())
        size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]] if match else -1
        if size < least:
            raise ValueError(f"{key} is {text!r}, allowed are bytes from {least} on, also as 64k, 128m, 1g")
        return size

    def _paths(self) -> list[str]:
        one, several = self._get("path"), self._get("paths")
        paths = [one] if one else json.loads(several) if several else []
        if not paths:
            raise ValueError("barnabas-log needs a path: load(DIRECTORY) or option('path', DIRECTORY)")
        return [re.sub("^file:(//)?(?=/)", "", path) for path in paths]

    def _topics(self) -> tuple[list[str] | None, dict[str, list[int]] | None]:
        names, assign = self._get("subscribe") or self._get("topic"), self._get("assign")
        topics = None
        if names is not None:
            topics = [name.strip() for name in names.split(",") if name.strip()]
            if not topics:
                raise ValueError("subscribe names no topic; allowed are names, separated by commas")
        if assign is None:
            return topics, None
        assigned = _json("assign", assign)
        for numbers in assigned.values():
            if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
                raise ValueError(f'assign is {assign!r}, allowed is JSON such as {{"topicA":[0,1],"topicB":[2,4]}}')
        return topics, assigned

    def _pattern(self) -> re.Pattern[str] | None:
        text = self._get("subscribePattern")
        try:
            return None if text is None else re.compile(text)
        except re.error as error:
            raise ValueError(f"subscribePattern is {text!r}, which is no regular expression: {error}") from None

    def _partitions(self) -> set[int] | None:
        text = self._get("partitions")
        if text is None:
            return None
        numbers: set[int] = set()
        for part in text.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
            if match is None:
                raise ValueError(f"partitions is {text!r}, allowed are numbers such as 0,2,5-7")
            numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        return numbers

    def _columns(self) -> list[str] | None:
        text = self._get("columns")
        if text is None:
            return None
        wanted = [name.strip() for name in text.split(",")]
        names = {name.lower(): name for name in TYPES}
        for name in wanted:
            if name.lower() not in names or wanted.count(name) > 1:
                raise ValueError(f"columns is {text!r}, allowed are {', '.join(TYPES)}, each once")
        return [names[name.lower()] for name in wanted]

    def schema(self) -> StructType:
        names = self.columns or [name for name in TYPES if name != "headers" or self.headers]
        return StructType([StructField(name, TYPES[name]) for name in names])


@dataclass(frozen=True)
class Bound:
    """A start or an end: an offset or a time for all partitions, or for each of them."""

    key: str
    each: Mapping[TopicPartition, int] | None
    all: int
    is_time: bool

    @classmethod
    def of(cls, given: Mapping[str, str], side: str, default: int) -> Bound:
        """`given`: options by lower-case names. A time for all goes before times before offsets, as in the Kafka
        source.
        """
        key = f"{side}Timestamp"
        text = given.get(key.lower())
        if text is not None and not text.strip().startswith("{"):
            if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
                raise ValueError(f"{key} is {text!r}, allowed are milliseconds since 1970")
            return cls(key, None, int(text), True)
        for times in (key, f"{side}OffsetsByTimestamp"):
            text = given.get(times.lower())
            if text is not None:
                return cls(times, _by_partition(times, text, 0), default, True)
        key = f"{side}Offsets"
        text = given.get(key.lower())
        names = {EARLIEST: "earliest", LATEST: "latest"}
        if text is None or text.strip().lower() == names[default]:
            return cls(key, None, default, False)
        other = EARLIEST + LATEST - default
        if not text.strip().startswith("{"):
            raise ValueError(f"{key} is {text!r}, allowed are {names[default]} and JSON for each partition")
        each = _by_partition(key, text, -2)
        if other in each.values():
            raise ValueError(f"{key} has {other} ({names[other]}), which a batch query does not allow there")
        return cls(key, each, default, False)


def _json(key: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{key} is {text!r}, allowed is a JSON object by topic")
    return found


def _by_partition(key: str, text: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, values in _json(key, text).items():
        for partition, value in values.items() if isinstance(values, dict) else (("", None),):
            if not str(partition).isdecimal() or type(value) is not int or value < least:
                raise ValueError(f'{key} is {text!r}, allowed is JSON such as {{"topicA":{{"0":23,"1":45}}}}')
            found[topic, int(partition)] = value
    return found


# ---- filters


@dataclass
class Narrowing:
    """What filters say about the rows: they all have it; so what is said twice holds twice."""

    filters: list[Filter] = field(default_factory=list)
    """On columns that are the same for a whole partition."""
    start: int = LOWEST
    end: int = HIGHEST
    """Offsets, from and before which."""
    oldest: int = LOWEST
    newest: int = HIGHEST
    """Milliseconds, both included."""

    def take(self, one: Filter) -> bool:
        """Whether it is taken care of; else Spark must look at every row."""
        column = _column(one)
        if isinstance(one, IsNotNull):
            return column in NEVER_NULL
        value = getattr(one, "value", None)
        if column in ("topic", "partition"):
            if _holds(one, "" if column == "topic" else 0) is None:
                return False
            self.filters.append(one)
            return True
        if column == "offset":
            values = value if isinstance(one, In) else (value,)
            if not values or not all(type(each) is int for each in values):
                return False
            return self._offsets(one, min(values), max(values))
        if column == "timestamp":
            values = value if isinstance(one, In) else (value,)
            if not values or not all(isinstance(each, datetime) for each in values):
                return False
            return self._times(one, _micros(min(values)), _micros(max(values)))
        return False

    def _offsets(self, one: Filter, low: int, high: int) -> bool:
        match one:
            case GreaterThan():
                self.start = max(self.start, low + 1)
            case GreaterThanOrEqual():
                self.start = max(self.start, low)
            case LessThan():
                self.end = min(self.end, high)
            case LessThanOrEqual():
                self.end = min(self.end, high + 1)
            case EqualTo() | EqualNullSafe() | In():
                self.start, self.end = max(self.start, low), min(self.end, high + 1)
                return low == high
            case _:
                return False
        return True

    def _times(self, one: Filter, low: int, high: int) -> bool:
        """Microseconds; rows have milliseconds."""
        match one:
            case GreaterThan():
                self.oldest = max(self.oldest, low // 1000 + 1)
            case GreaterThanOrEqual():
                self.oldest = max(self.oldest, -(-low // 1000))
            case LessThan():
                self.newest = min(self.newest, -(-high // 1000) - 1)
            case LessThanOrEqual():
                self.newest = min(self.newest, high // 1000)
            case EqualTo() | EqualNullSafe() | In():
                self.oldest, self.newest = max(self.oldest, -(-low // 1000)), min(self.newest, high // 1000)
                return low == high
            case _:
                return False
        return True

    def hold(self, topic: str, partition: int) -> bool:
        return all(_holds(one, topic if _column(one) == "topic" else partition) for one in self.filters)


def _column(one: Filter) -> str | None:
    if isinstance(one, Not):
        return _column(one.child)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    # Spark finds columns whatever their case.
    return {name.lower(): name for name in TYPES}.get(path[0].lower()) if len(path) == 1 else None


_TESTS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda mine, value: bool(mine == value),
    EqualNullSafe: lambda mine, value: bool(mine == value),
    GreaterThan: lambda mine, value: bool(mine > value),
    GreaterThanOrEqual: lambda mine, value: bool(mine >= value),
    LessThan: lambda mine, value: bool(mine < value),
    LessThanOrEqual: lambda mine, value: bool(mine <= value),
    StringStartsWith: lambda mine, value: bool(mine.startswith(value)),
    StringEndsWith: lambda mine, value: bool(mine.endswith(value)),
    StringContains: lambda mine, value: value in mine,
}


def _holds(one: Filter, mine: str | int) -> bool | None:
    """Whether it is true of a value that is not null; None if we do not know what it means."""
    if isinstance(one, Not):
        inner = _holds(one.child, mine)
        return None if inner is None else not inner
    value = getattr(one, "value", None)
    if isinstance(one, In):
        return mine in value if value and all(type(each) is type(mine) for each in value) else None
    test = _TESTS.get(type(one))
    return test(mine, value) if test is not None and type(value) is type(mine) else None


def _micros(time: datetime) -> int:
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
