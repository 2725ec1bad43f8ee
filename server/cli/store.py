"""`barnabas store`: the metadata store of brokers on one machine, as this process."""

from __future__ import annotations

import argparse

from barnabas.server.cli.common import Refused, complain, say, set_up_log


def run(chosen: argparse.Namespace) -> int:
    """The exit code."""
    try:
        set_up_log(chosen)
    except Refused as error:
        return complain(error.lines)
    from barnabas.server.machine import store_process
    from barnabas.server.machine.store_process import StoreOptions

    options = StoreOptions(chosen.directory, chosen.socket, chosen.end_sessions, chosen.exit_with_parent)
    return store_process.run(options, lambda: say(store_process.READY) if chosen.announce else None)
