"""What program this is."""

from __future__ import annotations


def version() -> str:
    """The installed version; `(not installed)` in a source tree that is not."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("barnabas")
    except PackageNotFoundError:
        return "(not installed)"
