"""One scrape: all series of a broker, in turns with its other work."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.server.metrics.broker_series import (
    add_cleaner,
    add_cluster,
    add_directories,
    add_security,
)
from barnabas.server.metrics.client_series import add_pushed
from barnabas.server.metrics.group_series import GroupSeries
from barnabas.server.metrics.page import Page
from barnabas.server.metrics.partition_series import PartitionSeries
from barnabas.server.metrics.process_series import add_process
from barnabas.server.metrics.quota_series import add_quotas
from barnabas.server.metrics.request_series import add_clients, add_connections, add_requests, add_waiting
from barnabas.server.metrics.sources import Sources
from barnabas.server.metrics.topic_series import TopicSeries
from barnabas.server.runtime.turns import TURN_UNITS, Steps

_RENDERED_AT_ONCE = 40
"""Lines for a unit."""


class Scraper:
    """Makes pages, one after the other: what they keep for the next is here. now(): seconds of trio's clock."""

    def __init__(self, sources: Sources, now: Callable[[], float]) -> None:
        self._sources = sources
        self._now = now
        self._partitions = PartitionSeries()
        self._topics = TopicSeries()
        self._groups = GroupSeries()

    def page(self) -> Steps[Page]:
        """A new page."""
        sources, page = self._sources, Page()
        add_process(page, sources.counted)
        yield TURN_UNITS  # it asks the system this and that
        yield from add_cluster(page, sources)
        partitions = sorted(sources.services.partitions, key=lambda each: (each.topic, each.index))
        yield len(partitions) // 2
        yield from self._topics.add(page, sources, partitions)
        yield from self._partitions.add(page, sources, partitions)
        yield from add_requests(page, sources, self._now())
        yield from add_clients(page, sources)
        yield from add_connections(page, sources)
        add_waiting(page, sources)
        add_security(page, sources)
        yield from add_quotas(page, sources)
        add_cleaner(page, sources)
        yield from add_directories(page, sources)
        yield from self._groups.add(page, sources, sources.services.wall_ms())
        yield from add_pushed(page, sources)
        return page


def rendered(page: Page, content_type: str) -> Steps[list[bytes]]:
    """A page's text."""
    pieces: list[bytes] = []
    for piece, lines in page.render(content_type):
        pieces.append(piece)
        yield 1 + lines // _RENDERED_AT_ONCE
    return pieces
