"""Plans of reads: tables for a reader of Parquet, and the rest for scans."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, In

from seaweedmq.codec.paths import kept_path
from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import Corrupt, DataLoss, NotFound, OutOfRange
from seaweedmq.model.ring import slot_of
from seaweedmq.spark.filters import narrowed
from seaweedmq.spark.options import SparkOptions, parse_options
from seaweedmq.spark.topic_access import find
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.plan.parquet_plan import ParquetPlan, divide, groups_of, plan_parquet
from seaweedmq.storage.plan.partitions import Sharing, plan_partitions, shared
from seaweedmq.storage.plan.read_plan import plan_read
from seaweedmq.storage.plan.scan_ranges import BrokerRange, plan_ranges
from seaweedmq.storage.plan.topic_source import BrokerOffsets, TopicSource
from seaweedmq.storage.plan.window import Interval, ReadWindow
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.store.removed import record_removed
from tests.core.files import segment_files
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles


def planned(files: TopicFiles, **options: str) -> ParquetPlan:
    parsed = parse_options({"storage": str(files.root), "topic": str(files.name), **options})
    return planned_once(find(parsed.location, ends=True), parsed)


def planned_once(source: TopicSource, options: SparkOptions) -> ParquetPlan:
    """Plan without another attempt if files were deleted meanwhile."""
    return divide(source, plan_read(source, options.window), options.window.timestamps)


def whole(plan: ParquetPlan) -> list[tuple[int, int | None]]:
    return [(f.base_offset, f.end_offset) for f in plan.whole]


def clipped(plan: ParquetPlan) -> list[tuple[int, int | None]]:
    return [(p.start_offset, p.end_offset) for p in plan.clipped]


def test_tables_are_read_whole_or_in_part_and_logs_by_the_source(orders: TopicFiles) -> None:
    orders.table(0, 40, keep_log=True)
    orders.table(40, 60)
    orders.log(60, 75)
    assert planned(orders) == ParquetPlan(whole=planned(orders).whole, clipped=(), ranges={0: [(60, 75)]})
    assert whole(planned(orders)) == [(0, 40), (40, 60)]
    some = planned(orders, startingOffsets="10", endingOffsets="70")
    assert (whole(some), clipped(some), some.ranges) == ([(40, 60)], [(10, 40)], {0: [(60, 70)]})


def test_logs_without_records_leave_nothing_to_the_source(orders: TopicFiles) -> None:
    orders.table(0, 40)
    orders.log(40, 40)
    orders.log(40, 40, writer="b-2")
    assert planned(orders).ranges == {}


def test_the_tail_ends_with_its_last_sound_frame(orders: TopicFiles) -> None:
    log = orders.log(0, 30)
    orders.log(30, 35)
    torn = orders.log(35, 60)
    torn.write_bytes(torn.read_bytes()[:-5])
    assert planned(orders).ranges == {0: [(0, 55)]}
    with_hole = bytearray(orders.log(35, 55).read_bytes())
    with_hole[-60:] = bytes(60)  # a payload that power loss took, after its header
    torn.write_bytes(with_hole)
    assert planned(orders).ranges == {0: [(0, 45)]}
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    orders.seal(0, 35)
    assert planned(orders).ranges == {0: [(0, 35)]}  # the reader reports damage of known records


def test_a_log_of_large_frames_is_not_read_to_find_its_end(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.log(0, 200_000, per_frame=20_000)
    monkeypatch.setattr("seaweedmq.storage.plan.log_ends._VERIFIED_BYTES", 0)
    assert planned(orders).ranges == {0: [(0, 200_000)]}


def test_tables_out_of_time_are_left_out(orders: TopicFiles) -> None:
    for start in range(0, 100, 20):
        orders.table(start, start + 20)
    plan = planned(orders, startingTimestamp=str(NOON_US + 45 * STEP_US), endingTimestamp=str(NOON_US + 61 * STEP_US))
    assert whole(plan) == [(40, 60), (60, 80)]


def test_a_table_that_is_not_what_its_name_says_is_told(orders: TopicFiles) -> None:
    made = orders.root / orders.table(0, 40).path
    shutil.copy(made, made.with_name(made.name.replace("40.parquet", "41.parquet")))
    made.unlink()
    with pytest.raises(Corrupt, match="has 40 rows, its name requires 41, it was renamed or is foreign"):
        planned(orders)


def piece(base: int, end: int, start: int, stop: int, segment: int = 0) -> SnapshotPiece:
    file = segment_files.table(base, end, segment=segment)
    return SnapshotPiece(segment=segment, start_offset=start, end_offset=stop, files=(file,), complete=True)


def test_tables_are_read_together_unless_one_holds_what_another_is_to_give() -> None:
    one, two, other = piece(0, 50, 10, 50), piece(50, 90, 50, 60), piece(0, 50, 10, 50, segment=1)
    overlapping = piece(40, 90, 50, 80)
    assert groups_of([one, two, other]) == [[one, two, other]]
    assert groups_of([one, overlapping]) == [[one], [overlapping]]


# --- offsets that are named beyond the end --------------------------------------------------------------------------


def test_the_end_of_an_open_segment_is_looked_for_in_its_last_files_alone(orders: TopicFiles) -> None:
    orders.log(40, 60)  # the records before it are lost, and not needed here
    orders.log(60, 70)
    torn = orders.log(70, 90)
    torn.write_bytes(torn.read_bytes()[:-5])
    assert planned(orders, startingOffsets='{"0": 65}', endingOffsets='{"0": 80}').ranges == {0: [(65, 80)]}
    with pytest.raises(OutOfRange, match="'endingOffsets' is offset 81 of shop/orders#0, which is in files up to"):
        planned(orders, startingOffsets='{"0": 65}', endingOffsets='{"0": 81}')


def test_logs_that_become_tables_meanwhile_are_looked_for_again(orders: TopicFiles) -> None:
    log = orders.log(0, 20)
    parsed = parse_options({"storage": str(orders.root), "topic": str(orders.name), "startingOffsets": '{"0": 20}'})
    found = find(parsed.location, ends=True)
    orders.convert()
    log.unlink()
    plan_read(found, parsed.window)


def test_a_segment_without_files_ends_where_it_begins_unless_retention_may_have_emptied_it(tmp_path: Path) -> None:
    kept = TopicFiles(tmp_path / "kept")
    with pytest.raises(OutOfRange, match="is offset 5 of shop/orders#0, which is in files up to 0"):
        planned(kept, startingOffsets='{"0": 5}')
    emptied = TopicFiles(tmp_path / "emptied", retention_s=60)
    assert planned(emptied, startingOffsets='{"0": 5}').ranges == {}
    emptied.seal(0, 4)
    with pytest.raises(OutOfRange, match="is offset 5 of shop/orders#0, which ends at 4"):
        planned(emptied, startingOffsets='{"0": 5}')


def test_brokers_say_how_far_a_segment_is_committed_whatever_files_show(orders: TopicFiles) -> None:
    orders.log(0, 20)
    parsed = parse_options({"storage": str(orders.root), "topic": str(orders.name), "endingOffsets": '{"0": 16}'})
    found = find(parsed.location, ends=True)
    behind, ahead = (replace(found, known=BrokerOffsets(begins={}, ends={0: end})) for end in (15, 30))
    with pytest.raises(
        OutOfRange, match="offset 16 of shop/orders#0, which is committed up to 15: give that or a lower"
    ):
        planned_once(behind, parsed)
    assert planned_once(ahead, parsed).ranges == {0: [(0, 16)]}


# --- where brokers end, and files do not begin ---------------------------------------------------------------------


def test_brokers_give_what_no_file_shows_and_say_where_it_ends(orders: TopicFiles) -> None:
    orders.table(0, 40)
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    pieces = plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={0: 0}, ends={0: 55}))
    assert [(type(p), p.start_offset, p.end_offset) for p in pieces] == [(SnapshotPiece, 0, 40), (BrokerRange, 40, 55)]
    (clipped_piece,) = plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={0: 0}, ends={0: 30}))
    assert (clipped_piece.start_offset, clipped_piece.end_offset) == (0, 30)  # later records are not committed
    assert plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={}, ends={})) == []


def test_without_files_brokers_give_what_they_kept(orders: TopicFiles) -> None:
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    (all_of_it,) = plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={0: 10}, ends={0: 30}, is_all=True))
    assert all_of_it == BrokerRange(segment=0, start_offset=10, end_offset=30, from_earliest=True)
    window = parse_options({"topic": "shop/orders", "bootstrap": "x:1", "startingOffsets": "5"}).window
    with pytest.raises(OutOfRange, match="offsets from 5 on were removed by retention, the lowest left is 10"):
        plan_ranges(snapshot, window, BrokerOffsets(begins={0: 10}, ends={0: 30}))


def test_stretches_that_were_planned_are_there_or_it_is_told(orders: TopicFiles) -> None:
    orders.table(20, 40)
    orders.log(40, 50)
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    pieces = plan_ranges(snapshot, ReadWindow(ranges={0: ((25, 30), (38, 45))}))
    assert [(p.start_offset, p.end_offset) for p in pieces] == [(25, 30), (38, 40), (40, 45)]
    assert all(isinstance(p, SnapshotPiece) and p.complete for p in pieces)
    with pytest.raises(DataLoss, match=r"offsets \[10, 20\) are missing"):
        plan_ranges(snapshot, ReadWindow(ranges={0: ((10, 30),)}))
    expiring = replace(snapshot, topic=replace(snapshot.topic, retention_s=60.0))
    with pytest.raises(OutOfRange, match="offsets from 10 on were removed by retention"):
        plan_ranges(expiring, ReadWindow(ranges={0: ((10, 30),)}))
    with pytest.raises(OutOfRange, match=r"segments \[4\] of topic shop/orders were removed after"):
        plan_ranges(snapshot, ReadWindow(ranges={4: ((10, 30),)}))


def test_records_are_shared_out_by_count(orders: TopicFiles) -> None:
    orders.table(0, 100)
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)

    def offsets(sharing: Sharing) -> list[tuple[int, int | None]]:
        source = TopicSource(place=DirectoryPlace(orders.root), snapshot=snapshot)
        partitions = plan_partitions(source, ReadWindow(), sharing=sharing)
        return [(p[0].start_offset, p[-1].end_offset) for p in partitions]

    assert offsets(Sharing(records_max=40)) == [(0, 33), (33, 66), (66, 100)]
    assert offsets(Sharing(partitions_min=4)) == [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert offsets(Sharing(partitions_min=2, records_max=20)) == [(n, n + 20) for n in range(0, 100, 20)]
    assert shared([], Sharing(records_max=1)) == []
    orders.log(100, 130)
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    assert offsets(Sharing(records_max=65)) == [(0, 50), (50, 100), (100, 130)]


def test_a_sealed_segment_that_retention_emptied_is_asked_of_nobody(orders: TopicFiles) -> None:
    orders.seal(0, 40)
    orders.retention_s = 60.0
    orders.write_documents()
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    assert plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={}, ends={0: 40})) == []
    (piece_of_brokers,) = plan_ranges(snapshot, ReadWindow(), BrokerOffsets(begins={}, ends={0: 40}, is_all=True))
    assert piece_of_brokers == BrokerRange(segment=0, start_offset=0, end_offset=40, from_earliest=True)


@pytest.mark.parametrize("with_brokers", [False, True])
def test_lost_records_are_errors(orders: TopicFiles, caplog: pytest.LogCaptureFixture, with_brokers: bool) -> None:
    lost = [orders.table(0, 10), orders.table(20, 30)]
    orders.table(10, 20)
    orders.table(30, 40)
    orders.seal(0, 50)
    for table in lost:
        (orders.root / table.path).unlink()
    snapshot = read_snapshot(DirectoryPlace(orders.root), orders.name)
    known = BrokerOffsets(begins={}, ends={0: 50}) if with_brokers else None
    with pytest.raises(DataLoss, match=r"shop/orders#0: records of offsets \[0, 10\) are missing: no file holds them"):
        plan_ranges(snapshot, ReadWindow(), known)
    pieces = plan_ranges(snapshot, ReadWindow(), known, fail_on_data_loss=False)
    assert [(p.start_offset, p.end_offset) for p in pieces] == [(10, 20), (30, 40)]
    for gap in ("[0, 10)", "[20, 30)", "[40, 50)"):
        assert f"offsets {gap} are missing" in caplog.text
    everything = BrokerOffsets(begins={}, ends={0: 50}, is_all=True)
    assert len(plan_ranges(snapshot, ReadWindow(), everything)) == 1, "brokers report them"


def test_records_that_retention_removed_are_not_lost_when_it_was_switched_off(orders: TopicFiles) -> None:
    orders.table(10, 20)
    orders.seal(0, 20)
    record_removed(DirectoryPlace(orders.root), orders.name, orders.uid, {0: 10})
    (piece,) = plan_ranges(read_snapshot(DirectoryPlace(orders.root), orders.name), ReadWindow())
    assert (piece.start_offset, piece.end_offset) == (10, 20)


def test_a_key_leaves_out_segments_that_can_not_have_it(orders: TopicFiles) -> None:
    orders.open_segments(4)
    segments = read_snapshot(DirectoryPlace(orders.root), orders.name).segments
    keys = [b"a", b"some other key", b"0123456789"]
    names = {"key": "key", "partition": "partition"}
    for key in keys:
        window = narrowed(ReadWindow(), [EqualTo(("key",), key)], names)
        assert [s.id for s in segments if window.wants(s)] == [s.id for s in segments if slot_of(key) in s.slots]
    both = narrowed(ReadWindow(), [In(("key",), tuple(keys))], names)
    assert {s.id for s in segments if both.wants(s)} == {s.id for s in segments for k in keys if slot_of(k) in s.slots}
    assert not narrowed(ReadWindow(), [In(("key",), (b"a", None))], names).slots
    one = ReadWindow(partitions=Interval(segments[2].slots.lo, segments[2].slots.lo + 1))
    assert [s.id for s in segments if one.wants(s)] == [2]


# --- files that change meanwhile --------------------------------------------------------------------------------------


def test_a_table_that_is_merged_after_the_listing_is_read_by_the_name_it_keeps(orders: TopicFiles) -> None:
    table = orders.table(0, 20)
    parsed = parse_options({"storage": str(orders.root), "topic": str(orders.name)})
    found = find(parsed.location, ends=True)
    (orders.root / table.path).unlink()
    assert whole(planned_once(found, parsed)) == [(0, 20)]
    (orders.root / kept_path(table.path)).unlink()
    with pytest.raises(NotFound):
        planned_once(found, parsed)


def test_a_file_that_is_gone_since_the_listing_is_looked_for_again(orders: TopicFiles) -> None:
    orders.log(0, 20)
    parsed = parse_options({"storage": str(orders.root), "topic": str(orders.name)})
    found = find(parsed.location, ends=True)
    orders.convert()
    for log in orders.root.rglob("*.log"):
        log.unlink()
    with pytest.raises(NotFound, match="list the segment's files again"):
        planned_once(found, parsed)
    assert whole(plan_parquet(found, parsed.window)) == [(0, 20)]
