"""What the broker's log says of `barnabas-native` when the broker starts: which version does its work, or what it runs
without. The choice itself is `barnabas.kproto.compiled`'s.
"""

from __future__ import annotations

import logging

from barnabas.kproto import compiled

log = logging.getLogger("barnabas.broker")


def say_which() -> None:
    """One line at INFO; at WARNING where barnabas-native is there and cannot be used."""
    version, why_not, is_trouble = compiled.CHOICE
    if version:
        log.info("barnabas-native %s does what it has compiled functions for", version)
    else:
        log.log(
            logging.WARNING if is_trouble else logging.INFO,
            "barnabas-native is not used (%s): %s take Python's time; docs/native.md",
            why_not,
            "checks of records that differ in size, and compaction,",
        )
