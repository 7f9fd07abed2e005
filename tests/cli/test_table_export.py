"""`seaweedmq table export`, with a real catalog in a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables.delta.updater import reconcile
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration


def exported(root: Path, output: str, *options: str) -> str:
    catalog = f"sqlite:///{root}/catalog.db"
    command = [sys.executable, "-m", "seaweedmq.cli.main", "table", "export", "shop/orders", "--storage", str(root)]
    command += ["--iceberg", catalog, "--output", output, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_an_export_tells_what_it_registered_to_people_and_to_programs(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    orders.table(0, 40)
    orders.table(40, 60)
    reconcile(DirectoryPlace(tmp_path), orders.topic)
    assert "registered 2 files of shop/orders" in exported(tmp_path, "table")
    again = json.loads(exported(tmp_path, "json"))
    assert (again["topic"], again["added"], again["removed"], again["files"]) == ("shop/orders", 0, 0, 2)


def test_an_export_stops_at_lost_records_or_skips_them(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    lost = orders.table(0, 40)
    orders.table(40, 60)
    (tmp_path / lost.path).unlink()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        exported(tmp_path, "table")
    assert "shop/orders#0: records of offsets [0, 40) are missing" in failed.value.stderr
    assert "registered 1 files" in exported(tmp_path, "table", "--on-missing", "skip")
