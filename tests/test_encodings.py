"""Kafka batches beside frames of native publishers, in one segment: all readers get equal records.

Errors name an encoding that a build does not know, and its brokers pass such frames on.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq import aio
from seaweedmq.client.admin.lag import lag_seconds
from seaweedmq.client.client import Client
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.codec.frame import encode_header, split_frames
from seaweedmq.codec.payload.batch import clip_frame, validate_payload
from seaweedmq.core.files.snapshot import plan_snapshot
from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.groups import GroupDescription, GroupTopic, SegmentLag
from seaweedmq.model.messages.publish import PublishFrames
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.time_search import find_offset_by_time
from seaweedmq.storage.scan.columns import columns_of
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.broker.testbed import NAME as BED_TOPIC
from tests.broker.testbed import Testbed, frame, story
from tests.client.conftest import NOW_US, QUICK, environment
from tests.client.fake_broker import FakeCluster
from tests.support.kafka_batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, batch_of, frame_bytes
from tests.support.scans import scan_of
from tests.support.segments import NAME, T0, make_frame, make_segment, make_topic, records_of, tables_of, write_log

Row = tuple[object, object, object, object]
"""Key, value, headers, microseconds."""

TOPIC = "shop/orders"
SENT = (
    Record(b"k", b"v", (("h", b"1"), ("h", None)), T0 // 1_000 + 20_000),
    Record(b"k", None, (), T0 // 1_000 + 21_000),
    Record(None, b"", (("", b""),), T0 // 1_000 + 19_000),
)


def row_of(record: Record) -> Row:
    return record.key, record.value, list(record.headers) or None, record.timestamp_ms * 1_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileSegmentStore]:
    made = FileSegmentStore(tmp_path)
    yield made
    await made.close()


def mixed() -> tuple[list[bytes], list[Row]]:
    """Return frames of one segment from offset 0 on, native and all five codecs in turn, and their rows."""
    frames: list[bytes] = []
    rows: list[Row] = []
    for compression in (NONE, GZIP, SNAPPY, LZ4, ZSTD):
        native = make_frame(len(rows), 2, keys=True, stamps=True)
        frames.append(native)
        rows += [native_row(row) for _, row in records_of(native)]
        frames.append(frame_bytes(batch_of(SENT, compression), len(rows), slot=1))
        rows += [row_of(record) for record in SENT]
    return frames, rows


def native_row(row: dict[str, object]) -> Row:
    stamp = pa.scalar(row["_timestamp"], pa.timestamp("us", tz="UTC")).value
    return row["_key"], row["_value"], row.get("_headers"), stamp


async def read(store: FileSegmentStore, start: int, end: int) -> list[tuple[int, Row]]:
    found: list[tuple[int, Row]] = []
    async for chunk in read_segment(store, make_topic(), 0, start, end, chunk_bytes=1 << 20):
        found += [(offset, native_row(row)) for offset, row in records_of(chunk.data)]
    return found


async def scanned(store: FileSegmentStore, topic: Topic, end: int, timestamps: Interval | None = None) -> pa.Table:
    """Scan with Spark's reader, without Spark."""
    scan = scan_of(store.place.root, topic, timestamps=timestamps)
    pieces = plan_snapshot(topic, make_segment(end), await store.list_files(NAME, 0))
    return pa.Table.from_batches(list(scan.read(pieces)))


def rows_in(table: pa.Table, names: Sequence[str]) -> list[Row]:
    stamps = table.column(names[3]).cast(pa.int64())
    return list(zip(*(table.column(n).to_pylist() for n in names[:3]), stamps.to_pylist(), strict=True))


async def test_logs_tables_and_spark_give_every_record_as_it_was_sent(store: FileSegmentStore) -> None:
    frames, rows = mixed()
    log = await write_log(store, 0, frames)
    numbered = list(enumerate(rows))
    assert await read(store, 0, len(rows)) == numbered
    spark = await scanned(store, make_topic(), len(rows))
    names = ("key", "value", "headers", "timestamp")
    assert rows_in(spark, names) == rows
    convert_files(store.place, make_topic(), [log], len(rows), 200)
    await store.delete([log])
    (table,) = await tables_of(store)
    plain = pq.read_table(store.place.root / table.path)
    assert rows_in(plain, ("_key", "_value", "_headers", "_timestamp")) == rows
    assert await read(store, 0, len(rows)) == numbered
    assert (await scanned(store, make_topic(), len(rows))).equals(spark)


async def test_a_log_that_goes_on_within_a_batch_is_cut_there(store: FileSegmentStore) -> None:
    """A table has the first part of a batch, and the log all of it. The first frame may begin below the start."""
    frames, rows = mixed()
    log = await write_log(store, 0, frames)
    convert_files(store.place, make_topic(), [log], 3, 1 << 20)
    numbered = list(enumerate(rows))
    assert (await tables_of(store))[0].end_offset == 3
    assert await read(store, 0, len(rows)) == numbered
    for start in range(len(rows)):
        found = await read(store, start, len(rows))
        assert found[-(len(rows) - start) :] == numbered[start:]
        assert len(found) < len(rows) - start + 3


async def test_times_are_found_within_batches_and_batches_by_their_times(store: FileSegmentStore) -> None:
    """A batch's header has the lowest time, which is not that of its first record."""
    topic = make_topic()
    log = await write_log(store, 0, [make_frame(0, 2, stamps=True), frame_bytes(batch_of(SENT, ZSTD), 2)])

    async def found() -> list[int | None]:
        records = [await find_offset_by_time(store, topic, 0, T0 + s * 1_000_000, 5) for s in (1, 2, 19, 20, 21, 22)]
        return [None if record is None else record.offset for record in records]

    assert await found() == [1, 2, 2, 2, 3, None]
    window = Interval(T0 + 19_000_000, T0 + 20_000_000)
    (row,) = (await scanned(store, topic, 5, window)).to_pylist()
    assert (row["offset"], row["value"]) == (4, b"")
    convert_files(store.place, topic, [log], 5, 1 << 20)
    await store.delete([log])
    assert await found() == [1, 2, 2, 2, 3, None]


async def test_what_little_was_is_counted_as_the_much_it_becomes(store: FileSegmentStore) -> None:
    """Row groups are limited by the records' size in memory, not by their size in a batch."""
    batch = batch_of([Record(b"k", bytes(1_000))] * 100, ZSTD)
    log = await write_log(store, 0, [frame_bytes(batch, 100 * n) for n in range(10)])
    assert len(batch) < 1_000
    convert_files(store.place, make_topic(), [log], 1_000, 250_000)
    (table,) = await tables_of(store)
    read = pq.read_metadata(store.place.root / table.path)
    assert [read.row_group(n).num_rows for n in range(4)] == [300, 300, 300, 100]


async def test_tables_and_spark_tell_the_partition(store: FileSegmentStore) -> None:
    """The partition comes from the frame in a log, from its column in a table."""
    topic = replace(make_topic(), partitions=4)
    frames = [frame_bytes(batch_of(SENT), 0, slot=3), frame_bytes(batch_of(SENT, GZIP), 3, slot=3)]
    log = await write_log(store, 0, frames)
    from_log = await scanned(store, topic, 6)
    assert from_log.column_names[:4] == ["topic", "segment", "partition", "offset"]
    assert from_log.column("partition").to_pylist() == [3] * 6
    convert_files(store.place, topic, [log], 6, 1 << 20)
    await store.delete([log])
    assert (await scanned(store, topic, 6)).equals(from_log)


def test_a_topics_own_column_partition_keeps_its_name() -> None:
    own = pa.schema([("Partition", pa.string())])
    topic = replace(make_topic(own.serialize().to_pybytes()), partitions=4)
    assert [c.name for c in columns_of(topic)][:5] == ["topic", "segment", "_partition", "offset", "timestamp"]
    with pytest.raises(InvalidArgument, match="no column 'partition'"):
        columns_of(make_topic(), ["partition"])


@story
async def test_brokers_take_it_in_and_pass_it_on(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.stream.send(PublishFrames(frame_bytes(batch_of(SENT, LZ4, producer=(1, 0, 0)))))
    assert await publisher.acks() == [(0, 0)]
    await publisher.stream.send(PublishFrames(frame_bytes(batch_of(SENT, NONE, producer=(1, 0, 3)))))
    assert await publisher.acks() == [(3, 3)]
    assert await (await host.subscriber()).until(6) == [record.value for record in SENT] * 2


# --- clients ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
        yield client


async def stored(cluster: FakeCluster, client: Client, records: Sequence[Record], partition: int = 1) -> None:
    """Store the records as one batch in a partition of the topic, which has three."""
    await client.admin.create_topic(TOPIC, partitions=3)
    (frame,) = split_frames(frame_bytes(batch_of(records, ZSTD), slot=partition))
    place = cluster.stored(TOPIC, partition)
    place.frames, place.headers = [bytes(frame.header_bytes) + bytes(frame.payload)], [frame.header]
    place.ends, place.end = [len(records)], len(records)


NOW_MS = NOW_US // 1_000
TOMBSTONES = (
    Record(b"gone", None, (("why", None), ("why", b"old")), NOW_MS - 60_000),
    Record(None, b"", (), NOW_MS - 61_000),
)


async def test_subscribers_tell_null_from_empty(cluster: FakeCluster, client: Client) -> None:
    await stored(cluster, client, TOMBSTONES)
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        gone, empty = [message async for message in subscriber]
    assert (gone.key, gone.value, gone.partition, gone.offset) == (b"gone", None, 1, 0)
    assert (gone.header_pairs, gone.headers) == ([("why", None), ("why", b"old")], {"why": b"old"})
    assert (empty.key, empty.value, empty.headers) == (None, b"", {})
    assert (gone.timestamp_us, empty.timestamp_us) == ((NOW_MS - 60_000) * 1_000, (NOW_MS - 61_000) * 1_000)


async def test_delivered_batches_tell_the_partition(cluster: FakeCluster, client: Client) -> None:
    await stored(cluster, client, TOMBSTONES)
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        (batch,) = [batch async for batch in subscriber.batches()]
    names = ["_segment", "_partition", "_offset", "_timestamp", "_key", "_headers", "_value"]
    assert (batch.schema.names, batch.column("_partition").to_pylist()) == (names, [1, 1])
    names = ["_partition", "_value"]
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest", columns=names) as subscriber:
        (batch,) = [batch async for batch in subscriber.batches()]
    assert batch.to_pylist() == [{"_partition": 1, "_value": None}, {"_partition": 1, "_value": b""}]
    await client.admin.create_topic("shop/ring")
    with pytest.raises(InvalidArgument, match="no column '_partition'"):
        async with client.subscriber("shop/ring", start="earliest", columns=["_partition"]):
            pass


async def test_groups_deal_with_them_and_dead_letters_keep_them(cluster: FakeCluster, client: Client) -> None:
    await stored(cluster, client, TOMBSTONES)
    got: list[Message] = []
    async with client.subscriber(
        TOPIC, group="g", start="earliest", stop_at="latest", max_deliveries=2, dead_letter="shop/lost"
    ) as member:
        async for message in member:
            got.append(message)
            if message.key == b"gone":
                message.nack()
            else:
                message.ack()
    assert [(message.key, message.value) for message in got].count((b"gone", None)) == 2
    assert cluster.coordinator("g", TOPIC).committed[1] == 2
    async with client.subscriber("shop/lost", start="earliest", stop_at="latest") as lost:
        (letter,) = [message async for message in lost]
    assert (letter.key, letter.value, letter.headers["why"]) == (b"gone", None, b"old")
    assert letter.header_pairs is not None
    assert letter.header_pairs[:2] == [("why", None), ("why", b"old")]


async def test_a_groups_lag_is_the_age_of_a_record_in_a_batch(cluster: FakeCluster, client: Client) -> None:
    await stored(cluster, client, TOMBSTONES, partition=0)
    asking = Cluster(("fake:9000",), cluster.dialer(), environment(), QUICK)
    behind = SegmentLag(segment=0, owner="", committed=1, end_offset=2, lag_records=1)
    topic = GroupTopic(
        topic=TopicName("shop", "orders"), generation=1, start=EARLIEST, members=(), segments=(behind,), finished=()
    )
    assert await lag_seconds(asking, GroupDescription(group="g", topics=(topic,))) == {TOPIC: {0: 61.0}}
    await asking.close()


# --- an encoding that this build does not know ------------------------------------------------------------------------

TOY = 9
UNKNOWN = r"payload encoding 9, this build knows 1 \(Arrow IPC\), 2 \(Kafka batch\); upgrade the older side"


def turned(payload: Frames) -> memoryview:
    """Invert every bit, so that the payload is not valid Arrow."""
    return memoryview(np.bitwise_not(np.frombuffer(payload, np.uint8)).tobytes())


def toy_of(data: Frames) -> bytes:
    """Return a frame of this encoding with the records of an Arrow frame."""
    (found,) = split_frames(data)
    payload = turned(found.payload)
    header = found.header._replace(encoding=TOY, payload_checksum=xxh3_64_intdigest(payload))
    return encode_header(header) + bytes(payload)


def toy_frame(base: int, count: int) -> bytes:
    return toy_of(make_frame(base, count, keys=True, stamps=True))


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
