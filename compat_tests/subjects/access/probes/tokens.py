"""Delegation tokens. Those of the cells are somebody else's than whose asks."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Acl, Kind, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import always, token, user
from compat_tests.subjects.access.world import World


def _tokens(world: World, names: Names) -> None:
    world.make_tokens(names)


def _all_of_it(names: Names) -> list[Acl]:
    return [
        Acl(Kind.DELEGATION_TOKEN, names.token.token_id, Op.ALL),
        Acl(Kind.USER, f"User:{names.owner}", Op.ALL),
    ]


def _of_owner(names: Names) -> list[Acl]:
    return [Acl(Kind.USER, f"User:{names.owner}", Op.DESCRIBE_TOKENS)]


def _owners(names: Names) -> Values:
    asked = [names.owner, f"other-{names.owner}"]
    return {"owners": [{"principal_type": "User", "principal_name": name} for name in asked]}


PROBES = (
    Probe("CreateDelegationToken", ApiKey.CREATE_DELEGATION_TOKEN, always(max_lifetime_ms=-1)),
    Probe(
        "CreateDelegationToken for another",
        ApiKey.CREATE_DELEGATION_TOKEN,
        lambda names: {
            "owner_principal_type": "User",
            "owner_principal_name": names.owner,
            "max_lifetime_ms": -1,
        },
        (user(Op.CREATE_TOKENS),),
        versions=(3, 99),
    ),
    Probe(
        "RenewDelegationToken of another",
        ApiKey.RENEW_DELEGATION_TOKEN,
        lambda names: {"hmac": names.token.hmac, "renew_period_ms": -1},
        prepare=_tokens,
        also={"ALL on the token and its owner": _all_of_it},
    ),
    Probe(
        "ExpireDelegationToken of another",
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        lambda names: {"hmac": names.token.hmac, "expiry_time_period_ms": -1},
        prepare=_tokens,
        also={"ALL on the token and its owner": _all_of_it},
    ),
    Probe(
        "DescribeDelegationToken",
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        _owners,
        (token(Op.DESCRIBE),),
        prepare=_tokens,
        also={"DESCRIBE_TOKENS on the owner": _of_owner},
    ),
    Probe(
        "DescribeDelegationToken of all",
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        always(owners=None),
        (token(Op.DESCRIBE),),
        prepare=_tokens,
        also={"DESCRIBE_TOKENS on the owner": _of_owner},
        of_others=False,
    ),
)
