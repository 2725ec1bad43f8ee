"""What the groups of one partition share: settings, the topics of the cluster, the timers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from barnabas.coordinator.group.config import GroupConfig, GroupSettings
from barnabas.coordinator.group.deadlines import GroupDeadlines
from barnabas.coordinator.group.topics import NO_TOPICS, Topics, group_hash, topic_hash

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.group import ClassicGroup
    from barnabas.coordinator.group.streams.config import StreamsSettings

SettingsOf = Callable[[str], GroupSettings | None]
"""The settings that a group has of its own, by its id."""


class GroupContext:
    """See the module. `config` and `topics` are replaced whole.

    `new_topics` counts the images that brought topics: topics that match a pattern are looked up again when it has
    grown. `resolving`: groups for which that is under way. `next_classic`: what a group becomes when the record that
    ends its life as one with epochs is replayed. `streams_settings`: those in force for a streams group, if they are
    served.
    """

    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines, settings_of: SettingsOf | None) -> None:
        self.config = config
        self.deadlines = deadlines
        self.topics = NO_TOPICS
        self.new_topics = 0
        self.resolving: set[str] = set()
        self.next_classic: dict[str, ClassicGroup] = {}
        self.streams_settings: Callable[[str], StreamsSettings] | None = None
        self._settings_of = settings_of
        self._hashes: dict[str, int] = {}

    def settings(self, group_id: str) -> GroupSettings:
        """In force for a group."""
        own = None if self._settings_of is None else self._settings_of(group_id)
        return self.config.settings if own is None else own

    def set_topics(self, topics: Topics, changed: Collection[str]) -> None:
        """A new image, and the names of what is different in it."""
        before = self.topics.by_name
        if any(name in topics.by_name and name not in before for name in changed):
            self.new_topics += 1
        for name in changed:
            self._hashes.pop(name, None)
        self.topics = topics

    def metadata_hash(self, names: Iterable[str]) -> int:
        """How those of the topics `names` that exist look now."""
        hashes = {}
        for name in names:
            topic = self.topics.by_name.get(name)
            if topic is not None:
                value = self._hashes.get(name)
                if value is None:
                    value = self._hashes[name] = topic_hash(topic)
                hashes[name] = value
        return group_hash(hashes)
