"""The broker under test: what is made there for the cells, by a super user without log-in."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey, ErrorCode
from compat_tests.subjects.access.acls import ANY, Acl, Pattern
from compat_tests.subjects.access.connection import Connection, Values, request
from compat_tests.subjects.access.names import NO_TOKEN, Names, Token

SUPER = "root"
USERS = tuple(f"u{number}" for number in range(96))
WITHIN_S = 120.0
COMING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""What passes by itself on a broker that has just begun."""


class Address(NamedTuple):
    """Two listeners of a broker: `plain` without log-in, where everybody is a super user; `login` for SASL/PLAIN."""

    plain: tuple[str, int]
    login: tuple[str, int]


class World:
    """Connections to one broker, and what is on it. Users are logged in once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.admin = Connection(address.plain)
        self._users: dict[str, Connection] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._tokens: dict[str, tuple[Token, Token]] = {}
        versions = self.ask(ApiKey.API_VERSIONS, 0, {})
        self.served = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
        self.broker_id = self._its_id()
        for key_type in (0, 1):
            self.until_served(ApiKey.FIND_COORDINATOR, 3, {"key": "any", "key_type": key_type})

    def ask(self, key: ApiKey, version: int, values: Values) -> Any:
        """As the super user."""
        return self.admin.ask(request(key, version, values), version)

    def _its_id(self) -> int:
        """The broker's, when it knows of itself: Apache Kafka accepts connections before its controller has told it."""
        found: list[int] = []

        def is_known() -> bool:
            found[:] = [each.node_id for each in self.ask(ApiKey.METADATA, 9, {"topics": []}).brokers]
            return bool(found)

        self.wait(is_known, "a broker in the metadata")
        [broker_id] = found
        return broker_id

    def until_served(self, key: ApiKey, version: int, values: Values) -> Any:
        """The first answer without a code of `COMING`; one with another code raises AssertionError."""
        found: list[Any] = []

        def is_served() -> bool:
            found[:] = [self.ask(key, version, values)]
            return not codes(found[0]) & COMING

        self.wait(is_served, f"{key.name}: {values}")
        assert codes(found[0]) <= {0}, found[0]
        return found[0]

    def user(self, name: str) -> Connection:
        """The connection of somebody who has logged in."""
        if name not in self._users:
            self._users[name] = Connection(self._address.login, name)
        return self._users[name]

    def names(self, stem: str) -> Names:
        """The names of a cell, with the ids of the topics that there are."""
        names = Names(stem, self.broker_id)
        none = bytes(16)
        ids = self._topic_ids
        tokens = self._tokens.get(stem, (NO_TOKEN, NO_TOKEN))
        return Names(stem, self.broker_id, ids.get(names.topic, none), ids.get(names.other_topic, none), *tokens)

    def make_topics(self, wanted: Collection[str]) -> None:
        """Topics of one partition, as far as they are not there; when they can be used."""
        missing = [name for name in dict.fromkeys(wanted) if name not in self._topic_ids]
        if not missing:
            return
        for start in range(0, len(missing), 200):
            topics = [
                {"name": name, "num_partitions": 1, "replication_factor": 1} for name in missing[start : start + 200]
            ]
            made = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 120_000})
            assert codes(made) <= {0}, made
            self._topic_ids.update({topic.name: topic.topic_id for topic in made.topics})
        asked = {"topics": [{"name": name} for name in missing], "allow_auto_topic_creation": False}

        def are_led() -> bool:
            answer = self.ask(ApiKey.METADATA, 9, asked)
            return all(
                not topic.error_code and topic.partitions and not topic.partitions[0].error_code
                for topic in answer.topics
            )

        self.wait(are_led, f"{len(missing)} topics")
        # The broker may say that it leads a partition a moment before it does.
        latest = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in missing]
        self.until_served(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": latest})

    def make_group(self, group: str, topic: str) -> None:
        """A group without members that has an offset in the topic."""
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [partition]}]
        self.until_served(ApiKey.OFFSET_COMMIT, 8, {"group_id": group, "topics": topics})

    def make_tokens(self, names: Names) -> None:
        """A delegation token of the cell's owner, and one of somebody else. Who asks for tokens has logged in."""
        made = []
        for owner in (names.owner, f"other-{names.owner}"):
            values = {"owner_principal_type": "User", "owner_principal_name": owner, "max_lifetime_ms": -1}
            asked = request(ApiKey.CREATE_DELEGATION_TOKEN, 3, values)
            token = self.user(SUPER).ask(asked, 3)
            assert not token.error_code, token
            made.append(Token(token.token_id, token.hmac))
        self._tokens[names.stem] = made[0], made[1]

        def are_known() -> bool:
            answer = self.user(SUPER).ask(request(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None}), 3)
            return {token.token_id for token in made} <= {token.token_id for token in answer.tokens}

        self.wait(are_known, "the tokens")

    # -- access control lists ----------------------------------------------------------------------------------------

    def allow(self, acls: Iterable[tuple[str, Acl]]) -> None:
        """Put ACLs, each for a user, into force."""
        wanted = {_binding(user, acl) for user, acl in acls}
        if not wanted:
            return
        ordered = sorted(wanted)
        for start in range(0, len(ordered), 1000):
            creations = [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "resource_pattern_type": pattern,
                    "principal": principal,
                    "host": host,
                    "operation": operation,
                    "permission_type": permission,
                }
                for kind, name, pattern, principal, host, operation, permission in ordered[start : start + 1000]
            ]
            made = self.ask(ApiKey.CREATE_ACLS, 3, {"creations": creations})
            assert codes(made) <= {0}, made
        self.wait(lambda: wanted <= self._in_force(), "the ACLs")

    def forget_acls(self) -> None:
        """All of them."""
        deleted = self.ask(ApiKey.DELETE_ACLS, 3, {"filters": [_EVERY_ACL]})
        assert codes(deleted) <= {0}, deleted
        self.wait(lambda: not self._in_force(), "no ACL")

    def _in_force(self) -> set[tuple[Any, ...]]:
        answer = self.ask(ApiKey.DESCRIBE_ACLS, 3, _EVERY_ACL)
        return {
            (
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for one in answer.resources
            for acl in one.acls
        }

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline, f"not within {WITHIN_S:g} s: {what}"
            time.sleep(0.005)

    def close(self) -> None:
        for connection in (self.admin, *self._users.values()):
            connection.close()


_EVERY_ACL = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


def _binding(user: str, acl: Acl) -> tuple[Any, ...]:
    principal = f"User:{user}" if acl.principal is None else acl.principal.replace("{user}", user)
    pattern: Pattern = acl.pattern
    return int(acl.kind), acl.name, int(pattern), principal, acl.host, int(acl.operation), acl.permission


def codes(value: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    if isinstance(value, list):
        return {code for each in value for code in codes(each)}
    if not hasattr(value, "__fields__"):
        return set()
    found = set()
    for name in value.__fields__:
        inner = getattr(value, name)
        found |= {inner} if name.endswith("error_code") and isinstance(inner, int) else codes(inner)
    return found
