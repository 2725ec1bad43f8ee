"""A plugin for pytest: `pytest server/tests/test_x.py` collects `barnabas/server/tests/test_x.py`.

pytest names a test module after the folders that it lies in. Under the path without the link to its package, a module
would be called `server.tests.test_x`, and what other tests import as `barnabas.server.tests.test_x` were a second one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PACKAGES = ("kproto", "logdir", "coordinator", "replication", "server")


def through_the_link(argument: str, root: Path, here: Path) -> str:
    """The same file, or test, of one of the packages, by its path through `barnabas/`; other arguments unchanged."""
    path, separator, test = argument.partition("::")
    place = Path(os.path.normpath(here / path))
    if place.is_relative_to(root) and place.relative_to(root).parts[:1] in [(name,) for name in PACKAGES]:
        return f"{root / 'barnabas' / place.relative_to(root)}{separator}{test}"
    return argument


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    root, here = early_config.rootpath, early_config.invocation_params.dir
    known = early_config.known_args_namespace
    asked = known.file_or_dir or ([] if here == root else [str(here)])
    changed = {one: through_the_link(one, root, here) for one in asked}
    args[:] = [changed.get(one, one) for one in args]
    if not known.file_or_dir:
        args += [new for old, new in changed.items() if new != old]
    known.file_or_dir = [changed.get(one, one) for one in asked] if known.file_or_dir else known.file_or_dir
