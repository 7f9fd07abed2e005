"""Spark reads and compacts a topic in a bucket, with executors that have their credentials from the environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seaweedmq.storage.tables.delta.updater import reconcile
from seaweedmq.storage.tables.files import convert_files
from tests.support.moto_server import SECRET, MotoServer
from tests.support.object_places import moto_place, put_topic
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration
RECORDS = 40


def test_a_topic_in_a_bucket_is_read_streamed_and_compacted(moto: MotoServer, tmp_path: Path) -> None:
    files = TopicFiles(tmp_path / "files")
    for start in range(0, RECORDS, 10):
        files.log(start, start + 10)
    with moto_place(moto) as place:
        put_topic(place, files)
        logs = sorted(place.logs(files.name, 0), key=lambda file: file.base_offset)
        for log in logs[:3]:
            convert_files(place, files.topic, [log], None, 1 << 24)
        for log in logs[:2]:
            place.delete(log.path)
        reconcile(place, files.topic)
        command = [
            sys.executable,
            "-m",
            "tests.spark.object_driver",
            json.dumps([str(place), "shop/orders", str(tmp_path)]),
        ]
        done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4_000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {
            "before": list(range(RECORDS)),
            "verified": True,
            "compacted": [3, []],
            "records": 30,
            "after": list(range(RECORDS)),
            "streamed": list(range(30)),  # what tables hold, which is committed
        }
        assert SECRET not in f"{command}{done.stdout}{done.stderr}"
