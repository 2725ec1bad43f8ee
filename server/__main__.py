"""`python -P -m server`: the command line from a checkout."""

from server import signals

signals.leave_at_once()

from server.cli import run  # noqa: E402  # which takes a while

run()
