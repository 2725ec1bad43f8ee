"""All groups of one partition of `__consumer_offsets`: what the runtime holds per partition it leads.

Life: `replay` every record from the log start to the high watermark, then `loaded(now)`; operations from then on;
`unload(now)` when the partition is led elsewhere. What must be refused before (loading, not the coordinator, an
invalid group id) is the runtime's to say, for it knows.

Operations take requests as Kafka's messages or as plain values, the API version where behaviour differs by it, an
opaque token and `now`; see `barnabas.coordinator.machine`. `committed_to` is the high watermark of the partition: reads
return nothing that may still be lost.

`GroupShard` is the face of parts that share one `GroupStore`; none of them knows another:

    store.py                  the groups, and how records become groups
    membership.py             JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    consumer_membership.py    ConsumerGroupHeartbeat
    offset_operations.py      committed offsets
    removals.py               how offsets and groups end
    views.py                  what administrators are shown
    share/groups.py           share groups, if they are served (`GroupShard.shares`)
    streams/groups.py         members of streams groups, if they are served (`GroupShard.streams`)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.consumer.membership import ConsumerMembership
from barnabas.coordinator.group.context import SettingsOf
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.membership import Membership
from barnabas.coordinator.group.offset_operations import OffsetOperations
from barnabas.coordinator.group.removals import Removals
from barnabas.coordinator.group.store import GroupStore
from barnabas.coordinator.group.topics import Topics
from barnabas.coordinator.group.views import GroupViews
from barnabas.coordinator.machine import FAILED_AGAIN_S, NOTHING, Decision, Now, Result, StepFailed
from barnabas.kproto import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinator.group.share.config import ShareGroupConfig
    from barnabas.coordinator.group.share.groups import ShareGroups
    from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
    from barnabas.coordinator.group.streams.groups import StreamsGroups


class GroupShard:
    """See the module. What is hard and what is soft: `barnabas.coordinator.group.store`.

    groups: by id. store, offsets: what is asked for each request (`replay_decided`, `commit`, `fetch`) is best asked of
    these. The parts' methods are the shard's, too: of the `GroupStore` `replay`, `replay_decided`,
    `replay_end_of_transaction`; of `Membership` `join`, `sync`, `heartbeat`, `leave`; of `ConsumerMembership`
    `consumer_heartbeat`, `patterns_resolved`; of `OffsetOperations` `commit`, `commit_in_transaction`, `fetch`,
    `with_offsets`, `check_fetch`, `delete_offsets`; of `Removals` `delete_group`; of `GroupViews` `describe`,
    `consumer_describe`, `listed`, `looked_through`.

    share_config: gives the settings of share groups; None if they are not served. share_settings_of: those that one has
    of its own. shares: what is asked about share groups, None while there was none; `wanted_shares` makes it.
    streams_config, streams_settings_of, streams, `wanted_streams`: the same for streams groups.
    """

    def __init__(
        self,
        config: GroupConfig,
        settings_of: SettingsOf | None = None,
        share_config: Callable[[], ShareGroupConfig] | None = None,
        share_settings_of: SettingsOf | None = None,
        streams_config: Callable[[], StreamsGroupConfig] | None = None,
        streams_settings_of: Callable[[str], StreamsSettings | None] | None = None,
    ) -> None:
        store = self.store = GroupStore(
            config, settings_of, share_config, share_settings_of, streams_config, streams_settings_of
        )
        self.groups = store.groups
        self.wanted_shares = store.wanted_shares
        self.wanted_streams = store.wanted_streams
        self.replay = store.replay
        self.replay_decided = store.replay_decided
        self.replay_end_of_transaction = store.replay_end_of_transaction
        membership = Membership(store)
        self.join = membership.join
        self.sync = membership.sync
        self.heartbeat = membership.heartbeat
        self.leave = membership.leave
        consumers = ConsumerMembership(store)
        self.consumer_heartbeat = consumers.consumer_heartbeat
        self.patterns_resolved = consumers.patterns_resolved
        offsets = self.offsets = OffsetOperations(store)
        self.commit = offsets.commit
        self.commit_in_transaction = offsets.commit_in_transaction
        self.fetch = offsets.fetch
        self.with_offsets = offsets.with_offsets
        self.check_fetch = offsets.check_fetch
        self.delete_offsets = offsets.delete_offsets
        self._removals = Removals(store)
        self.delete_group = self._removals.delete_group
        views = GroupViews(store)
        self.describe = views.describe
        self.consumer_describe = views.consumer_describe
        self.listed = views.listed
        self.looked_through = views.looked_through

    # -- settings and topics ----------------------------------------------------------------------

    @property
    def shares(self) -> ShareGroups | None:
        return self.store.shares

    @property
    def streams(self) -> StreamsGroups | None:
        return self.store.streams

    @property
    def config(self) -> GroupConfig:
        return self.store.context.config

    def set_config(self, config: GroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self.store.set_config(config)

    def set_topics(self, topics: Topics, changed: Collection[str]) -> None:
        """Another image of the cluster, and the names of topics that came, went or look different in it."""
        self.store.set_topics(topics, changed)

    # -- life -------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Result:
        """The log was replayed: bring the stored generations to life."""
        return self.store.loaded(now)

    def unload(self, now: Now) -> Result:
        """Another broker leads the partition: all waiting members get NOT_COORDINATOR; the shard has ended."""
        return self.store.unload(now)

    def expire_offsets(self, now: Now) -> Iterator[Result]:
        """The periodic clean-up, see `Removals.expire_offsets`."""
        return self._removals.expire_offsets(now)

    def topics_deleted(self, topics: Collection[str], now: Now) -> Iterator[Result]:
        """Topics are gone from the cluster, and with them what groups committed for them."""
        return self._removals.topics_deleted(topics, now)

    # -- time -------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self.store.deadlines.next()

    def expire(self, now: Now) -> Result:
        """Do one thing that is due; call again until `deadline()` lies ahead. One at a time, as each may write and
        change what the next one finds. Raises StepFailed for one group, whose members are asked to come again.
        """
        store = self.store
        due = store.deadlines.pop(now.seconds)
        if due is None:
            return NOTHING
        group_id, what, member_id = due
        if what is Due.SHARE_HEARTBEAT:
            return self._expire_share(due, now)
        group = store.groups.get(group_id)
        if group is None:
            return NOTHING
        out = Decision()
        try:
            if what in group.dues:
                group.expire(what, member_id, now, out)
            return store.finish(group, out)
        except Exception as error:
            store.deadlines.set(due, now.seconds + FAILED_AGAIN_S)
            group.send_away(ErrorCode.NOT_COORDINATOR, out)
            raise StepFailed(due, Result(replies=out.replies)) from error

    def _expire_share(self, due: tuple[str, Due, str], now: Now) -> Result:
        if self.shares is None:
            return NOTHING
        try:
            return self.shares.expire(due[0], due[2])
        except Exception as error:
            self.store.deadlines.set(due, now.seconds + FAILED_AGAIN_S)
            raise StepFailed(due, NOTHING) from error
