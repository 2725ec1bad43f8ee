"""The cluster's kinds of brokers, as for the other tests of clusters."""

from compat_tests.clusters.conftest import kinds

__all__ = ["kinds"]
