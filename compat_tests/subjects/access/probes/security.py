"""ACLs, quotas and users."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import ALLOW, ANY, Kind, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import always, cluster

NOBODY = "User:nobody"


def _create(names: Names) -> Values:
    entry = {"principal": NOBODY, "host": "*", "operation": Op.READ, "permission_type": ALLOW}
    return {
        "creations": [
            {"resource_type": Kind.TOPIC, "resource_name": names.no_topic, **entry},
            {"resource_type": Kind.CLUSTER, "resource_name": "no-cluster", **entry},
        ]
    }


def _filter(names: Names) -> Values:
    """Of a user that has no ACL."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": f"User:{names.stem}",
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }


PROBES = (
    Probe("DescribeAcls", ApiKey.DESCRIBE_ACLS, _filter, (cluster(Op.DESCRIBE),)),
    Probe("CreateAcls", ApiKey.CREATE_ACLS, _create, (cluster(Op.ALTER),)),
    Probe(
        "DeleteAcls",
        ApiKey.DELETE_ACLS,
        lambda names: {"filters": [_filter(names), _filter(names)]},
        (cluster(Op.ALTER),),
    ),
    Probe(
        "DescribeClientQuotas",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        always(components=[{"entity_type": "user", "match_type": 0, "match": "nobody"}]),
        (cluster(Op.DESCRIBE_CONFIGS),),
    ),
    Probe(
        "AlterClientQuotas",
        ApiKey.ALTER_CLIENT_QUOTAS,
        always(
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            validate_only=True,
        ),
        (cluster(Op.ALTER_CONFIGS),),
    ),
    Probe(
        "DescribeUserScramCredentials",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        always(users=[{"name": "nobody"}]),
        (cluster(Op.DESCRIBE),),
    ),
    Probe(
        "AlterUserScramCredentials",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        always(deletions=[{"name": "nobody", "mechanism": 1}]),
        (cluster(Op.ALTER),),
    ),
)
