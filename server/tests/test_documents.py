"""What the documents name exists: files, modules, names, links, settings, commands. And their lines are short."""

import importlib
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.server.cli.client.client_arguments import COMMANDS
from barnabas.server.cli.main import parser
from barnabas.server.settings import BROKER, GROUP, TOPIC

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "examples", "compat_tests")
GENERATED = {"docs/settings.md", "docs/compat-barnabas.md", "docs/compat-apache-kafka.md", "docs/access-table.md"}
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
    if str(page.relative_to(ROOT)) not in GENERATED
)
LINE_MAX = 120

# Dotted names that are no settings of brokers, topics and groups: settings of clients, and features.
OTHERS = {
    *("group.protocol", "security.protocol", "sasl.mechanism", "transaction.version", "group.version", "share.version"),
    "metadata.version",
    "streams.version",
    *("schema.registry.url", "basic.auth.user.info", "metadata.recovery.strategy"),
    *("socket.timeout.ms", "transaction.timeout.ms"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
}
# Stand for a name of the reader's choice.
CHOSEN = {"key", "the.name", "NN_name.api", "name.py", "test_name.py"}


def test_there_are_documents() -> None:
    assert {"README.md", "ARCHITECTURE.md", "docs/performance.md", "examples/README.md"} <= set(PAGES)
    assert "barnabas serve" in _commands(_text("README.md"))
    assert "barnabas log verify /data" in [
        line.partition("  ")[0] for line in _commands(_text("docs/log-directories.md"))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_short(page: str) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert [f"{page}:{number}" for number, line in enumerate(lines, 1) if len(line) > LINE_MAX] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", text):
        path, _, heading = target.partition("#")
        linked = (ROOT / page).parent / path if path else ROOT / page
        assert linked.exists(), f"{page}: {target}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {_anchor(each) for each in headings}, f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    """Paths from the root, in backticks: `server/requests/dispatch.py`, `logdir/tests`. A pattern finds something."""
    top = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    for path in re.findall(r"`([\w.*-]+/[\w./*-]*)`", (ROOT / page).read_text(encoding="utf-8")):
        if path.partition("/")[0] in top and path.rpartition("/")[2] not in CHOSEN:
            assert any(_beside(page, path)), f"{page}: {path}"


def _beside(page: str, path: str) -> Iterator[Path]:
    """What `path` names from the root, or from the folder of the page."""
    for folder in (ROOT, (ROOT / page).parent):
        yield from folder.glob(path.rstrip("/"))


@pytest.mark.parametrize("page", PAGES)
def test_files_exist(page: str) -> None:
    """Files by their name alone: `in_sync.py`."""
    names = {path.name for folder in ROOT.iterdir() if folder.is_dir() for path in _files(folder)}
    names |= {path.name for path in ROOT.iterdir()}
    for path in re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|api|rec|toml|yaml|service|txt))`", _text(page)):
        name = path.rpartition("/")[2]
        assert name in names | CHOSEN, f"{page}: {path}"


def _files(folder: Path) -> Iterator[Path]:
    if folder.name not in (".git", ".venv", ".cache", "barnabas"):
        yield from folder.rglob("*.*")
    elif folder.name == "barnabas":
        yield from folder.glob("*.*")  # the rest are links to the other folders


@pytest.mark.parametrize("page", PAGES)
def test_modules_exist(page: str) -> None:
    """`python -m compat_tests.bench` can be run."""
    for name in re.findall(r"python3? (?:-P )?-m ((?:barnabas|compat_tests)[\w.]*)", _text(page)):
        path = ROOT / name.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"{page}: {name}"


@pytest.mark.parametrize("page", PAGES)
def test_names_exist(page: str) -> None:
    """`barnabas.logdir.prepare` is a module, or something in one."""
    for name in re.findall(r"(?<![\w/-])(barnabas(?:\.[A-Za-z]\w*)+)", _text(page)):
        if (
            name == "barnabas.spark" or (ROOT / "examples" / name).exists()
        ):  # Spark's is not everywhere; `barnabas.service`
            continue
        found: object = importlib.import_module("barnabas")
        so_far = "barnabas"
        for part in name.split(".")[1:]:
            so_far += f".{part}"
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(so_far)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_settings_exist(page: str) -> None:
    text = _text(page)
    named = set(re.findall(r"--set ([a-z.]+)=", text))
    named |= {key.partition("=")[0] for key in re.findall(r"`([a-z]+(?:\.[a-z-]+)+(?:=[^`]*)?)`", text)}
    named = {key for key in named if not re.search(r"\.(py|md|txt|api|service|yaml|properties|toml)$", key)}
    others = ("barnabas.", "server.", "compat_tests.", "svc.", "ctx.", "org.apache.kafka.")
    named = {key for key in named if not key.startswith(others)}
    known = {*BROKER, *TOPIC, *GROUP, *OTHERS}
    for key in named - CHOSEN:
        assert key in known or _stands_for_many(key, known), f"{page}: {key}"
    for variable in re.findall(r"\bKAFKA_([A-Z_]+)=", text):
        if variable not in ("CREATE_TOPICS", "OPTS"):
            assert variable.lower().replace("_", ".") in BROKER, f"{page}: KAFKA_{variable}"


@pytest.mark.parametrize("page", PAGES)
def test_variables_are_read(page: str) -> None:
    """BARNABAS_… in a document is in some file of Python beside it."""
    named = set(re.findall(r"\bBARNABAS_[A-Z_]+", _text(page)))
    if named:
        folders = ("barnabas", "compat_tests", "coordinator", "kproto", "logdir", "replication", "server")
        text = "".join(path.read_text(encoding="utf-8") for each in folders for path in (ROOT / each).rglob("*.py"))
        assert {name for name in named if name not in text} == set(), page


def _stands_for_many(key: str, known: set[str]) -> bool:
    return any(name.startswith(f"{key}.") for name in known)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_commands_are_understood(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each `barnabas …` has a command and options that there are."""
    for line in _commands(_text(page)):
        words = shlex.split(line, comments=True)[1:]
        ends = [words.index(word) for word in ("|", ">", "&&") if word in words]
        words = words[: min(ends, default=len(words))]
        if words in ([], ["wire", "tap"], *([name] for name in ("log", *COMMANDS))):  # the command as such
            continue
        with suppress(SystemExit):  # of a refusal, with the reason on standard error; or of --help
            parser().parse_args(words)
        assert "error" not in capsys.readouterr().err, f"{page}: {line}"


def _commands(text: str) -> Iterator[str]:
    joined = text.replace("\\\n", " ")
    for block in re.findall(r"^```(?:sh)?\n(.*?)^```", joined, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^(?:\S*python3? -m )?(barnabas [^\n]*)$", block, re.MULTILINE)
    yield from re.findall(r"`(?:\S*python3? -m )?(barnabas [a-z][^`]*)`", joined)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")
