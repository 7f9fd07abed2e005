"""Tests with a second payload encoding: all readers use the dispatch, and errors name an unknown encoding."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq import aio
from seaweedmq.client.admin.lag import lag_seconds
from seaweedmq.client.client import Client
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.codec.frame import Frame, FrameHeader, encode_header, split_frames
from seaweedmq.codec.payload.batch import ENCODINGS, Encoding, clip_frame, validate_payload
from seaweedmq.core.files.snapshot import plan_snapshot
from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.groups import GroupDescription, GroupTopic, SegmentLag
from seaweedmq.model.messages.publish import PublishFrames
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.time_search import find_offset_by_time
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.broker.testbed import NAME as BED_TOPIC
from tests.broker.testbed import Testbed, frame, story, values
from tests.client.conftest import NOW_US, QUICK, environment
from tests.client.fake_broker import FakeCluster
from tests.support.scans import scan_of
from tests.support.segments import (
    NAME,
    T0,
    make_frame,
    make_segment,
    make_topic,
    records_of,
    tables_of,
    value_of,
    write_log,
)

ARROW = ENCODINGS[1]
TOY = 9
UNKNOWN = r"payload encoding 9, this build knows 1 \(Arrow IPC\), 2 \(Kafka batch\); upgrade the older side"


def turned(payload: Frames) -> memoryview:
    """Invert every bit, so that the payload is not valid Arrow."""
    return memoryview(np.bitwise_not(np.frombuffer(payload, np.uint8)).tobytes())


def to_arrow(toy: Frame) -> Frame:
    return Frame(toy.header._replace(encoding=1), toy.header_bytes, turned(toy.payload))


def validate(header: FrameHeader, payload: Frames, schema: pa.Schema | None) -> None:
    ARROW.validate(header, turned(payload), schema)


def decode(toy: Frame, schema: pa.Schema | None) -> pa.RecordBatch:
    return ARROW.decode(to_arrow(toy), schema)


def clip(toy: Frame, batch: pa.RecordBatch, skipped: int) -> bytes:
    """Clip a frame as Arrow does: a segment may have frames of several encodings."""
    return ARROW.clip(to_arrow(toy), batch, skipped)


def toy_of(data: Frames) -> bytes:
    """Return a frame of this encoding with the records of an Arrow frame."""
    (found,) = split_frames(data)
    payload = turned(found.payload)
    header = found.header._replace(encoding=TOY, payload_checksum=xxh3_64_intdigest(payload))
    return encode_header(header) + bytes(payload)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODINGS, TOY, Encoding("toy", validate, decode, clip))


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
        yield client


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileSegmentStore]:
    made = FileSegmentStore(tmp_path)
    yield made
    await made.close()


def toy_frame(base: int, count: int) -> bytes:
    return toy_of(make_frame(base, count, keys=True, stamps=True))


async def read(store: FileSegmentStore, start: int, end: int) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    async for chunk in read_segment(store, make_topic(), 0, start, end, chunk_bytes=1 << 20):
        found += [(offset, row["_value"]) for offset, row in records_of(chunk.data)]
    return found


def expected(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, value_of(n)) for n in range(start, end)]


@pytest.mark.usefixtures("known")
async def test_files_of_it_are_read_searched_and_converted(store: FileSegmentStore) -> None:
    """Frames of Arrow are in the same segment."""
    first = await write_log(store, 0, [toy_frame(0, 10), make_frame(10, 5, stamps=True), toy_frame(15, 5)])
    await write_log(store, 18, [toy_frame(18, 7)], writer="b-2")
    assert await read(store, 0, 20) == expected(0, 20)
    assert await find_offset_by_time(store, make_topic(), 0, T0 + 7_000_000, 20) == (7, T0 + 7_000_000)
    topic = make_topic()
    scan = scan_of(store.place.root, topic, ["offset", "value"])
    pieces = plan_snapshot(topic, make_segment(20), await store.list_files(NAME, 0))
    rows = [row for batch in scan.read(pieces) for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == expected(0, 20)
    convert_files(store.place, topic, [first], 20, 1 << 20)
    await store.delete([first])
    (table,) = await tables_of(store)
    assert (table.base_offset, table.end_offset) == (0, 20)
    assert await read(store, 3, 25) == expected(3, 25), "the log's frame that begins below the table's end is cut"


@pytest.mark.usefixtures("known")
def test_it_is_checked_by_its_own_rules_and_by_those_of_all_frames() -> None:
    (sound,) = split_frames(toy_frame(0, 3))
    validate_payload(sound.header, sound.payload, None)
    with pytest.raises(InvalidArgument, match="has timestamps from"):
        validate_payload(sound.header._replace(timestamp_max=T0 + 10**9), sound.payload, None)
    with pytest.raises(InvalidArgument, match="the lowest comes first"):
        validate_payload(sound.header._replace(slot_min=5, slot_max=4), sound.payload, None)
    clipped = clip_frame(sound, 1, None)
    assert [offset for offset, _ in records_of(clipped)] == [1, 2]


@pytest.mark.usefixtures("known")
@story
async def test_brokers_take_it_in_and_pass_it_on(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.stream.send(PublishFrames(toy_of(frame(3))))
    assert await publisher.acks() == [(0, 0)]
    assert await (await host.subscriber()).until(3) == values(1, 3)


@story
async def test_brokers_that_do_not_know_it_name_it(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.stream.send(PublishFrames(toy_of(frame(3))))
    error = await publisher.stream.failure()
    assert isinstance(error, Unsupported)
    assert "payload encoding 9" in str(error)
    assert host.inspect.segments[BED_TOPIC, 0].log.end == 0


@pytest.mark.usefixtures("known")
async def test_clients_read_it_and_tell_its_age(cluster: FakeCluster, client: Client) -> None:
    await toys(cluster, client)
    async with client.subscriber("shop/orders", start="earliest", stop_at="latest") as subscriber:
        assert [message.value["value"] async for message in subscriber] == [b"0", b"1"]
    asking = Cluster(("fake:9000",), cluster.dialer(), environment(), QUICK)
    behind = SegmentLag(segment=0, owner="", committed=1, end_offset=2, lag_records=1)
    topic = GroupTopic(
        topic=TopicName("shop", "orders"), generation=1, start=EARLIEST, members=(), segments=(behind,), finished=()
    )
    assert await lag_seconds(asking, GroupDescription(group="g", topics=(topic,))) == {"shop/orders": {0: 59.0}}
    await asking.close()


async def test_clients_that_do_not_know_it_name_it(cluster: FakeCluster, client: Client) -> None:
    await toys(cluster, client)
    async with client.subscriber("shop/orders", start="earliest", stop_at="latest") as subscriber:
        with pytest.raises(Unsupported, match=UNKNOWN):
            await anext(aiter(subscriber))


async def toys(cluster: FakeCluster, client: Client) -> None:
    """Store a frame of this encoding with two records: a minute old, and a second younger."""
    await client.admin.create_topic("shop/orders")
    table = pa.table({"at": pa.array([NOW_US - 60_000_000, NOW_US - 59_000_000]), "value": [b"0", b"1"]})
    table = table.set_column(0, "at", table.column(0).cast(pa.timestamp("us", tz="UTC")))
    async with client.publisher("shop/orders") as publisher:
        await publisher.send_table(table, timestamp="at")
    stored = cluster.stored("shop/orders")
    (data,) = stored.frames
    stored.frames[:] = [toy_of(data)]


async def test_who_does_not_know_it_names_it(store: FileSegmentStore) -> None:
    log = await write_log(store, 0, [toy_frame(0, 10)])
    (found,) = split_frames(toy_frame(0, 10))
    with pytest.raises(Unsupported, match=UNKNOWN):
        await find_offset_by_time(store, make_topic(), 0, T0 + 7_000_000, 10)
    with pytest.raises(Unsupported, match=UNKNOWN):
        convert_files(store.place, make_topic(), [log], 10, 1 << 20)
    with pytest.raises(Unsupported, match=UNKNOWN):
        clip_frame(found, 5, None)
    with pytest.raises(Unsupported, match=UNKNOWN):
        validate_payload(found.header, found.payload, None)


async def test_a_frame_of_an_unknown_encoding_is_passed_on_as_it_is(store: FileSegmentStore) -> None:
    """Older brokers of a cluster store, count and deliver frames that they cannot read."""
    data = toy_frame(0, 10)
    await write_log(store, 0, [data])
    chunks = [c async for c in read_segment(store, make_topic(), 0, 0, 10, chunk_bytes=1 << 20)]
    assert b"".join(c.data for c in chunks) == data
