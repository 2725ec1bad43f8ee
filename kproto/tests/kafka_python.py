"""kafka-python's codec as a second opinion: its messages built from ours, ours compared with its."""

import importlib
import pkgutil
import uuid
import warnings
from typing import Any

from barnabas.kproto.classes import Message, Record

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.errors
    import kafka.protocol.api_message
    from kafka.protocol.schemas.fields.codecs import BitField

    for package in ("admin", "consumer", "metadata", "producer"):
        parent = importlib.import_module(f"kafka.protocol.{package}")
        for module in pkgutil.iter_modules(parent.__path__):
            importlib.import_module(f"{parent.__name__}.{module.name}")
    importlib.import_module("kafka.protocol.sasl")

__all__ = ["error_names", "same", "their_classes", "to_theirs"]


def error_names() -> dict[int | None, str]:
    """Error numbers and names."""
    return {number: error.message for number, error in kafka.errors.kafka_errors.items()}


def their_classes() -> dict[str, Any]:
    """Their request and response classes by name."""
    found = {}
    pending = list(kafka.protocol.api_message.ApiMessage.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "_v" not in cls.__name__:
            found[cls.__name__] = cls
    return found


def to_theirs(message: Message, cls: Any, version: int) -> Any:
    """Our message as an instance of their class."""
    return cls(version=version, **_values(message, cls._struct, version))


def _values(record: Record, struct: Any, version: int) -> dict[str, Any]:
    values = {}
    for field in struct._fields:
        if field.for_version_q(version):
            ours = getattr(record, _our_name(record, field))
            # They write a tagged field when it was given, default or not.
            if field.tagged_field_q(version) and ours == getattr(type(record)(), field.name):
                continue
            values[field.name] = _value(ours, field, version)
    return values


def _value(ours: Any, field: Any, version: int) -> Any:
    if isinstance(ours, list):
        return [_value(item, field, version) for item in ours]
    if isinstance(ours, Record):
        nested = field.array_of if hasattr(field, "array_of") else field
        return nested.data_class(version=version, **_values(ours, nested, version))
    if field.type_str.endswith("uuid"):
        return uuid.UUID(bytes=ours)
    if field.type_str == "bitfield":
        return BitField.from_32_bit_field(ours & 0xFFFFFFFF)
    return ours


def _our_name(record: Record, field: Any) -> str:
    """They patch some names: authorized_operations, a set of bits, for what is prefixed in Kafka's definitions."""
    if field.type_str == "bitfield":
        return next(name for name in record.__fields__ if name.endswith("authorized_operations"))
    name: str = field.name
    return name


def same(ours: Any, theirs: Any, version: int) -> bool:
    """Whether a decoded value of theirs says what ours says."""
    if isinstance(ours, Record):
        return all(
            same(getattr(ours, _our_name(ours, field)), getattr(theirs, field.name), version)
            for field in theirs._struct._fields
            if field.for_version_q(version)
            and not (field.tagged_field_q(version) and getattr(ours, field.name) == getattr(type(ours)(), field.name))
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs, [version] * len(ours)))
    if isinstance(theirs, uuid.UUID):
        return theirs.bytes == ours
    if isinstance(theirs, set):
        return bool(BitField.from_32_bit_field(ours & 0xFFFFFFFF) == theirs)
    if theirs is None and ours == -(2**31):
        # "Not asked for": bit 31 alone.
        return True
    return bool(ours == theirs)
