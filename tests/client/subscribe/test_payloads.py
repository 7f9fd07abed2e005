"""Subscribers get payloads by reference: verified, whole or as streams, and one clear error for any that is lost."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from seaweedmq import aio
from seaweedmq.client.client import Client
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.client.subscribe.payloads import CHUNK_BYTES, PayloadStream
from seaweedmq.codec.paths import blob_name
from seaweedmq.codec.references import KAFKA_HEADER, reference_json
from seaweedmq.errors import Closed, InvalidArgument, PayloadLost, Unavailable
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster
from tests.support.references import reference_to, referring_frame

TOPIC = "shop/films"
FILM = b"".join(b"%08d" % n for n in range(CHUNK_BYTES // 4))
"""A payload of two chunks: 8 MiB."""


def uri_of(cluster: FakeCluster, number: int = 0, topic: str = TOPIC) -> str:
    name = TopicName.parse(topic)
    return blob_name(name, cluster.topics[name].uid, "2020-09-13", f"{number:032x}").uri


def put(cluster: FakeCluster, payload: bytes, number: int = 0) -> PayloadReference:
    """Upload a payload, and return its reference."""
    uri = uri_of(cluster, number)
    cluster.blobs[uri] = payload
    return reference_to(uri, payload)


async def read(client: Client, count: int) -> list[Message]:
    async with client.subscriber(TOPIC, start="earliest", limit=count) as subscriber:
        return [message async for message in subscriber]


@pytest.fixture
async def films(client: Client, cluster: FakeCluster) -> FakeCluster:
    await client.admin.create_topic(TOPIC)
    return cluster


async def test_a_payload_is_fetched_and_other_records_are_as_before(client: Client, films: FakeCluster) -> None:
    reference = put(films, FILM)
    films.store_frame(TOPIC, referring_frame([(b"film", reference), (b"note", b"small"), (b"gone", None)]))
    film, note, gone = await read(client, 3)
    assert (film.reference, film.key, film.offset) == (reference, b"film", 0)
    assert await film.fetch() == FILM
    assert (note.reference, note.value, await note.fetch()) == (None, b"small", b"small")
    assert (gone.reference, gone.value, await gone.fetch()) == (None, None, None)
    assert "reference=PayloadReference" in repr(film)
    assert films.blob_reads == 2, "two chunks, and none for its repr"


async def test_asyncio_never_blocks_for_a_value(client: Client, films: FakeCluster) -> None:
    films.store_frame(TOPIC, referring_frame([(b"film", put(films, FILM))]))
    (film,) = await read(client, 1)
    with pytest.raises(InvalidArgument, match=r"use `await message\.fetch\(\)` in asyncio"):
        _ = film.value


async def test_a_stream_holds_a_chunk_at_a_time(client: Client, films: FakeCluster) -> None:
    films.store_frame(TOPIC, referring_frame([(b"film", put(films, FILM)), (b"note", b"small")]))
    film, note = await read(client, 2)
    stream = film.open()
    assert isinstance(stream, PayloadStream)
    assert films.blob_reads == 0, "opening reads nothing"
    async with stream:
        assert await stream.read(3) == FILM[:3]
        assert films.blob_reads == 1
        assert await stream.read(0) == b""
        chunks = [chunk async for chunk in stream]
    assert b"".join(chunks) == FILM[3:]
    assert max(map(len, chunks)) <= CHUNK_BYTES
    with pytest.raises(Closed, match="the stream of the payload is closed"):
        await stream.read(1)
    async with note.open() as small:
        assert [chunk async for chunk in small] == [b"small"]


async def test_an_interrupted_read_does_not_end_the_content_in_silence(client: Client, films: FakeCluster) -> None:
    films.store_frame(TOPIC, referring_frame([(b"film", put(films, FILM))]))
    (film,) = await read(client, 1)
    async with film.open() as stream:
        assert await stream.read(CHUNK_BYTES) == FILM[:CHUNK_BYTES]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await stream.read(CHUNK_BYTES)
        for _ in range(2):
            with pytest.raises(Closed, match="was interrupted: open the message again"):
                await stream.read(CHUNK_BYTES)


async def test_an_empty_payload(client: Client, films: FakeCluster) -> None:
    films.store_frame(TOPIC, referring_frame([(b"film", put(films, b""))]))
    (film,) = await read(client, 1)
    assert await film.fetch() == b""
    async with film.open() as stream:
        assert await stream.read() == b""


def is_missing(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    del films.blobs[reference.uri]
    return reference


def is_changed(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    films.blobs[reference.uri] = FILM[:-1] + b"?"
    return reference


def is_short(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    films.blobs[reference.uri] = FILM[:-1]
    return reference


def is_empty(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    return replace(put(films, b""), size_bytes=0, sha256=hashlib.sha256(b"x").digest())


def is_of_another_topic(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    return replace(reference, uri=reference.uri.replace("/films/", "/bills/"))


def is_of_an_earlier_topic(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    uid = films.topics[TopicName.parse(TOPIC)].uid
    return replace(reference, uri=reference.uri.replace(f"/{uid}/", f"/{uid - 1}/"))


def is_a_file(films: FakeCluster, reference: PayloadReference) -> PayloadReference:
    return replace(reference, uri="topics/shop/films/../../../etc/passwd")


LOST = [
    (is_missing, "cannot be read"),
    (is_changed, "has SHA-256 .* instead of"),
    (is_short, f"ends after {len(FILM) - 1} of {len(FILM)} bytes"),
    (is_empty, "has SHA-256 .* instead of"),
    (is_of_another_topic, "is not one of topic shop/films"),
    (is_of_an_earlier_topic, "is not one of topic shop/films"),
    (is_a_file, "is not one of topic shop/films"),
]


async def passed_on(stream: PayloadStream, *, below: int) -> None:
    """Read a stream to its end, and check that the last bytes of the payload do not come."""
    received = 0
    async for chunk in stream:
        received += len(chunk)
        assert received < below


@pytest.mark.parametrize(("lose", "says"), LOST, ids=[lose.__name__ for lose, _ in LOST])
async def test_a_lost_payload_is_one_error_and_its_record_is_acknowledged_like_others(
    client: Client, films: FakeCluster, lose: Callable[[FakeCluster, PayloadReference], PayloadReference], says: str
) -> None:
    lost = lose(films, put(films, FILM))
    films.store_frame(TOPIC, referring_frame([(b"lost", lost), (b"next", put(films, b"sound", 1))]))
    async with client.subscriber(TOPIC, group="g", start="earliest", limit=2) as subscriber:
        found = []
        async for message in subscriber:
            found.append(message)
            if message.key == b"lost":
                with pytest.raises(PayloadLost, match=says):
                    await message.fetch()
                async with message.open() as stream:
                    with pytest.raises(PayloadLost, match=says):
                        await passed_on(stream, below=len(FILM))
                    with pytest.raises(PayloadLost, match=says):
                        await stream.read(1)
            else:
                assert await message.fetch() == b"sound"
            message.ack()
        await subscriber.commit()
    assert [m.key for m in found] == [b"lost", b"next"]
    assert films.coordinator("g", TOPIC).committed == {0: 2}


async def test_a_broken_read_is_repeated_elsewhere(client: Client, films: FakeCluster) -> None:
    films.store_frame(TOPIC, referring_frame([(b"film", put(films, FILM))]))
    (film,) = await read(client, 1)
    films.lose_blob_reads = 3
    assert await film.fetch() == FILM
    assert films.blob_reads == 5


async def test_without_brokers_the_error_says_so(films: FakeCluster) -> None:
    config = replace(QUICK, read_retry_timeout_s=0.2)
    async with aio.connect("fake:9000", dialer=films.dialer(), env=environment(), config=config) as client:
        films.store_frame(TOPIC, referring_frame([(b"film", put(films, FILM))]))
        (film,) = await read(client, 1)
        films.lose_blob_reads = 1_000
        with pytest.raises(Unavailable, match=r"connection .* was reset"):
            await film.fetch()


async def test_the_storage_itself_is_read_where_the_process_has_it(films: FakeCluster, tmp_path: Path) -> None:
    here, elsewhere = put(films, FILM), put(films, b"elsewhere", 1)
    path = tmp_path / here.uri
    path.parent.mkdir(parents=True)
    path.write_bytes(FILM)
    films.store_frame(TOPIC, referring_frame([(b"film", here), (b"other", elsewhere)]))
    async with aio.connect(
        "fake:9000", dialer=films.dialer(), env=environment(), config=QUICK, storage=str(tmp_path)
    ) as client:
        film, other = await read(client, 2)
        assert await film.fetch() == FILM
        assert films.blob_reads == 0
        assert await other.fetch() == b"elsewhere", "what is not there is read through the brokers"
        assert films.blob_reads == 1


async def test_batches_show_the_column(client: Client, films: FakeCluster) -> None:
    reference = put(films, FILM)
    films.store_frame(TOPIC, referring_frame([(b"film", reference), (b"note", b"small")]))
    async with client.subscriber(TOPIC, start="earliest", limit=2) as subscriber:
        (batch,) = [batch async for batch in subscriber.batches()]
    assert batch.schema.names == ["_segment", "_offset", "_timestamp", "_key", "_headers", "_value", "_reference"]
    assert batch.column("_value").to_pylist() == [None, b"small"]
    assert [r and r["uri"] for r in batch.column("_reference").to_pylist()] == [reference.uri, None]


async def test_named_columns_are_the_same_in_all_batches(client: Client, films: FakeCluster) -> None:
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send(b"plain"))
    films.store_frame(TOPIC, referring_frame([(b"film", put(films, FILM))]))
    columns = ["_offset", "_value", "_reference"]
    async with client.subscriber(TOPIC, start="earliest", limit=2, columns=columns) as subscriber:
        batches = [batch async for batch in subscriber.batches()]
    table = pa.Table.from_batches(batches)
    assert table.column_names == columns
    assert [r is None for r in table["_reference"].to_pylist()] == [True, False]


async def test_a_dead_letter_has_the_reference_as_json(client: Client, films: FakeCluster) -> None:
    """In the topic of dead letters nothing resolves it."""
    reference = put(films, FILM)
    films.store_frame(TOPIC, referring_frame([(b"film", reference)]))
    async with client.subscriber(TOPIC, group="g", start="earliest", max_deliveries=1, timeout=5) as subscriber:
        async for message in subscriber:
            message.nack()
    async with client.subscriber(f"{TOPIC}.g.dead-letter", start="earliest", limit=1) as letters:
        (letter,) = [letter async for letter in letters]
    assert (letter.key, letter.value, letter.reference) == (b"film", reference_json(reference), None)
    assert letter.headers[KAFKA_HEADER] == b"1"
    assert letter.headers["dead-letter-offset"] == b"0"
