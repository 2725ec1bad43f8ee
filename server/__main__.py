"""`python -P -m server`: the command line from a checkout."""

from server.cli import run

run()
