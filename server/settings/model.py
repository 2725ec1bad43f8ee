"""What a setting is: its type, its default, the values it takes, and how far it is supported here.

Types and their wire numbers are Apache Kafka's (ConfigDef.Type; DescribeConfigs v3+ sends the number). A setting is one
of three kinds:

- `WORKS`: every value that passes the check does what Apache Kafka's documentation says;
- `ONLY`: known, but only the values named in `allowed` are what this broker does; any other is refused by name;
- `NO_EFFECT`: tunes a part that this broker does not have; any well-formed value is taken and one warning says so.

Not here: reading files, environment, layers of values (server/config/broker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from math import isinf, isnan, nan
from typing import NamedTuple

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LEAST_SEGMENT_BYTES = 14
"""`segment.bytes` of a topic is at least this."""
PARTITIONS_AT_ONCE = 10_000
"""More are not created by one request, and so not for an internal topic."""


class Type(IntEnum):
    """Kafka's types with the numbers of DescribeConfigsResponse.config_type."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """Whether and where a broker setting can be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER = "cluster-wide"


class Support(Enum):
    WORKS = "works"
    ONLY = "only"
    NO_EFFECT = "no effect"


class BadValue(ValueError):
    """A text that is not a value of the setting's type or range; the message says what is allowed."""


_WHOLE = {Type.INT: (-(2**31), INT_MAX), Type.SHORT: (-(2**15), 2**15 - 1), Type.LONG: (-(2**63), LONG_MAX)}


def parse(kind: Type, text: str) -> Value:
    """Text as a value of `kind`, by the rules of Kafka's ConfigDef (outer blanks do not count). Raises BadValue."""
    text = text.strip() if kind is not Type.PASSWORD else text
    if kind in _WHOLE:
        low, high = _WHOLE[kind]
        # int() would take underscores and other digits, which Kafka does not
        if not text.lstrip("+-").isdecimal() or not text.isascii():
            raise BadValue("must be a whole number")
        try:
            number = int(text)
        except ValueError:
            raise BadValue("must be a whole number") from None
        if not low <= number <= high:
            raise BadValue(f"must be a whole number from {low} to {high}")
        return number
    if kind is Type.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise BadValue("must be true or false")
        return lowered == "true"
    if kind is Type.DOUBLE:
        # float() would take underscores and other digits as well. NaN, a number to Java, compares with nothing.
        try:
            value = float(text) if text.isascii() and "_" not in text else nan
        except ValueError:
            value = nan
        if isnan(value):
            raise BadValue("must be a number")
        return value
    if kind is Type.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text


def render(kind: Type, value: Value) -> str | None:
    """A value as the text that Kafka shows for it (DescribeConfigs, files). None stays None."""
    if value is None:
        return None
    if kind is Type.LIST and isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """Java's Double.toString: scientific below 0.001 and from ten million, `E` without a plus sign."""
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # repr stays plain up to 1e16
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        mantissa = mantissa.rstrip("0")
    if "." not in mantissa:
        mantissa += ".0"
    elif mantissa.endswith("."):
        mantissa += "0"
    return f"{mantissa}E{int(exponent)}"


class Check(NamedTuple):
    """A rule for values: `text` completes "must be …"; `holds` decides."""

    text: str
    holds: Callable[[Value], bool]


def at_least(low: int) -> Check:
    return Check(f"at least {low}", lambda value: isinstance(value, (int, float)) and value >= low)


def above(low: float) -> Check:
    return Check(f"above {low}", lambda value: isinstance(value, (int, float)) and value > low)


def between(low: float, high: float) -> Check:
    return Check(f"from {low} to {high}", lambda value: isinstance(value, (int, float)) and low <= value <= high)


def one_of(*names: str) -> Check:
    return Check("one of " + ", ".join(names), lambda value: value in names)


def some_of(*names: str) -> Check:
    return Check(
        "a list of " + ", ".join(names), lambda value: isinstance(value, tuple) and all(item in names for item in value)
    )


GZIP_LEVEL = Check("from 1 to 9, or -1", lambda value: value == -1 or (isinstance(value, int) and 1 <= value <= 9))


class Setting(NamedTuple):
    """One row of the table.

    `default`: the value used when nothing sets it (None: unset). `kafka_default`: the text of Apache Kafka 3.9.1's
    default where ours differs, else None. `note`: for ONLY and NO_EFFECT the reason, a clause without full stop; for
    WORKS what is different from Apache Kafka, or "". `allowed`: for ONLY, what is taken besides the default.
    `dynamic_only`: exists only as a setting of the running broker (Kafka's replication throttles).
    """

    name: str
    type: Type
    default: Value
    support: Support
    doc: str
    check: Check | None = None
    scope: Scope = Scope.READ_ONLY
    note: str = ""
    allowed: Check | None = None
    kafka_default: str | None = None
    dynamic_only: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def default_text(self) -> str | None:
        return render(self.type, self.default)

    def parse(self, text: str) -> Value:
        """The checked value of `text`. Raises BadValue; whether it is *supported* is `unsupported`'s question."""
        value = parse(self.type, text)
        if self.check is not None and not self.check.holds(value):
            raise BadValue(f"must be {self.check.text}")
        return value

    def unsupported(self, value: Value) -> bool:
        """True for an ONLY row when `value` is not what this broker does."""
        if self.support is not Support.ONLY or value == self.default:
            return False
        return self.allowed is None or not self.allowed.holds(value)

    def why_not(self, text: str) -> str | None:
        """Why `text` cannot be this setting's value here, as the end of a sentence; None if it can."""
        try:
            value = self.parse(text)
        except BadValue as error:
            return f"it {error}"
        if self.unsupported(value):
            return f"{self.note}; allowed: {self.allowed_text}"
        return None

    @property
    def allowed_text(self) -> str:
        """For ONLY rows: what may stand there, as the end of a sentence."""
        if self.allowed is not None:
            return self.allowed.text
        if self.default is None or self.default in ("", ()):
            return "nothing (leave it out)"
        return f"{self.default_text}"


def works(
    name: str,
    kind: Type,
    default: Value,
    doc: str,
    check: Check | None = None,
    *,
    scope: Scope = Scope.READ_ONLY,
    note: str = "",
    kafka_default: str | None = None,
) -> Setting:
    return Setting(name, kind, default, Support.WORKS, doc, check, scope, note, None, kafka_default)


def only(
    name: str,
    kind: Type,
    default: Value,
    doc: str,
    why: str,
    check: Check | None = None,
    *,
    allowed: Check | None = None,
    scope: Scope = Scope.READ_ONLY,
    kafka_default: str | None = None,
) -> Setting:
    return Setting(name, kind, default, Support.ONLY, doc, check, scope, why, allowed, kafka_default)


def no_effect(
    name: str,
    kind: Type,
    default: Value,
    why: str,
    check: Check | None = None,
    *,
    doc: str = "",
    scope: Scope = Scope.READ_ONLY,
    dynamic_only: bool = False,
    kafka_default: str | None = None,
) -> Setting:
    return Setting(name, kind, default, Support.NO_EFFECT, doc, check, scope, why, None, kafka_default, dynamic_only)


Row = tuple[str, Type, Value] | tuple[str, Type, Value, Check | None]


def family(
    make: Callable[..., Setting], doc: str, why: str, rows: Iterable[Row], scope: Scope = Scope.READ_ONLY
) -> tuple[Setting, ...]:
    """Many rows that share their explanation: `make` is `only` or `no_effect`."""
    built = []
    for name, kind, default, *rest in rows:
        check = rest[0] if rest else None
        if make is only:
            built.append(only(name, kind, default, doc, why, check, scope=scope))
        else:
            built.append(no_effect(name, kind, default, why, check, doc=doc, scope=scope))
    return tuple(built)
