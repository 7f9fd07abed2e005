"""Kafka clients under a quick load: every group gets every record once, whole and in the order of its key.

The same for longer, or harder: ``python -m benchmarks --suite kafka-load --tier standard|stress|endurance``.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")

ROOT = Path(__file__).parents[2]
PROMISES = ("lost", "stored_twice", "delivered_again", "reordered", "damaged", "not_committed", "refused")


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.timeout(240)
def test_nothing_is_lost_twice_or_out_of_order(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks", "--suite", "kafka-load", "--tier", "quick"]
    command += ["--directory", str(tmp_path), "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=220, check=False)
    found = json.loads(report.read_text()) if report.exists() else {}
    assert found, done.stdout + done.stderr
    broken = {name: found[f"kafka_load_{name}"] for name in PROMISES if found[f"kafka_load_{name}"]["value"]}
    assert not broken, done.stderr
    assert found["records acknowledged"]["value"] == 15_000
    assert found["kafka_load_delivered_again"]["rebalances"] >= 2, "members left and others joined meanwhile"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"], "no other file remains"
