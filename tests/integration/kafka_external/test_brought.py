"""Tests whose registry is unreachable, or lacks what they need, with the real registry clients."""

import http.server
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.kafka_external import brought
from tests.integration.kafka_external.brought import (
    GO,
    GO_MODULES,
    HERE,
    MAVEN,
    NPM,
    SPARK_KAFKA_VERSION,
    Registry,
    download,
)
from tests.support.free_ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SETTINGS = """<settings><mirrors><mirror>
<id>here</id><mirrorOf>*</mirrorOf><url>{address}</url>
</mirror></mirrors></settings>"""
Asking = tuple[Registry, list[str], Mapping[str, str]]
"""Registry, command and environment."""


class _HasNothing(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def empty() -> Iterator[str]:
    """Address of a registry without content."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _HasNothing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def maven(address: str, folder: Path) -> Asking:
    (folder / "settings.xml").write_text(SETTINGS.format(address=address))
    pom = [
        "-f",
        str(HERE / "spark_kafka" / "pom.xml"),
        f"-Dspark.version={SPARK_KAFKA_VERSION}",
        f"-Dmaven.repo.local={folder}/kept",
    ]
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    return MAVEN, ["mvn", "-q", "-B", "-s", str(folder / "settings.xml"), *pom, goal], {}


def npm(address: str, folder: Path) -> Asking:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "npm" / name, folder)
    settings = {"npm_config_registry": address, "npm_config_cache": str(folder / "cache")}
    return NPM, ["npm", "ci", "--loglevel=error", "--prefix", str(folder)], settings


def go(address: str, folder: Path) -> Asking:
    here = {"GOPROXY": address, "GOSUMDB": "off", "GOMODCACHE": str(folder / "kept"), "GOFLAGS": "-modcacherw"}
    return GO_MODULES, ["go", "mod", "download"], {**GO, **here}


@pytest.mark.parametrize("asking", [maven, npm, go])
def test_a_registry_out_of_reach_skips_and_one_without_what_is_asked_for_fails(
    asking: Callable[[str, Path], Asking], empty: str, tmp_path: Path
) -> None:
    nobody, somebody = tmp_path / "nobody", tmp_path / "somebody"
    nobody.mkdir()
    registry, command, environment = asking(f"http://127.0.0.1:{free_ports(1)}", nobody)
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not on PATH")
    with pytest.raises(pytest.skip.Exception, match=f"{registry.name} cannot deliver: .+"):
        download(registry, command, cwd=HERE / "go", env=environment)
    somebody.mkdir()
    registry, command, environment = asking(empty, somebody)
    with pytest.raises(AssertionError, match=f"{registry.name} lacks the requested files:\n"):
        download(registry, command, cwd=HERE / "go", env=environment)


def test_a_registry_that_keeps_us_waiting_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brought, "DOWNLOAD_TIMEOUT_S", 0.1)
    with pytest.raises(pytest.skip.Exception, match=r"npm did not deliver within 0\.1 s"):
        download(Registry("npm", (), "never"), ["sleep", "60"])
