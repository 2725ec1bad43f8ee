"""What is said of command lines that cannot be used, by the command that was called."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.server.cli import main as cli


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("topic list --wat", "topic list"),
        ("topic list a b", "topic list"),
        ("consume orders extra", "consume"),
        ("wire replay tape --to h:1 --wat", "wire replay"),
        ("health extra", "health"),
        ("dev --wat", "dev"),
        ("--wat", ""),
    ],
)
def test_the_usage_is_of_the_command_that_was_called(
    line: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"barnabas {command}".rstrip()
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split(), {})
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: {program} [")
    assert f"\n{program}: error: unrecognized arguments: " in err


def test_config_of_a_file_and_of_a_misspelt_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings"
    file.touch()
    for key in ("server.properties", str(file)):
        assert cli.main(["config", key], {}) == 2
        assert capsys.readouterr().err == f"barnabas: unknown setting: {key} (a file is named with --file {key})\n"
    assert cli.main(["config", "num.partitons"], {}) == 2
    assert capsys.readouterr().err == "barnabas: unknown setting: num.partitons (is num.partitions meant?)\n"
