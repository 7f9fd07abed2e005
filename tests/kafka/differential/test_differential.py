"""SeaweedMQ's answers to the script, compared with those of Apache Kafka.

``python -m tests.kafka.differential record`` records the latter.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.differential.comparison import differences
from tests.kafka.differential.deliberate import DELIBERATE
from tests.kafka.differential.play import awaited
from tests.kafka.differential.script import SCENES, answers
from tests.support.free_ports import free_ports

ANSWERS = Path(__file__).parent / "answers"
STOP_S = 30.0

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Provide port and node id of one broker."""
    folder, port = tmp_path_factory.mktemp("differential"), free_ports(1)
    command = [sys.executable, "-m", "seaweedmq.cli.main", "up", "--brokers", "1", "--data", str(folder / "data")]
    command += ["--port", "0", "--kafka-port", str(port)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield port, asyncio.run(awaited(port))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_is_answered_as_kafka_answers_it(scene: str, broker: tuple[int, int]) -> None:
    port, node_id = broker
    said = asyncio.run(answers(port, node_id, scene, time.time_ns() // 1_000_000))
    recorded = json.loads((ANSWERS / f"{scene}.json").read_text())
    found = list(differences(scene, recorded, json.loads(json.dumps(said))))
    strange = [str(one) for one in found if not any(rule.allows(one) for rule in DELIBERATE)]
    assert not strange, "\n" + "\n".join(strange)
    unused = [rule.where for rule in DELIBERATE if rule.scene == scene and not any(rule.allows(one) for one in found)]
    assert not unused, f"listed as deliberate, and there is no such difference: {unused}"


def test_every_answer_is_of_a_scene() -> None:
    assert {path.stem for path in ANSWERS.glob("*.json")} == set(SCENES)
