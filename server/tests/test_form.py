"""The form of the code: how many modules lie in a folder, how long a file is, that no class is cut into files, and that
errors have names.

The tables name what stands against a rule today. They only shrink: take out what no longer applies.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.server.tests.test_layers import CLIENTS, PACKAGES, ROOT, short

MODULES_MAX = 25
LINES_MAX = 600

LONGER: set[str] = set()
"""Files that are longer than `LINES_MAX`."""

GENERATIONS: set[str] = set()
"""Classes that continue, in a file of their own, the class that they alone inherit from, and use its private fields:
one object in several files. What belongs together there is a state and its collaborators.
"""


def folders() -> list[Path]:
    """Every folder with modules of ours, tests too; the first one that holds none is not gone through."""
    found = {path.parent for top in (*PACKAGES, CLIENTS, "examples") for path in (ROOT / top).rglob("*.py")}
    return sorted({ROOT / "barnabas", *found})


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


def test_no_folder_is_crowded() -> None:
    wrong = [
        f"{folder.relative_to(ROOT)}: {len(modules(folder))} modules"
        for folder in folders()
        if len(modules(folder)) > MODULES_MAX
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_is_long() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for folder in folders()
        for path in folder.glob("*.py")
    }
    wrong = [f"{name}: {lines} lines" for name, lines in lengths.items() if lines > LINES_MAX and name not in LONGER]
    assert not wrong, "\n".join(wrong)


NUMBERED = re.compile(r"\bKafkaErrors?`? [1-9]")


def test_errors_have_names() -> None:
    wrong = []
    for folder in folders():
        for path in folder.glob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if NUMBERED.search(path.read_text(encoding="utf-8")):
                wrong.append(name)
    assert not wrong, "\n".join(wrong)
    for bad in ("Raises {} 3, 100", "`{}` 76"):
        assert NUMBERED.search(bad.format("KafkaError"))
    assert not NUMBERED.search("Raises KafkaError NOT_COORDINATOR")


class Class(NamedTuple):
    """`name`: module and class. `bases`: names as written, resolved by the module's imports. `fields`: private names
    that its methods set on self; `used`: those that they read, set or call.
    """

    name: str
    bases: tuple[str, ...]
    fields: frozenset[str]
    used: frozenset[str]


def classes(path: Path, root: Path = ROOT) -> list[Class]:
    """The classes at the top of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{short(node.module)}.{alias.name}"
    found = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = []
        for base in node.bases:
            written = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
            first, _, rest = written.partition(".")
            whole = names.get(first, f"{module}.{first}")
            bases.append(f"{whole}.{rest}" if rest else whole)
        fields, used = set(), set()
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Attribute) or not isinstance(inner.value, ast.Name):
                continue
            if inner.value.id == "self" and inner.attr.startswith("_") and not inner.attr.startswith("__"):
                used.add(inner.attr)
                if isinstance(inner.ctx, ast.Store):
                    fields.add(inner.attr)
        found.append(Class(f"{module}.{node.name}", tuple(bases), frozenset(fields), frozenset(used)))
    return found


def generations(known: list[Class]) -> set[str]:
    """Those that continue their base in another file of the same folder, and are the only ones to inherit from it."""
    by_name = {each.name: each for each in known}
    children = defaultdict(set)
    for each in known:
        for base in each.bases:
            children[base].add(each.name)
    found = set()
    for each in known:
        module = each.name.rpartition(".")[0]
        for name in each.bases:
            base = by_name.get(name)
            if base is None or len(children[name]) > 1:
                continue
            home = name.rpartition(".")[0]
            if home != module and home.rpartition(".")[0] == module.rpartition(".")[0] and each.used & base.fields:
                found.add(each.name)
    return found


def test_no_class_is_cut_into_files_by_inheritance() -> None:
    known = [
        each
        for top in PACKAGES
        for path in sorted((ROOT / top).rglob("*.py"))
        if "tests" not in path.parts
        for each in classes(path)
    ]
    assert not generations(known) - GENERATIONS


@pytest.mark.parametrize(
    ("other", "continues"),
    [
        ("class B(A):\n    def g(self):\n        return self._x\n", True),
        ("class B(A):\n    def g(self):\n        return self.x\n", False),
        ("class B:\n    def g(self, a: A):\n        return a._x\n", False),
        ("class B(A):\n    def g(self):\n        return self._x\nclass C(A):\n    pass\n", False),
    ],
    ids=["private", "public", "no base", "two children"],
)
def test_generations_are_found(other: str, continues: bool, tmp_path: Path) -> None:
    """The test of the test."""
    (tmp_path / "kproto").mkdir()
    (tmp_path / "kproto" / "a.py").write_text("class A:\n    def __init__(self):\n        self._x = 1\n")
    (tmp_path / "kproto" / "b.py").write_text("from barnabas.kproto.a import A\n" + other)
    known = [each for name in ("a", "b") for each in classes(tmp_path / "kproto" / f"{name}.py", tmp_path)]
    assert generations(known) == ({"kproto.b.B"} if continues else set())
