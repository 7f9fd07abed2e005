"""Plays the script to an Apache Kafka from Maven Central, and keeps its answers."""

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contest.kafka.server import KafkaServer
from tests.kafka.differential.play import awaited
from tests.kafka.differential.script import SCENES, answers

ANSWERS = Path(__file__).parent / "answers"
AS_OURS = {"num.partitions": "4", "offsets.topic.num.partitions": "8", "group.initial.rebalance.delay.ms": "500"}
"""SeaweedMQ's values of settings with other defaults that do not affect the protocol."""


class OneKafka(KafkaServer):
    """An Apache Kafka with the settings ``AS_OURS``."""

    def prepare(self) -> None:
        super().prepare()
        with self.config.open("a") as config:
            config.writelines(f"{name}={value}\n" for name, value in AS_OURS.items())


def record(titles: Sequence[str] = ()) -> None:
    print(OneKafka.equip())
    with tempfile.TemporaryDirectory() as folder:
        kafka = OneKafka(Path(folder), fsync=False)
        kafka.prepare()
        kafka.start()
        try:
            asyncio.run(_record(int(kafka.address.rpartition(":")[2]), titles or tuple(SCENES)))
        finally:
            kafka.stop()


async def _record(port: int, titles: Sequence[str]) -> None:
    node_id = await awaited(port)
    ANSWERS.mkdir(exist_ok=True)
    for title in titles:
        said = await answers(port, node_id, title, time.time_ns() // 1_000_000)
        path = ANSWERS / f"{title}.json"
        path.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
        print(f"{path.name}: {len(said)} answers")
