"""A partly deleted table is rewritten in place: readers of files see the living records, once."""

from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from seaweedmq.codec.paths import table_dir
from seaweedmq.core.files.retention import Listed, RetentionPolicy, expired_files
from seaweedmq.errors import SeaweedMQError, StorageFailed, Unavailable
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables import compact
from seaweedmq.storage.tables.compact import compact_tables, remove_superseded
from seaweedmq.storage.tables.delta.updater import reconcile
from tests.support.topic_files import TopicFiles

GRACE_US = 1_000
LATER_US = 1 << 60


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    files = TopicFiles(tmp_path)
    files.open_segments(1)
    return files


def tables(files: TopicFiles) -> list[SegmentFile]:
    found = (f for f in files.files(0) if f.kind is FileKind.TABLE)
    return sorted(found, key=lambda f: f.base_offset)


def ranges(files: TopicFiles) -> list[tuple[int, int | None]]:
    return [(f.base_offset, f.end_offset) for f in tables(files)]


def offsets(files: TopicFiles) -> dict[str, list[int]]:
    """Return the offsets that other programs find, by file name."""
    reconcile(DirectoryPlace(files.root), files.topic)
    folder = files.root / table_dir(files.name)
    plain = pyarrow.dataset.dataset(sorted(str(p) for p in folder.glob("*.parquet"))).to_table(columns=["_offset"])
    delta = DeltaTable(folder).to_pyarrow_table(columns=["_offset"])
    return {"parquet": sorted(plain["_offset"].to_pylist()), "delta": sorted(delta["_offset"].to_pylist())}


def both(found: range) -> dict[str, list[int]]:
    return {"parquet": list(found), "delta": list(found)}


@pytest.mark.parametrize("low", [1, 13, 19])
@pytest.mark.parametrize("row_group_bytes", [1, 1 << 24])
def test_readers_of_files_find_the_living_records_alone(orders: TopicFiles, low: int, row_group_bytes: int) -> None:
    original = orders.table(0, 20)
    orders.table(20, 30)
    assert offsets(orders) == both(range(30))
    (made,) = compact_tables(DirectoryPlace(orders.root), orders.topic, [original], row_group_bytes, low)
    assert ranges(orders) == [(low, 20), (20, 30)]
    assert made.modified_us > original.modified_us
    assert offsets(orders) == both(range(low, 30))


@pytest.mark.parametrize("step", ["merge", "publish", "unlink"])
def test_a_stopped_rewrite_is_finished_later(orders: TopicFiles, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = orders.table(0, 20)

    def stop(*_: Any, **__: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        match step:
            case "merge":
                patch.setattr(compact, "write_merge", stop)
            case "publish":
                patch.setattr(DirectoryPlace, "publish", stop)
            case _:
                patch.setattr(compact, "_unlink", stop)
        with pytest.raises(StorageFailed):
            compact_tables(DirectoryPlace(orders.root), orders.topic, [original], low_watermark=13)
    assert ranges(orders) == ([(0, 20), (13, 20)] if step == "unlink" else [(0, 20)])
    assert offsets(orders)["delta"] == list(range(20))
    assert remove_superseded(DirectoryPlace(orders.root), orders.topic, 0) == ([], []), (
        "without a low watermark neither goes"
    )
    policy = RetentionPolicy(log_grace_us=GRACE_US)
    for file in expired_files([Listed(None, tables(orders), 13)], policy, LATER_US):
        (orders.root / file.path).unlink()
    if step != "unlink":
        compact_tables(DirectoryPlace(orders.root), orders.topic, [original], low_watermark=13)
    assert offsets(orders) == both(range(13, 20))


def test_a_name_that_was_just_deleted_is_not_given_again(orders: TopicFiles) -> None:
    original = orders.table(0, 20)
    compact_tables(DirectoryPlace(orders.root), orders.topic, [original], low_watermark=13)
    (rewritten,) = tables(orders)
    (orders.root / rewritten.path).rename(orders.root / original.path)
    with pytest.raises(Unavailable, match="left of a table of the same name"):
        compact_tables(DirectoryPlace(orders.root), orders.topic, [original], low_watermark=13)


def test_a_file_system_without_dates_is_refused(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    original = orders.table(0, 20)
    monkeypatch.setattr("os.utime", lambda *_, **__: None)
    original_of_the_future = SegmentFile(**{**_fields(original), "modified_us": LATER_US})
    with pytest.raises(SeaweedMQError, match="does not store times to the second"):
        compact_tables(DirectoryPlace(orders.root), orders.topic, [original_of_the_future], low_watermark=13)
    assert ranges(orders) == [(0, 20)]


def _fields(file: SegmentFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in SegmentFile.__dataclass_fields__}
