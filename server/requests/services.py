"""What a handler may use.

Built once in `barnabas.server.broker.build`, the only place that constructs the parts; tests use fakes.
`image` is read once at the top of a handler: one request, one image of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.kproto import ApiKey
    from barnabas.replication import Image
    from barnabas.server.cluster.acls import StoredAcls
    from barnabas.server.cluster.client_quotas import ClientQuotas
    from barnabas.server.cluster.features import Features
    from barnabas.server.cluster.member import ClusterMember
    from barnabas.server.cluster.partition_requests import PartitionRequests
    from barnabas.server.cluster.tokens import StoredTokens
    from barnabas.server.cluster.topic_requests import TopicRequests
    from barnabas.server.cluster.users import Users
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.coordinators.groups import GroupCoordinator
    from barnabas.server.coordinators.late_shares import LateShares
    from barnabas.server.coordinators.marker_writer import MarkerWriter
    from barnabas.server.coordinators.producer_ids import ProducerIds
    from barnabas.server.coordinators.share.partitions import SharePartitions
    from barnabas.server.coordinators.share_states import ShareStateCoordinator
    from barnabas.server.coordinators.transactions import TransactionCoordinator
    from barnabas.server.coordinators.verification import TxnVerification
    from barnabas.server.network.open_listeners import OpenListeners
    from barnabas.server.partitions.registry import Partitions
    from barnabas.server.requests.fetch.sessions import FetchSessions
    from barnabas.server.requests.image_cache import ImageCache
    from barnabas.server.requests.produce.held import HeldProduces
    from barnabas.server.requests.throttling import Throttle
    from barnabas.server.runtime.offload import Offload
    from barnabas.server.runtime.timers import Timers
    from barnabas.server.runtime.turns import Turns
    from barnabas.server.security.acls.authorizer import Authorizer
    from barnabas.server.telemetry.telemetry import Telemetry


class Served(Protocol):
    """An API in ApiVersions. `versions`: the first and the last."""

    @property
    def key(self) -> ApiKey: ...

    @property
    def versions(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Services:
    """`served`: the APIs of this broker, alone or in a cluster. `cluster`: this broker as a member, with the image;
    `topics`, `controller`: requests to the controller about topics and about partitions; `users`: their credentials;
    `quotas`, `throttle`: the quotas of clients, and how they are enforced. `authorizer`, `acls`: who may do what, and
    where that is stored; None without authorization. `tokens`: delegation tokens, None where they are disabled.
    `telemetry`: the metrics that clients push, None where they are not served.
    `listeners`: the open ones. `now()`: seconds of trio's clock, for timers. `wall_ms()`: milliseconds since the epoch,
    for records; it moves with trio's clock.
    """

    served: Sequence[Served]
    partitions: Partitions
    cluster: ClusterMember
    topics: TopicRequests
    controller: PartitionRequests
    users: Users
    quotas: ClientQuotas
    throttle: Throttle
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_states: ShareStateCoordinator
    shares: LateShares
    verification: TxnVerification
    markers: MarkerWriter
    features: Features
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    image_cache: ImageCache
    timers: Timers
    turns: Turns
    held: HeldProduces
    offload: Offload
    authorizer: Authorizer | None
    acls: StoredAcls | None
    tokens: StoredTokens | None
    telemetry: Telemetry | None
    listeners: OpenListeners
    now: Callable[[], float]
    wall_ms: Callable[[], int]
    current_config: Callable[[], BrokerConfig]
    current_image: Callable[[], Image]

    @property
    def share_partitions(self) -> SharePartitions:
        """Share partitions, from now on (`shares`)."""
        return self.shares.partitions()

    @property
    def config(self) -> BrokerConfig:
        """The settings in force; dynamic changes replace the whole value."""
        return self.current_config()

    @property
    def image(self) -> Image:
        """The latest image of the cluster; replaced as a whole."""
        return self.current_image()
