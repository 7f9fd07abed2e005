"""`seaweedmq table export`, with a real catalog in a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seaweedmq.storage.tables.delta import reconcile
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration


def exported(root: Path, output: str) -> str:
    catalog = f"sqlite:///{root}/catalog.db"
    command = [sys.executable, "-m", "seaweedmq.cli.main", "table", "export", "shop/orders", "--storage", str(root)]
    command += ["--iceberg", catalog, "--output", output]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_an_export_tells_what_it_registered_to_people_and_to_programs(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    orders.table(0, 40)
    orders.table(40, 60)
    reconcile(tmp_path, orders.topic)
    assert "registered 2 files of shop/orders" in exported(tmp_path, "table")
    again = json.loads(exported(tmp_path, "json"))
    assert (again["topic"], again["added"], again["removed"], again["files"]) == ("shop/orders", 0, 0, 2)
