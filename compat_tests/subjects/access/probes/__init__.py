"""All probes, by subject. `EARLIER`: of what Apache Kafka 4 does not serve any more."""

from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes import (
    between_brokers,
    cluster,
    configs,
    groups,
    odd,
    records,
    security,
    share_groups,
    streams_groups,
    tokens,
    topics,
    transactions,
)

PROBES: tuple[Probe, ...] = (
    *records.PROBES,
    *topics.PROBES,
    *groups.PROBES,
    *share_groups.PROBES,
    *streams_groups.PROBES,
    *transactions.PROBES,
    *configs.PROBES,
    *security.PROBES,
    *tokens.PROBES,
    *cluster.PROBES,
    *odd.PROBES,
)
EARLIER: tuple[Probe, ...] = (*records.OF_OLD_CLIENTS, *between_brokers.PROBES)
