"""Small tables become one: the same rows for every reader, after a kill at any step."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.paths import kept_path, table_dir, table_path
from seaweedmq.core.files.compaction import TableMerge
from seaweedmq.errors import Corrupt, NotFound, Unavailable
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.compact import merge_tables, publish_merge, remove_superseded
from seaweedmq.storage.tables.opener import open_table
from tests.support.topic_files import TopicFiles

MIB = 1024 * 1024


def tables(files: TopicFiles, segment: int = 0) -> list[SegmentFile]:
    found = (f for f in files.files(segment) if f.kind is FileKind.TABLE)
    return sorted(found, key=lambda f: (f.base_offset, -(f.end_offset or 0)))


def ranges(files: TopicFiles, segment: int = 0) -> list[tuple[int, int | None]]:
    return [(f.base_offset, f.end_offset) for f in tables(files, segment)]


def rows(files: TopicFiles) -> pa.Table:
    """Return the rows of the tables, as a plain reader finds them."""
    return pq.read_table(files.root / table_dir(files.name))


def read_once(files: TopicFiles, end: int | None = None) -> list[int]:
    """Return the offsets that SeaweedMQ's reader finds, table by table."""
    found: list[int] = []
    for piece in read_snapshot(DirectoryPlace(files.root), files.name).plan(0, 0, end):
        (file,) = piece.files
        with (
            contextlib.closing(DirectoryPlace(files.root).open_input(file)) as source,
            open_table(source, file, files.topic) as table,
        ):
            offsets = table.read(columns=["_offset"])["_offset"].to_pylist()
            found += [o for o in offsets if piece.start_offset <= o < (piece.end_offset or 0)]
    return found


def small(files: TopicFiles, count: int = 10, each: int = 20, segment: int = 0) -> list[SegmentFile]:
    return [files.table(n * each, n * each + each, segment=segment) for n in range(count)]


def test_a_topic_of_small_tables_becomes_one_of_large_ones(orders: TopicFiles) -> None:
    orders.open_segments(2)
    small(orders)
    small(orders, count=5, segment=1)
    before = rows(orders).sort_by([("_segment", "ascending"), ("_offset", "ascending")])
    found = compact_topic(DirectoryPlace(orders.root), orders.name)
    assert (found.tables_before, found.tables_after, found.merged, len(found.made)) == (15, 2, 15, 2)
    assert (found.problems, found.elsewhere, ranges(orders)) == ([], [], [(0, 200)])
    assert ranges(orders, 1) == [(0, 100)]
    after = rows(orders).sort_by([("_segment", "ascending"), ("_offset", "ascending")])
    assert after.equals(before)
    again = compact_topic(DirectoryPlace(orders.root), orders.name)
    assert (again.merged, again.tables_before, again.tables_after) == (0, 2, 2)


def test_a_merged_table_prunes_as_well_as_any_other(orders: TopicFiles) -> None:
    merge = TableMerge(tables=tuple(small(orders, count=4, each=500)))
    publish_merge(
        DirectoryPlace(orders.root),
        orders.topic,
        merge,
        merge_tables(DirectoryPlace(orders.root), orders.topic, merge, row_group_bytes=10_000),
    )
    (table,) = tables(orders)
    with (
        contextlib.closing(DirectoryPlace(orders.root).open_input(table)) as source,
        open_table(source, table, orders.topic) as opened,
    ):
        metadata = opened.metadata
        assert metadata.num_row_groups > 3
        names = [metadata.schema.column(i).path for i in range(len(metadata.schema))]
        group = metadata.row_group(1)
        offsets, stamps = group.column(names.index("_offset")), group.column(names.index("_timestamp"))
        assert offsets.statistics.max - offsets.statistics.min == group.num_rows - 1
        assert stamps.statistics.has_min_max
        assert (offsets.compression, metadata.metadata[b"seaweedmq.topic_uid"]) == ("ZSTD", b"7")


@pytest.mark.parametrize("had_second_names", [True, False])
def test_a_merged_table_is_as_old_as_its_youngest_with_second_names(orders: TopicFiles, had_second_names: bool) -> None:
    made = small(orders, count=3)
    for number, table in enumerate(made):
        os.utime(orders.root / table.path, (1_000 + number, 1_000 + number))
        if not had_second_names:
            (orders.root / kept_path(table.path)).unlink()
    found = compact_topic(DirectoryPlace(orders.root), orders.name)
    assert [t.modified_us for t in tables(orders)] == [1_002_000_000] == [t.modified_us for t in found.made]
    assert all(pq.read_table(orders.root / kept_path(t.path)).num_rows == 20 for t in made)


def test_typed_and_plain_tables_stay_apart(tmp_path: Path) -> None:
    typed = TopicFiles(tmp_path, schema=pa.schema([("id", pa.int64()), ("at", pa.timestamp("s")), ("x", pa.float32())]))
    plain = TopicFiles(tmp_path)
    typed.write_documents()
    for n in range(0, 60, 20):
        typed.table(n, n + 20)
    for n in range(60, 120, 20):
        plain.table(n, n + 20)
    compact_topic(DirectoryPlace(tmp_path), typed.name)
    assert ranges(typed) == [(0, 60), (60, 120)]
    first, second = (pq.read_schema(tmp_path / t.path) for t in tables(typed))
    assert (first.names[-3:], second.names[-1]) == (["id", "at", "x"], "_value")


def test_partitions_are_kept(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path, partitions=2)
    small(files, count=3, segment=1)
    compact_topic(DirectoryPlace(tmp_path), files.name)
    assert (ranges(files, 1), pc.unique(rows(files)["_partition"]).to_pylist()) == ([(0, 60)], [1])


@pytest.mark.parametrize("how", ["page", "footer", "cut", "foreign", "renamed"])
def test_a_damaged_or_foreign_table_is_named_and_left_and_the_others_are_merged(orders: TopicFiles, how: str) -> None:
    orders.open_segments(2)
    small(orders, count=3, segment=1)
    made = small(orders, count=4, each=500)
    path = orders.root / made[1].path
    content = bytearray(path.read_bytes())
    if how == "page":
        content[len(content) // 2] ^= 1
    elif how == "footer":
        content[-20] ^= 1
    elif how == "cut":
        del content[-100:]
    if how == "foreign":
        path.unlink()
        pq.write_table(pa.table({"a": range(500)}), path)
    elif how == "renamed":
        path.write_bytes((orders.root / made[2].path).read_bytes())
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    found = compact_topic(DirectoryPlace(orders.root), orders.name)
    (problem,) = found.problems
    assert isinstance(problem, Corrupt)
    assert made[1].path in str(problem)
    assert (path.read_bytes(), ranges(orders)) == (before, [(t.base_offset, t.end_offset) for t in made])
    assert ranges(orders, 1) == [(0, 60)]
    assert not list((orders.root / table_dir(orders.name)).glob(".tmp*"))


def test_names_that_are_not_ours_and_files_half_written_stay(orders: TopicFiles) -> None:
    small(orders, count=3)
    folder = orders.root / table_dir(orders.name)
    for name in ("notes.txt", ".tmp-9-9", "part-00000.snappy.parquet"):
        (folder / name).write_bytes(b"PAR1")
    compact_topic(DirectoryPlace(orders.root), orders.name)
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == sorted(
        ["notes.txt", ".tmp-9-9", "part-00000.snappy.parquet", Path(table_path(orders.name, 0, 0, 60)).name]
    )


def test_what_was_deleted_by_hand_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = TopicFiles(tmp_path)
    small(files, count=5)
    monkeypatch.setattr("seaweedmq.model.topic.Topic.low_watermark", lambda self, slots: 45)
    compact_topic(DirectoryPlace(tmp_path), files.name)
    assert ranges(files) == [(0, 20), (20, 40), (40, 100)]


def test_a_table_that_expired_while_it_was_merged_does_not_come_back(orders: TopicFiles) -> None:
    made = small(orders, count=3)
    merge = TableMerge(tables=tuple(made))
    aside = merge_tables(DirectoryPlace(orders.root), orders.topic, merge)
    (orders.root / made[0].path).unlink()
    with pytest.raises(Unavailable, match=r"00000000000000000020\.parquet was removed meanwhile, by retention"):
        publish_merge(DirectoryPlace(orders.root), orders.topic, merge, aside)
    assert ranges(orders) == [(20, 40), (40, 60)]
    assert not (orders.root / aside).exists()
    with pytest.raises(NotFound):
        merge_tables(DirectoryPlace(orders.root), orders.topic, merge)


@pytest.mark.parametrize("gone", ["topic", "tables"])
def test_a_topic_deleted_before_a_merge_does_not_come_back(orders: TopicFiles, gone: str) -> None:
    merge = TableMerge(tables=tuple(small(orders, count=3)))
    made = merge_tables(DirectoryPlace(orders.root), orders.topic, merge)
    folder = orders.root / table_dir(orders.name)
    if gone == "topic":
        folder.parent.rename(folder.parent.with_name(".deleted"))
    else:
        folder.rename(orders.root / "deleted")  # and a topic of the same name has none yet
    with pytest.raises(NotFound, match=r"is missing[:,] the topic was deleted"):
        merge_tables(DirectoryPlace(orders.root), orders.topic, merge)
    with pytest.raises(NotFound, match=r"is missing[:,] the topic was deleted"):
        publish_merge(DirectoryPlace(orders.root), orders.topic, merge, made)
    assert not folder.exists()
    assert folder.parent.exists() == (gone == "tables")


def test_of_two_compactions_at_once_one_is_told_that_the_other_was_faster(orders: TopicFiles) -> None:
    made = small(orders, count=6)
    one, other = TableMerge(tables=tuple(made[:4])), TableMerge(tables=tuple(made[2:]))
    asides = [merge_tables(DirectoryPlace(orders.root), orders.topic, merge) for merge in (one, one, other)]
    publish_merge(DirectoryPlace(orders.root), orders.topic, one, asides[0])
    for merge, aside in ((one, asides[1]), (other, asides[2])):
        with pytest.raises(Unavailable, match="merged by another process meanwhile"):
            publish_merge(DirectoryPlace(orders.root), orders.topic, merge, aside)
    assert (ranges(orders), read_once(orders)) == ([(0, 80), (80, 100), (100, 120)], list(range(120)))


def test_a_storage_that_fails_leaves_everything_as_it_was(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    small(orders, count=3)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    found = compact_topic(DirectoryPlace(orders.root), orders.name)
    merging, publishing = map(str, found.problems)
    assert "cannot merge tables of" in merging
    assert "free space" in merging
    assert "cannot write the Delta log of" in publishing
    assert ranges(orders) == [(0, 20), (20, 40), (40, 60)]
    assert not list((orders.root / table_dir(orders.name)).glob(".*"))[1:]


STEPS = ("merge_tables", "retain", "publish", "tables", "sync_names", "_unlink", "unlink 1", "unlink 2")


def _killed_at(root: Path, step: str) -> None:
    """Compact in a separate process that is killed at a step."""
    script = f"""
        import os, signal, sys
        from pathlib import Path
        from seaweedmq.model.topic import TopicName
        from seaweedmq.storage.directory_place import DirectoryPlace
        from seaweedmq.storage.jobs import compacting
        from seaweedmq.storage.tables import compact, files

        def die(*args, **options):
            os.kill(os.getpid(), signal.SIGKILL)

        step = {step!r}
        if step == "merge_tables":
            os.fsync = die
        elif step == "retain":
            files.retain = die
        elif step in ("publish", "tables", "sync_names"):
            setattr(DirectoryPlace, step, die)
        elif step == "_unlink":
            compact._unlink = die
        else:
            left = int(step.split()[1])
            unlink = Path.unlink
            def counted(self, missing_ok=False):
                global left
                if self.suffix == ".parquet":
                    if left == 0:
                        die()
                    left -= 1
                unlink(self, missing_ok)
            Path.unlink = counted
        compacting.compact_topic(DirectoryPlace(Path(sys.argv[1])), TopicName("shop", "orders"))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(root)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.integration
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_every_record_is_read_once_and_the_next_one_finishes(orders: TopicFiles, step: str) -> None:
    small(orders, count=4)
    orders.log(80, 100)
    _killed_at(orders.root, step)
    assert read_once(orders, 80) == list(range(80))
    for claim in (orders.root / table_dir(orders.name)).glob(".claim-*"):  # of the killed process; it delays others
        os.utime(claim, (0, 0))
    found = compact_topic(DirectoryPlace(orders.root), orders.name)
    assert (found.problems, found.elsewhere, ranges(orders)) == ([], [], [(0, 80)])
    assert read_once(orders, 80) == list(range(80))


def test_what_was_replaced_is_removed_only_if_the_table_that_has_it_all_is_sound(orders: TopicFiles) -> None:
    made = small(orders, count=3)
    whole = orders.root / table_path(orders.name, 0, 0, 60)
    whole.write_bytes(b"PAR1 half of a table PAR1")
    removed, refused = remove_superseded(DirectoryPlace(orders.root), orders.topic, 0)
    assert (removed, [whole.name in str(e) for e in refused]) == ([], [True])
    assert all((orders.root / t.path).exists() for t in made)


class Listing(list[os.DirEntry[str]]):
    """A listing as ``os.scandir`` returns it, which may be closed."""

    def __enter__(self) -> "Listing":
        return self

    def __exit__(self, *error: object) -> None: ...


def test_a_listing_during_a_replacement_shows_either_one(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = TableMerge(tables=tuple(small(orders, count=3)))
    aside = merge_tables(DirectoryPlace(orders.root), orders.topic, merge)
    scandir: Callable[..., Any] = os.scandir
    raced: list[bool] = []

    def racing(path: Path) -> object:
        """List the folder without the changes since the listing began."""
        if Path(path) != orders.root / table_dir(orders.name) or raced:
            return scandir(path)
        raced.append(True)
        before = {e.name: e for e in scandir(path)}
        publish_merge(DirectoryPlace(orders.root), orders.topic, merge, aside)
        after = {e.name for e in scandir(path)}
        return Listing(e for name, e in before.items() if name in after)

    monkeypatch.setattr(os, "scandir", racing)
    assert ranges(orders) == [(0, 60)]
