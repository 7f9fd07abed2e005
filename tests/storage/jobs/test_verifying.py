"""Verification finds any damage and names the first difference; rebuilding repairs it."""

from pathlib import Path

import pyarrow as pa
import pytest

from seaweedmq.codec.paths import table_dir
from seaweedmq.errors import Corrupt
from seaweedmq.model.files import FileKind
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.jobs.rebuilding import rebuild_topic
from seaweedmq.storage.jobs.verifying import Verified, verify_topic
from tests.support.topic_files import TopicFiles


def verified(files: TopicFiles) -> Verified:
    return verify_topic(DirectoryPlace(files.root), files.name)


def tables(files: TopicFiles, segment: int = 0) -> list[tuple[int, int | None]]:
    found = (f for f in files.files(segment) if f.kind is FileKind.TABLE)
    return sorted((f.base_offset, f.end_offset) for f in found)


def test_what_logs_and_tables_both_have_is_the_same(orders: TopicFiles) -> None:
    orders.open_segments(2)
    orders.table(0, 40, keep_log=True)
    orders.table(40, 60)
    orders.log(60, 90)
    orders.table(0, 30, segment=1, keep_log=True)
    orders.log(20, 40, segment=1, writer="b-2")
    found = verified(orders)
    assert (found.tables, found.records, found.compared) == (3, 90, 80)
    assert found.is_sound
    compact_topic(DirectoryPlace(orders.root), orders.name)
    assert verified(orders).is_sound


def test_columns_of_a_schema_are_compared_and_no_number_is_the_same_as_another(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("s")), ("x", pa.float64())])
    files = TopicFiles(tmp_path, schema=schema)
    table = files.table(0, 40, keep_log=True)
    assert verified(files).is_sound
    files.write_again(table, "x", 25, float("nan"))
    (difference,) = verified(files).differences
    assert (difference.offset, difference.column) == (25, "x")


@pytest.mark.parametrize(
    ("column", "value"), [("_key", b"other"), ("_value", None), ("_headers", [("n", b"?")]), ("_value", b"s0v7 ")]
)
def test_a_different_record_is_named_with_place_and_column(orders: TopicFiles, column: str, value: object) -> None:
    table = orders.table(0, 40, keep_log=True)
    orders.write_again(table, column, 7, value)
    orders.write_again(table, column, 31, value)
    (difference,) = verified(orders).differences
    assert (difference.path, difference.offset, difference.column) == (table.path, 7, column)
    assert "00000000000000000000-b-1.log" in difference.what


def test_a_table_of_other_offsets_is_found_without_any_log(orders: TopicFiles) -> None:
    table = orders.table(0, 40)
    orders.write_again(table, "_offset", 12, 13)
    (difference,) = verified(orders).differences
    assert difference.path == table.path
    assert "offset 13 in place of 12" in difference.what


@pytest.mark.parametrize("damage", ["page", "footer", "cut"])
def test_a_damaged_table_is_found_and_made_again_if_its_log_is_there(orders: TopicFiles, damage: str) -> None:
    good = orders.table(0, 2_000, keep_log=True)
    lost = orders.table(2_000, 4_000)
    for table in (good, lost):
        path = orders.root / table.path
        content = bytearray(path.read_bytes())
        if damage == "cut":
            del content[-50:]
        else:
            content[len(content) // 2 if damage == "page" else -20] ^= 1
        path.write_bytes(content)
    assert [d.path for d in verified(orders).differences] == [good.path, lost.path]
    if damage == "page":
        return  # a rebuild reads footers only; moving the file away repairs this
    found = rebuild_topic(DirectoryPlace(orders.root), orders.name)
    assert (found.replaced, [t.path for t in found.made]) == ([good.path], [good.path])
    assert [isinstance(p, Corrupt) and lost.path in str(p) for p in found.problems] == [True]
    assert [d.path for d in verified(orders).differences] == [lost.path]
    left = (orders.root / table_dir(orders.name)).glob(".*.damaged")
    assert [p.name for p in left] == [f".{Path(good.path).name}.damaged"]
    for log in (f for f in orders.files() if f.kind is FileKind.LOG):
        (orders.root / log.path).unlink()
    (problem,) = rebuild_topic(DirectoryPlace(orders.root), orders.name).problems
    assert lost.path in str(problem), "without a log the table keeps its name"


def test_a_log_that_is_damaged_is_named(orders: TopicFiles) -> None:
    log = orders.log(0, 60)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    (difference,) = verified(orders).differences
    assert difference.path.endswith(log.name)
    assert "is damaged at byte" in difference.what


def test_a_hole_is_found_and_filled_from_a_log_or_said_to_be_lost(orders: TopicFiles) -> None:
    orders.table(0, 20)
    hole = orders.table(20, 40, keep_log=True)
    lost = orders.table(40, 60)
    orders.table(60, 80)
    for table in (hole, lost):
        (orders.root / table.path).unlink()
    (difference,) = verified(orders).differences
    assert difference.offset == 40
    assert "shop/orders#0: records of offsets [40, 60) are missing: no file holds them" in difference.what
    found = rebuild_topic(DirectoryPlace(orders.root), orders.name)
    assert tables(orders) == [(0, 20), (60, 80)]
    assert "ends with offset 40, but records up to 60 were stored" in str(found.problems[0])


def test_offsets_that_no_file_can_have_are_named_and_what_logs_have_is_made_again(orders: TopicFiles) -> None:
    lost = orders.table(0, 20)
    again = orders.table(20, 40, keep_log=True)
    first = orders.table(40, 60)
    for table in (again, lost):
        (orders.root / table.path).unlink()
    orders.seal(0, 80)
    before, behind = (d.what for d in verified(orders).differences if "are missing" in d.what)
    assert "offsets [0, 20) are missing" in before
    assert "offsets [60, 80) are missing" in behind
    rebuilt = rebuild_topic(DirectoryPlace(orders.root), orders.name)
    assert tables(orders) == [(20, 40), (40, 60)]
    before, behind = map(str, rebuilt.problems)
    assert "offsets [0, 20) are in no file, neither log nor table" in before
    assert "#0: offsets [60, 80) cannot be rebuilt" in behind
    (orders.root / first.path).unlink()
    for log in (f for f in orders.files() if f.kind is FileKind.LOG):
        (orders.root / log.path).unlink()
    orders.retention_s = 3_600.0
    orders.write_documents()
    (difference,) = verified(orders).differences
    assert "offsets [40, 80) are missing" in difference.what, "retention may have taken what came before the first file"
    (problem,) = rebuild_topic(DirectoryPlace(orders.root), orders.name).problems
    assert "offsets [40, 80) are in no file, neither log nor table: they cannot be rebuilt" in str(problem)


def test_what_a_broker_has_still_to_convert_is_left_to_it_until_the_segment_is_sealed(orders: TopicFiles) -> None:
    orders.table(0, 20)
    orders.log(20, 50)
    assert rebuild_topic(DirectoryPlace(orders.root), orders.name).made == []
    orders.seal(0, 45)
    found = rebuild_topic(DirectoryPlace(orders.root), orders.name)
    assert (tables(orders), found.problems) == ([(0, 20), (20, 45)], [])
    assert verified(orders).is_sound


def test_a_topic_that_has_all_its_tables_is_left_as_it_is(orders: TopicFiles) -> None:
    orders.table(0, 20, keep_log=True)
    found = rebuild_topic(DirectoryPlace(orders.root), orders.name)
    assert (found.made, found.replaced, found.problems) == ([], [], [])
