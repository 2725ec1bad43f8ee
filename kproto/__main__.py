"""`python -m barnabas.kproto show Fetch 12` prints the generated codecs, `python -m barnabas.kproto stubs` writes the
.pyi files.
"""

import argparse
import sys

import barnabas.kproto.messages
import barnabas.kproto.stored
from barnabas.kproto.classes import Message
from barnabas.kproto.codec.compile import source


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m barnabas.kproto", description="Look at the message codecs.")
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print the generated source of a message's codecs")
    show.add_argument("name", help="Fetch, FetchRequest, OffsetCommitValue, ...")
    show.add_argument("version", type=int)
    show.add_argument("direction", nargs="?", choices=["decode", "encode"], help="only one of the two")
    commands.add_parser("stubs", help="write messages.pyi and stored.pyi")
    options = parser.parse_args(arguments)
    if options.command == "stubs":
        # Only this command writes; the generator is not loaded otherwise.
        from barnabas.kproto.stubs import TARGETS

        for path, stub in TARGETS.items():
            path.write_text(stub(), "utf-8")
            print(path)
        return 0
    classes = _classes(options.name)
    if not classes:
        print(f"no message is called {options.name}", file=sys.stderr)
        return 1
    for cls in classes:
        for direction in [options.direction] if options.direction else ["decode", "encode"]:
            try:
                text = source(cls, options.version, direction)
            except ValueError as error:
                print(error, file=sys.stderr)
                return 1
            print(f"# {cls.__name__} v{options.version} {direction}\n{text}")
    return 0


def _classes(name: str) -> list[type[Message]]:
    found = []
    for module, names in (
        (barnabas.kproto.messages, [name, f"{name}Request", f"{name}Response"]),
        (barnabas.kproto.stored, [name]),
    ):
        for candidate in names:
            cls = getattr(module, candidate, None)
            if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message:
                found.append(cls)
    return found


if __name__ == "__main__":
    sys.exit(main())
