"""Each document with something to type has a test that types it, or a reason why there is none."""

from __future__ import annotations

from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.subjects.documents.stranger import blocks

HERE = "compat_tests/subjects/documents"
TYPED_BY = {
    "README.md": (f"{HERE}/test_readme.py", "server/tests/test_testing_document.py"),
    "docs/cluster.md": (f"{HERE}/test_cluster.py", "compat_tests/clusters/test_examples.py"),
    "docs/commands.md": ("compat_tests/subjects/commands/test_page.py",),
    "docs/console.md": (f"{HERE}/test_console.py", "compat_tests/subjects/console/test_page.py"),
    "docs/log-directories.md": (f"{HERE}/test_log_directories.py",),
    "docs/metrics.md": (f"{HERE}/test_metrics.py", "server/tests/metrics/test_document.py"),
    "docs/security.md": (f"{HERE}/test_security.py",),
    "docs/testing-time.md": ("server/tests/test_barnabas_clock.py",),
    "docs/testing.md": ("server/tests/test_testing_document.py",),
    "docs/troubleshooting.md": (f"{HERE}/test_troubleshooting.py",),
    "docs/wire.md": (f"{HERE}/test_wire.py",),
}
NOT_TYPED = {
    "docs/performance.md": "how its figures were measured: hours",
}


def test_every_page() -> None:
    pages = ["README.md", *(f"docs/{page.name}" for page in sorted((PROJECT_ROOT / "docs").glob("*.md")))]
    with_blocks = {page for page in pages if blocks(page, "sh", "python", "properties")}
    assert with_blocks <= TYPED_BY.keys() | NOT_TYPED.keys()
    assert NOT_TYPED.keys() <= with_blocks
    for page, tests in TYPED_BY.items():
        for test in tests:
            name = page.removeprefix("docs/")
            assert name in (PROJECT_ROOT / test).read_text(encoding="utf-8"), (page, test)
