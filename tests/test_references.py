"""Records by reference through a whole broker: native and Kafka clients, the storage itself, and its tables."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from seaweedmq import aio
from seaweedmq.client.client import Client
from seaweedmq.codec.references import KAFKA_HEADER
from seaweedmq.errors import PayloadLost
from seaweedmq.model.config import KIB, BrokerConfig
from seaweedmq.model.files import FileKind
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import list_files, read_topic
from seaweedmq.storage.tables.files import convert_files
from tests.support.whole_broker import WholeBroker, whole_broker

TOPIC = "kafka/films"
FILM = b"".join(b"%08d" % n for n in range(1_000_000))
"""A payload of 8 MB."""
CONFIG = BrokerConfig(frame_bytes_max=64 * KIB, segment_buffer_bytes_max=256 * KIB, storage_free_bytes_min=1)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    root = tmp_path / "storage"
    root.mkdir()
    async with whole_broker(root, CONFIG) as broker:
        yield broker


@pytest.fixture
async def client(broker: WholeBroker) -> AsyncIterator[Client]:
    async with aio.connect(broker.address) as client:
        await client.admin.create_topic(TOPIC, partitions=1)
        yield client


async def publish(client: Client, path: Path) -> None:
    """Publish a small record, one by reference, and another small one."""
    await asyncio.to_thread(path.write_bytes, FILM)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"before", key=b"k"))
        await (await publisher.send_file(path, key=b"k", headers={"title": b"Metropolis"}))
        await (await publisher.send(b"after", key=b"k"))


async def test_a_subscriber_gets_the_payload_through_the_broker(client: Client, tmp_path: Path) -> None:
    await publish(client, tmp_path / "film.mp4")
    async with client.subscriber(TOPIC, start="earliest", limit=3) as subscriber:
        before, film, after = [message async for message in subscriber]
    assert (before.value, after.value, film.offset) == (b"before", b"after", 1)
    assert film.reference is not None
    assert (film.reference.size_bytes, film.reference.sha256) == (len(FILM), hashlib.sha256(FILM).digest())
    assert await film.fetch() == FILM
    async with film.open() as stream:
        assert await stream.read(16) == FILM[:16]


async def test_a_changed_payload_is_detected_through_the_broker(client: Client, tmp_path: Path) -> None:
    await publish(client, tmp_path / "film.mp4")
    async with client.subscriber(TOPIC, start=1, limit=1) as subscriber:
        (film,) = [message async for message in subscriber]
    assert film.reference is not None
    path = tmp_path / "storage" / film.reference.uri
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    files[-1].write_bytes(b"?" + files[-1].read_bytes()[1:])
    with pytest.raises(PayloadLost, match="SHA-256"):
        await film.fetch()
    files[-1].unlink()
    with pytest.raises(PayloadLost, match=r"ends after|is missing"):
        await film.fetch()


async def consumed(broker: WholeBroker, count: int) -> list[tuple[bytes | None, dict[str, bytes]]]:
    def consume() -> list[tuple[bytes | None, dict[str, bytes]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.kafka_port}",
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["films"])
        try:
            found = []
            while len(found) < count:
                (message,) = consumer.consume(1, timeout=30) or [None]
                assert message is not None, f"{len(found)} of {count} records came"
                assert message.error() is None
                found.append((message.value(), dict(message.headers() or ())))
            return found
        finally:
            consumer.close()

    return await asyncio.to_thread(consume)


async def test_kafka_readers_get_the_reference_as_json(broker: WholeBroker, client: Client, tmp_path: Path) -> None:
    await publish(client, tmp_path / "film.mp4")
    before, film, after = await consumed(broker, 3)
    assert (before[0], after[0]) == (b"before", b"after")
    value, headers = film
    assert value is not None, "a null would delete the key"
    assert headers == {"title": b"Metropolis", KAFKA_HEADER: b"1"}
    found = json.loads(value)
    assert (found["size"], found["sha256"]) == (len(FILM), hashlib.sha256(FILM).hexdigest())
    assert (tmp_path / "storage" / found["uri"]).exists()


async def test_what_a_kafka_producer_sends_is_never_a_reference(
    broker: WholeBroker, client: Client, tmp_path: Path
) -> None:
    """Also if it repeats what a Kafka reader got, with the header."""
    await publish(client, tmp_path / "film.mp4")
    value, headers = (await consumed(broker, 3))[1]

    def produce() -> None:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.kafka_port}"})
        producer.produce("films", value, key=b"k", headers=list(headers.items()))
        assert producer.flush(30) == 0

    await asyncio.to_thread(produce)
    async with client.subscriber(TOPIC, start=3, limit=1) as subscriber:
        (again,) = [message async for message in subscriber]
    assert (again.reference, again.value) == (None, value)
    assert again.headers[KAFKA_HEADER] == b"1"


async def test_catch_up_from_tables_and_the_storage_itself(broker: WholeBroker, client: Client, tmp_path: Path) -> None:
    await publish(client, tmp_path / "film.mp4")
    place = Place(tmp_path / "storage")
    topic = read_topic(place, (await client.admin.describe_topic(TOPIC)).topic.name)
    segments = [s.id for s in (await client.admin.describe_topic(TOPIC)).segments]
    for _ in range(600):  # the broker acknowledges before the file is written
        logs = [f for f in list_files(place, topic.name, segments) if f.kind is FileKind.LOG]
        made = convert_files(place, topic, logs, None, 1 << 20)
        if made and made[-1].end_offset == 3:
            break
        await asyncio.sleep(0.05)
    assert made[-1].end_offset == 3
    async with aio.connect(broker.address, storage=str(place)) as reading:
        async with reading.subscriber(TOPIC, start=1, limit=1) as subscriber:
            (film,) = [message async for message in subscriber]
        assert await film.fetch() == FILM
