"""The feature levels in force on this broker: what the cluster finalised, kept up to date.

`load` reads them before the broker serves, `run` follows the store's node until cancelled. A level is read where it
matters, `features.level("transaction.version")`: an open transaction continues as it began, as its producer chose. A
change made through this broker is in force when `update` returns; other brokers read it from the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import BadNode, Changed, Store, StoreError
from barnabas.replication.tree import features

log = logging.getLogger("barnabas.features")


class Features:
    """See the module. clustered: other brokers share the store. metadata_level: of `metadata.version`, the only one;
    None if it has none. uses_zookeeper: then that is not finalised. changed: called when a level has changed.
    """

    def __init__(
        self,
        store: Store,
        broker_id: int,
        *,
        clustered: bool,
        metadata_level: int | None,
        uses_zookeeper: bool,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clustered = clustered
        self._metadata_level = metadata_level
        self._beside = (
            {} if metadata_level is None or uses_zookeeper else {features.METADATA_VERSION: metadata_level}
        )  # what is finalised and does not stand in the store
        self._changed = changed
        self._reading = trio.Lock()
        self._epoch = 0
        self._levels = features.FinalisedFeatures({}, 0).levels(clustered=clustered)

    @property
    def supported(self) -> Mapping[str, tuple[int, int]]:
        """First and last level that this broker supports, by feature."""
        level = self._metadata_level
        return (
            features.SUPPORTED if level is None else {**features.SUPPORTED, features.METADATA_VERSION: (level, level)}
        )

    @property
    def finalised(self) -> Mapping[str, int]:
        """Levels in force, without features that are off."""
        return {name: level for name, level in self._levels.items() if level} | self._beside

    @property
    def epoch(self) -> int:
        """The epoch of the finalised features."""
        return self._epoch

    def level(self, name: str) -> int:
        """The level of one feature; 0: off."""
        return self._levels.get(name, 0)

    async def load(self) -> None:
        """Read the levels from the store. Raises StoreError."""
        async with self._reading:  # an answer that is overtaken must not be taken for the news
            await self._load()

    async def _load(self) -> None:
        try:
            found = await features.read_finalised(self._store)
        except BadNode as error:
            log.error("%s", error)
            return
        before = self._levels
        self._epoch = found.epoch
        if found.is_enabled:
            self._levels = found.levels(clustered=self._clustered)
        else:
            self._levels = dict.fromkeys(features.SUPPORTED, 0)
        for name, level in self._levels.items():
            first, last = features.SUPPORTED.get(name, (0, 0))
            if level > last and level != before.get(name):
                log.error("feature %s is finalised at %d; this broker supports %d to %d", name, level, first, last)
        if self._levels != before:
            log.info("finalised features, epoch %d: %s", self._epoch, dict(self.finalised) or "none")
            self._changed()

    async def run(self) -> None:
        """Follow the store until cancelled."""
        async with self._store.changes([features.NODE]) as events:
            await self._load_again()
            async for event in events:
                if not isinstance(event, Changed) or features.NODE in event.paths:
                    await self._load_again()

    async def _load_again(self) -> None:
        try:
            await self.load()
        except StoreError as error:
            # The session is being re-established; the event that follows has this repeated.
            log.warning("cannot read the finalised features: %s", error)

    async def update(self, updates: Sequence[features.FeatureUpdate], *, validate_only: bool) -> None:
        """Change levels, all or none. Raises KafkaError INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED."""
        try:
            await features.update_finalised(
                self._store,
                updates,
                self._broker_id,
                clustered=self._clustered,
                validate_only=validate_only,
                metadata_level=self._metadata_level,
            )
            await self.load()
        except (StoreError, BadNode) as error:
            raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, str(error)) from error
