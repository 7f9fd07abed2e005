"""kafkajs, the client for node: see ``npm/kafkajs.js``."""

import json
from pathlib import Path

import pytest

from tests.integration.kafka_external.brought import HERE, node_modules, run
from tests.integration.kafka_external.stored import assert_in_order, assert_whole
from tests.support.commands import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    return node_modules()


def test_kafkajs_publishes_and_reads_in_a_group(kafkajs: Path, cluster: Cluster) -> None:
    program = ["node", str(HERE / "npm" / "kafkajs.js"), cluster.kafka]
    found = json.loads(run(program, timeout_s=100, env={"NODE_PATH": str(kafkajs)}))
    assert found["created"]
    assert sorted(map(len, found["first"]["shares"])) == [2, 2]
    assert (found["first"]["state"], found["first"]["members"]) == ("Stable", 2)
    seen = found["first"]["seen"] + found["second"]["seen"]
    assert sorted((r["number"], r["key"], r["value"]) for r in seen) == [
        (n, f"k{n % 20}", None if n % 50 == 49 else f"v{n}") for n in range(310)
    ]
    assert_whole((r["partition"], r["offset"]) for r in seen)
    assert_in_order((r["key"], r["partition"], r["offset"], r["number"]) for r in seen)
    ends = {p["partition"]: int(p["offset"]) for p in found["ends"]}
    assert {p["partition"]: int(p["offset"]) for p in found["committed"]} == ends
    assert sum(ends.values()) == 310
    assert found["partitions"] == 6
    assert "kafkajs-readers" not in found["groups"]
    assert "kafkajs" not in found["topics"]
