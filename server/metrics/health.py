"""Whether a broker is ready: what load balancers, Kubernetes and people ask.

*Alive* is a broker whose loop answers at all. *Ready* is one that clients can work with: its log directories are
loaded, its listeners open, in a cluster it is registered and knows the cluster, and the coordinators of the partitions
that it leads have read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources


def obstacles(sources: Sources) -> Iterator[str]:
    """Why a broker that was built is not ready; nothing: it is."""
    services = sources.services
    if not sources.reactor.is_accepting:
        yield "the listeners are not open"
    if sources.config.is_clustered:
        if sources.config.broker_id not in services.image.brokers:
            yield "the broker is not registered in its cluster"
        elif not services.cluster.has_image:
            yield "no controller has sent an image of the cluster yet"
    if not services.partitions.log_dirs.online:
        yield "no log directory works"
    for name, shards in (
        ("groups", services.groups.runtime.shards),
        ("transactions", services.transactions.runtime.shards),
        ("share partitions", services.share_states.runtime.shards),
    ):
        loading = sum(not led.is_active for led in shards.values())
        if loading:
            yield f"the coordinator of {name} is reading {loading} of {len(shards)} partitions"
