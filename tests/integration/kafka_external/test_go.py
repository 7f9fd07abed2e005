"""Sarama, franz-go and kafka-go: see ``go/``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka_external.brought import go_programs, run
from tests.integration.kafka_external.stored import assert_in_order, assert_whole
from tests.support.commands import Cluster
from tests.support.kafka_wire import partition_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = [{"key": f"k{n % 20}", "value": f"v{n}", "header": str(n)} for n in range(300)]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return go_programs(tmp_path_factory.mktemp("go"))


def found_by(program: Path, cluster: Cluster) -> Any:
    """Return the output of a program, and check what all of them print."""
    found = json.loads(run([str(program), cluster.kafka.split(",")[0]], timeout_s=90))
    read = found["seen"]
    sent = [{name: r[name] for name in ("key", "value", "header")} for r in read]
    assert sorted(sent, key=lambda r: int(r["header"])) == RECORDS
    assert_whole((r["partition"], r["offset"]) for r in read)
    assert_in_order((r["key"], r["partition"], r["offset"], int(r["header"])) for r in read)
    assert found["committed"] == found["ends"] == {str(p): sum(r["partition"] == p for r in read) for p in range(4)}
    assert f"{program.name}-readers" not in (found["groups"] or [])
    return found


def where_java_puts_it(found: Any) -> bool:
    """Whether all keys are in the partition that Kafka's Java client picks."""
    return all(r["partition"] == partition_of(r["key"].encode(), 4) for r in found["seen"])


def test_sarama_publishes_and_reads_in_a_group(programs: Path, cluster: Cluster) -> None:
    found = found_by(programs / "sarama", cluster)
    assert (found["members"], found["state"], found["retention"]) == ([2, 2], "Stable", "3600000")
    assert "sarama" not in found["topics"]


def test_franz_go_publishes_and_reads_in_a_cooperative_group(programs: Path, cluster: Cluster) -> None:
    found = found_by(programs / "franz", cluster)
    assert (found["members"], found["state"], found["retention"]) == ([2, 2], "Stable", "3600000")
    assert (found["lag"], found["start"]) == (0, 1)
    assert "franz" not in found["topics"]
    assert where_java_puts_it(found)


def test_kafka_go_publishes_and_goes_on_reading_where_it_left(programs: Path, cluster: Cluster) -> None:
    found = found_by(programs / "kafkago", cluster)
    assert found["state"] == "Empty"
    assert where_java_puts_it(found)
