"""Fetch requests of flexible versions as bytes: where the numbers are that differ from one to the next.

    header, [replica id], max wait, min and max bytes, isolation level, session id   equal
    session epoch                                                                     differs
    of each topic: name or id; of each partition of it:                               equal
        index, leader epoch, offset, last fetched epoch                               differ
        log start offset, max bytes, no tagged fields                                 equal

Source: Apache Kafka's FetchRequest.json.
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto import uvarint
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import FetchRequest
from barnabas.server.requests.fast_paths.examples import Form

FLEXIBLE_FROM: Final = 12
BY_ID_FROM: Final = 13
REPLICA_TAGGED_FROM: Final = 15
"""Earlier versions start with the replica id."""

PARTITIONS_MAX: Final = 20
NUMBERS_BEFORE: Final = 2
"""Correlation id and session epoch; then those of each partition."""
NUMBERS_EACH: Final = 4

_PARTITION: Final = ((0, "i"), (4, "i"), (8, "q"), (16, "i"))
_PARTITION_BYTES: Final = 33


def form_of(version: int, frame: bytes, request: FetchRequest) -> Form | None:
    """The form of a request; None: it is encoded otherwise than usual. `NUMBERS_EACH` numbers of each partition: index,
    leader epoch, offset, last fetched epoch.
    """
    at = parse_request_header(frame).body_offset + (17 if version >= REPLICA_TAGGED_FROM else 21)
    fields = [(at, "i")]
    expected = [request.session_epoch]
    at += 4 + 1
    for topic in request.topics:
        if version >= BY_ID_FROM:
            at += 16
        else:
            name = topic.topic.encode()
            at += len(uvarint(len(name) + 1)) + len(name)
        at += 1
        for each in topic.partitions:
            fields += [(at + position, letter) for position, letter in _PARTITION]
            expected += each.partition, each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch
            at += _PARTITION_BYTES
            if frame[at - 1 : at] != b"\0":
                return None
        at += 1
    if at > len(frame):
        return None
    form = Form(frame, fields)
    found = form.numbers(frame)
    return form if found is not None and list(found[1:]) == expected else None
