"""Test that pytest-xdist keeps the tests of a group in one worker.

Otherwise no test fails, but each worker starts a cluster and three Sparks run in parallel.
"""

import subprocess
import sys
from pathlib import Path

GROUPED = """
import os
from pathlib import Path

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(4))
def test(number):
    Path(f"worker-of-{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_the_tests_of_a_group_run_in_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--rootdir", "."]
    done = subprocess.run(pytest, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    workers = [path.read_text() for path in tmp_path.glob("worker-of-*")]
    assert len(workers) == 4
    assert len(set(workers)) == 1, workers
