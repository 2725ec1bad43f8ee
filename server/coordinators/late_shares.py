"""Share partitions of this broker, and who asks their stores: made when the first request of a share group comes.

A broker that nobody asks for share groups does not load them: with what they need they would be a part of each start.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import trio

from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.share_states import ShareStateCoordinator
from barnabas.server.network.peers import Connect
from barnabas.server.runtime.containment import serve

if TYPE_CHECKING:
    from barnabas.server.coordinators.share.partitions import SharePartitions
    from barnabas.server.coordinators.share.persister import SharePersister


class LateShares:
    """See the module. `run` must be running for other brokers to be asked. states: the share coordinator on this
    broker. connect: to other brokers. `made`: None as long as nobody has asked.
    """

    def __init__(self, ground: CoordinatorGround, states: ShareStateCoordinator, connect: Connect) -> None:
        self._ground = ground
        self._states = states
        self._connect = connect
        self._is_made = trio.Event()
        self.made: SharePartitions | None = None

    def partitions(self) -> SharePartitions:
        """The share partitions of this broker."""
        if self.made is None:
            from barnabas.server.cluster.log_ends import LogEnds
            from barnabas.server.coordinators.share.partitions import SharePartitions
            from barnabas.server.coordinators.share.persister import SharePersister

            ground, connect = self._ground, self._connect
            persister = SharePersister(ground, self._states, connect)
            ends = LogEnds(connect, ground.current_config, ground.current_image, "share-lag")
            self.made = SharePartitions(ground, persister, self._states.runtime.results.after_write, ends)
            self._is_made.set()
        return self.made

    def persister(self) -> SharePersister:
        """Who asks share coordinators."""
        return self.partitions().persister

    async def run(self) -> None:
        """Reach stores on other brokers, until cancelled."""
        await self._is_made.wait()
        await serve(self._states.log, "reaching share coordinators", self.partitions().run)

    def connection_closed(self, owner: Hashable) -> None:
        """A connection is gone, and the sessions that it began."""
        if self.made is not None:
            self.made.connection_closed(owner)

    def level_changed(self, level: int) -> None:
        """Another `share.version` is in force. With 0 nothing is left of sessions and share partitions here."""
        if self.made is not None and level == 0:
            self.made.forget_all()
