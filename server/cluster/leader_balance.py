"""Leadership returns to preferred replicas periodically, while this broker is controller.

With `auto.leader.rebalance.enable`: five seconds into each term, and then every
`leader.imbalance.check.interval.seconds`; which partitions, the machine decides (`Controller.rebalance_due`). Source:
`KafkaController.scala` (core, 3.9).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.server.cluster.member import ClusterMember
from barnabas.server.config.broker import BrokerConfig

_FIRST_S = 5.0


class LeaderBalance:
    """See the module."""

    def __init__(self, member: ClusterMember, config: Callable[[], BrokerConfig]) -> None:
        self._member = member
        self._config = config

    async def run(self) -> None:
        """Rebalance until cancelled."""
        member = self._member
        term = None
        while True:
            await member.image_until(
                lambda image: member.is_active and len(image.brokers) > 1
            )  # otherwise there is nothing to balance
            config = self._config()
            wait_s = _FIRST_S
            if member.is_active and member.machine() is term:
                wait_s = float(config.get_int("leader.imbalance.check.interval.seconds"))
            elif member.is_active:
                term = member.machine()
            await trio.sleep(wait_s)
            if member.is_active and member.machine() is term and config.get_bool("auto.leader.rebalance.enable"):
                member.submit(term.rebalance_due(config.get_int("leader.imbalance.per.broker.percentage")))
