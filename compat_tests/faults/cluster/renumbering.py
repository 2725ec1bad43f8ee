"""When librdkafka gives up its idempotence by itself: what its log (`debug=eos`) says of it.

Some batches of a partition are on their way to a broker that is just becoming its leader, or the first of them to the
leader of before, which has just come back and knows no topic until the controller has told it (as with Apache Kafka).
The first is refused (NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION, to be sent again), the second arrives a
moment later at a leader, and is out of order, as the first one is missing (OUT_OF_ORDER_SEQUENCE_NUMBER: any broker
must refuse it). librdkafka then bumps the epoch of the whole producer and numbers anew whatever is not acknowledged,
in *all* partitions; what a leader had appended already, and could not say because it died, is appended again under the
new epoch. So these records are there twice, by no fault of a broker.

This is told apart from a broker that forgot a producer: only if each bump has "skipped sequence numbers" as its reason,
and the batch refused before it began just where the skipped one says something is missing, or ended just before the
skipped one (several were refused then, and librdkafka names the last), is the producer excused. Batches behind the
skipped one must be refused as well: for each of them librdkafka names the skipped one before it as its reason.
"""

from __future__ import annotations

import re
from pathlib import Path

from compat_tests.faults.cluster.checker import Renumbered

_BUMP = re.compile(r"load-(\d+) DRAIN .* epoch bump for .*: (.*)$")
_SKIPPED = re.compile(
    r"load-(?P<producer>\d+) ERRSEQ .* for (?P<partition>\S+ \[\d+\]) with .*"
    r"skipped sequence numbers \((?P<id>PID\S+), base seq (?P<base>\d+) > next seq (?P<next>\d+)\) "
    r"caused by previous failed request \((?P<error>\w+), actions \S+, base seq (?P<first>\d+)\.\.(?P<last>\d+)"
)
_SENT_AGAIN = {
    "NOT_LEADER_FOR_PARTITION",
    "UNKNOWN_TOPIC_OR_PART",
    "NOT_ENOUGH_REPLICAS",
    "_TRANSPORT",
    "_TIMED_OUT",
    "REQUEST_TIMED_OUT",
}
_REASON = "skipped sequence numbers"


def renumbered(log: Path | None) -> Renumbered:
    """Read the clients' log, if there is one: which producers bumped their epoch, and whether that excuses them."""
    found = Renumbered()
    blamed: set[int] = set()
    last_skipped: dict[tuple[str, ...], int] = {}
    text = log.read_text(errors="replace") if log is not None and log.exists() else ""
    for line in text.splitlines():
        if bump := _BUMP.search(line):
            producer = int(bump[1])
            found.excused.add(producer)
            found.lines.append(line)
            if bump[2] != _REASON:
                blamed.add(producer)
        elif " ERRSEQ " in line:
            found.lines.append(line)
            skipped = _SKIPPED.search(line)
            if skipped is None:
                blamed.update(int(number) for number in re.findall(r"load-(\d+) ERRSEQ", line))
                continue
            whose = skipped.group("producer", "id", "partition")
            if _must_be_refused(skipped, last_skipped.get(whose)):
                last_skipped[whose] = int(skipped["base"])
            else:
                blamed.add(int(skipped["producer"]))
    found.excused -= blamed
    return found


def _must_be_refused(skipped: re.Match[str], skipped_before: int | None) -> bool:
    """Whether what came before the skipped batch was refused, so that no broker may append this one.

    *skipped_before*: where the batch began that was the last to be skipped, and rightly, of this partition.
    """
    base, following, first, last = (int(skipped[name]) for name in ("base", "next", "first", "last"))
    if skipped["error"] == "OUT_OF_ORDER_SEQUENCE_NUMBER":
        return first == skipped_before and last + 1 == base
    is_missing = first == following or (first > following and last + 1 == base)
    return is_missing and skipped["error"] in _SENT_AGAIN
