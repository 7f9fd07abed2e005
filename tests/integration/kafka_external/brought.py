"""Downloads from registries for these tests, made once and kept.

A missing or too old tool skips the tests that need it, and so does an unreachable or slow registry: each with its
reason. A registry that answers, but lacks the requested files, is a defect of the tests, and fails them.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.contest.errors import Missing
from benchmarks.contest.kafka import server

HERE = Path(__file__).parent
CACHE = Path.home() / ".cache" / "seaweedmq-tests"
DOWNLOAD_TIMEOUT_S = 120
"""Timeout for all files of one registry. Files that arrived by then are in its client's cache for the next time."""
BUILD_TIMEOUT_S = 500
SPARK_KAFKA_VERSION = "4.2.0"
"""Version of Spark's Kafka source: newer PySparks also work with it, and may be released before theirs."""
GO = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}


@dataclass(frozen=True)
class Registry:
    name: str
    impatience: tuple[str, ...]
    """Options of its client, which by default waits some minutes for each file."""
    refusal: str
    """Pattern of the client's message if the registry was reached and lacks the requested files."""


MAVEN = Registry(
    "Maven",
    ("-Daether.connector.connectTimeout=5000", "-Daether.connector.requestTimeout=30000"),
    r"Could not find artifact|was not found in|Non-parseable POM|Malformed POM",
)
NPM = Registry(
    "npm",
    ("--fetch-timeout=20000", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"),
    r"\b(E404|ETARGET|EINTEGRITY|EUSAGE)\b",
)
GO_MODULES = Registry("Go", (), r"404 Not Found|410 Gone|checksum mismatch|go\.sum|updates to go\.mod|unknown revision")


def kafka_jars() -> Path:
    """Return Apache Kafka with its tools, the one of the benchmarks."""
    _require_java()
    if not server.JARS.is_dir():
        _require("mvn")
        with _arriving(server.JARS) as arriving:
            download(MAVEN, server.bringing(arriving))
    return server.JARS


def spark_jars() -> list[Path]:
    """Return Spark's Kafka source and sink, with the jars that PySpark lacks."""
    _require_java()
    pom = HERE / "spark_kafka" / "pom.xml"
    folder = _kept(f"spark-sql-kafka-{SPARK_KAFKA_VERSION}", pom)
    if not folder.is_dir():
        _require("mvn")
        with _arriving(folder) as arriving:
            named = [f"-Dspark.version={SPARK_KAFKA_VERSION}", f"-DoutputDirectory={arriving}"]
            download(MAVEN, ["mvn", "-q", "-B", "-f", str(pom), *named, "dependency:copy-dependencies"])
    return sorted(folder.glob("*.jar"))


def node_modules() -> Path:
    """Return kafkajs, for node."""
    _require("node")
    named, locked = (HERE / "npm" / name for name in ("package.json", "package-lock.json"))
    folder = _kept("kafkajs", locked)
    if not folder.is_dir():
        _require("npm")
        with _arriving(folder) as arriving:
            arriving.mkdir()
            shutil.copy(named, arriving)
            shutil.copy(locked, arriving)
            download(NPM, ["npm", "ci", "--loglevel=error", "--prefix", str(arriving)])
    return folder / "node_modules"


def go_programs(folder: Path) -> Path:
    """Build the programs beside ``go.mod`` into the folder, and return it. Go caches modules and builds itself."""
    _require("go")
    sources = HERE / "go"
    needed = re.findall(r"^go ([\d.]+)$", (sources / "go.mod").read_text(), re.MULTILINE)[0]
    found = run(["go", "env", "GOVERSION"], timeout_s=60).strip().removeprefix("go")
    if _numbers(found) < _numbers(needed):
        pytest.skip(f"these clients need Go {needed}, PATH has {found}")
    download(GO_MODULES, ["go", "mod", "download"], cwd=sources, env=GO)
    run(["go", "build", "-o", f"{folder}/", "./..."], cwd=sources, env=GO, timeout_s=BUILD_TIMEOUT_S)
    return folder


def run(
    command: list[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> str:
    """Run a program that must succeed; return its output."""
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


def download(
    registry: Registry, command: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Let a registry's own client download; skip or fail as the module describes."""
    try:
        done = subprocess.run(
            [*command, *registry.impatience],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{registry.name} did not deliver within {DOWNLOAD_TIMEOUT_S} s")
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        assert re.search(registry.refusal, said) is None, f"{registry.name} lacks the requested files:\n{said}"
        pytest.skip(f"{registry.name} cannot deliver: {said.splitlines()[0] if said else 'no reason'}")


def _require(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on PATH")


def _require_java() -> None:
    try:
        server.java_version()
    except Missing as missing:
        pytest.skip(str(missing))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _kept(name: str, recipe: Path) -> Path:
    """Return the folder for the output of a recipe."""
    return CACHE / f"{name}-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]}"


@contextlib.contextmanager
def _arriving(folder: Path) -> Iterator[Path]:
    """A path beside ``folder`` that is renamed to it once complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        yield Path(beside) / "whole"
        try:
            (Path(beside) / "whole").rename(folder)
        except OSError:
            if not folder.is_dir():  # another run may have been first
                raise
