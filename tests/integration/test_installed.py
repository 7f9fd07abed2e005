"""A wheel of the tree, installed in an empty environment, runs what the README's quick start shows."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.commands import running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
INSTALL_TIMEOUT_S = 400


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Folder of the commands of a new environment that has the wheel and the libraries of a local cluster."""
    source, home = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    (tmp_path / "source.tar").write_bytes(archive)
    with tarfile.open(tmp_path / "source.tar") as tar:
        tar.extractall(source, filter="data")
    run(sys.executable, "-m", "venv", home)
    run(home / "bin" / "pip", "install", "--disable-pip-version-check", "-q", f"{source}[local]")
    shutil.rmtree(source)  # so that nothing is imported from it
    return home / "bin"


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_TIMEOUT_S,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_publishes_and_subscribes(environment: Path, tmp_path: Path) -> None:
    command = [str(environment / "seaweedmq")]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with running_cluster(tmp_path / "data", executable=command) as cluster:
        env = {**os.environ, "SEAWEEDMQ_BOOTSTRAP": cluster.addresses}
        run(*command, "topic", "create", "test/numbers", cwd=folder, env=env)
        run(*command, "publish", "test/numbers", cwd=folder, env=env, input="1\n2\n3\n")
        shown = run(*command, "subscribe", "test/numbers", "--format", "raw", cwd=folder, env=env)
        assert shown.split() == ["1", "2", "3"]
        code = "import seaweedmq, seaweedmq.aio; print(seaweedmq.__file__)"
        assert str(environment.parent) in run(environment / "python", "-c", code, cwd=folder)
        assert cluster.stop() == 0
