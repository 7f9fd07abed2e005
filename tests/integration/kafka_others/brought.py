"""What is brought from registries for these tests, once, and kept; whatever can not be had skips a test by name."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.contest.errors import Missing
from benchmarks.contest.kafka import server

HERE = Path(__file__).parent
CACHE = Path.home() / ".cache" / "seaweedmq-tests"
DOWNLOAD_TIMEOUT_S = 600
SPARK_KAFKA_VERSION = "4.2.0"
KAFKAJS_VERSION = "2.2.4"


def kafka_jars() -> Path:
    """Apache Kafka with its tools, the one that the benchmarks compare with."""
    try:
        server.KafkaServer.equip()
    except Missing as missing:
        pytest.skip(str(missing))
    return server.JARS


def spark_jars() -> list[Path]:
    """Spark's source and sink for Kafka, with what PySpark does not bring itself."""
    _require("java")
    folder = CACHE / f"spark-sql-kafka-{SPARK_KAFKA_VERSION}"
    if not folder.is_dir():
        _require("mvn")
        pom = HERE / "spark_kafka" / "pom.xml"
        with _arriving(folder) as arriving:
            named = [f"-Dspark.version={SPARK_KAFKA_VERSION}", f"-DoutputDirectory={arriving}"]
            _download("Maven", ["mvn", "-q", "-B", "-f", str(pom), *named, "dependency:copy-dependencies"])
    return sorted(folder.glob("*.jar"))


def node_modules() -> Path:
    """kafkajs, for node."""
    _require("node")
    folder = CACHE / f"kafkajs-{KAFKAJS_VERSION}"
    if not folder.is_dir():
        _require("npm")
        with _arriving(folder) as arriving:
            arriving.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "npm" / name, arriving)
            _download("npm", ["npm", "ci", "--silent", "--prefix", str(arriving)])
    return folder / "node_modules"


def go_programs() -> Path:
    """The folder of the programs beside ``go.mod``, built. Go keeps modules and builds in caches of its own."""
    _require("go")
    sources = HERE / "go"
    local = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    _download("Go", ["go", "mod", "download"], cwd=sources, env=local)
    folder = CACHE / "go"
    folder.mkdir(parents=True, exist_ok=True)
    run(["go", "build", "-o", f"{folder}/", "./..."], cwd=sources, env=local, timeout_s=DOWNLOAD_TIMEOUT_S)
    return folder


def run(
    command: list[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> str:
    """What a program prints that must succeed."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def _require(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on PATH")


@contextlib.contextmanager
def _arriving(folder: Path) -> Iterator[Path]:
    """A path beside ``folder`` that gets its name once all is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        yield Path(beside) / "whole"
        (Path(beside) / "whole").rename(folder)


def _download(registry: str, command: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        pytest.skip(f"{registry} can not download what is needed: {said[0] if said else 'it said nothing'}")
