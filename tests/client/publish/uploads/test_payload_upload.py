"""One upload: what a lost broker costs, and what an earlier upload left."""

import asyncio
import gzip
import io
from pathlib import Path

import pytest

from seaweedmq.aio import Client
from seaweedmq.client.publish.uploads import payload_upload
from seaweedmq.client.publish.uploads.sources import FileSource, StreamSource
from seaweedmq.errors import InvalidArgument, SeaweedMQError, Unavailable
from tests.client.conftest import FakeCluster
from tests.sim.machines.loop import SimLoop

TOPIC = "shop/films"
CONTENT = b"0123456789abcdef!"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (FileSource, StreamSource):
        monkeypatch.setattr(source, "part_bytes", 4)
    monkeypatch.setattr(payload_upload, "CHUNK_BYTES", 3)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(CONTENT)
    return path


async def test_a_lost_broker_costs_one_part_of_a_file(cluster: FakeCluster, client: Client, film: Path) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.broken_parts = [1, 3]
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send_file(film))
    assert list(cluster.payloads.values()) == [CONTENT]
    assert cluster.stored_parts == [0, 1, 2, 3, 4], "a stored part is not sent again"


async def test_a_lost_broker_costs_one_part_of_a_stream(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.broken_parts = [0, 1, 4]
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send_stream(io.BytesIO(CONTENT)))
    assert list(cluster.payloads.values()) == [CONTENT]
    assert cluster.stored_parts == [0, 1, 2, 3, 4]


async def test_a_stream_whose_stored_parts_are_gone_is_one_error(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)

    class Forgetting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 8 and cluster.stored_parts == [0, 1]:
                next(iter(cluster.parts.values())).clear()
                cluster.broken_parts = [2]
            return super().read(size)

    async with client.publisher(TOPIC) as publisher:
        sent = await publisher.send_stream(Forgetting(CONTENT))
        with pytest.raises(InvalidArgument, match="stored parts of a stream are gone"):
            await sent


async def test_an_upload_that_was_interrupted_sends_the_rest(cluster: FakeCluster, client: Client, film: Path) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.parts[FileSource(film).upload_id] = {0: CONTENT[:4], 1: b"????"}
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send_file(film))
    assert list(cluster.payloads.values()) == [CONTENT]
    assert cluster.stored_parts == [1, 2, 3, 4], "a part with other content is replaced"


async def test_a_file_that_is_sent_again_is_not_uploaded_again(
    cluster: FakeCluster, client: Client, film: Path
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        for _ in range(2):
            await (await publisher.send_file(film))
    assert cluster.stored_parts == [0, 1, 2, 3, 4]
    assert list(cluster.payloads.values()) == [CONTENT]


async def test_another_payload_under_the_id_is_left_alone(cluster: FakeCluster, client: Client, film: Path) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send_file(film))
        (uri,) = cluster.payloads
        cluster.parts[FileSource(film).upload_id][2] = b"????"
        await (await publisher.send_file(film))
    assert list(cluster.payloads) != [uri]
    assert [*cluster.payloads.values()] == [CONTENT, CONTENT]


async def test_an_upload_without_progress_fails_in_time(cluster: FakeCluster, client: Client, film: Path) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.broken_parts = [1] * 10_000
    began = asyncio.get_running_loop().time()
    async with client.publisher(TOPIC, delivery_timeout_s=5.0) as publisher:
        sent = await publisher.send_file(film, key=b"k")
        later = await publisher.send(b"later", key=b"k")
        with pytest.raises(Unavailable, match="part 1 was damaged"):
            await sent
        assert (await later).offset == 0
        with pytest.raises(SeaweedMQError, match="part 1 was damaged"):
            await publisher.flush()
    assert 5.0 <= asyncio.get_running_loop().time() - began < 15.0


async def test_closing_ends_an_upload_in_time(cluster: FakeCluster, client: Client, film: Path) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.broken_parts = [1] * 10_000
    publisher = await client.publisher(TOPIC)
    sent = await publisher.send_file(film)
    with pytest.raises(SeaweedMQError, match="not acknowledged after 1 s"):
        await publisher.close(timeout=1)
    with pytest.raises(SeaweedMQError, match="was closed before"):
        await sent


async def test_a_broken_stream_fails_its_own_record_only(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    whole = gzip.compress(bytes(range(256)))
    with gzip.GzipFile(fileobj=io.BytesIO(whole[:-9])) as cut:
        await fail_alone(client, cut)


async def fail_alone(client: Client, cut: gzip.GzipFile) -> None:
    async with client.publisher(TOPIC) as publisher:
        sent = await publisher.send_stream(cut)  # type: ignore[arg-type]  # a reader
        with pytest.raises(InvalidArgument, match=r"stream cannot be read, EOFError.*: repair it"):
            await sent
        assert (await (await publisher.send(b"later"))).offset == 0
        with pytest.raises(InvalidArgument):
            await publisher.flush()


async def test_a_stream_may_take_its_time(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.upload_silence_s = 60.0
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    delays_s: list[float] = []
    loop.thread_latency_s = lambda: delays_s.pop() if delays_s else 0.0

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            delays_s.append(200.0)
            return super().read(size)

    async with client.publisher(TOPIC) as publisher:
        await (await publisher.send_stream(Slow(CONTENT)))
    assert list(cluster.payloads.values()) == [CONTENT]
    assert cluster.stored_parts == [0, 1, 2, 3, 4]


async def test_a_file_that_hangs_fails_in_time(
    cluster: FakeCluster, client: Client, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.upload_silence_s = 60.0
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    delays_s: list[float] = []
    loop.thread_latency_s = lambda: delays_s.pop() if delays_s else 0.0
    read = FileSource.read

    def hang(source: FileSource, position: int, length: int) -> bytes:
        delays_s.append(1_000_000.0)
        return read(source, position, length)

    monkeypatch.setattr(FileSource, "read", hang)
    async with client.publisher(TOPIC) as publisher:
        sent = await publisher.send_file(film)
        with pytest.raises(SeaweedMQError, match="was silent"):
            await sent
    assert 100 < loop.time() < 1_000
