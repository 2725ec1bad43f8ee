"""All probes, by subject."""

from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes import cluster, configs, groups, records, security, topics, transactions

PROBES: tuple[Probe, ...] = (
    *records.PROBES,
    *topics.PROBES,
    *groups.PROBES,
    *transactions.PROBES,
    *configs.PROBES,
    *security.PROBES,
    *cluster.PROBES,
)
