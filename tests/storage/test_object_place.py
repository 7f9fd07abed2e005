"""A topic on an object store: its files are listed, converted, merged, logged for Delta, rebuilt and read there."""

import logging
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.object_keys import parse_table_object
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, delta_log_dir, document_path, table_dir
from seaweedmq.codec.state.documents import deleted_document, topic_document
from seaweedmq.core.files.live_tables import TABLE_GRACE_S
from seaweedmq.errors import Conflict, Corrupt, NotFound, Unavailable
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.staged import CompletedBatch
from seaweedmq.storage import object_place
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.jobs.rebuilding import rebuild_topic
from seaweedmq.storage.jobs.verifying import verify_topic
from seaweedmq.storage.object_place import DAMAGED, PROBES, ObjectPlace
from seaweedmq.storage.objects.blocking import BlockingObjects
from seaweedmq.storage.plan.parquet_plan import plan_parquet
from seaweedmq.storage.plan.partitions import plan_partitions
from seaweedmq.storage.plan.time_offsets import find_in_files
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.snapshot import list_topics, read_snapshot
from seaweedmq.storage.staging import StagedSink
from seaweedmq.storage.tables import compact, part_sink
from seaweedmq.storage.tables.compact import compact_tables, remove_superseded
from seaweedmq.storage.tables.delta.log_state import read_state
from seaweedmq.storage.tables.delta.open_log import open_log
from seaweedmq.storage.tables.delta.updater import DeltaLogs, reconcile
from seaweedmq.storage.tables.delta.versions import history
from seaweedmq.storage.tables.files import convert_files
from seaweedmq.storage.tables.protocol import CONVERT, decode_answer, encode_request, file_fields
from seaweedmq.storage.tables.worker import Worker
from seaweedmq.storage.watch import TopicWatch
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects, ObjectAnswer, ObjectOp, ObjectRequest
from tests.support.moto_server import MotoServer
from tests.support.object_places import memory_place, put_topic
from tests.support.object_places import moto_place as on_moto
from tests.support.scans import scan_of
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles


class Clock:
    """The clock of a store, which stands still until it is set forward."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000 * US_PER_S

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(object_place, "wall_us", made)
    return made


@pytest.fixture
def bucket(clock: Clock) -> MemoryBucket:
    return MemoryBucket(clock)


@pytest.fixture
def place(bucket: MemoryBucket) -> ObjectPlace:
    return memory_place(bucket)


@pytest.fixture
def orders(tmp_path: Path, place: ObjectPlace) -> TopicFiles:
    """Provide a topic with four log objects of ten records each."""
    files = TopicFiles(tmp_path)
    for start in range(0, 40, 10):
        files.log(start, start + 10)
    put_topic(place, files)
    return files


def tables(place: ObjectPlace, files: TopicFiles) -> list[SegmentFile]:
    return sorted(place.tables(files.name, [0]), key=lambda f: (f.base_offset, f.end_offset))


def convert(place: ObjectPlace, files: TopicFiles, first: int = 0, last: int = 4) -> list[SegmentFile]:
    logs = sorted(place.logs(files.name, 0), key=lambda f: f.base_offset)
    return convert_files(place, files.topic, logs[first:last], None, 1 << 24)


def live(place: ObjectPlace, files: TopicFiles) -> list[tuple[int, int]]:
    with open_log(place, files.name) as log:
        state = read_state(log, log.listing())
    names = [place.parse_file(f"{table_dir(files.name)}/{path}") for path in state.active]
    return sorted((name.base_offset, name.end_offset or 0) for name in names if name is not None)


def offsets(place: ObjectPlace, files: TopicFiles, table: SegmentFile) -> list[int]:
    with closing(place.open_input(table)) as source:
        found: list[int] = pq.ParquetFile(source).read(["_offset"]).column(0).to_pylist()
    return found


def test_a_topic_is_read_from_its_names(place: ObjectPlace, orders: TopicFiles) -> None:
    snapshot = read_snapshot(place, orders.name)
    assert (snapshot.topic, list_topics(place)) == (orders.topic, [orders.name])
    logs = sorted(snapshot.files, key=lambda f: f.base_offset)
    assert [(f.base_offset, f.end_offset, f.kind, f.writer) for f in logs][:2] == [
        (0, 10, FileKind.LOG, "b-1"),
        (10, 20, FileKind.LOG, "b-1"),
    ]
    assert all(f.path.startswith(f"topics/shop/orders/{orders.uid}/log/00000000/") for f in logs)
    with pytest.raises(NotFound, match="it has shop/orders"):
        read_snapshot(place, type(orders.name)("shop", "nothing"))


def test_equal_conversions_make_one_table(place: ObjectPlace, orders: TopicFiles, clock: Clock) -> None:
    dated_us = clock.now_us
    clock.now_us += 60 * US_PER_S
    (made,) = convert(place, orders)
    assert ((made.base_offset, made.end_offset), made.modified_us) == ((0, 40), dated_us)
    assert offsets(place, orders, made) == list(range(40))
    assert convert(place, orders) == [made] == tables(place, orders)
    assert verify_topic(place, orders.name).compared == 40


def test_a_table_of_other_bounds_is_not_made_beside_it(place: ObjectPlace, orders: TopicFiles) -> None:
    convert(place, orders, 1, 2)
    made = convert(place, orders, 0, 2)
    assert [(t.base_offset, t.end_offset) for t in made] == [(0, 10), (10, 20)]


def test_a_merge_leaves_the_replaced_tables_for_an_hour(place: ObjectPlace, orders: TopicFiles, clock: Clock) -> None:
    for number in range(4):
        convert(place, orders, number, number + 1)
    reconcile(place, orders.topic)
    done = compact_topic(place, orders.name)
    assert (done.problems, done.merged, done.tables_before) == ([], 4, 4)
    assert [(t.base_offset, t.end_offset) for t in tables(place, orders)] == [
        (0, 10),
        (0, 40),
        (10, 20),
        (20, 30),
        (30, 40),
    ]
    assert live(place, orders) == [(0, 40)]
    assert read_snapshot(place, orders.name).plan(0)[0].files[0].end_offset == 40
    again = compact_topic(place, orders.name)
    assert (again.merged, again.finished) == (0, 0)
    clock.now_us += int((TABLE_GRACE_S + 1) * US_PER_S)
    removed, refused = remove_superseded(place, orders.topic, 0)
    assert (len(removed), refused) == (4, [])
    (left,) = tables(place, orders)
    assert offsets(place, orders, left) == list(range(40))


def test_a_rewritten_table_is_younger_than_its_original(place: ObjectPlace, orders: TopicFiles) -> None:
    (original,) = convert(place, orders)
    (made,) = compact_tables(place, orders.topic, [original], low_watermark=13)
    assert offsets(place, orders, made) == list(range(13, 40))
    assert made.modified_us == original.modified_us + US_PER_S


def test_a_merge_of_what_others_merged_is_refused(place: ObjectPlace, orders: TopicFiles) -> None:
    made = [convert(place, orders, number, number + 1)[0] for number in range(4)]
    compact_tables(place, orders.topic, made[:3])
    with pytest.raises(Unavailable, match="merged by another process"):
        compact_tables(place, orders.topic, made[1:])


def test_versions_follow_the_tables(place: ObjectPlace, orders: TopicFiles) -> None:
    logs = DeltaLogs()
    assert logs.reconcile(place, orders.topic) is None
    convert(place, orders, 0, 1)
    assert (logs.reconcile(place, orders.topic), logs.reconcile(place, orders.topic)) == (0, None)
    convert(place, orders, 1, 2)
    assert reconcile(place, orders.topic) == 1
    convert(place, orders, 2, 3)
    assert logs.reconcile(place, orders.topic) == 2, "after the version of another process"
    assert live(place, orders) == [(0, 10), (10, 20), (20, 30)]
    assert [v.records for v in history(place, orders.name)] == [10, 20, 30]
    names = [n for n in place.listdir(table_dir(orders.name)) if n.endswith(".parquet")]
    assert all(parse_table_object(f"topics/shop/orders/7/table/{name}") for name in names)


def test_of_two_commits_of_a_version_one_counts(place: ObjectPlace, orders: TopicFiles) -> None:
    convert(place, orders, 0, 1)
    reconcile(place, orders.topic)
    with open_log(place, orders.name) as log:
        stamp = log.put_commit(1, b'{"commitInfo":{}}\n')
        assert log.put_commit(1, b'{"commitInfo":{}}\n') == stamp, "the answer to the first attempt was lost"
        with pytest.raises(Conflict, match="version 1 was written by another process"):
            log.put_commit(1, b'{"commitInfo":{"timestamp":1}}\n')


def test_checkpoints_are_written_and_old_versions_removed(
    place: ObjectPlace, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seaweedmq.storage.tables.delta import updater

    monkeypatch.setattr(updater, "is_checkpoint_due", lambda commits, *_: commits >= 2)
    logs = DeltaLogs()
    for number in range(4):
        convert(place, orders, number, number + 1)
        logs.reconcile(place, orders.topic, grace_s=0, confirmed_us=2**60)
    with open_log(place, orders.name) as log:
        listing = log.listing()
    assert (listing.checkpoints, listing.commits) == ([3], [3])
    assert live(place, orders) == [(0, 10), (10, 20), (20, 30), (30, 40)]


def test_tables_and_logs_are_scanned_and_searched_by_time(place: ObjectPlace, orders: TopicFiles) -> None:
    convert(place, orders, 0, 2)
    for log in sorted(place.logs(orders.name, 0), key=lambda f: f.base_offset)[:2]:
        place.delete(log.path)
    snapshot = read_snapshot(place, orders.name)
    source = TopicSource(place=place, snapshot=snapshot)
    scan = scan_of(place, snapshot.topic)
    batches = [batch for part in plan_partitions(source, ReadWindow(), 1) for batch in scan.read(part)]
    rows = pa.Table.from_batches(batches)
    assert rows.column("offset").to_pylist() == list(range(40))
    assert rows.column("value").to_pylist() == [b"s0v%d" % n for n in range(40)]
    for offset in (5, 25):
        wanted = {0: (NOON_US + offset * STEP_US, 0, 40)}
        assert find_in_files(place, orders.topic, wanted) == {0: offset}
    plan = plan_parquet(source, ReadWindow())
    assert ([t.end_offset for t in plan.whole], plan.ranges) == ([20], {0: [(20, 40)]})


def test_a_watch_reads_the_next_version_alone(place: ObjectPlace, orders: TopicFiles, bucket: MemoryBucket) -> None:
    now = [0.0]
    watch = TopicWatch(place, orders.name, lambda: now[0])
    assert watch.poll().table_ends == {}
    convert(place, orders, 0, 2)
    logs = DeltaLogs()
    logs.reconcile(place, orders.topic)
    now[0] = 10.0
    watch.poll()
    now[0] = 20.0
    seen = watch.poll()
    assert seen.table_ends == {0: 20}
    before = dict(bucket.applied)
    assert watch.poll() is seen
    spent = {op: count - before[op] for op, count in bucket.applied.items() if count != before[op]}
    assert spent == {ObjectOp.HEAD: 2, ObjectOp.GET: 1}
    convert(place, orders, 2, 4)
    logs.reconcile(place, orders.topic)
    assert watch.poll().table_ends == {0: 40}


def test_a_watch_sees_a_topic_that_was_created_again(place: ObjectPlace, orders: TopicFiles) -> None:
    watch = TopicWatch(place, orders.name, lambda: 0.0)
    convert(place, orders)
    reconcile(place, orders.topic)
    assert watch.poll().table_ends == {0: 40}
    orders.uid = 8
    place.replace(document_path(orders.name, TOPIC_DOCUMENT), topic_document(orders.topic))
    seen = watch.poll()
    assert (seen.topic.uid, seen.table_ends) == (8, {})


def test_a_watch_finds_a_log_that_was_written_anew(place: ObjectPlace, orders: TopicFiles) -> None:
    now = [0.0]
    watch = TopicWatch(place, orders.name, lambda: now[0])
    convert(place, orders, 0, 2)
    for number in range(1, 4):
        reconcile(place, orders.topic)
        convert(place, orders, number, number + 1)
    watch.poll()
    for name in place.listdir(delta_log_dir(orders.name)):
        place.replace(f"{delta_log_dir(orders.name)}/{name}", b"no json")
    now[0] = 61.0
    assert watch.poll().table_ends == {0: 40}, "by the names of the tables"
    assert rebuild_topic(place, orders.name).version == 0
    assert watch.poll().table_ends == {0: 40}


def test_a_damaged_log_is_copied_away_and_written_anew(place: ObjectPlace, orders: TopicFiles) -> None:
    convert(place, orders)
    reconcile(place, orders.topic)
    names = place.listdir(delta_log_dir(orders.name))
    for name in names:
        place.replace(f"{delta_log_dir(orders.name)}/{name}", b"no json")
    with pytest.raises(Corrupt, match="table rebuild shop/orders"):
        reconcile(place, orders.topic)
    done = rebuild_topic(place, orders.name)
    assert (done.problems, done.version, live(place, orders)) == ([], 0, [(0, 40)])
    for name in names:
        assert place.read(f"{DAMAGED}/topics/shop/orders/7/table/_delta_log/{name}") == b"no json"


def test_a_damaged_table_is_rebuilt_from_its_logs(place: ObjectPlace, orders: TopicFiles) -> None:
    (made,) = convert(place, orders)
    place.replace(made.path, b"damaged")
    done = rebuild_topic(place, orders.name)
    assert (done.problems, done.replaced, [t.path for t in done.made]) == ([], [made.path], [made.path])
    assert place.read(f"{DAMAGED}/{made.path}") == b"damaged"
    place.replace(made.path, b"damaged")
    for log in place.logs(orders.name, 0)[:1]:
        place.delete(log.path)
    assert rebuild_topic(place, orders.name).problems
    assert place.read(made.path) == b"damaged", "it is put back: nothing has all of its records"


def test_what_is_written_late_for_a_deleted_topic_harms_no_namesake(place: ObjectPlace, orders: TopicFiles) -> None:
    logs = place.logs(orders.name, 0)
    orders.uid = 8
    place.replace(document_path(orders.name, TOPIC_DOCUMENT), topic_document(orders.topic))
    orders.uid = 7
    (made,) = convert_files(place, orders.topic, logs, None, 1 << 24)
    assert made.path.startswith("topics/shop/orders/7/table/")
    assert convert_files(place, orders.topic, logs, None, 1 << 24) == [made]
    reconcile(place, orders.topic)
    snapshot = read_snapshot(place, orders.name)
    assert (snapshot.topic.uid, snapshot.files) == (8, ())
    assert place.has("topics/shop/orders/7/table/_delta_log")
    assert not place.has("topics/shop/orders/8")


def test_an_answer_that_is_lost_changes_nothing(orders: TopicFiles, bucket: MemoryBucket) -> None:
    async def twice(request: ObjectRequest) -> ObjectAnswer:
        """Apply each request twice, as if the answer to the first attempt was lost."""
        bucket.apply(request)
        return bucket.apply(request)

    place = ObjectPlace(BlockingObjects(MemoryObjects(bucket, carry=twice)))
    logs = DeltaLogs()
    for number in range(4):
        (made,) = convert(place, orders, number, number + 1)
        assert offsets(place, orders, made) == list(range(number * 10, number * 10 + 10))
        assert logs.reconcile(place, orders.topic) == number
    assert compact_topic(place, orders.name).problems == []
    assert [v.records for v in history(place, orders.name)] == [10, 20, 30, 40, 40]
    sink = StagedSink(place, orders.name, "q-1")
    for batch in (0, 1, 0):
        sink.finish(CompletedBatch(batch=batch, ranges=()))
    assert sink.done() == CompletedBatch(batch=1, ranges=())


def test_processes_that_do_the_same_work_leave_each_record_once(
    place: ObjectPlace, orders: TopicFiles, bucket: MemoryBucket
) -> None:
    def work(number: int) -> None:
        mine = memory_place(bucket)
        logs = DeltaLogs(rng=random.Random(number))
        for first in range(4):
            convert(mine, orders, first, first + 1)
            logs.reconcile(mine, orders.topic)
        compact_topic(mine, orders.name)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, number) for number in range(3)]:
            done.result()
    reconcile(place, orders.topic)
    assert live(place, orders) == [(0, 40)]
    assert {(t.base_offset, t.end_offset) for t in tables(place, orders)} >= {(0, 40), (0, 10), (30, 40)}
    assert len(tables(place, orders)) <= 7, "equal work makes equal names"
    versions = [v.version for v in history(place, orders.name)]
    assert versions == list(range(len(versions)))


def test_a_deleted_topic_is_not_listed(place: ObjectPlace, orders: TopicFiles) -> None:
    for name in (TOPIC_DOCUMENT, LINEAGE_DOCUMENT):
        place.replace(document_path(orders.name, name), deleted_document(orders.uid))
    assert list_topics(place) == []
    with pytest.raises(NotFound, match="no topic shop/orders"):
        read_snapshot(place, orders.name)


def test_foreign_objects_are_skipped_and_named_once(
    place: ObjectPlace, orders: TopicFiles, caplog: pytest.LogCaptureFixture
) -> None:
    convert(place, orders)
    place.replace(f"{table_dir(orders.name)}/notes.txt", b"")
    with caplog.at_level(logging.WARNING):
        assert len(tables(place, orders)) == len(tables(place, orders)) == 1
    assert [r.getMessage().count("table/notes.txt") for r in caplog.records] == [1]


def test_a_deleted_table_is_not_found(place: ObjectPlace, orders: TopicFiles) -> None:
    (made,) = convert(place, orders)
    place.delete(made.path)
    with closing(place.open_input(made)) as source, pytest.raises(FileNotFoundError):
        source.read(4)
    assert verify_topic(place, orders.name).is_sound


def test_the_clock_leaves_no_object(place: ObjectPlace) -> None:
    place.clock_s()
    assert not place.has(PROBES)


def test_a_place_is_pickled_as_its_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    place = ObjectPlace.parse("s3://bucket/a prefix/")
    pickled = pickle.dumps(place)
    assert pickle.loads(pickled) == place
    assert len({place, ObjectPlace.parse("s3://bucket/a prefix")}) == 1
    assert b"hidden" not in pickled
    assert "hidden" not in f"{place!r}{place}"
    assert place.uri("cluster.json") == "s3://bucket/a prefix/cluster.json"


def test_the_table_worker_converts_in_a_bucket(moto: MotoServer, tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    for start in (0, 10):
        files.log(start, start + 10)
    with on_moto(moto) as place:
        put_topic(place, files)
        logs = [file_fields(file) for file in place.logs(files.name, 0)]
        given = {"end_offset": None, "row_group_bytes": 1 << 24, "table_grace_s": 3_600.0, "confirmed_us": 0}
        answer = decode_answer(Worker().answer(encode_request(CONVERT, place, "c-1", files.topic, logs=logs, **given)))
        assert (len(answer.tables), answer.warning) == (1, None)
        again = pickle.loads(pickle.dumps(place))
        assert offsets(again, files, answer.tables[0]) == list(range(20))
        assert live(again, files) == [(0, 20)]
        table = place.uri(table_dir(files.name))
        assert table == f"{place}/topics/shop/orders/7/table"
        options = {**moto.environment(), "AWS_ALLOW_HTTP": "true"}
        rows = deltalake.DeltaTable(table.replace(" ", "%20"), storage_options=options).to_pyarrow_table(
            columns=["_offset"]
        )
        assert rows.column("_offset").to_pylist() == list(range(20)), "by a reader that knows nothing of SeaweedMQ"
        assert verify_topic(place, files.name).is_sound


def test_a_merge_is_written_in_parts(place: ObjectPlace, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_sink, "TAIL_BYTES", 4_096)
    monkeypatch.setattr(part_sink, "PART_BYTES", 128)
    made = [convert(place, orders, number, number + 1)[0] for number in range(4)]
    (merged,) = compact_tables(place, orders.topic, made, row_group_bytes=1_000)
    assert offsets(place, orders, merged) == list(range(40))
    assert verify_topic(place, orders.name).is_sound


def test_a_merge_that_fails_leaves_nothing(
    place: ObjectPlace, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [convert(place, orders, number, number + 1)[0] for number in range(4)]

    def fail(*_: object) -> None:
        raise Unavailable("the process is stopped")

    monkeypatch.setattr(compact, "write_merge", fail)
    with pytest.raises(Unavailable, match="stopped"):
        compact_tables(place, orders.topic, made)
    assert tables(place, orders) == made
