"""Kafka's protocol as values and bytes, without IO. Usable alone; imports nothing but the standard library.

This face holds what nearly all users need. Public submodules beside it: `messages` (request and response classes),
`stored` (what lives inside logs), `frame` (headers and frames), `records`, `records_legacy`, `compression`,
`allowance`, `crc32c`.
"""

from barnabas.kproto.apikeys import ApiKey
from barnabas.kproto.classes import Message, Record
from barnabas.kproto.codec.compile import Part, SizedPart, decode, decoder, encode, encoder
from barnabas.kproto.errors import DecodeError, EncodeError, ErrorCode, KafkaError, shortened
from barnabas.kproto.messages import flexible_from, request_class, response_class, schema_versions
from barnabas.kproto.primitives import ZERO_UUID, Buffer, read_uvarint, uuid_from_text, uuid_to_text, uvarint

__all__ = [
    "ZERO_UUID",
    "ApiKey",
    "Buffer",
    "DecodeError",
    "EncodeError",
    "ErrorCode",
    "KafkaError",
    "Message",
    "Part",
    "Record",
    "SizedPart",
    "decode",
    "decoder",
    "encode",
    "encoder",
    "flexible_from",
    "read_uvarint",
    "request_class",
    "response_class",
    "schema_versions",
    "shortened",
    "uuid_from_text",
    "uuid_to_text",
    "uvarint",
]
