"""On a Spark cluster: executors in processes and folders of their own, with the storage and the package alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

TIMEOUT_S = 240.0


def test_executors_that_have_the_storage_alone_read_by_both_faces(orders: TopicFiles, tmp_path: Path) -> None:
    orders.open_segments(2)
    orders.table(0, 500)
    orders.table(0, 300, segment=1)
    orders.log(300, 400, segment=1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_reading", str(orders.root), "shop/orders", str(scratch)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["native"] == found["source"]
    assert found["native"][:2] == [900, sum(range(500)) + sum(range(400))]
