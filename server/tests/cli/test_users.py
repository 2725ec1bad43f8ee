"""`barnabas users`: from the command line to a broker that knows the user; what is refused, and that no password is
said.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from barnabas.server.cli import main as cli
from barnabas.server.security.sasl.scram_arguments import parse_user
from barnabas.server.security.sasl.scram_credentials import ScramMechanism, make_credential
from barnabas.server.testing import embedded_broker

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def call(directory: Path, *arguments: str) -> int:
    return cli.main(["users", *arguments, "--set", f"log.dirs={directory}", "--no-env"], {})


def added(text: str) -> tuple[str, ...]:
    return ("add", "--scram", text)


def test_added_listed_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, *added("SCRAM-SHA-256=[name=alice,password=secret]")) == 0
    assert capsys.readouterr().out == f"alice: SCRAM-SHA-256 with 4096 iterations, in {tmp_path}\n"
    assert call(tmp_path, *added("SCRAM-SHA-512=[name=alice,iterations=8192,password=secret]")) == 0
    assert call(tmp_path, *added('SCRAM-SHA-512=[name="b b",password="secret"]')) == 0
    capsys.readouterr()
    assert call(tmp_path, "list") == 0
    assert capsys.readouterr().out == (
        "alice: SCRAM-SHA-256 with 4096 iterations, SCRAM-SHA-512 with 8192 iterations\n"
        "b b: SCRAM-SHA-512 with 4096 iterations\n"
    )
    assert call(tmp_path, "remove", "alice", "--mechanism", "SCRAM-SHA-256") == 0
    assert call(tmp_path, "remove", "b b") == 0
    capsys.readouterr()
    assert call(tmp_path, "list") == 0
    assert capsys.readouterr().out == "alice: SCRAM-SHA-512 with 8192 iterations\n"
    assert call(tmp_path, "remove", "bob") == 1
    assert f"there is no user bob with a SCRAM credential in {tmp_path}" in capsys.readouterr().err
    assert call(tmp_path, "remove", "alice") == 0
    assert call(tmp_path, "list") == 0
    assert capsys.readouterr().err == f"barnabas: no user has SCRAM credentials in {tmp_path}\n"


@pytest.mark.parametrize("arguments", [["list"], ["remove", "alice"]])
def test_who_looks_makes_nothing(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory that is misspelt stays one that is not there; and the others of a broker, too."""
    there, typo, other = tmp_path / "there", tmp_path / "typo", tmp_path / "other"
    there.mkdir()
    for directory in (typo, there):
        assert call(directory, *arguments) == 1
        assert capsys.readouterr().err == (
            f"barnabas: there is no metadata store in {directory}: no broker has run on it, and no user was added\n"
        )
    assert [list(tmp_path.iterdir()), list(there.iterdir())] == [[there], []]
    assert call(there, *added("SCRAM-SHA-256=[name=alice,password=secret]")) == 0
    assert cli.main(["users", *arguments, "--set", f"log.dirs={other},{there}", "--no-env"], {}) == 0
    assert not other.exists()


def test_users_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "SCRAM-SHA-256=[name=a,password=secret]\n\nSCRAM-SHA-256=[name=b,password=secret]\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert call(tmp_path, *added("-")) == 0
    assert capsys.readouterr().out == (
        f"a: SCRAM-SHA-256 with 4096 iterations, in {tmp_path}\nb: SCRAM-SHA-256 with 4096 iterations, in {tmp_path}\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert call(tmp_path, *added("-")) == 2


async def test_a_broker_started_afterwards_knows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trio

    one = "SCRAM-SHA-256=[name=alice,password=secret,salt=c2FsdA==]"
    assert await trio.to_thread.run_sync(call, tmp_path, *added(one)) == 0
    async with embedded_broker(tmp_path) as broker:
        found = broker.services.users.scram.find(SHA_256, "alice")
        assert found is not None
        assert found.credential == make_credential(SHA_256, "secret", b"salt", 4096)
        # While it runs, the directory is its own.
        for arguments in (["list"], ["remove", "alice"], added(one)):
            capsys.readouterr()
            assert await trio.to_thread.run_sync(call, tmp_path, *arguments) == 1
            said = capsys.readouterr().err
            assert said.startswith(f"barnabas: a broker runs on {tmp_path}, ")
            assert "kafka-configs" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alice:secret", "must be written as SCRAM-SHA-256=[name=…"),
        ("PLAIN=[name=alice,password=secret]", "must be written as SCRAM-SHA-256=[name=…"),
        ("SCRAM-SHA-256=name=alice,password=secret", "must be written as SCRAM-SHA-256=[name=…"),
        ("SCRAM-SHA-256=[password=secret]", "must have a name="),
        ("SCRAM-SHA-256=[name=,password=secret]", "must have a name="),
        ("SCRAM-SHA-256=[name=alice]", "alice must have a password"),
        ("SCRAM-SHA-256=[name=alice,password=]", "alice must have a password"),
        ("SCRAM-SHA-256=[name=alice,password=secret,more=1]", "its keys are name, password"),
        ("SCRAM-SHA-256=[name=alice,password=sec,secret]", "its keys are name, password"),
        ("SCRAM-SHA-256=[name=alice,password=secret,iterations=4095]", "must be from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=secret,iterations=16385]", "must be from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=secret,iterations=many]", "must be from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=secret,salt=*]", "must be base64"),
        ("SCRAM-SHA-256=[name=alice,saltedpassword=c2VjcmV0]", "or salt and saltedpassword"),
        ("SCRAM-SHA-256=[name=alice,password=secret,saltedpassword=c2VjcmV0]", "only one of"),
    ],
)
def test_what_is_refused(text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, *added(text)) == 2
    said = capsys.readouterr()
    assert why in said.err
    assert "secret" not in said.err + said.out
    assert not list(tmp_path.iterdir())


def test_a_salted_password() -> None:
    name, mechanism, credential = parse_user(
        "SCRAM-SHA-512=[name=alice,salt=c2FsdA==,iterations=5000,saltedpassword="
        "g3CmfJWhv3Yr2mIVCwzyVtRMl0lF2BRy3TYx0Hy6XvQ=]",
        lambda size: b"r" * size,
    )
    assert (name, mechanism, credential.salt, credential.iterations) == ("alice", SHA_512, b"salt", 5000)


def test_each_user_has_a_salt_of_its_own() -> None:
    import secrets

    text = "SCRAM-SHA-256=[name=alice,password=secret]"
    assert parse_user(text, secrets.token_bytes)[2].salt != parse_user(text, secrets.token_bytes)[2].salt
