"""A Spark cluster whose executors have separate processes and folders, with only the storage and the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from seaweedmq.model.topic import TopicName
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

PROGRAM = [sys.executable, "-m", "tests.spark.cluster_reading"]
TIMEOUT_S = 240.0


@pytest.mark.deep
def test_executors_with_the_storage_alone_read_and_do_jobs(orders: TopicFiles, tmp_path: Path) -> None:
    orders.open_segments(2)
    orders.table(0, 500)
    orders.table(0, 300, segment=1)
    orders.log(300, 400, segment=1)
    typed = TopicFiles(tmp_path, TopicName("shop", "typed"), pa.schema([("id", pa.int64()), ("price", pa.float64())]))
    lost, *_ = [typed.table(n, n + 50, keep_log=n == 0) for n in range(0, 200, 50)]
    (typed.root / lost.path).unlink()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [*PROGRAM, str(orders.root), str(scratch), "shop/orders", "shop/typed"]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    plain_read, typed_read = found["reads"]
    assert plain_read["native"] == plain_read["source"]
    assert plain_read["native"][:2] == [900, sum(range(500)) + sum(range(400))]
    assert (typed_read["native"], typed_read["native"][:2]) == (typed_read["source"], [200, sum(range(200))])
    assert found["streamed"] == [[0, 500], [1, 300]], "the last log of an open segment may have a torn end"
    assert {"id", "price"} < set(typed_read["columns"])
    assert (found["problems"], found["rebuilt"], found["compacted"]) == ([], [lost.path], [4, 1])
    assert (found["verified"], found["versions"]) == ([True, 1, 200, 50], [200, 200])
