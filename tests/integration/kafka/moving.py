"""Consumers whose coordinator moves to another broker after the assignment, before they query where to begin."""

import json
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError

from seaweedmq.codec.kafka.group_records import partition_of_group
from tests.support.commands import Done, run

TOPIC = "kafka/__consumer_offsets"
POLL_S, POLLS_MAX = 0.2, 150


def move_coordinator(native: str, group: str) -> None:
    """Give the group to another broker; its members get no notification."""

    def segment(*arguments: str) -> Done:
        done = run("segment", *arguments, "--output", "json", env={"SEAWEEDMQ_BOOTSTRAP": native})
        assert done.status == 0, done.stderr
        return done

    segments = [s for s in json.loads(segment("list", TOPIC).text) if s["state"] == "open"]
    number = partition_of_group(group, len(segments))
    mine = next(s for s in segments if s["slots"][0] <= number < s["slots"][1])
    others = [address for address in native.split(",") if address != mine["brokers"][0]]
    segment("move", TOPIC, str(mine["id"]), *others[: len(mine["brokers"])])


def librdkafka(bootstrap: str, native: str, group: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    """Return the records that are read: none, if the consumer waits without end. Any version of the client works."""
    moved: list[str] = []

    def assigned(_: Consumer, partitions: object) -> None:
        move_coordinator(native, group)
        moved.append(group)

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        | {"auto.offset.reset": "error"}  # from the committed offset, or not at all
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    found: list[bytes] = []
    with closing(consumer):
        consumer.subscribe([topic], on_assign=assigned)
        for _ in range(POLLS_MAX):
            for message in consumer.consume(count, POLL_S):
                if message.error() is None:
                    found.append(message.value())
                else:  # librdkafka also reports errors that it handles
                    assert message.error().code() == KafkaError.NOT_COORDINATOR, message.error()
            if len(found) >= count:
                break
    assert moved
    return found
