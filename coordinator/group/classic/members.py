"""Members of a classic group: who they are, what they support, and which of their requests waits.

All of it is soft state: what must survive a restart is in the stored generation
(`barnabas.coordinator.stored.StoredGroup`). Time-outs are milliseconds. Source: KIP-62 (rebalance time-out), KIP-345
(static members), KIP-394 (ids handed out before joining).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol names with the member's metadata for each, most wanted first."""


class Waiting:
    """A request that waits for its answer: the token, and the version that shapes the answer."""

    __slots__ = ("token", "version")

    def __init__(self, token: Any, version: int) -> None:
        self.token = token
        self.version = version


class Member:
    """One member. `instance_id` makes it static. `is_new`: it has not been in any generation, so its parked JoinGroup
    may expire.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.joining: Waiting | None = None
        self.syncing: Waiting | None = None

    @property
    def is_waiting(self) -> bool:
        """A member whose request is parked cannot heartbeat, so it does not expire."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for `protocol`; b"" when it does not support it (its protocols changed since the
        generation was formed).
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class Members:
    """The members of a group, in the order they joined, and the ids that were handed out but have not joined
    (`pending`).
    """

    __slots__ = ("_by_id", "_static", "_supported", "joining_count", "pending")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        self.pending: set[str] = set()
        self.joining_count = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static_id(self, instance_id: str) -> str | None:
        """The member id that `instance_id` stands for now."""
        return self._static.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: the longest any member asked for."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.joining_count == len(self._by_id) and not self.pending

    def add(self, member: Member) -> None:
        """Add a member; it must not be waiting yet. One of that id that is there already (a log may say so) goes."""
        self.remove(member.member_id)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._supported.update(_names(member.protocols))
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Take a member, or a pending id, out. What it waits for must have been answered."""
        self.pending.discard(member_id)
        member = self._by_id.pop(member_id, None)
        if member is not None:
            self._supported.subtract(_names(member.protocols))
            self._supported = +self._supported
            if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
                del self._static[member.instance_id]
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id (its process was restarted); the place in the order goes to the end."""
        del self._by_id[member.member_id]
        member.member_id = member_id
        self._by_id[member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._supported.subtract(_names(member.protocols))
        self._supported.update(_names(protocols))
        self._supported = +self._supported
        member.protocols = protocols

    def set_joining(self, member: Member, waiting: Waiting | None) -> Waiting | None:
        """Park a JoinGroup, or take it out to answer it. Returns the one that was parked before."""
        before = member.joining
        self.joining_count += (waiting is not None) - (before is not None)
        member.joining = waiting
        return before

    def any_joining(self) -> Member | None:
        """The first member that has re-joined."""
        return next((member for member in self._by_id.values() if member.joining is not None), None)

    def first(self) -> Member | None:
        return next(iter(self._by_id.values()), None)

    def supports(self, names: Protocols) -> bool:
        """Whether one of `names` is supported by every member."""
        return any(self._supported[name] == len(self._by_id) for name, _ in names)

    def choose_protocol(self) -> str:
        """The protocol of the next generation: each member votes for its first one among those that all support."""
        count = len(self._by_id)
        votes: Counter[str] = Counter()
        for member in self._by_id.values():
            votes[next(name for name, _ in member.protocols if self._supported[name] == count)] += 1
        return votes.most_common(1)[0][0]


def _names(protocols: Protocols) -> set[str]:
    """Each once: a member that names one twice supports it no more than others."""
    return {name for name, _ in protocols}
