"""Who may import whom. The tables are the rule (ARCHITECTURE.md shows the picture); the code is read, not imported.

Imports inside functions and under TYPE_CHECKING count too: a layer that knows another's types knows the layer.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kproto", "logdir", "coordinator", "replication", "server")

# A package may use these of ours …
OURS = {
    "kproto": set(),
    "logdir": {"kproto"},
    "coordinator": {"kproto"},
    "replication": {"kproto"},
    "server": {"kproto", "logdir", "coordinator", "replication"},
    "barnabas": {"server"},
    # Runs in the user's Spark, and reads files: the one of our faces with packages of ours in it.
    "barnabas/spark.py": {"kproto", "logdir"},
}

# … through the face of the package, or these public modules of it, or rooms.
PUBLIC = {
    "kproto": {
        "allowance",
        "compiled",
        "compression",
        "crc32c",
        "errors",
        "frame",
        "messages",
        "records",
        "records_filter",
        "records_legacy",
        "records_peek",
        "records_plain",
        "records_recode",
        "records_scan",
        "records_uniform",
        "stored",
        "varint",
    },
    "logdir": {
        "compaction",
        "dirs.snapshot",
        "dirs.survey",
        "files.cleaner_checkpoint",
        "files.memory_disk",
        "offline",
    },
    "coordinator": {"group.share", "group.streams", "share", "txn"},
    "replication": {
        "messages.wire",
        "replica.fetcher",
        "replica.follower",
        "store.socket_link",
        "store.socket_server",
        "store.socket_store",
        "store.zk",
        "store.zk_settings",
        "tree.acl_nodes",
        "tree.admin_tree",
        "tree.client_nodes",
        "tree.features",
        "tree.found_topics",
        "tree.token_nodes",
        "tree.users",
    },
    "server": {
        "cli.main",
        "client.records_now",
        "control.durations",
        "network.blocking_admin",
        "network.blocking_client",
        "network.blocking_cluster",
        "runtime.signals",
        "security.client_access",
        "storage.snapshots",
    },
}

# A room is a folder of a package. It may import rooms on lower floors only; rooms of one floor do not know each other.
FLOORS: dict[str, tuple[set[str], ...]] = {
    "logdir": ({"files"}, {"segments", "compaction"}, {"logs", "offline"}, {"dirs"}),
    "replication": ({"values", "store"}, {"planning", "replica", "messages"}, {"tree"}, {"controller"}),
    "server": (
        {"settings", "runtime"},
        {"config", "httpd"},
        {"security", "telemetry"},
        {"network"},
        {"client", "partitions", "cluster"},
        {"console", "coordinators", "storage", "wire"},
        {"requests"},
        {"apis", "control", "metrics"},
        {"broker", "machine"},
        {"cli", "testing"},
        {"sim"},
    ),
}

# The suite of clients speaks TCP and knows nothing of ours, so that it can judge any broker. What may all the same …
CLIENTS = "compat_tests"
CLIENTS_OURS = {
    # What they ask is made from the schemas: a second description of the protocol would be one to keep true.
    "compat_tests/clusters/security": {"kproto"},
    "compat_tests/fuzz": {"kproto"},
    "compat_tests/subjects/access": {"kproto"},
    "compat_tests/subjects/access/probes": {"kproto"},
    "compat_tests/subjects/answers": {"kproto"},
    "compat_tests/fuzz/strangers": {"kproto"},
}

# Third-party modules, by the one file or package that may know them.
THIRD_PARTY = {
    "kproto/compiled.py": {"barnabas_native"},
    "kproto/crc32c.py": {"crc32c"},
    "kproto/codecs.py": {"cramjam"},
    "kproto/lz4/libraries.py": {"lz4"},
    "kproto/compression.py": {"backports", "compression"},  # zstd, of Python's library from 3.14 on
    "logdir/offline/arrow_fast.py": {"numpy", "pyarrow"},
    "logdir/offline/columns.py": {"numpy"},
    "logdir/offline/source.py": {"pyarrow"},
    "replication/store/store.py": {"trio"},
    "replication/store/memory.py": {"trio"},
    "replication/store/events.py": {"trio"},
    "replication/store/socket_link.py": {"trio"},
    "replication/store/socket_server.py": {"trio"},
    "replication/store/socket_store.py": {"trio"},
    "replication/store/socket_watches.py": {"trio"},
    "replication/store/zk.py": {"trio"},
    "replication/store/zk_client.py": {"kazoo"},
    "replication/store/zk_link.py": {"kazoo", "trio"},
    "replication/store/zk_watches.py": {"kazoo", "trio"},
    "server": {"trio"},
    "server/console/app.py": {"starlette"},
    "server/console/avro/decoding.py": {"fastavro"},
    "server/console/avro/worker.py": {"fastavro"},
    "server/console/front.py": {"hypercorn"},
    "server/console/serving.py": {"hypercorn"},
    "server/console/web/rendering.py": {"jinja2", "markupsafe"},
    "server/httpd/http_client.py": {"h11"},
    "server/httpd/http_server.py": {"h11"},
    "server/runtime/patterns.py": {"re2"},
    "server/security/sasl/jwks.py": {"joserfc"},
    "server/security/sasl/jwt.py": {"joserfc"},
    "server/security/tls/stores.py": {"cryptography"},
    "server/cli/dev_security.py": {"cryptography", "trustme"},
    "barnabas/pytest_plugin.py": {"pytest"},
    "barnabas/spark.py": {"pyarrow", "pyspark"},
    "barnabas/spark_options.py": {"pyspark"},
}

# Packages and rooms without IO: no clock, task, thread, socket or file; time and randomness are passed in.
WITHOUT_IO = {"kproto", "coordinator", "replication", "server/security", "server/telemetry"}
IO_MODULES = {
    "asyncio",
    "concurrent",
    "fcntl",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
# Reading our own schema texts and one variable, writing the type stubs, and the journal of the embedded store.
MAY_DO_IO = {
    "kproto/compiled.py": {"os"},
    "kproto/messages.py": {"pathlib"},
    "kproto/notation.py": {"pathlib"},
    "kproto/stubs.py": {"pathlib"},
    "replication/store/journal.py": {"os"},
    "replication/store/journal_files.py": {"os"},
    "replication/store/zk_client.py": {"select", "socket"},
    "replication/store/zk_link.py": {"threading"},
    # Keys and certificates lie in files, and Python takes them from files only.
    "server/security/tls/contexts.py": {"os", "tempfile"},
    "server/security/tls/stores.py": {"pathlib"},
}


class Import(NamedTuple):
    """`module`: of our packages' modules, the name without `barnabas.`, as the tables have it."""

    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def files(package: str) -> list[Path]:
    if package == "barnabas":
        return sorted((ROOT / package).glob("*.py"))  # not what is behind the links
    return sorted(path for path in (ROOT / package).rglob("*.py") if "tests" not in path.relative_to(ROOT).parts)


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """What a file imports: each is read once, and none when this module is only imported."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    name = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, node.lineno, short(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno} imports relatively"
            assert node.module is not None
            module = short(node.module)
            folder = ROOT / module.replace(".", "/")
            if folder.is_dir():  # `from barnabas.kproto import messages` imports the module
                for alias in node.names:
                    place = folder / alias.name
                    is_module = place.with_suffix(".py").exists() or (place / "__init__.py").exists()
                    yield Import(name, node.lineno, short(f"{module}.{alias.name}") if is_module else module)
            else:
                yield Import(name, node.lineno, module)


def short(module: str) -> str:
    """`kproto.records` for `barnabas.kproto.records`."""
    inner = module.removeprefix("barnabas.")
    return inner if inner.partition(".")[0] in PACKAGES else module


ALL = (*PACKAGES, "barnabas")


def all_of(package: str) -> Iterator[Import]:
    """What the files of a package import."""
    return (one for path in files(package) for one in imports(path))


@pytest.mark.parametrize("package", ALL)
def test_layers(package: str) -> None:
    wrong = []
    for one in all_of(package):
        top = one.module.partition(".")[0]
        if top in (*PACKAGES, "barnabas") and top != package and top not in OURS.get(one.file, OURS[package]):
            wrong.append(str(one))
    assert not wrong, "a layer above or beside:\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", ALL)
def test_other_packages_are_used_through_their_faces(package: str) -> None:
    wrong = []
    for one in all_of(package):
        top, _, rest = one.module.partition(".")
        names = rest.split(".")
        faces = {".".join(names[:n]) for n in range(1, len(names) + 1)}
        if top in PACKAGES and top != package and rest and not faces & PUBLIC[top]:
            wrong.append(str(one))
    assert not wrong, "behind the face:\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", FLOORS)
def test_floors(package: str) -> None:
    floors = {room: number for number, rooms in enumerate(FLOORS[package]) for room in rooms}
    wrong = []
    for one in all_of(package):
        top, *other = one.module.split(".")[:2]
        room = one.file.removesuffix(".py").split("/")[1]
        if top != package or not other or room in ("__init__", other[0]):
            continue
        if floors[other[0]] >= floors[room]:
            wrong.append(str(one))
    assert not wrong, "upward, or across:\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_has_a_floor(package: str) -> None:
    listed = [room for rooms in FLOORS[package] for room in rooms]
    folder = ROOT / package
    there = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(listed) == sorted(there - {"__init__", "tests"})


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules, more than one each, that all lead to each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for other in arrows.get(left.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        return seen

    behind = {name: reached(name) for name in arrows}
    found = {frozenset(other for other in behind[name] if name in behind.get(other, ())) for name in arrows}
    return sorted(sorted(circle) for circle in found if circle)


@pytest.mark.parametrize("package", [*ALL, CLIENTS])
def test_no_circles(package: str) -> None:
    """Imports for types, and inside functions, count too."""
    arrows: dict[str, set[str]] = {}
    for path in files(package):
        name = path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")
        arrows[name] = set()
        for one in imports(path):
            module = one.module
            if module.split(".")[0] == package and module != name:
                arrows[name].add(module)
    assert not circles(arrows), "\n".join(" ↔ ".join(circle) for circle in circles(arrows))


def test_circles_are_found() -> None:
    """The test of the test."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_the_suite_of_clients_knows_nothing_of_ours() -> None:
    wrong = []
    for path in files(CLIENTS):
        allowed = CLIENTS_OURS.get(path.parent.relative_to(ROOT).as_posix(), set())
        for one in imports(path):
            top = one.module.partition(".")[0]
            if top in PACKAGES and top not in allowed:
                wrong.append(str(one))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ALL)
def test_third_party(package: str) -> None:
    wrong = []
    for one in all_of(package):
        top = one.module.partition(".")[0]
        if top in PACKAGES or top in sys.stdlib_module_names or top == "__future__":
            continue
        if package == top == "barnabas":
            continue
        if top not in THIRD_PARTY.get(one.file, set()) | THIRD_PARTY.get(package, set()):
            wrong.append(str(one))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("place", sorted(WITHOUT_IO))
def test_no_clock_task_or_socket(place: str) -> None:
    package, _, room = place.partition("/")
    forbidden = IO_MODULES | {"trio"} if room else IO_MODULES  # of a whole package THIRD_PARTY says it
    looked_at = [one for one in all_of(package) if one.file.startswith(f"{place}/")]
    assert looked_at, place
    wrong = []
    for one in looked_at:
        top = one.module.partition(".")[0]
        if top in forbidden - MAY_DO_IO.get(one.file, set()):
            wrong.append(str(one))
    assert not wrong, "\n".join(wrong)


def test_the_tables_speak_of_files_that_exist() -> None:
    for name in (*THIRD_PARTY, *MAY_DO_IO, *CLIENTS_OURS):
        assert (ROOT / name).exists(), name
    for package, modules in PUBLIC.items():
        for module in modules:
            place = ROOT / package / module.replace(".", "/")
            assert place.with_suffix(".py").exists() or (place / "__init__.py").exists(), f"{package}.{module}"


# Whoever has the checkout on the path can import `server` too, and gets each module a second time: other classes, other
# state. Installed there is none of these names.
BARE = re.compile(rf"^\s*(?:from|import) +(?:{'|'.join(PACKAGES)})\b", re.MULTILINE)


def test_our_packages_are_imported_by_their_full_names() -> None:
    wrong = []
    for folder in (*PACKAGES, "barnabas", CLIENTS, "examples"):
        paths = (ROOT / folder).glob("*.py") if folder == "barnabas" else (ROOT / folder).rglob("*.py")
        for path in paths:
            found = BARE.search(path.read_text(encoding="utf-8"))
            if found is not None:
                wrong.append(f"{path.relative_to(ROOT)}: {found[0].strip()}")
    assert not wrong, "\n".join(wrong)
    assert BARE.search("import os\nfrom server import app")
    assert BARE.search("def f():\n    import kproto.messages")
    assert not BARE.search("from barnabas.server.cli import main\nimport server_of_others")


def test_nothing_is_loaded_under_two_names() -> None:
    assert not {name.partition(".")[0] for name in sys.modules} & set(PACKAGES)


def test_the_reader_finds_every_form_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the test."""
    for package in ("server", "barnabas/kproto"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "server" / "shelf.py").touch()
    (tmp_path / "server" / "runtime").mkdir()
    (tmp_path / "server" / "runtime" / "timers.py").touch()
    file = tmp_path / "kproto.py"
    file.write_text(
        "import a.b, c\nfrom d.e import f\nif 0:\n    import i, barnabas.logdir.x\n"
        "def g():\n    from barnabas.server import shelf, Broker\n    import h\n    from barnabas import kproto, main\n"
        "    from barnabas.server.runtime import timers, Timers\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    found = {one.module for one in imports(file)}
    ours = {"server.shelf", "server", "logdir.x", "kproto", "barnabas", "server.runtime.timers", "server.runtime"}
    assert found == {"a.b", "c", "d.e", "h", "i", *ours}
