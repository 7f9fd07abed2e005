"""Options and checkpoints of streams, without Spark running."""

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from seaweedmq.core.lineage.batch_ranges import Range
from seaweedmq.errors import DataLoss, InvalidArgument, NotFound, OutOfRange, SeaweedMQError, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.lag import records_behind
from seaweedmq.spark.source import SeaweedMQSource
from seaweedmq.spark.streams import stream
from seaweedmq.spark.streams.stream import SeaweedMQStreamReader, StreamPartition
from seaweedmq.spark.streams.stream_options import LimitKind, parse_stream_options
from seaweedmq.spark.streams.stream_scan import StreamScan
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.scan.columns import columns_of
from seaweedmq.storage.store.removed import record_removed
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles

REQUIRED = {"storage": "/data", "topic": "shop/orders"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stream, "REFRESH_INTERVAL_S", 0.0)
    monkeypatch.setattr("seaweedmq.spark.streams.stream_scan.RETRY_PAUSE_S", 0.0)
    return iter(())


@pytest.fixture
def halves(orders: TopicFiles) -> TopicFiles:
    """A segment of 40 records, and its successors, which end at 60 and 50."""
    orders.table(0, 40)
    orders.split(0, 40)
    orders.table(40, 60, segment=1)
    orders.table(40, 50, segment=2)
    return orders


def reader_of(files: TopicFiles, **options: object) -> SeaweedMQStreamReader:
    given = {"storage": str(files.root), "topic": str(files.name), "startingOffsets": "earliest"}
    read = parse_stream_options({**given, **{name: str(value) for name, value in options.items()}})
    return SeaweedMQStreamReader(DirectoryPlace(files.root), read, files.topic, columns_of(files.topic))


def place(reader: SeaweedMQStreamReader) -> dict[str, int]:
    found: dict[str, int] = reader.initialOffset()["segments"]
    return found


def offsets(reader: SeaweedMQStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    rows = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            rows += list(zip(batch["segment"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    return rows


def test_a_stream_begins_at_the_latest_and_has_no_limit() -> None:
    options = parse_stream_options(REQUIRED)
    assert (options.starting.default, options.limit, options.fail_on_data_loss) == (None, None, True)


def test_limits_are_told_to_spark() -> None:
    for name, kind in (("MAXOFFSETSPERTRIGGER", LimitKind.RECORDS), ("maxBytesPerTrigger", LimitKind.BYTES)):
        assert parse_stream_options({**REQUIRED, name: "12"}).limit == (kind, 12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"maxRecordsPerTrigger": "5", "maxBytesPerTrigger": "5"},
            "exclude each other: Spark applies one limit to a batch",
        ),
        ({"maxRecordsPerTrigger": "0"}, "'maxRecordsPerTrigger' is '0': give a whole number from 1"),
        ({"maxFilesPerTrigger": "many"}, "'maxFilesPerTrigger' is 'many'"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is not an option of spark.readStream"),
        ({"failOnDataLoss": "maybe"}, "'failOnDataLoss' is 'maybe': give true or false"),
        ({"startingOffsets": "1", "startingTimestamp": "2026-01-01"}, "exclude each other"),
        ({"maxRecordPerTrigger": "1"}, "'maxRecordPerTrigger' is unknown: did you mean 'maxRecordsPerTrigger'"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_stream_options({**REQUIRED, **given})


def test_brokers_alone_are_not_enough() -> None:
    with pytest.raises(InvalidArgument, match="'storage' is missing: a stream reads the files"):
        parse_stream_options({"bootstrap": "127.0.0.1:1", "topic": "shop/orders"})


def test_a_stream_begins_where_it_is_told(halves: TopicFiles) -> None:
    assert place(reader_of(halves)) == {"0": 0}
    assert place(reader_of(halves, startingOffsets="latest")) == {"1": 60, "2": 50}
    assert place(reader_of(halves, startingOffsets=30)) == {"0": 30}
    assert place(reader_of(halves, startingOffsets=45)) == {"1": 45, "2": 45}
    assert place(reader_of(halves, startingOffsets='{"1": 42}')) == {"1": 42, "2": 40}
    assert place(reader_of(halves, startingOffsets='{"2": "latest"}')) == {"1": 40, "2": 50}


@pytest.mark.parametrize(
    ("starting", "error", "message"),
    [
        ("55", OutOfRange, "offset 55 of shop/orders#2, which is committed up to 50"),
        ('{"0": 41}', OutOfRange, "offset 41 of shop/orders#0, which ends 40"),
        ('{"9": 1}', InvalidArgument, "has no segment 9"),
        ('{"0": 1, "2": 45}', InvalidArgument, "segment 0 precedes another named segment"),
    ],
)
def test_a_start_beyond_the_end(halves: TopicFiles, starting: str, error: type[SeaweedMQError], message: str) -> None:
    with pytest.raises(error, match=message):
        reader_of(halves, startingOffsets=starting).initialOffset()


def test_a_stream_begins_at_a_time(halves: TopicFiles) -> None:

    def place_at(second: int) -> dict[str, int]:
        given = {
            "storage": str(halves.root),
            "topic": "shop/orders",
            "startingTimestamp": str(NOON_US + second * STEP_US),
        }
        read = parse_stream_options(given)
        return place(SeaweedMQStreamReader(DirectoryPlace(halves.root), read, halves.topic, columns_of(halves.topic)))

    assert (place_at(17), place_at(55), place_at(99)) == ({"0": 17}, {"1": 55, "2": 50}, {"1": 60, "2": 50})


def test_a_batch_is_the_same_when_its_files_were_converted_compacted_and_the_segment_sealed(orders: TopicFiles) -> None:
    logs = orders.log(0, 20), orders.log(20, 45)
    assert reader_of(orders, startingOffsets="latest").initialOffset()["segments"] == {"0": 0}, "its end may be torn"
    orders.seal(0, 45)
    reader = reader_of(orders)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(30))
    before = reader.partitions(start, end)
    orders.convert()
    for log in logs:
        log.unlink()
    orders.compact(0, 0, 45)
    orders.split(0, 45)
    orders.table(45, 50, segment=1)
    again = reader_of(orders)
    assert list(again.partitions(start, end)) == list(before) == [StreamPartition((Range(0, 0, 30),))]
    assert offsets(again, start, end) == [(0, n) for n in range(30)]
    assert pickle.loads(pickle.dumps(before[0])) == before[0]


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_the_first_batch_is_repeated_though_the_topic_begins_elsewhere(orders: TopicFiles, starting: str) -> None:
    """Spark stores the end of a batch, and requests the start of the first one again."""
    reader = reader_of(orders, startingOffsets=starting)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    orders.split(0, 0)  # there is no record yet
    orders.table(0, 5, segment=1)
    again = reader_of(orders, startingOffsets=starting)
    moved = again.initialOffset()
    assert (moved["segments"].keys(), again.partitions(moved, end)) == ({"1", "2"}, [])
    following = again.latestOffset(end, again.getDefaultReadLimit())
    assert offsets(again, end, following) == [(1, n) for n in range(5)]


def test_available_now_takes_what_was_there_when_it_began(orders: TopicFiles) -> None:
    orders.table(0, 20)
    reader = reader_of(orders, maxRecordsPerTrigger=15)
    reader.prepareForTriggerAvailableNow()
    place = reader.initialOffset()
    orders.table(20, 40)
    ends = []
    while (following := reader.latestOffset(place, reader.getDefaultReadLimit())) != place:
        place = following
        ends.append(place["segments"]["0"])
    assert ends == [15, 20]


def test_idle_looks_touch_three_names_and_no_file(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seaweedmq.storage.watch.SETTLING_S", 0.0)
    orders.table(0, 20)
    reader = reader_of(orders)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    for forbidden in ("os.listdir", "os.scandir", "pathlib.Path.read_bytes"):
        monkeypatch.setattr(forbidden, None)
    assert reader.latestOffset(end, ReadAllAvailable()) is end


def test_limits_count_records_bytes_or_files(orders: TopicFiles) -> None:
    for start in range(0, 100, 20):
        orders.table(start, start + 20)
    reader = reader_of(orders)
    start = reader.initialOffset()
    each = orders.files()[0].size_bytes
    for limit, least, most in (
        (ReadMaxRows(7), 7, 7),
        (ReadMaxFiles(2), 40, 40),
        (ReadMaxBytes(2 * each), 35, 45),
        (ReadAllAvailable(), 100, 100),
        (reader_of(orders).getDefaultReadLimit(), 100, 100),
    ):
        assert least <= reader.latestOffset(start, limit)["segments"]["0"] <= most


def test_a_checkpoint_that_does_not_fit_is_named_with_the_remedy(orders: TopicFiles) -> None:
    orders.table(0, 20)
    orders.seal(0, 20)
    reader = reader_of(orders)
    good = reader.initialOffset()
    others = TopicFiles(orders.root, name=TopicName("shop", "returns"), uid=8)
    others.table(0, 20)
    with pytest.raises(NotFound, match=r"the checkpoint is of topic shop/orders, not of shop/returns"):
        reader_of(others).latestOffset(good, ReadAllAvailable())
    for broken, error, message in (
        ({**good, "uid": 9}, NotFound, "a topic that was deleted, perhaps shop/orders itself"),
        ({**good, "v": 2}, Unsupported, "offsets of version 2"),
        ({"partition": 3}, InvalidArgument, "which SeaweedMQ did not write"),
        (
            {**good, "segments": {"0": 21}},
            OutOfRange,
            "at offset 21 of shop/orders#0, which ended at 20.*begin with a new checkp",
        ),
        ({**good, "segments": {"5": 1}}, OutOfRange, "in segment 5 of shop/orders, and the newest is 0"),
    ):
        with pytest.raises(error, match=message):
            reader.latestOffset(broken, ReadAllAvailable())


def test_records_that_are_gone_are_an_error_or_left_out(orders: TopicFiles) -> None:
    orders.table(30, 60)
    orders.retention_s = 60.0
    orders.write_documents()
    start, end = ({"segments": {"0": n}, "uid": 7, "v": 1} for n in (20, 50))
    with pytest.raises(OutOfRange, match="#0: offsets 20 to 30 were removed before they were read: set option failOn"):
        offsets(reader_of(orders), start, end)
    assert offsets(reader_of(orders, failOnDataLoss="false"), start, end) == [(0, n) for n in range(30, 50)]
    for file in orders.files():
        (orders.root / file.path).unlink()
    assert offsets(reader_of(orders, failOnDataLoss="false"), start, end) == []


def test_lost_records_are_an_error_or_left_out(orders: TopicFiles, caplog: pytest.LogCaptureFixture) -> None:
    lost = orders.table(20, 30)
    orders.table(10, 20)
    orders.table(30, 40)
    orders.log(40, 45)
    orders.log(50, 60, writer="b-2")
    (orders.root / lost.path).unlink()
    start, end = ({"segments": {"0": n}, "uid": 7, "v": 1} for n in (0, 60))
    reader = reader_of(orders)
    with pytest.raises(DataLoss, match=r"shop/orders#0: records of offsets \[0, 10\) are missing: no file holds them"):
        offsets(reader, start, end)
    (partition,) = reader.partitions({**start, "segments": {"0": 10}}, end)
    reading = reader.read(partition)
    assert next(reading)["offset"].to_pylist() == list(range(10, 20)), "all records before the gap"
    with pytest.raises(DataLoss, match=r"offsets \[20, 30\) are missing"):
        next(reading)
    left = [*range(10, 20), *range(30, 45), *range(50, 60)]
    assert offsets(reader_of(orders, failOnDataLoss="false"), start, end) == [(0, n) for n in left]
    for gap in ("[0, 10)", "[20, 30)", "[45, 50)"):
        assert f"offsets {gap} are missing" in caplog.text
    record_removed(DirectoryPlace(orders.root), orders.name, orders.uid, {0: 30})
    with pytest.raises(OutOfRange, match="#0: offsets 0 to 30 were removed before they were read"):
        offsets(reader, start, end)


def test_a_topic_that_is_made_anew_under_a_task_is_not_read(orders: TopicFiles) -> None:
    orders.table(0, 20)
    reader = reader_of(orders)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    orders.uid = 8
    orders.write_documents()
    with pytest.raises(NotFound, match="was recreated during the read"):
        list(reader.read(partition))


def test_a_file_that_shows_late_is_waited_for(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    log = orders.log(0, 20)
    hidden = log.rename(log.with_name(".hidden"))
    looks = iter(range(100))

    def look_again(_: object) -> float:
        if next(looks) == 2:
            hidden.rename(log)
        return 0.0

    monkeypatch.setattr("seaweedmq.spark.streams.stream_scan.wait_fixed", lambda _: look_again)
    scan = StreamScan(
        place=DirectoryPlace(orders.root), topic=orders.topic, columns=columns_of(orders.topic), fail_on_data_loss=True
    )
    assert sum(batch.num_rows for batch in scan.read([Range(0, 5, 20)])) == 15


def test_segments_that_were_pruned_unread_are_an_error_where_there_is_retention(orders: TopicFiles) -> None:
    orders.table(0, 40)
    orders.split(0, 40)
    orders.table(40, 60, segment=1)
    reader = reader_of(orders)
    start, end = ({"segments": segments, "uid": 7, "v": 1} for segments in ({"0": 10}, {"1": 60, "2": 40}))
    del orders.segments[0]
    orders.write_documents()
    assert reader.latestOffset(start, ReadAllAvailable()) == end
    orders.retention_s = 3600
    orders.write_documents()
    with pytest.raises(OutOfRange, match="segments 0 were removed by retention before they were read to their end"):
        reader_of(orders).latestOffset(start, ReadAllAvailable())
    with pytest.raises(OutOfRange, match="segments 0 were removed"):
        reader_of(orders).partitions(start, end)
    careless = reader_of(orders, failOnDataLoss=False)
    assert offsets(careless, start, careless.latestOffset(start, ReadAllAvailable())) == [(1, n) for n in range(40, 60)]


def test_a_stream_begins_with_what_retention_left(orders: TopicFiles) -> None:
    orders.retention_s = 3600
    orders.table(20, 40)
    orders.split(0, 40)
    orders.table(40, 60, segment=1)
    orders.table(45, 50, segment=2)
    orders.log(50, 60, segment=2)
    assert place(reader_of(orders)) == {"0": 20}
    for file in orders.files():
        (orders.root / file.path).unlink()
    assert place(reader_of(orders)) == {"1": 40, "2": 45}


def test_an_old_pyspark_is_told_to_be_upgraded(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seaweedmq.spark.streams.stream", None)
    source = SeaweedMQSource({"storage": str(orders.root), "topic": str(orders.name)})
    with pytest.raises(Unsupported, match=r"streaming needs pyspark>=4.2: pip install 'pyspark>=4.2,<5'"):
        source.streamReader(source.schema())


def test_only_our_sources_tell_how_far_they_are_behind() -> None:
    assert records_behind('{"behind": 12, "segments": {"0": 3}, "uid": 7, "v": 1}') == 12
    assert records_behind('{"orders": {"0": 3}}') is None
    assert records_behind("17") is None
    assert records_behind(None) is None
