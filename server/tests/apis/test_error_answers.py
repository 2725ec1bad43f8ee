"""Every API and version has an answer that says that the whole request failed, with the code where clients of that
version look for it. The requests are made from the schemas: each with two elements in every array, and empty.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from barnabas.kproto import ApiKey, ErrorCode, Message, decode, encode, request_class, response_class
from barnabas.kproto.classes import Record
from barnabas.kproto.notation import Struct
from barnabas.server.apis import APIS
from barnabas.server.requests.route import Route
from barnabas.server.tests.apis.test_every_version import codes

CODES = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REQUEST)

ROUTES = [(api, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)]
NAMES = [f"{api.key.name}-{version}" for api, version in ROUTES]

NO_PLACE_WHEN_EMPTY = {
    ApiKey.PRODUCE: 99,
    ApiKey.FETCH: 6,
    ApiKey.LIST_OFFSETS: 99,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 99,
    ApiKey.OFFSET_FETCH: 99,  # 2 to 7 have one for the whole
    ApiKey.FIND_COORDINATOR: 99,
    ApiKey.DESCRIBE_GROUPS: 99,
    ApiKey.CREATE_TOPICS: 99,
    ApiKey.DELETE_TOPICS: 99,
    ApiKey.DELETE_RECORDS: 99,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 99,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 99,
    ApiKey.TXN_OFFSET_COMMIT: 99,
    ApiKey.CREATE_ACLS: 99,
    ApiKey.DELETE_ACLS: 99,
    ApiKey.DESCRIBE_CONFIGS: 99,
    ApiKey.ALTER_CONFIGS: 99,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 99,
    ApiKey.CREATE_PARTITIONS: 99,
    ApiKey.DELETE_GROUPS: 99,
    ApiKey.ELECT_LEADERS: 0,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 99,
    ApiKey.ALTER_CLIENT_QUOTAS: 99,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 99,
    ApiKey.DESCRIBE_PRODUCERS: 99,
    ApiKey.DESCRIBE_TRANSACTIONS: 99,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 99,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 99,
    ApiKey.SHARE_GROUP_DESCRIBE: 99,
    ApiKey.STREAMS_GROUP_DESCRIBE: 99,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 99,
    ApiKey.READ_SHARE_GROUP_STATE: 99,
    ApiKey.WRITE_SHARE_GROUP_STATE: 99,
    ApiKey.DELETE_SHARE_GROUP_STATE: 99,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 99,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 99,
}
"""The last version in which only items can carry an error, so that nothing can be said of a request without any."""


def filled(key: ApiKey, version: int) -> Any:
    """A request with two elements in every array, and other values all over."""
    cls = request_class(key)
    numbers = count(1)

    def value(kind: str, struct: Struct | None) -> Any:
        number = next(numbers)
        if struct is not None:
            return record(struct)
        return {
            "bool": False,
            "f64": 1.0,
            "uuid": number.to_bytes(16, "big"),
            "str": f"text{number}",
            "bytes": b"",
            "records": None,
        }.get(kind, number % 100)

    def record(struct: Struct) -> Any:
        made = cls() if struct is cls.__description__.struct else getattr(cls, struct.name)()
        for field in struct.fields:
            if field.versions.has(version):
                times = [value(field.type, field.struct) for _ in range(2)]
                setattr(made, field.name, times if field.is_array else times[0])
        return made

    return record(cls.__description__.struct)


def answered(api: Any, version: int, request: Any, code: ErrorCode) -> Any:
    """The error answer, as it comes to the client."""
    received = decode(type(request), version, encode(request, version))
    response = Route(api, version).error_response(received, code)
    return decode(response_class(api.key), version, encode(response, version))


@pytest.mark.parametrize(("api", "version"), ROUTES, ids=NAMES)
def test_the_answer_to_a_request_with_items_has_the_code(api: Any, version: int) -> None:
    request = filled(api.key, version)
    for code in CODES:
        assert code in codes(answered(api, version, request, code))


@pytest.mark.parametrize(("api", "version"), ROUTES, ids=NAMES)
def test_an_empty_request_can_be_refused_too(api: Any, version: int) -> None:
    empty: Any = request_class(api.key)()
    if api.key is ApiKey.PRODUCE:
        empty.acks = 1  # none is expected with 0
    for code in CODES:
        found = codes(answered(api, version, empty, code))
        if version > NO_PLACE_WHEN_EMPTY.get(api.key, -1):
            assert code in found
        else:
            assert found <= {code, ErrorCode.NONE}


@pytest.mark.parametrize(("api", "version"), ROUTES, ids=NAMES)
def test_where_only_items_carry_errors_each_of_them_does(api: Any, version: int) -> None:
    response = answered(api, version, filled(api.key, version), ErrorCode.NOT_CONTROLLER)
    if not getattr(response, "error_code", ErrorCode.NONE):
        found = item_codes(response)
        assert found
        assert set(found) == {ErrorCode.NOT_CONTROLLER}


def item_codes(value: Any) -> list[int]:
    """The codes of all items of an answer."""
    if isinstance(value, list):
        return [code for each in value for code in item_codes(each)]
    if not isinstance(value, Record):
        return []
    found = []
    for name in value.__fields__:
        inner = getattr(value, name)
        is_code = name in ("error_code", "partition_error_code") and not isinstance(value, Message)
        found += [inner] if is_code else item_codes(inner)
    return found
