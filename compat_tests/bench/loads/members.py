"""Many librdkafka consumers of one group in one process: how long until each has its share, and stays with it.

    python -m compat_tests.bench.loads.members BOOTSTRAP TOPIC PARTITIONS MEMBERS KIND GROUP QUIET_S

One line of JSON: seconds from the first subscription to the last change of an assignment (`stable_s`), then from the
moment one member leaves to the last change (`left_s`). Stable is: every partition has one owner, every member as many
as any other or one more, and for QUIET_S nothing changes: for a measurement longer than two heartbeats of the classic
protocol (3 s), and than one of the other (5 s). Kinds: eager, cooperative, consumer (KIP-848). One thread polls all;
heartbeats and the rest are librdkafka's threads and defaults, as long as a poll of all members takes milliseconds.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import confluent_kafka as ck

TIMEOUT_S = 240.0
KINDS: dict[str, dict[str, str]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Member:
    """A consumer and what it owns."""

    def __init__(self, group: Group, configuration: dict[str, str]) -> None:
        self.owned: set[int] = set()
        self._group = group
        self.consumer = ck.Consumer(configuration)

    def subscribe(self) -> None:
        """Join."""
        self.consumer.subscribe(
            [self._group.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        self.owned |= {one.partition for one in partitions}
        self._group.changed()

    def _revoked(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        self.owned -= {one.partition for one in partitions}
        self._group.changed()


class Group:
    """All members."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, members: int, kind: str, group: str, quiet_s: float
    ) -> None:
        self.topic = topic
        self._quiet_s = quiet_s
        self._partitions = partitions
        self._changed_at = 0.0
        self.changes = 0
        configuration = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            **KINDS[kind],
        }
        self.members = [Member(self, configuration) for _ in range(members)]

    def changed(self) -> None:
        """Some assignment did."""
        self._changed_at = time.perf_counter()
        self.changes += 1

    def _is_whole(self) -> bool:
        sizes = [len(member.owned) for member in self.members]
        if sum(sizes) != self._partitions or max(sizes) - min(sizes) > 1:
            return False
        return len(set().union(*(member.owned for member in self.members))) == self._partitions

    def until_stable(self, since: float) -> float:
        """Poll until it is; the seconds from *since* to the last change."""
        while True:
            for member in self.members:
                message = member.consumer.poll(0)
                if message is not None and message.error() is not None and message.error().fatal():
                    raise SystemExit(str(message.error()))
            now = time.perf_counter()
            if self._changed_at > since and now - self._changed_at > self._quiet_s and self._is_whole():
                return self._changed_at - since
            if now - since > TIMEOUT_S:
                sizes = [len(member.owned) for member in self.members]
                raise SystemExit(f"not stable after {TIMEOUT_S} s: {sum(sizes)} partitions, shares {sorted(sizes)}")
            time.sleep(0.002)


def main(
    bootstrap: str, topic: str, partitions: str, members: str, kind: str, name: str, quiet_s: str
) -> dict[str, float]:
    """All join at once; then one leaves."""
    group = Group(bootstrap, topic, int(partitions), int(members), kind, name, float(quiet_s))
    begun = time.perf_counter()
    for member in group.members:
        member.subscribe()
    stable = group.until_stable(begun)
    changes = group.changes
    one = group.members.pop(len(group.members) // 2)
    begun = time.perf_counter()
    one.consumer.close()
    left = group.until_stable(begun)
    for member in group.members:
        # Else each would wait for the rebalance that the one before causes.
        member.consumer.unsubscribe()
    return {"stable_s": stable, "left_s": left, "assignments": changes}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
