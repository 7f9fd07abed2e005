"""Sarama, franz-go and kafka-go: see ``go/``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka_others.brought import go_programs, run
from tests.support.commands import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def programs() -> Path:
    return go_programs()


def found_by(program: Path, cluster: Cluster) -> Any:
    """What a program says, with what all of them are to say."""
    found = json.loads(run([str(program), cluster.kafka.split(",")[0]], timeout_s=90))
    name = program.name
    assert sorted(found["seen"], key=lambda r: int(r["header"])) == [
        {"partition": r["partition"], "offset": r["offset"], "key": f"k{n % 20}", "value": f"v{n}", "header": str(n)}
        for n, r in enumerate(sorted(found["seen"], key=lambda r: int(r["header"])))
    ]
    assert len({(r["partition"], r["offset"]) for r in found["seen"]}) == len(found["seen"]) == 300
    ends = {str(p): sum(r["partition"] == p for r in found["seen"]) for p in range(4)}
    assert found["committed"] == ends
    assert f"{name}-readers" not in (found["groups"] or [])
    return found


def test_sarama_publishes_and_reads_in_a_group(cluster: Cluster, programs: Path) -> None:
    found = found_by(programs / "sarama", cluster)
    assert (found["members"], found["state"], found["retention"]) == ([2, 2], "Stable", "3600000")
    assert "sarama" not in found["topics"]


def test_franz_go_publishes_and_reads_in_a_cooperative_group(cluster: Cluster, programs: Path) -> None:
    found = found_by(programs / "franz", cluster)
    assert (found["members"], found["state"], found["retention"]) == ([2, 2], "Stable", "3600000")
    assert (found["lag"], found["start"]) == (0, 1)
    assert "franz" not in found["topics"]


def test_kafka_go_publishes_and_goes_on_reading_where_it_left(cluster: Cluster, programs: Path) -> None:
    found = found_by(programs / "kafkago", cluster)
    assert found["ends"] == found["committed"]
    assert found["state"] == "Empty"
