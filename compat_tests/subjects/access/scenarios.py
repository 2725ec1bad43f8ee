"""Who asks: the ACLs of each cell, made from what its probe needs.

`alone`: the ACLs speak of everybody, so that no other cell may be tried while they are in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from compat_tests.subjects.access.acls import (
    CLUSTER_NAME,
    DENY,
    EVERYBODY,
    OF_KIND,
    Acl,
    Kind,
    Need,
    Op,
    Pattern,
)
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe

HERE, ELSEWHERE = "127.0.0.1", "192.0.2.1"
Make = Callable[[Names], list[Acl]]


@dataclass(frozen=True)
class Scenario:
    """title: what the user may do, for people. acls(names): of one cell."""

    title: str
    acls: Make
    alone: bool = False
    is_super: bool = False


def scenarios(probe: Probe) -> list[Scenario]:
    """All of a probe, with different titles."""
    made = [*_of_needs(probe.needs), *_of_cluster(probe), *_of_probe(probe)]
    assert len({one.title for one in made}) == len(made), probe.name
    return made


def without_lists(probe: Probe) -> list[Scenario]:
    """Of a broker with `allow.everyone.if.no.acl.found`: each is alone, as one ACL ends that for its resource."""
    needs = probe.needs
    made = [Scenario("no ACL at all", _none, alone=True)]
    for each in dict.fromkeys(need.kind for need in needs):
        need = next(need for need in needs if need.kind is each)
        made.append(Scenario(f"another's ACL on {each.name}", _acls([need], principal="User:another"), alone=True))
        made.append(Scenario(f"denied on {each.name}", _acls([need], permission=DENY), alone=True))
    if needs:
        made.append(Scenario("another's ACL on all of it", _acls(needs, principal="User:another"), alone=True))
        made.append(Scenario("ACLs of their own", _acls(needs), alone=True))
        made.append(Scenario("another's ACL on *", _wildcard(needs, principal="User:another"), alone=True))
        made.append(
            Scenario("another's ACL on a prefix", _acls(needs, principal="User:another", prefixed=True), alone=True)
        )
    return made


def _none(names: Names) -> list[Acl]:
    return []


def _acls(
    needs: Sequence[Need],
    permission: int = 3,
    *,
    prefixed: bool = False,
    host: str = "*",
    principal: str | None = None,
    operation: Op | None = None,
) -> Make:
    def make(names: Names) -> list[Acl]:
        pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
        return [
            Acl(
                need.kind,
                names.prefix(need.kind) if prefixed else names.of(need.kind),
                operation or need.operation,
                permission,
                pattern,
                host,
                principal,
            )
            for need in needs
        ]

    return make


def _wildcard(needs: Sequence[Need], permission: int = 3, principal: str | None = None) -> Make:
    """On `*`; the cluster has one name only."""
    return lambda names: [
        Acl(
            need.kind,
            CLUSTER_NAME if need.kind is Kind.CLUSTER else "*",
            need.operation,
            permission,
            principal=principal,
        )
        for need in needs
    ]


def _both(*makes: Make) -> Make:
    return lambda names: [acl for make in makes for acl in make(names)]


def _of_needs(needs: Sequence[Need]) -> Iterator[Scenario]:
    yield Scenario("nothing", _none)
    yield Scenario("super user", _none, is_super=True)
    if not needs:
        return
    allowed = _acls(needs)
    yield Scenario("literal", allowed)
    for size in range(1, len(needs)):
        for some in combinations(needs, size):
            yield Scenario("only " + " + ".join(map(str, some)), _acls(some))
    yield Scenario("prefixed", _acls(needs, prefixed=True))
    yield Scenario("wildcard", _wildcard(needs))
    yield Scenario("from this host", _acls(needs, host=HERE))
    yield Scenario("from another host", _acls(needs, host=ELSEWHERE))
    yield Scenario("as another type of principal", _acls(needs, principal="Group:{user}"))
    for need in needs:
        yield Scenario(f"literal, denied {need}", _both(allowed, _acls([need], DENY)))
        for operation in (*OF_KIND[need.kind], Op.ALL):
            if operation is not need.operation:
                others = [other for other in needs if other is not need]
                instead = _acls([need], operation=operation)
                yield Scenario(f"{operation.name} instead of {need}", _both(_acls(others), instead))
    yield Scenario("literal, denied ALL", _both(allowed, _acls(needs, DENY, operation=Op.ALL)))
    yield Scenario("literal, denied by a prefix", _both(allowed, _acls(needs, DENY, prefixed=True)))
    yield Scenario("literal, denied by *", _both(allowed, _wildcard(needs, DENY)))
    yield Scenario("prefixed, denied literally", _both(_acls(needs, prefixed=True), _acls(needs, DENY)))
    yield Scenario("wildcard, denied literally", _both(_wildcard(needs), _acls(needs, DENY)))
    yield Scenario("literal, denied from this host", _both(allowed, _acls(needs, DENY, host=HERE)))
    yield Scenario("literal, denied from another host", _both(allowed, _acls(needs, DENY, host=ELSEWHERE)))
    yield Scenario("literal, another user denied", _both(allowed, _acls(needs, DENY, principal="User:another")))
    yield Scenario("User:* allowed", _acls(needs, principal=EVERYBODY), alone=True)
    yield Scenario("User:* allowed on *", _wildcard(needs, principal=EVERYBODY), alone=True)
    yield Scenario("literal, User:* denied", _both(allowed, _acls(needs, DENY, principal=EVERYBODY)), alone=True)


def _of_cluster(probe: Probe) -> Iterator[Scenario]:
    """What an operation on the cluster alone is good for, where one is not needed anyway."""
    if any(need.kind is Kind.CLUSTER for need in probe.needs):
        return
    for operation in (*OF_KIND[Kind.CLUSTER], Op.ALL):
        need = Need(operation, Kind.CLUSTER)
        yield Scenario(f"only {need}", _acls([need]))


def _of_probe(probe: Probe) -> Iterator[Scenario]:
    for title, acls in probe.also.items():
        yield Scenario(title, acls)
