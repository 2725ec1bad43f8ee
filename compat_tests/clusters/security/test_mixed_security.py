"""Apache Kafka 3.9.1 and ours in one cluster: access lists, users, quotas and delegation tokens that one side writes
are read and applied by the other, both ways. Every question goes to one broker, and it counts what the other one does:
it denies, lets in, holds back.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.records import Record, build_batch
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA, OURS
from compat_tests.clusters.security.pinned import can_log_in
from compat_tests.clusters.test_mixed import unexplained
from compat_tests.harness.ports import free_ports
from compat_tests.subjects.access.connection import Connection, Values, request

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(600)]

MODULES = "org.apache.kafka.common.security"
USERS = " ".join(f'user_{name}="{name}"' for name in ("alice", "bob", "carol"))
EXPIRY_MS, LIFETIME_MS = 600_000, 3_600_000
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {USERS};",
    "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "delegation.token.secret.key": "key-of-the-tests",
    "delegation.token.expiry.time.ms": str(EXPIRY_MS),
    "delegation.token.max.lifetime.ms": str(LIFETIME_MS),
    "delegation.token.expiry.check.interval.ms": "1000",
    # Who stands still for a while stays the controller.
    "zookeeper.session.timeout.ms": "60000",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}
SIDES = {"ours writes": (1, 2), "Kafka writes": (2, 1)}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
WITHIN_S = 60
TOPIC, MATCH, LITERAL, PREFIXED, READ, WRITE, DESCRIBE, ALLOW, DENY = 2, 2, 3, 4, 3, 4, 8, 3, 2


@dataclass
class Side:
    """One broker: asked without log-in, as a super user, or by a user of PLAIN."""

    number: int
    plain: Connection
    clients: tuple[str, int]

    def ask(self, key: ApiKey, version: int, values: Values, user: str | None = None) -> Any:
        """The answer to a question of a super user, or of a user."""
        if user is None:
            return self.plain.ask(request(key, version, values), version)
        connection = Connection(self.clients, user)
        try:
            return connection.ask(request(key, version, values), version)
        finally:
            connection.close()

    def sees(self, user: str, topic: str) -> bool:
        """Whether a user may describe a topic."""
        answer = self.ask(ApiKey.METADATA, 9, {"topics": [{"name": topic}]}, user)
        return ErrorCode(answer.topics[0].error_code) is not ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Both(Cluster):
    """The cluster, and its two brokers from outside."""

    def __init__(self, directory: Any, kinds: list[str]) -> None:
        super().__init__(directory, [], settings=SETTINGS, start=False)
        self._wanted = kinds
        self.sides: dict[int, Side] = {}

    def __enter__(self) -> Both:
        super().__enter__()
        try:
            for number, kind in enumerate(self._wanted, 1):
                plain, clients = free_ports(2)
                listeners = f"PLAINTEXT://127.0.0.1:{plain},CLIENTS://127.0.0.1:{clients}"
                self.add_node(number, kind, plain, listeners=listeners).start()
                self.sides[number] = Side(number, Connection(("127.0.0.1", plain)), ("127.0.0.1", clients))
            for node in self.nodes.values():
                node.wait_open()
            self.wait_registered()
        except BaseException:
            self.close()
            raise
        return self


@pytest.fixture(scope="module")
def both(kinds: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A running cluster: broker 1 is ours, broker 2 is Apache Kafka."""
    with Both(tmp_path_factory.mktemp("mixed"), [KAFKA, KAFKA] if kinds[0] == KAFKA else [OURS, KAFKA]) as cluster:
        yield cluster


@pytest.fixture(params=list(SIDES))
def writer(both: Both, request: pytest.FixtureRequest) -> Side:
    return both.sides[SIDES[request.param][0]]


@pytest.fixture
def reader(both: Both, writer: Side) -> Side:
    """The other one."""
    return next(side for side in both.sides.values() if side is not writer)


def acl(name: str, pattern: int, principal: str, operation: int, permission: int = ALLOW) -> Values:
    about = {"resource_type": TOPIC, "resource_name": name, "resource_pattern_type": pattern}
    return {**about, "principal": principal, "host": "*", "operation": operation, "permission_type": permission}


def add_acls(side: Side, *acls: Values) -> None:
    answer = side.ask(ApiKey.CREATE_ACLS, 2, {"creations": list(acls)})
    assert [result.error_code for result in answer.results] == [0] * len(acls)


def acl_filter(name: str, pattern: int) -> Values:
    about = {"resource_type_filter": TOPIC, "resource_name_filter": name, "pattern_type_filter": pattern}
    return {**about, "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


def remove_acls(side: Side, name: str, pattern: int) -> None:
    answer = side.ask(ApiKey.DELETE_ACLS, 2, {"filters": [acl_filter(name, pattern)]})
    assert [result.error_code for result in answer.filter_results] == [0]


def listed(side: Side, name: str) -> set[tuple[object, ...]]:
    """All that is said about a topic of this name."""
    answer = side.ask(ApiKey.DESCRIBE_ACLS, 2, acl_filter(name, MATCH))
    return {
        (each.resource_name, each.pattern_type, entry.principal, entry.host, entry.operation, entry.permission_type)
        for each in answer.resources
        for entry in each.acls
    }


def test_access_lists(both: Both, writer: Side, reader: Side) -> None:
    """Added by one, in force at the other; removed there, and gone here. By name and by prefix, allowed and denied."""
    name = f"lists-{writer.number}"
    assert not reader.sees("alice", name)
    add_acls(writer, acl(name, LITERAL, "User:alice", READ), acl(name[:4], PREFIXED, "User:bob", DESCRIBE))
    both.wait(lambda: reader.sees("alice", name) and reader.sees("bob", name), "what is allowed is possible", WITHIN_S)
    assert not reader.sees("carol", name)
    add_acls(writer, acl(name, LITERAL, "User:bob", DESCRIBE, DENY))
    both.wait(lambda: not reader.sees("bob", name), "what is denied is not", WITHIN_S)
    assert listed(reader, name) == listed(writer, name)
    assert len(listed(reader, name)) == 3
    remove_acls(reader, name, LITERAL)
    both.wait(lambda: not writer.sees("alice", name) and writer.sees("bob", name), "they are removed", WITHIN_S)
    remove_acls(reader, name[:4], PREFIXED)
    both.wait(lambda: not writer.sees("bob", name), "all of them", WITHIN_S)
    assert listed(reader, name) == listed(writer, name) == set()
    assert both.tree.json(f"/kafka-acl/Topic/{name}") is None


def test_access_lists_are_the_same_texts(both: Both) -> None:
    """Whoever writes them, but for the order of entries."""
    texts = []
    for side in both.sides.values():
        for name, pattern in (("texts", LITERAL), ("te", PREFIXED)):
            add_acls(side, *(acl(name, pattern, f"User:CN={who},O=ü", WRITE, how) for who, how in (("a", 2), ("b", 3))))
        nodes = [both.tree.json(path) for path in ("/kafka-acl/Topic/texts", "/kafka-acl-extended/prefixed/Topic/te")]
        for node in nodes:
            node["acls"].sort(key=lambda entry: entry["principal"])
        texts.append(nodes)
        remove_acls(side, "texts", LITERAL)
        remove_acls(side, "te", PREFIXED)
    assert texts[0] == texts[1]


def test_scram_users(both: Both, writer: Side, reader: Side) -> None:
    """A user whom one makes logs in at the other, until he is removed; quotas beside him stay."""
    both.make_controller([writer.number])
    user, password, salt = f"user-{writer.number}", "s3cret", b"salt-of-the-tests"
    upsertions = [
        {
            "name": user,
            "mechanism": number,
            "iterations": 4096,
            "salt": salt,
            "salted_password": hashlib.pbkdf2_hmac(digest, password.encode(), salt, 4096),
        }
        for number, digest in ((1, "sha256"), (2, "sha512"))
    ]
    assert not can_log_in(reader.clients, MECHANISMS[0], user, password)
    for upsertion in upsertions:
        answer = writer.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"upsertions": [upsertion]})
        assert [result.error_code for result in answer.results] == [0]
    for mechanism in MECHANISMS:
        for side in (reader, writer):
            both.wait(
                lambda mechanism=mechanism, side=side: can_log_in(side.clients, mechanism, user, password),
                f"{user} logs in by {mechanism}",
                WITHIN_S,
            )
        assert not can_log_in(reader.clients, mechanism, user, "another")
    alter_quota(reader, user, "consumer_byte_rate", 5e6)
    deletions = [{"name": user, "mechanism": 1}]
    answer = writer.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": deletions})
    assert [result.error_code for result in answer.results] == [0]
    both.wait(lambda: not can_log_in(reader.clients, MECHANISMS[0], user, password), "one is taken away", WITHIN_S)
    assert can_log_in(reader.clients, MECHANISMS[1], user, password)
    described = reader.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": user}]})
    assert [(each.mechanism, each.iterations) for each in described.results[0].credential_infos] == [(2, 4096)]
    both.wait(lambda: quotas(writer, user) == quotas(reader, user) == {"consumer_byte_rate": 5e6}, "a quota", WITHIN_S)


def alter_quota(side: Side, user: str, key: str, value: float | None) -> None:
    op = {"key": key, "value": value or 0.0, "remove": value is None}
    entry = {"entity": [{"entity_type": "user", "entity_name": user}], "ops": [op]}
    answer = side.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry]})
    assert [each.error_code for each in answer.entries] == [0]


def quotas(side: Side, user: str) -> dict[str, float]:
    component = {"entity_type": "user", "match_type": 0, "match": user}
    answer = side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [component], "strict": True})
    return {each.key: each.value for entry in answer.entries for each in entry.values}


def throttled_ms(side: Side, user: str, topic: str) -> int:
    """How long a producer of 20 kB is to wait, who writes to this broker; -1 if it does not lead (yet)."""
    record = Record(0, 1_750_000_000_000, None, b"x" * 20_000)
    partition = {"index": 0, "records": build_batch([record])}
    values = {"acks": 1, "timeout_ms": 10_000, "topic_data": [{"name": topic, "partition_data": [partition]}]}
    answer = side.ask(ApiKey.PRODUCE, 9, values, user)
    error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
    if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return -1
    assert error is ErrorCode.NONE, answer
    return int(answer.throttle_time_ms)


def test_quotas(both: Both, writer: Side, reader: Side) -> None:
    """A rate that one sets holds a producer back at the other, until it is removed there."""
    topic = f"quotas-{writer.number}"
    both.create_topic(topic, replicas=[[reader.number]])
    add_acls(writer, acl(topic, LITERAL, "User:alice", WRITE))
    both.wait(lambda: reader.sees("alice", topic), "alice may write", WITHIN_S)
    told = -1

    def is_served() -> bool:
        nonlocal told
        told = throttled_ms(reader, "alice", topic)
        return told >= 0

    both.wait(is_served, "the topic is served", WITHIN_S)
    assert told == 0
    alter_quota(writer, "alice", "producer_byte_rate", 1000.0)
    both.wait(lambda: throttled_ms(reader, "alice", topic) > 0, "alice is held back", WITHIN_S)
    both.wait(
        lambda: quotas(reader, "alice") == quotas(writer, "alice") == {"producer_byte_rate": 1000.0},
        "both know the rate",
        WITHIN_S,
    )
    alter_quota(reader, "alice", "producer_byte_rate", None)
    both.wait(lambda: quotas(writer, "alice") == {}, "the limit is gone", WITHIN_S)
    both.wait(lambda: throttled_ms(reader, "alice", topic) == 0, "alice is not held back", WITHIN_S)


def create_token(side: Side, user: str, *renewers: str, lifetime_ms: int = -1) -> Any:
    people = [{"principal_type": "User", "principal_name": name} for name in renewers]
    answer = side.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, {"renewers": people, "max_lifetime_ms": lifetime_ms}, user)
    assert answer.error_code == 0
    return answer


def tokens(side: Side, user: str) -> dict[str, tuple[bytes, int]]:
    """Secrets and ends of the tokens that a user sees, by id."""
    answer = side.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None}, user)
    assert answer.error_code == 0
    return {each.token_id: (bytes(each.hmac), each.expiry_timestamp) for each in answer.tokens}


def bears(side: Side, token: Any, mechanism: str) -> bool:
    """Whether one logs in with a token."""
    secret = base64.b64encode(token.hmac).decode()
    return can_log_in(side.clients, mechanism, token.token_id, secret, by_token=True)


def test_delegation_tokens(both: Both, writer: Side, reader: Side) -> None:
    """A token that one makes is good at the other, which renews it, and ends it for both."""
    made = create_token(writer, "bob", "alice")
    expected = {made.token_id: (bytes(made.hmac), made.expiry_timestamp_ms)}
    both.wait(lambda: tokens(reader, "bob") == expected, "the other one knows the token", WITHIN_S)
    both.wait(lambda: tokens(writer, "bob") == tokens(reader, "alice") == expected, "both know it", WITHIN_S)
    for side in (writer, reader):
        assert all(bears(side, made, mechanism) for mechanism in MECHANISMS)
    renewal = {"hmac": made.hmac, "renew_period_ms": EXPIRY_MS // 2}
    denied = reader.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, renewal, "carol")
    assert ErrorCode(denied.error_code) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    renewed = reader.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, renewal, "alice")
    assert renewed.error_code == 0
    assert renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
    expected = {made.token_id: (bytes(made.hmac), renewed.expiry_timestamp_ms)}
    both.wait(lambda: tokens(writer, "bob") == expected, "the first one knows its new end", WITHIN_S)
    ending = {"hmac": made.hmac, "expiry_time_period_ms": -1}
    assert reader.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ending, "bob").error_code == 0
    both.wait(lambda: tokens(writer, "bob") == {}, "the first one forgets it", WITHIN_S)
    for side in (writer, reader):
        assert not any(bears(side, made, mechanism) for mechanism in MECHANISMS)
    gone = writer.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, renewal, "bob")
    assert ErrorCode(gone.error_code) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert both.tree.children("/delegation_token/tokens") == []


def test_tokens_are_the_same_texts(both: Both) -> None:
    """Whoever writes them, but for ids and times."""
    texts = []
    for side in both.sides.values():
        made = create_token(side, "bob", "alice", "Ü *~")
        text = json.dumps(both.tree.json(f"/delegation_token/tokens/{made.token_id}"), sort_keys=True)
        texts.append(re.sub(r"\d{13}", "TIME", text.replace(made.token_id, "ID")))
        ending = {"hmac": made.hmac, "expiry_time_period_ms": -1}
        assert side.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ending, "bob").error_code == 0
        changes = both.tree.children("/delegation_token/token_changes")
        last = f"/delegation_token/token_changes/{changes[-1]}"
        data, _ = both.tree.ask(lambda client, last=last: client.get_async(last))
        assert data.decode() == made.token_id
    assert texts[0] == texts[1]
    assert len({len(name) for name in changes}) == 1


def test_the_controller_removes_expired_tokens(both: Both, writer: Side, reader: Side) -> None:
    """Those that the other one made, too; and the other one forgets them."""
    both.make_controller([writer.number])
    made = create_token(reader, "carol", lifetime_ms=1000)
    both.wait(lambda: both.tree.children("/delegation_token/tokens") == [], "it is removed", WITHIN_S)
    both.wait(lambda: tokens(reader, "carol") == tokens(writer, "carol") == {}, "nobody knows it", WITHIN_S)
    assert not bears(reader, made, MECHANISMS[0])


def test_no_broker_complains(both: Both) -> None:
    """After all of the above, no log holds an error that nobody can explain."""
    for node in both.nodes.values():
        assert unexplained(node.log_text()) == [], node
