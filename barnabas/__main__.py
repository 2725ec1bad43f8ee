"""The command: `python -m barnabas`, or this file by its path, as `barnabas.Broker` starts it."""

import sys


def this_copy_first() -> None:
    """Let `import barnabas` find the package that this file is in.

    It goes before whatever hides it, else to the end of the path. Not simply first: if it is installed, all of
    site-packages would come before Python's own modules.
    """
    from importlib.util import find_spec
    from pathlib import Path

    package = Path(__file__).resolve().parent
    if not sys.flags.safe_path:
        del sys.path[0]  # the directory of this file
    found = find_spec("barnabas")
    if found is None or found.origin is None:
        sys.path.append(str(package.parent))
        return
    other = Path(found.origin).resolve()
    if other.parent != package:
        homes = (other.parent, other.parent.parent)
        at = next((i for i, entry in enumerate(sys.path) if Path(entry).resolve() in homes), 0)
        sys.path.insert(at, str(package.parent))


if __name__ == "__main__":
    if not __package__:
        this_copy_first()
    from barnabas import main

    main()
