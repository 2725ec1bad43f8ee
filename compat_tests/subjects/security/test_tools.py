"""Apache Kafka's tools for security, unchanged: kafka-acls, kafka-configs on users, quotas and certificates,
kafka-delegation-tokens. What they change is in force, as clients see it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.test_topics import CLIENT
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.subjects.security.guarded import EXPIRY_MS, LIFETIME_MS, Guarded

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]
IN_FORCE_WITHIN_S = 120


def case(title: str) -> pytest.MarkDecorator:
    return pytest.mark.case("command-line tools: security", title, CLIENT)


@pytest.fixture
def tools(guarded: Guarded, warm_jvms: WarmJvms) -> Tools:
    """For whoever may do everything."""
    return Tools(guarded.plaintext, warm_jvms)


@pytest.fixture
def theirs(guarded: Guarded, warm_jvms: WarmJvms) -> Tools:
    """For whoever logs in."""
    return Tools(guarded.clients, warm_jvms)


@pytest.fixture
def name(tools: Tools, unique: Names) -> str:
    """A topic of one partition."""
    made = unique()
    tools("kafka-topics", "--create", "--topic", made, "--partitions", "1", "--replication-factor", "1")
    return made


def until(what: Callable[[], bool]) -> None:
    """Under KRaft a change is in force a moment after its answer."""
    deadline = time.monotonic() + IN_FORCE_WITHIN_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def writes(theirs: Tools, topic: str, login: str) -> bool:
    """Whether somebody can write a record."""
    limits = ("--command-property", "max.block.ms=60000", "--command-property", "delivery.timeout.ms=60000")
    limits += ("--command-property", "request.timeout.ms=30000", "--command-property", "linger.ms=0")
    words = ("kafka-console-producer", "--topic", topic, "--command-config", login, *limits)
    said = theirs(*words, text="one\n", expect=None)
    return "Exception" not in said and "ERROR" not in said


def reads(theirs: Tools, topic: str, group: str, login: str) -> bool:
    """Whether somebody can read a record as a member of a group."""
    words = ("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    said = theirs(*words, "--timeout-ms", "60000", "--command-config", login, expect=None)
    return "Processed a total of 1 messages" in said


def acls(text: str) -> set[tuple[str, str, str, str, str]]:
    """What kafka-acls --list says: type, pattern, name, principal, operation; all are ALLOW from everywhere."""
    found = set()
    kind = pattern = name = ""
    for line in text.splitlines():
        head = re.search(r"resourceType=(\w+), name=(\S+), patternType=(\w+)", line)
        if head is not None:
            kind, name, pattern = head.groups()
        entry = re.search(r"\(principal=(\S+), host=\*, operation=(\w+), permissionType=ALLOW\)", line)
        if entry is not None:
            found.add((kind, pattern, name, *entry.groups()))
    return found


@case("kafka-acls: add, list, remove; what is allowed is possible, and no more")
def test_acls(guarded: Guarded, tools: Tools, theirs: Tools, name: str) -> None:
    alice, bob = guarded.login("alice"), guarded.login("bob")
    assert not writes(theirs, name, alice)
    allow = ("--allow-principal", "User:alice", "--operation", "Write", "--operation", "Describe", "--topic", name)
    tools("kafka-acls", "--add", *allow)
    expected = {("TOPIC", "LITERAL", name, "User:alice", operation) for operation in ("WRITE", "DESCRIBE")}
    until(lambda: acls(tools("kafka-acls", "--list", "--topic", name)) == expected)
    assert acls(tools("kafka-acls", "--list", "--principal", "User:alice", "--topic", name)) == expected
    assert acls(tools("kafka-acls", "--list", "--principal", "User:bob", "--topic", name)) == set()
    until(lambda: writes(theirs, name, alice))
    assert not writes(theirs, name, bob)
    denied = theirs("kafka-acls", "--list", "--command-config", alice, expect=None)
    assert "ClusterAuthorizationException" in denied
    deny = ("--deny-principal", "User:alice", "--deny-host", "127.0.0.1", "--operation", "Write", "--topic", name)
    tools("kafka-acls", "--add", *deny)
    until(lambda: "permissionType=DENY" in tools("kafka-acls", "--list", "--topic", name))
    assert not writes(theirs, name, alice)
    tools("kafka-acls", "--remove", "--force", *deny)
    tools("kafka-acls", "--remove", "--force", *allow)
    until(lambda: acls(tools("kafka-acls", "--list", "--topic", name)) == set())
    assert not writes(theirs, name, alice)


@case("kafka-acls: --resource-pattern-type prefixed, match, any")
def test_prefixed_acls(guarded: Guarded, tools: Tools, theirs: Tools, name: str) -> None:
    stem = name[:-3]
    about = ("--topic", stem, "--resource-pattern-type", "prefixed")
    tools("kafka-acls", "--add", "--allow-principal", "User:bob", "--operation", "Write", *about)
    expected = {("TOPIC", "PREFIXED", stem, "User:bob", "WRITE")}
    until(lambda: acls(tools("kafka-acls", "--list", *about)) == expected)
    assert acls(tools("kafka-acls", "--list", "--topic", stem)) == set()  # literal
    assert acls(tools("kafka-acls", "--list", "--topic", stem, "--resource-pattern-type", "any")) == expected
    assert expected <= acls(tools("kafka-acls", "--list", "--topic", name, "--resource-pattern-type", "match"))
    until(lambda: writes(theirs, name, guarded.login("bob")))
    tools("kafka-acls", "--remove", "--force", *about)
    until(lambda: acls(tools("kafka-acls", "--list", *about)) == set())


@case("kafka-acls: --producer, --consumer, with a transactional id and a group")
def test_acls_for_clients(guarded: Guarded, tools: Tools, theirs: Tools, name: str) -> None:
    group = f"{name}-group"
    tools(
        *("kafka-acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", name),
        *("--transactional-id", f"{name}-id"),
    )
    consumer = ("--allow-principal", "User:bob", "--consumer", "--topic", name, "--group", group)
    tools("kafka-acls", "--add", *consumer)
    expected = {
        *(("TOPIC", "LITERAL", name, "User:alice", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")),
        *(("TOPIC", "LITERAL", name, "User:bob", operation) for operation in ("READ", "DESCRIBE")),
        *(
            ("TRANSACTIONAL_ID", "LITERAL", f"{name}-id", "User:alice", operation)
            for operation in ("WRITE", "DESCRIBE")
        ),
        ("GROUP", "LITERAL", group, "User:bob", "READ"),
    }

    def listed() -> set[tuple[str, str, str, str, str]]:
        return {one for one in acls(tools("kafka-acls", "--list")) if name in one[2]}

    until(lambda: listed() == expected)
    until(lambda: writes(theirs, name, guarded.login("alice")))
    until(lambda: reads(theirs, name, group, guarded.login("bob")))
    assert not reads(theirs, name, f"{group}-2", guarded.login("bob"))
    assert not reads(theirs, name, group, guarded.login("alice"))
    tools("kafka-acls", "--remove", "--force", *consumer)
    until(lambda: {one[3] for one in listed()} == {"User:alice"})


@case("kafka-configs: a user's SCRAM credentials, made and taken away")
def test_scram_users(guarded: Guarded, tools: Tools, theirs: Tools, name: str, unique: Names) -> None:
    user = unique("user")
    tools("kafka-acls", "--add", "--allow-principal", f"User:{user}", "--operation", "All", "--topic", name)
    entity = ("--entity-type", "users", "--entity-name", user)
    tools("kafka-configs", *entity, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=s3cret]")
    login = guarded.login(user, "s3cret", "SCRAM-SHA-512")
    until(lambda: "SCRAM-SHA-512=iterations=8192" in tools("kafka-configs", *entity, "--describe"))
    until(lambda: writes(theirs, name, login))
    assert not writes(theirs, name, guarded.login(user, "another", "SCRAM-SHA-256"))
    tools("kafka-configs", *entity, "--alter", "--delete-config", "SCRAM-SHA-512")
    until(lambda: not writes(theirs, name, login))
    until(lambda: "SCRAM-SHA-512" not in tools("kafka-configs", *entity, "--describe"))


ENTITIES = {
    "a user": (("--entity-type", "users", "--entity-name", "NAME"), "user-principal 'NAME'"),
    "a client": (("--entity-type", "clients", "--entity-name", "NAME"), "client-id 'NAME'"),
    "all users": (("--entity-type", "users", "--entity-default"), "the default user-principal"),
    "all clients": (("--entity-type", "clients", "--entity-default"), "the default client-id"),
    "a user's client": (
        ("--entity-type", "users", "--entity-name", "NAME", "--entity-type", "clients", "--entity-name", "NAME"),
        "user-principal 'NAME', client-id 'NAME'",
    ),
    "a user's clients": (
        ("--entity-type", "users", "--entity-name", "NAME", "--entity-type", "clients", "--entity-default"),
        "user-principal 'NAME', the default client-id",
    ),
}


@case("kafka-configs: quotas of users, clients, both, and defaults")
@pytest.mark.parametrize("whose", ENTITIES)
def test_quotas(tools: Tools, unique: Names, whose: str) -> None:
    name = unique()
    words, shown = ENTITIES[whose]
    entity = [word.replace("NAME", name) for word in words]
    rates = "producer_byte_rate=1000000000,consumer_byte_rate=2000000000,request_percentage=150.5"
    tools("kafka-configs", *entity, "--alter", "--add-config", rates)

    def described() -> set[str]:
        found = re.search(
            f"Quota configs for {re.escape(shown.replace('NAME', name))} are (.*)",
            tools("kafka-configs", *entity, "--describe"),
        )
        return set() if found is None else set(found[1].split(", "))

    expected = {"producer_byte_rate=1.0E9", "consumer_byte_rate=2.0E9", "request_percentage=150.5"}
    until(lambda: described() == expected)
    tools("kafka-configs", *entity, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    until(lambda: described() == {"consumer_byte_rate=2.0E9"})
    tools("kafka-configs", *entity, "--alter", "--delete-config", "consumer_byte_rate")
    until(lambda: described() == set())
    refused = tools("kafka-configs", *entity, "--alter", "--add-config", "connection_creation_rate=5", expect=1)
    assert "connection_creation_rate" in refused


@case("kafka-configs: how fast an address may connect")
def test_quotas_of_addresses(tools: Tools) -> None:
    entity = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    tools("kafka-configs", *entity, "--alter", "--add-config", "connection_creation_rate=50")
    said = "Quota configs for ip '10.1.2.3' are connection_creation_rate=50.0"
    until(lambda: said in tools("kafka-configs", *entity, "--describe"))
    tools("kafka-configs", *entity, "--alter", "--delete-config", "connection_creation_rate")
    until(lambda: said not in tools("kafka-configs", *entity, "--describe"))


@case("kafka-configs: a new certificate for a listener")
def test_certificate(guarded: Guarded, tools: Tools) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    before = guarded.serial_number()
    guarded.new_certificate()
    assert guarded.serial_number() == before
    setting = f"listener.name.secure.ssl.keystore.location={guarded.certificate}"
    tools("kafka-configs", *entity, "--alter", "--add-config", setting)
    # Apache Kafka's three network threads get it one after the other, and take turns.
    until(lambda: all(guarded.serial_number() != before for _ in range(3)))
    until(lambda: setting in tools("kafka-configs", *entity, "--describe"))
    shown = guarded.serial_number()
    for wrong in ("/no/such/file.pem", str(guarded.stranger())):
        store = f"listener.name.secure.ssl.keystore.location={wrong}"
        refused = tools("kafka-configs", *entity, "--alter", "--add-config", store, expect=1)
        assert "InvalidRequestException" in refused
    assert guarded.serial_number() == shown
    assert setting in tools("kafka-configs", *entity, "--describe")


def row(text: str, token_id: str) -> list[str]:
    """The columns of a token in what kafka-delegation-tokens says, or none."""
    lines = [line.split() for line in text.splitlines() if line.startswith(token_id)]
    return lines[0] if lines else []


@case("kafka-delegation-tokens: create, describe, renew, expire; a log-in with one")
def test_delegation_tokens(guarded: Guarded, tools: Tools, theirs: Tools, name: str) -> None:
    alice, bob, carol = (guarded.login(user) for user in ("alice", "bob", "carol"))
    words = ("--create", "--max-life-time-period", str(LIFETIME_MS * 9), "--renewer-principal", "User:bob")
    made = theirs("kafka-delegation-tokens", "--command-config", alice, *words)
    token_id, hmac, *_ = columns = row_of_new(made)
    assert columns[2:5] == ["User:alice", "User:alice", "[User:bob]"], made

    def described(login: str, owner: str = "alice") -> list[str]:
        """Without an owner the tool asks for no token at all."""
        words = ("--describe", "--owner-principal", f"User:{owner}")
        return row(theirs("kafka-delegation-tokens", "--command-config", login, *words), token_id)

    until(lambda: described(alice) == columns)
    assert described(bob) == described(bob, "bob") == columns
    assert described(carol) == described(alice, "carol") == []
    # It is alice who logs in with it, and who may ask for no other.
    login = guarded.login(token_id, hmac, "SCRAM-SHA-512", by_token=True)
    until(lambda: not writes(theirs, name, login))
    tools("kafka-acls", "--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", name)
    until(lambda: writes(theirs, name, login))
    refused = theirs("kafka-delegation-tokens", "--command-config", login, *words, expect=1)
    assert "UnsupportedByAuthenticationException" in refused
    change = ("kafka-delegation-tokens", "--hmac", hmac, "--command-config")
    said = theirs(*change, bob, "--renew", "--renew-time-period", str(EXPIRY_MS // 2))
    assert re.search(r"Completed renew operation. New expiry date : \d{4}-\d\d-\d\dT\d\d:\d\d", said), said
    refused = theirs(*change, carol, "--renew", "--renew-time-period", "-1", expect=1)
    assert "DelegationTokenOwnerMismatchException" in refused
    said = theirs(*change, alice, "--expire", "--expiry-time-period", "0")
    assert "Completed expire operation. New expiry date" in said
    until(lambda: not writes(theirs, name, login))
    refused = theirs(*change, alice, "--renew", "--renew-time-period", "-1", expect=1)
    assert "DelegationTokenExpiredException" in refused
    theirs(*change, alice, "--expire", "--expiry-time-period", "-1")
    until(lambda: described(alice) == [])
    refused = theirs(*change, alice, "--expire", "--expiry-time-period", "-1", expect=1)
    assert "DelegationTokenNotFoundException" in refused
    login = guarded.login(token_id, hmac, "SCRAM-SHA-512", by_token=True)
    assert not writes(theirs, name, login)


@case("kafka-acls: --delegation-token, --user-principal; a token for somebody else")
def test_acls_for_tokens(guarded: Guarded, tools: Tools, theirs: Tools) -> None:
    alice, carol = guarded.login("alice"), guarded.login("carol")
    ask = ("kafka-delegation-tokens", "--command-config")
    create = ("--create", "--max-life-time-period", "-1")
    token_id, hmac, *_ = made = row_of_new(theirs(*ask, alice, *create))

    def seen_by_carol() -> list[str]:
        return row(theirs(*ask, carol, "--describe", "--owner-principal", "User:alice"), token_id)

    who = ("--allow-principal", "User:carol")
    assert seen_by_carol() == []
    on_token = (*who, "--operation", "Describe", "--delegation-token", token_id)
    tools("kafka-acls", "--add", *on_token)
    until(lambda: seen_by_carol() == made)
    tools("kafka-acls", "--remove", "--force", *on_token)
    until(lambda: seen_by_carol() == [])
    on_user = (*who, "--operation", "DescribeTokens", "--user-principal", "User:alice")
    tools("kafka-acls", "--add", *on_user)
    until(lambda: seen_by_carol() == made)
    tools("kafka-acls", "--remove", "--force", *on_user)
    until(lambda: seen_by_carol() == [])
    theirs(*ask, alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)

    for_bob = (*create, "--owner-principal", "User:bob")
    refused = theirs(*ask, carol, *for_bob, expect=1)
    assert "DelegationTokenAuthorizationException" in refused
    creating = (*who, "--operation", "CreateTokens", "--user-principal", "User:bob")
    tools("kafka-acls", "--add", *creating)
    said: list[str] = []

    def is_made() -> bool:
        said.append(theirs(*ask, carol, *for_bob, expect=None))
        return "Created delegation token" in said[-1]

    until(is_made)
    token_id, hmac, *_ = made = row_of_new(said[-1])
    assert made[2:5] == ["User:bob", "User:carol", "[]"]
    about_bobs = ("--describe", "--owner-principal", "User:bob")
    until(lambda: row(theirs(*ask, guarded.login("bob"), *about_bobs), token_id) == made)
    # Whoever had it made sees it, and may not renew it.
    assert row(theirs(*ask, carol, *about_bobs), token_id) == made
    renew = ("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "DelegationTokenOwnerMismatchException" in theirs(*ask, carol, *renew, expect=1)
    theirs(*ask, guarded.login("bob"), "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    tools("kafka-acls", "--remove", "--force", *creating)


def row_of_new(text: str) -> list[str]:
    """The columns of a token that has just been made."""
    found = re.search(r"Created delegation token with tokenId : (\S+)", text)
    assert found is not None, text
    return row(text, found[1])
