"""docs/console.md: the ways to start it. What machines ask of it is tried by `compat_tests/subjects/console`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("hypercorn")

from compat_tests.subjects.documents.stranger import Stranger, texts

pytestmark = pytest.mark.slow
PAGE = "docs/console.md"
STATUS = "curl --silent --output /dev/null --write-out '%{http_code}' --retry 60 --retry-connrefused --retry-delay 1"
"""Again while there is no console yet, and while it waits for the broker in vain."""


def test_beside_a_broker(tmp_path: Path) -> None:
    plain, with_config, brought = texts(PAGE, "The console", "sh")
    install, plain = plain.splitlines()
    assert install.startswith("pip install '.[console]'")
    stranger = Stranger(tmp_path)
    stranger.write("admin.properties", "security.protocol=PLAINTEXT\n")
    with stranger.keeps_running("barnabas dev --port 9092", "bootstrap="):
        with stranger.keeps_running(f"{plain} --listen 127.0.0.1:8080", "console="):
            assert stranger.types(f"{STATUS} http://127.0.0.1:8080/topics").stdout == "200"
        line = with_config.strip().replace("kafka1:9093,kafka2:9093", "127.0.0.1:9092,localhost:9092")
        with stranger.keeps_running(line, "console="):
            assert stranger.types(f"{STATUS} http://127.0.0.1:9000/").stdout == "200"
    serve, dev = brought.splitlines()
    with stranger.keeps_running(f"{serve} --set log.dirs=data --set listeners=PLAINTEXT://localhost:9092", "serves "):
        assert stranger.types(f"{STATUS} http://127.0.0.1:8080/topics").stdout == "200"
    with stranger.keeps_running(f"{dev} --port 0", "console=") as broker:
        (url,) = [line.removeprefix("console=") for line in broker.output.splitlines() if line.startswith("console=")]
        assert stranger.types(f"{STATUS} {url}/topics").stdout == "200"


def test_with_log_ins(tmp_path: Path) -> None:
    """Whoever has not logged in is sent to where he can."""
    ((password, login),) = [block.splitlines() for block in texts(PAGE, "Safety", "sh")]
    stranger = Stranger(tmp_path)
    stranger.write("console.password", "correct horse\n")
    (stranger.here / "console.password").chmod(0o600)
    tls = "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
    stranger.write("tls.properties", tls)
    stranger.types(texts("docs/security.md", "From nothing to TLS, SCRAM and access control", "sh")[0])
    for line in (password.replace("/etc/barnabas/", ""), login):
        with stranger.keeps_running(line, "console="):
            assert stranger.types(f"{STATUS} http://127.0.0.1:8080/topics").stdout == "303"
