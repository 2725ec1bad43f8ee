"""Who may do what: the rules one by one, and random entries against the definition read literally."""

from __future__ import annotations

import os
import random
import timeit

import pytest

from barnabas.server.security.acls import authorizer as module
from barnabas.server.security.acls.authorizer import Authorizer
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.acls.operations import ALL_BITS, OPERATIONS
from barnabas.server.security.principals import Principal
from barnabas.server.security.session import Session

Op = AclOperation
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = ResourceType.TOPIC
SEEDS = int(os.environ.get("BARNABAS_ACL_SEEDS", "150"))


def session(name: str = "alice", host: str = "10.0.0.1") -> Session:
    return Session(Principal("User", name), host, "PLAINTEXT", "PLAINTEXT")


def acl(
    permission: PermissionType,
    operation: Op,
    name: str = "orders",
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AccessControlEntry(principal, host, operation, permission))


def authorizer(*bindings: AclBinding, allow_everyone: bool = False, super_users: tuple[str, ...] = ()) -> Authorizer:
    made = Authorizer([Principal.parse(text) for text in super_users], allow_everyone=allow_everyone)
    for pattern in {binding.pattern for binding in bindings}:
        made.put(pattern, [binding.entry for binding in bindings if binding.pattern == pattern])
    return made


def allowed(made: Authorizer, who: Session | None = None, name: str = "orders") -> set[Op]:
    return {op for op in OPERATIONS[TOPIC] if made.allows(who or session(), op, TOPIC, name)}


def test_without_entries_no_principal_may_do_anything() -> None:
    assert allowed(authorizer()) == set()
    assert allowed(authorizer(), name="") == set()


def test_an_entry_is_about_its_principal_host_operation_and_resource() -> None:
    made = authorizer(acl(ALLOW, Op.CREATE, host="10.0.0.1"))
    assert allowed(made) == {Op.CREATE}
    assert allowed(made, session("bob")) == set()
    assert allowed(made, session(host="10.0.0.2")) == set()
    assert allowed(made, name="orders2") == set()
    assert not made.allows(session(), Op.CREATE, ResourceType.GROUP, "orders")


def test_a_principal_is_a_type_and_a_name() -> None:
    made = authorizer(acl(ALLOW, Op.READ))
    assert not made.allows(Session(Principal("Group", "alice"), "h", "L", "SSL"), Op.READ, TOPIC, "orders")


@pytest.mark.parametrize("who", ["User:bob", "Group:ops", "User:ANONYMOUS"])
def test_the_wildcard_user_is_every_principal(who: str) -> None:
    made = authorizer(acl(ALLOW, Op.READ, principal="User:*"))
    assert made.allows(Session(Principal.parse(who), "h", "L", "SSL"), Op.READ, TOPIC, "orders")


def test_other_stars_are_names() -> None:
    made = authorizer(acl(ALLOW, Op.READ, principal="Group:*"), acl(ALLOW, Op.READ, principal="User:al*"))
    assert allowed(made) == set()


@pytest.mark.parametrize(
    ("operation", "also"),
    [
        (Op.READ, {Op.DESCRIBE}),
        (Op.WRITE, {Op.DESCRIBE}),
        (Op.DELETE, {Op.DESCRIBE}),
        (Op.ALTER, {Op.DESCRIBE}),
        (Op.ALTER_CONFIGS, {Op.DESCRIBE_CONFIGS}),
        (Op.CREATE, set()),
        (Op.DESCRIBE, set()),
        (Op.DESCRIBE_CONFIGS, set()),
        (Op.ALL, set(OPERATIONS[TOPIC])),
    ],
)
def test_what_an_allowed_operation_implies(operation: Op, also: set[Op]) -> None:
    made = authorizer(acl(ALLOW, operation))
    assert allowed(made) == ({operation} | also) & set(OPERATIONS[TOPIC])


def test_what_is_denied_implies_nothing() -> None:
    everything = set(OPERATIONS[TOPIC])
    assert allowed(authorizer(acl(ALLOW, Op.ALL), acl(DENY, Op.READ))) == everything - {Op.READ}
    assert allowed(authorizer(acl(ALLOW, Op.ALL), acl(DENY, Op.ALTER_CONFIGS))) == everything - {Op.ALTER_CONFIGS}
    assert allowed(authorizer(acl(ALLOW, Op.ALL), acl(DENY, Op.ALL))) == set()


def test_denied_describe_outweighs_what_read_implies() -> None:
    assert allowed(authorizer(acl(ALLOW, Op.READ), acl(DENY, Op.DESCRIBE))) == {Op.READ}


@pytest.mark.parametrize(
    "deny",
    [
        acl(DENY, Op.READ, "*"),
        acl(DENY, Op.READ, "ord", PREFIXED),
        acl(DENY, Op.READ, "orders", PREFIXED),
        acl(DENY, Op.ALL, principal="User:*"),
        acl(DENY, Op.READ, host="10.0.0.1"),
    ],
)
def test_a_deny_of_any_form_wins(deny: AclBinding) -> None:
    assert Op.READ not in allowed(authorizer(acl(ALLOW, Op.READ), acl(ALLOW, Op.READ, "*"), deny))


def test_a_prefix_and_the_star() -> None:
    made = authorizer(acl(ALLOW, Op.READ, "ord", PREFIXED), acl(ALLOW, Op.WRITE, "*"), acl(ALLOW, Op.CREATE, "o"))
    assert allowed(made) == {Op.READ, Op.WRITE, Op.DESCRIBE}
    assert allowed(made, name="ord") == {Op.READ, Op.WRITE, Op.DESCRIBE}
    assert allowed(made, name="or") == {Op.WRITE, Op.DESCRIBE}
    assert allowed(made, name="o") == {Op.WRITE, Op.CREATE, Op.DESCRIBE}
    assert allowed(authorizer(acl(ALLOW, Op.READ, "*", PREFIXED))) == set()  # a prefix like others


def test_super_users_may_do_everything() -> None:
    made = authorizer(acl(DENY, Op.ALL, "*", principal="User:*"), super_users=("User:CN=a,O=b", "User:alice"))
    assert made.allows(session(), Op.DELETE, TOPIC, "orders")
    assert made.allows(session("CN=a,O=b"), Op.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert made.allows_any(session(), Op.WRITE, TOPIC)
    assert made.permissions(session()).bits(TOPIC, "x") == ALL_BITS[TOPIC]
    assert allowed(made, session("bob")) == set()


def test_every_principal_is_allowed_where_there_is_no_entry() -> None:
    made = authorizer(acl(ALLOW, Op.READ, "orders", principal="User:bob"), allow_everyone=True)
    assert allowed(made, name="others") == set(OPERATIONS[TOPIC])
    assert allowed(made) == set()  # an entry for somebody else ends it
    made.put(ResourcePattern(TOPIC, "*"), [AccessControlEntry("User:bob", "*", Op.READ, ALLOW)])
    assert allowed(made, name="others") == set()


@pytest.mark.parametrize(
    ("of_entry", "of_peer"),
    [
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("FE80::1%eth0", "fe80::1%eth0"),
        ("unix", "unix"),
    ],
)
def test_hosts_are_compared_as_addresses(of_entry: str, of_peer: str) -> None:
    made = authorizer(acl(ALLOW, Op.READ, host=of_entry))
    assert made.allows(session(host=of_peer), Op.READ, TOPIC, "orders")


def test_names_of_hosts_and_networks_are_no_addresses() -> None:
    made = authorizer(acl(ALLOW, Op.READ, host="10.0.0.0/8"), acl(ALLOW, Op.READ, host="localhost"))
    assert allowed(made) == set()


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ([], False),
        ([acl(ALLOW, Op.WRITE)], True),
        ([acl(ALLOW, Op.ALL)], True),
        ([acl(ALLOW, Op.WRITE, principal="User:bob")], False),
        ([acl(ALLOW, Op.WRITE), acl(DENY, Op.WRITE)], False),
        ([acl(ALLOW, Op.WRITE), acl(DENY, Op.WRITE, "other")], True),
        ([acl(ALLOW, Op.WRITE), acl(DENY, Op.WRITE, "ord", PREFIXED)], False),
        ([acl(ALLOW, Op.WRITE), acl(DENY, Op.READ, "ord", PREFIXED)], True),
        ([acl(ALLOW, Op.WRITE), acl(DENY, Op.ALL, "orders", PREFIXED)], False),
        ([acl(ALLOW, Op.WRITE), acl(DENY, Op.WRITE, "*")], False),
        ([acl(ALLOW, Op.WRITE, "*"), acl(DENY, Op.WRITE, "*")], False),
        ([acl(ALLOW, Op.WRITE, "*"), acl(DENY, Op.WRITE, "o", PREFIXED)], True),
        ([acl(ALLOW, Op.WRITE, "ord", PREFIXED), acl(DENY, Op.WRITE, "ord")], True),
        ([acl(ALLOW, Op.WRITE, "ord", PREFIXED), acl(DENY, Op.WRITE, "ord", PREFIXED)], False),
        ([acl(ALLOW, Op.WRITE, "ord", PREFIXED), acl(DENY, Op.WRITE, "o", PREFIXED)], False),
        ([acl(ALLOW, Op.WRITE, "ord", PREFIXED), acl(DENY, Op.WRITE, "orders", PREFIXED)], True),
        ([acl(ALLOW, Op.WRITE, kind=ResourceType.GROUP)], False),
    ],
)
def test_whether_there_could_be_a_topic(bindings: list[AclBinding], expected: bool) -> None:
    assert authorizer(*bindings).allows_any(session(), Op.WRITE, TOPIC) is expected


def test_any_topic_and_implied_operations() -> None:
    assert not authorizer(acl(ALLOW, Op.READ)).allows_any(session(), Op.DESCRIBE, TOPIC)


def test_any_topic_when_every_principal_is_allowed() -> None:
    assert authorizer(allow_everyone=True).allows_any(session(), Op.WRITE, TOPIC)
    assert authorizer(acl(DENY, Op.WRITE), allow_everyone=True).allows_any(session(), Op.WRITE, TOPIC)
    assert not authorizer(acl(DENY, Op.WRITE, "*"), allow_everyone=True).allows_any(session(), Op.WRITE, TOPIC)


@pytest.mark.parametrize(
    "odd", [acl(PermissionType.UNKNOWN, Op.READ), acl(ALLOW, Op.UNKNOWN), acl(PermissionType.UNKNOWN, Op.ALL)]
)
def test_what_a_newer_broker_has_written_decides_nothing_but_is_there(odd: AclBinding) -> None:
    made = authorizer(odd, allow_everyone=True)
    assert allowed(made) == set()
    assert allowed(authorizer(odd, acl(ALLOW, Op.WRITE))) == {Op.WRITE, Op.DESCRIBE}
    assert made.index.entries(odd.pattern) == {odd.entry}


def test_a_change_of_entries_is_heard_of() -> None:
    made = authorizer(acl(ALLOW, Op.READ))
    before, version = made.permissions(session()), made.version
    assert before.version == version
    pattern = ResourcePattern(TOPIC, "orders")
    assert not made.put(pattern, made.index.entries(pattern))
    assert (made.permissions(session()), made.version) == (before, version)
    assert made.put(pattern, [])
    assert made.version != version
    assert not made.allows(session(), Op.READ, TOPIC, "orders")
    assert len(made.index) == 0


def test_made_up_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_VERDICTS", 100)
    made = authorizer(acl(ALLOW, Op.READ, "t", PREFIXED))
    for number in range(1000):
        assert made.allows(session(), Op.READ, TOPIC, f"t{number}")
        assert made.allows(session(f"u{number}"), Op.READ, TOPIC, "x" * 1000) is False
    assert len(made._permissions) <= 100
    assert sum(len(names) for one in made._permissions.values() for names in one._known) <= 100
    assert made.allows(session(), Op.READ, TOPIC, "t1")


def test_the_log_learns_what_a_verdict_rests_on() -> None:
    deny, allow = acl(DENY, Op.READ, "ord", PREFIXED), acl(ALLOW, Op.READ)
    permissions = authorizer(allow, deny).permissions(session())
    assert permissions.because(Op.READ, TOPIC, "orders") == deny.entry
    assert permissions.because(Op.DESCRIBE, TOPIC, "orders") == allow.entry
    assert permissions.because(Op.WRITE, TOPIC, "orders") is None


# -- random entries, against the definition --------------------------------------------------------------------------

NAMES = ("*", "a", "ab", "abc", "abd", "b", "ba", "orders")
PRINCIPALS = ("User:*", "User:alice", "User:bob", "Group:alice", "User:root")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
KINDS = (TOPIC, ResourceType.GROUP)
OPERATIONS_ASKED = tuple(op for op in Op if op > Op.ALL)
IMPLIES = {
    Op.DESCRIBE: {Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER},
    Op.DESCRIBE_CONFIGS: {Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS},
}


def reads(bindings: list[AclBinding], who: Session, op: Op, kind: ResourceType, name: str, everyone: bool) -> bool:
    """The definition: what speaks of the resource; then what speaks of him and the operation; deny before allow."""
    if str(who.principal) == "User:root":
        return True
    about = [
        binding.entry
        for binding in bindings
        if binding.pattern.resource_type == kind
        and (
            (binding.pattern.pattern_type == LITERAL and binding.pattern.name in (name, "*"))
            or (binding.pattern.pattern_type == PREFIXED and name[: len(binding.pattern.name)] == binding.pattern.name)
        )
    ]
    if not about:
        return everyone
    his = [e for e in about if e.principal in (str(who.principal), "User:*") and e.host in (who.host, "*")]
    if any(e.permission_type == DENY and e.operation in (op, Op.ALL) for e in his):
        return False
    return any(e.permission_type == ALLOW and e.operation in {Op.ALL, *IMPLIES.get(op, {op})} for e in his)


def reads_any(bindings: list[AclBinding], who: Session, op: Op, kind: ResourceType) -> bool:
    """The definition of "any resource", without "everyone": an allow that no deny covers."""
    if str(who.principal) == "User:root":
        return True
    his = [
        binding
        for binding in bindings
        if binding.pattern.resource_type == kind
        and binding.entry.principal in (str(who.principal), "User:*")
        and binding.entry.host in (who.host, "*")
        and binding.entry.operation in (op, Op.ALL)
    ]
    denied = [binding.pattern for binding in his if binding.entry.permission_type == DENY]

    def covers(deny: ResourcePattern, allow: ResourcePattern) -> bool:
        if deny.pattern_type == LITERAL:
            return deny.name == "*" or deny == allow
        star = allow.pattern_type == LITERAL and allow.name == "*"
        return not star and allow.name.startswith(deny.name)

    allows = [binding.pattern for binding in his if binding.entry.permission_type == ALLOW]
    return any(not any(covers(deny, allow) for deny in denied) for allow in allows)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_entries_against_the_definition(seed: int) -> None:
    chance = random.Random(seed)
    everyone = chance.random() < 0.3
    made = Authorizer([Principal("User", "root")], allow_everyone=everyone)
    bindings: list[AclBinding] = []
    whos = [
        Session(Principal.parse(principal), host, "L", "SSL")
        for principal in ("User:alice", "User:bob", "Group:alice", "User:root")
        for host in ("10.0.0.1", "10.0.0.2", "::1")
    ]
    for _ in range(6):
        for _ in range(chance.randrange(6)):
            if bindings and chance.random() < 0.3:
                bindings.remove(chance.choice(bindings))
            else:
                binding = acl(
                    chance.choice((ALLOW, ALLOW, DENY)),
                    chance.choice((Op.ALL, *OPERATIONS_ASKED)),
                    chance.choice(NAMES),
                    chance.choice((LITERAL, PREFIXED)),
                    chance.choice(PRINCIPALS),
                    chance.choice(HOSTS),
                    chance.choice(KINDS),
                )
                if binding not in bindings:
                    bindings.append(binding)
        for pattern in {one.pattern for one in bindings} | set(made.index.patterns()):
            made.put(pattern, [one.entry for one in bindings if one.pattern == pattern])
        assert sorted(made.index.bindings()) == sorted(bindings)
        for who in whos:
            permissions = made.permissions(who)
            kind = chance.choice(KINDS)
            for op in OPERATIONS_ASKED:
                name = chance.choice((*NAMES, "zz", ""))
                expected = reads(bindings, who, op, kind, name, everyone)
                assert permissions.allows(op, kind, name) is expected, (seed, who, op, kind, name, bindings)
                assert made.allows(who, op, kind, name) is expected
                if not everyone:
                    any_expected = reads_any(bindings, who, op, kind)
                    assert permissions.allows_any(op, kind) is any_expected, (seed, who, op, kind, bindings)
            name = chance.choice(NAMES)
            assert permissions.bits(kind, name) == sum(
                1 << op for op in OPERATIONS[kind] if reads(bindings, who, op, kind, name, everyone)
            ), (seed, who, kind, name, bindings)


def test_what_is_asked_again_costs_a_look_up() -> None:
    """Not the time, which depends on the machine: that the entries are not looked at again, however many."""
    made = authorizer(*(acl(ALLOW, Op.WRITE, f"p{'x' * n}", PREFIXED) for n in range(200)))
    permissions = made.permissions(session())
    assert permissions.allows(Op.WRITE, TOPIC, "pxyz")
    asked = []
    made.decide = lambda *question: asked.append(question) or 0  # type: ignore[assignment,method-assign,func-returns-value]
    assert permissions.allows(Op.WRITE, TOPIC, "pxyz")
    assert made.allows(session(), Op.READ, TOPIC, "pxyz") is False
    assert asked == []


if __name__ == "__main__":  # python -m barnabas.server.tests.security.acls.test_authorizer
    many = authorizer(*(acl(ALLOW, Op.WRITE, f"t{n}") for n in range(1000)))
    mine = many.permissions(session())
    mine.allows(Op.WRITE, TOPIC, "t7")
    seconds = timeit.timeit(lambda: mine.allows(Op.WRITE, TOPIC, "t7"), number=1_000_000)
    print(f"{seconds * 1000:.0f} ns for a verdict that is known")
