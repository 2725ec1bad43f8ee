"""The Spark session of these tests: local, quiet, with the Kafka connector's four jars resolved by Maven.

Two variables choose the versions: BARNABAS_SPARK_CONNECTOR (default: PySpark's own version) and
BARNABAS_SPARK_TOKEN_PROVIDER (default: the connector's). The token provider only looks up delegation tokens; where a
repository lacks it at that version, that of FALLBACK_TOKEN_PROVIDER serves.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from compat_tests.harness.jars import (
    NO_PERF_DATA,
    PROJECT_ROOT,
    SHORT_LIVED,
    ToolMissing,
    cache_root,
    jar_directory,
    java,
    jvm_options_line,
)

POM = Path(__file__).with_name("pom.xml")
FALLBACK_TOKEN_PROVIDER = "4.0.0"


def connector_jars() -> list[Path]:
    """Return the connector's jars, resolved into the cache on first use. Raises ToolMissing, also without a JVM."""
    java()
    connector = os.environ.get("BARNABAS_SPARK_CONNECTOR") or pyspark.__version__
    asked = os.environ.get("BARNABAS_SPARK_TOKEN_PROVIDER")
    candidates = [asked] if asked else [connector, FALLBACK_TOKEN_PROVIDER]
    poms = [_pom(connector, token_provider) for token_provider in candidates]
    # A set that is there already comes first: asking Maven for one that does not exist costs seconds in every run.
    poms.sort(key=lambda pom: not (cache_root() / "jars" / pom.stem / ".complete").exists())
    failures = []
    for pom in poms:
        try:
            return sorted(jar_directory(pom.stem, pom).glob("*.jar"))
        except ToolMissing as failure:
            failures.append(str(failure))
    raise ToolMissing("\n".join(failures))


def _pom(connector: str, token_provider: str) -> Path:
    text = POM.read_text()
    for name, version in (("connector.version", connector), ("token.provider.version", token_provider)):
        text, count = re.subn(f"<{name}>[^<]*</{name}>", f"<{name}>{version}</{name}>", text)
        assert count == 1, f"{POM} does not set {name} once"
    path = cache_root() / "poms" / f"spark-{connector}-{token_provider}.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def environment() -> dict[str, str]:
    """Return the environment of a process that uses Spark: this Python for the workers, which find our data source in
    the checkout, loopback for every socket, `.cache/jvm` for temporary files.
    """
    places = dict.fromkeys([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(PROJECT_ROOT)])
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable} | {
        "PYTHONPATH": os.pathsep.join(place for place in places if place),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": " ".join((jvm_options_line(), *SHORT_LIVED)),
        "SPARK_LAUNCHER_OPTS": NO_PERF_DATA,  # of the JVM that makes the other's command line
    }


def new_session(warehouse: Path, master: str = "local[2]") -> SparkSession:
    """Start Spark in this process (seconds, one JVM); end it with `.stop()`. *warehouse* takes Spark's own files."""
    os.environ.update(environment())
    settings = {
        "spark.jars": ",".join(str(jar) for jar in connector_jars()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options_line(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.local.dir": str(warehouse / "local"),
    }
    builder = SparkSession.builder.master(master).appName("barnabas-compat")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    # A test that expects a failure would otherwise print its stack trace three times over.
    session.sparkContext.setLogLevel("OFF")
    return session
