"""The Delta log of a topic lists exactly its live tables, after any changes and any failure of a writer."""

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.paths import kept_path, table_path
from seaweedmq.errors import Conflict, Corrupt, NotFound, StorageFailed
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.jobs.rebuilding import rebuild_topic
from seaweedmq.storage.tables.delta import updater
from seaweedmq.storage.tables.delta.cache import UID_KEY
from seaweedmq.storage.tables.delta.updater import DeltaLogs, rebuild_log, reconcile
from seaweedmq.storage.tables.delta.versions import history
from tests.support.open_tables import actions, commits_of, folder_of, log_of, merge, tables_of_version, unlink_within
from tests.support.topic_files import TopicFiles

OFTEN = 6
"""Number of commits until a checkpoint, in tests that need some."""


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater, "is_checkpoint_due", lambda commits, *_: commits >= OFTEN)


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    return TopicFiles(tmp_path / "root")


@contextmanager
def overtaken(by: Callable[[str], object], times: int = 1) -> Iterator[list[str]]:
    """Let others act between a writer's look and the link that makes its version; yield the versions that it tries."""
    link = os.link
    tried: list[str] = []

    def late(source: str, name: str, **more: Any) -> None:
        if str(name).endswith(".json"):
            tried.append(name)
            if len(tried) <= times:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(os, "link", link)
                    by(name)
        link(source, name, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", late)
        yield tried


@contextmanager
def unreadable(orders: TopicFiles) -> Iterator[None]:
    """Damage all versions for a while: only a writer that remembers them can continue."""
    paths = [log_of(orders) / name for name in commits_of(orders)]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths]
    for is_damaged in (True, False):
        for path, (data, time_ns) in zip(paths, before, strict=True):
            path.write_bytes(b"?" * len(data) if is_damaged else data)
            os.utime(path, ns=(time_ns, time_ns))
        if is_damaged:
            yield


def by_now(logs: DeltaLogs, orders: TopicFiles) -> int | None:
    """Reconcile like a broker whose clock is confirmed."""
    return logs.reconcile(DirectoryPlace(orders.root), orders.topic, confirmed_us=time.time_ns() // 1_000)


def offsets(orders: TopicFiles, version: int | None = None) -> list[tuple[int, int]]:
    """Return the offset ranges of the tables of a version, by default the newest."""
    newest = history(DirectoryPlace(orders.root), orders.name)[-1].version
    tables = tables_of_version(orders, newest if version is None else version)
    return [(t.base_offset, t.end_offset) for t in tables]


def test_a_topic_without_tables_has_no_log(orders: TopicFiles) -> None:
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    orders.log(0, 10)
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert not log_of(orders).exists()
    with pytest.raises(NotFound, match=r"shop/orders has no Delta log .*table rebuild"):
        history(DirectoryPlace(orders.root), orders.name)


def test_each_table_that_came_is_a_version_and_nothing_new_is_none(orders: TopicFiles) -> None:
    logs = DeltaLogs()
    for n in range(3):
        orders.table(10 * n, 10 * n + 10)
        assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) == n
        assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) is None
        assert reconcile(DirectoryPlace(orders.root), orders.topic) is None, (
            "a process that remembers nothing finds nothing to do"
        )
    assert offsets(orders) == [(0, 10), (10, 20), (20, 30)]
    (add,) = actions(orders, 1, "add")
    assert add["path"] == ".kept/00000000-00000000000000000010-00000000000000000020.parquet"
    assert add["dataChange"] is True
    assert json.loads(add["stats"]) == {
        "numRecords": 10,
        "minValues": {"_segment": 0, "_offset": 10, "_timestamp": "2020-09-13T12:26:50.000000Z"},
        "maxValues": {"_segment": 0, "_offset": 19, "_timestamp": "2020-09-13T12:26:59.000000Z"},
        "nullCount": {"_segment": 0, "_offset": 0, "_timestamp": 0},
    }


@pytest.mark.parametrize("partitions", [None, 4])
def test_the_log_names_the_columns_with_statistics(tmp_path: Path, partitions: int | None) -> None:
    files = TopicFiles(tmp_path, schema=pa.schema([("number", pa.int64())]), partitions=partitions)
    files.table(0, 10)
    reconcile(DirectoryPlace(tmp_path), files.topic)
    (metadata,) = actions(files, 0, "metaData")
    named = metadata["configuration"]["delta.dataSkippingStatsColumns"].split(",")
    assert named == ["_segment", *(["_partition"] if partitions else []), "_offset", "_timestamp"]
    (add,) = actions(files, 0, "add")
    stats = json.loads(add["stats"])
    assert [list(stats[kind]) for kind in ("minValues", "maxValues", "nullCount")] == 3 * [named]


def test_versions_and_moved_logs_are_dated_by_the_given_clock(orders: TopicFiles) -> None:
    orders.table(0, 10)
    place = DirectoryPlace(orders.root)
    reconcile(place, orders.topic, wall_us=lambda: 1_700_000_000_000_000)
    assert [v.timestamp_us for v in history(place, orders.name)] == [1_700_000_000_000_000]
    rebuild_log(place, orders.topic, wall_us=lambda: 1_800_000_000_000_000)
    assert [v.timestamp_us for v in history(place, orders.name)] == [1_800_000_000_000_000]
    assert [p.name for p in log_of(orders).parent.glob(".delta_log-aside-*")] == [
        ".delta_log-aside-01800000000000000000"
    ]


def test_a_second_name_for_the_log_is_durable_first(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    table = orders.table(0, 10)
    kept = orders.root / kept_path(table.path)
    kept.unlink()
    synced: list[bool] = []

    def sync(path: Path) -> None:
        if path == kept.parent:
            synced.append(kept.exists() and not commits_of(orders))

    monkeypatch.setattr(file_io, "sync_directory", sync)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    assert synced == [True]


def test_second_names_that_a_copy_of_the_storage_lost_come_back(orders: TopicFiles) -> None:
    for n in range(3):
        orders.table(10 * n, 10 * n + 10)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    shutil.rmtree(folder_of(orders) / ".kept")
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert len(list((folder_of(orders) / ".kept").iterdir())) == 3


@pytest.mark.parametrize(
    "error", [errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV]
)
def test_where_files_have_one_name_the_log_names_that_and_who_may_not_give_a_second_one_is_told(
    orders: TopicFiles, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    orders.table(0, 10)
    shutil.rmtree(folder_of(orders) / ".kept")

    def no_links(*args: object, **more: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", no_links)
    if error == errno.EACCES:
        with pytest.raises(StorageFailed, match="ermission"):
            reconcile(DirectoryPlace(orders.root), orders.topic)
        return
    assert reconcile(DirectoryPlace(orders.root), orders.topic) == 0
    assert [a["path"] for a in actions(orders, 0, "add")] == [
        "00000000-00000000000000000000-00000000000000000010.parquet"
    ]
    orders.table(10, 20)
    assert reconcile(DirectoryPlace(orders.root), orders.topic) == 1, "nor is a link needed to make a version"


def test_a_compaction_is_one_version_before_and_after_the_old_names_go(orders: TopicFiles, tmp_path: Path) -> None:
    for n in range(4):
        orders.table(10 * n, 10 * n + 10)
    logs = DeltaLogs()
    logs.reconcile(DirectoryPlace(orders.root), orders.topic)
    merge(orders, 0, 30, tmp_path / "aside")
    assert (logs.reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (1, [(0, 30), (30, 40)])
    unlink_within(orders, 0, 30)
    assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) is None
    done = history(DirectoryPlace(orders.root), orders.name)[-1]
    assert (done.operation, done.added, done.removed, done.records) == ("OPTIMIZE", 1, 3, 40)
    assert not any(a["dataChange"] for kind in ("add", "remove") for a in actions(orders, 1, kind))
    assert offsets(orders, 0) == [(0, 10), (10, 20), (20, 30), (30, 40)], "the version before is still there"


def test_what_retention_removed_goes_from_the_log(orders: TopicFiles) -> None:
    for n in range(3):
        orders.table(10 * n, 10 * n + 10)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    unlink_within(orders, 0, 10 + 1)
    assert reconcile(DirectoryPlace(orders.root), orders.topic) == 1
    done = history(DirectoryPlace(orders.root), orders.name)[-1]
    assert (done.operation, done.added, done.removed, done.records) == ("DELETE", 0, 1, 20)
    unlink_within(orders, 0, 100)
    assert (reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (2, [])
    orders.table(30, 40)
    assert (reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (3, [(30, 40)])


def test_what_was_deleted_by_hand_and_segments_that_are_forgotten_do_not_count(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path, partitions=2)
    for segment in range(2):
        for n in range(2):
            orders.table(10 * n, 10 * n + 10, segment=segment)
    logs = DeltaLogs()
    logs.reconcile(DirectoryPlace(tmp_path), orders.topic)
    emptied = replace(orders.topic, low_watermarks=(10, 5))
    assert logs.reconcile(DirectoryPlace(tmp_path), emptied) == 1
    assert [(t.segment, t.base_offset) for t in tables_of_version(orders, 1)] == [(0, 10), (1, 0), (1, 10)]
    forgotten = replace(emptied, pruned=IdRanges(((1, 2),)))
    assert logs.reconcile(DirectoryPlace(tmp_path), forgotten) == 2
    assert [t.segment for t in tables_of_version(orders, 2)] == [0]


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "another schema", "renamed", "another topic"])
def test_what_is_no_sound_table_never_enters_and_does_when_it_is_mended(
    orders: TopicFiles, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders.table(0, 10)
    broken = orders.root / orders.table(10, 20).path
    sound = broken.read_bytes()
    for kept in (folder_of(orders) / ".kept").glob("*10-*"):
        kept.unlink()
    broken.unlink()
    if damage == "truncated":
        broken.write_bytes(sound[:-100])
    elif damage == "empty":
        broken.touch()
    elif damage == "garbage":
        broken.write_bytes(bytes(1_000))
    elif damage == "another schema":
        pq.write_table(pa.table({"a": list(range(10))}), broken)
    elif damage == "renamed":
        broken.write_bytes((orders.root / table_path(orders.name, 0, 0, 10)).read_bytes())
    else:
        other = TopicFiles(tmp_path / "other", uid=8)
        broken.write_bytes((other.root / other.table(10, 20).path).read_bytes())
    logs = DeltaLogs()
    assert (logs.reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (0, [(0, 10)])
    assert caplog.text.count("table omitted from the Delta log: ") == 1
    assert broken.name in caplog.text
    assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert caplog.text.count("table omitted from the Delta log: ") == 1, "logged once"
    broken.write_bytes(sound)
    assert (logs.reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (1, [(0, 10), (10, 20)])


def test_a_damaged_compacted_table_leaves_those_it_was_to_replace(orders: TopicFiles, tmp_path: Path) -> None:
    for n in range(2):
        orders.table(10 * n, 10 * n + 10)
    merged = merge(orders, 0, 20, tmp_path / "aside")
    content = merged.read_bytes()
    merged.unlink()
    merged.write_bytes(content[:-50])
    assert (reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (0, [(0, 10), (10, 20)])


def test_foreign_files_are_left_alone(orders: TopicFiles) -> None:
    orders.table(0, 10)
    for name in ("orders.parquet", "0-0-10.parquet", ".hidden.parquet", ".tmp-1", "_SUCCESS"):
        (folder_of(orders) / name).write_bytes(b"foreign")
    (folder_of(orders) / "00000000-00000000000000000010-00000000000000000020.parquet").mkdir()
    assert (reconcile(DirectoryPlace(orders.root), orders.topic), offsets(orders)) == (0, [(0, 10)])


def test_of_two_processes_at_once_one_makes_each_version_and_both_end_in_line(orders: TopicFiles) -> None:
    mine, others = DeltaLogs(), DeltaLogs()
    orders.table(0, 10)
    assert mine.reconcile(DirectoryPlace(orders.root), orders.topic) == 0
    assert others.reconcile(DirectoryPlace(orders.root), orders.topic) is None
    orders.table(10, 20)
    assert others.reconcile(DirectoryPlace(orders.root), orders.topic) == 1
    assert mine.reconcile(DirectoryPlace(orders.root), orders.topic) is None, "the version of the other is taken in"
    orders.table(20, 30)
    barrier = threading.Barrier(4)

    def go(logs: DeltaLogs) -> int | None:
        barrier.wait()
        return logs.reconcile(DirectoryPlace(orders.root), orders.topic)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(go, [mine, others, DeltaLogs(), DeltaLogs()]))
    assert (sorted(made, key=str), offsets(orders)) == ([2, None, None, None], [(0, 10), (10, 20), (20, 30)])


def test_a_commit_that_was_overtaken_decides_anew(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    place, topic = DirectoryPlace(orders.root), orders.topic
    orders.table(0, 10)
    with overtaken(lambda _: (orders.table(10, 20), reconcile(place, topic))) as tried:
        assert reconcile(place, topic) is None
    assert (tried, offsets(orders)) == ([f"{0:020d}.json"], [(0, 10), (10, 20)])
    orders.table(20, 30)
    with overtaken(lambda _: rebuild_log(place, topic)):
        assert reconcile(place, topic) is None, "what was meant for the log that is moved aside is in the new one"
    assert (commits_of(orders), offsets(orders)) == ([f"{0:020d}.json"], [(0, 10), (10, 20), (20, 30)])

    pauses_s: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses_s.append)
    orders.table(50, 60)
    first = log_of(orders) / f"{0:020d}.json"
    with overtaken(lambda name: shutil.copy(first, first.with_name(name)), updater.ATTEMPTS), pytest.raises(Conflict):
        reconcile(place, topic)
    assert len({*pauses_s}) == updater.ATTEMPTS - 1, "no two processes retry in lockstep"
    assert max(pauses_s) <= 0.2


@pytest.mark.usefixtures("checkpoints")
def test_what_others_commit_is_taken_in_without_reading_the_log_anew(orders: TopicFiles, tmp_path: Path) -> None:
    brokers = DeltaLogs(), DeltaLogs()

    def go_on(numbers: range) -> None:
        for n in numbers:
            orders.table(10 * n, 10 * n + 10)
            if n % 8 == 7:
                merge(orders, 10 * n - 30, 10 * n + 10, tmp_path / "aside")
            assert brokers[n % 2].reconcile(DirectoryPlace(orders.root), orders.topic) == n
            if n % 8 == 7:
                unlink_within(orders, 10 * n - 30, 10 * n + 10)
            assert brokers[n % 3 % 2].reconcile(DirectoryPlace(orders.root), orders.topic) is None

    go_on(range(12))
    with unreadable(orders):
        go_on(range(12, 24))
    assert [v.records for v in history(DirectoryPlace(orders.root), orders.name)] == [10 * n + 10 for n in range(24)]
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None, "a reader of the whole log finds nothing to do"
    made = [int(p.name[:20]) for p in log_of(orders).glob("*.checkpoint.parquet")]
    assert len(made) <= 24 / OFTEN, "nor does each make checkpoints of its own"


def test_who_is_overtaken_goes_on_with_what_it_knows(orders: TopicFiles) -> None:
    mine, others = DeltaLogs(), DeltaLogs()
    orders.table(0, 10)
    for logs in (mine, others):
        logs.reconcile(DirectoryPlace(orders.root), orders.topic)
    orders.table(10, 20)
    forgotten = replace(orders.topic, pruned=IdRanges(((0, 1),)))  # so it removes what is live for the other
    with unreadable(orders), overtaken(lambda _: others.reconcile(DirectoryPlace(orders.root), forgotten)) as tried:
        assert mine.reconcile(DirectoryPlace(orders.root), orders.topic) == 2
    assert (tried, offsets(orders)) == ([f"{n:020d}.json" for n in (1, 2)], [(0, 10), (10, 20)])


def test_a_topic_is_remembered_however_many_tables_it_has_and_many_topics_within_a_limit(tmp_path: Path) -> None:
    logs = DeltaLogs(tables_max=2)
    one, other = TopicFiles(tmp_path / "one"), TopicFiles(tmp_path / "other")
    for n in range(5):
        one.table(n, n + 1)
        assert logs.reconcile(DirectoryPlace(one.root), one.topic) == n
    with unreadable(one):
        one.table(5, 6)
        assert logs.reconcile(DirectoryPlace(one.root), one.topic) == 5
    other.table(0, 1)
    assert logs.reconcile(DirectoryPlace(other.root), other.topic) == 0
    with unreadable(one), pytest.raises(Corrupt):
        logs.reconcile(DirectoryPlace(one.root), one.topic)
    one.table(6, 7)
    assert logs.reconcile(DirectoryPlace(one.root), one.topic) == 6


def test_a_table_that_another_enters_meanwhile_is_kept(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.table(0, 10)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    orders.table(10, 20)
    listing = os.listdir

    def overtake(path: Path | int) -> list[str]:
        found = listing(path)
        if path == folder_of(orders):
            monkeypatch.setattr(os, "listdir", listing)
            orders.table(20, 30)
            reconcile(DirectoryPlace(orders.root), orders.topic)
        return found

    monkeypatch.setattr(os, "listdir", overtake)
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None, "the other process added both"
    assert [v.operation for v in history(DirectoryPlace(orders.root), orders.name)] == ["CREATE TABLE", "WRITE"]
    assert offsets(orders) == [(0, 10), (10, 20), (20, 30)]


def test_a_cached_listing_of_the_tables_is_dropped_first(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as an NFS client shows it: unchanged, until the client changes it itself."""
    orders.table(0, 10)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    cached: list[str] | None = [path.name for path in folder_of(orders).iterdir()]
    orders.table(10, 20)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    listing, refresh_cache = os.listdir, file_io.refresh_cache

    def anew(folder: Path) -> None:
        nonlocal cached
        cached = None
        refresh_cache(folder)

    monkeypatch.setattr(file_io, "refresh_cache", anew)
    monkeypatch.setattr(os, "listdir", lambda path: cached if cached and path == folder_of(orders) else listing(path))
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert offsets(orders) == [(0, 10), (10, 20)]


def test_who_may_only_read_finds_the_log_in_line(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.table(0, 10)
    reconcile(DirectoryPlace(orders.root), orders.topic)

    def refuse(folder: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(file_io, "refresh_cache", refuse)
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None


def test_killed_at_any_write_the_next_call_finishes(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill is an exception that is never handled, at every system call that changes something in the folder."""

    class Killed(BaseException):
        pass

    monkeypatch.setattr(updater, "is_checkpoint_due", lambda commits, *_: commits >= 2)
    left = 0
    changing = ("link", "replace", "unlink", "fsync")
    real = {name: getattr(os, name) for name in changing}

    def counted(name: str) -> None:
        def call(*args: object, **more: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return real[name](*args, **more)

        monkeypatch.setattr(os, name, call)

    for name in changing:
        counted(name)
    killed = 0
    for step in range(1, 18):
        orders.table(10 * step, 10 * step + 10)
        left = step
        try:
            reconcile(DirectoryPlace(orders.root), orders.topic)
        except Killed:
            killed += 1
        left = -1
        reconcile(DirectoryPlace(orders.root), orders.topic)
        assert len(offsets(orders)) == step
        assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert killed >= 5


@pytest.mark.usefixtures("checkpoints")
def test_a_checkpoint_comes_after_some_versions_and_old_ones_go_with_their_time(orders: TopicFiles) -> None:
    logs = DeltaLogs()
    orders.table(0, 1)
    for n in range(1, OFTEN + 4):
        by_now(logs, orders)
        (orders.root / orders.table(n, n + 1).path).touch()
    by_now(logs, orders)
    assert [p.name for p in log_of(orders).glob("*.checkpoint.parquet")] == [f"{OFTEN - 1:020d}.checkpoint.parquet"]
    assert json.loads((log_of(orders) / "_last_checkpoint").read_text())["version"] == OFTEN - 1
    assert len(commits_of(orders)) == OFTEN + 4
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert len(offsets(orders)) == OFTEN + 4
    for name in commits_of(orders):
        os.utime(log_of(orders) / name, (1, 1))
    for n in range(OFTEN):
        unlink_within(orders, n, n + 1)
        orders.table(n + 1_000, n + 1_001)
        by_now(logs, orders)
    kept = commits_of(orders)
    assert kept[0] == f"{OFTEN - 1:020d}.json", "what the versions of the last hour need stays"
    assert history(DirectoryPlace(orders.root), orders.name)[0].version == OFTEN - 1
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None


@pytest.mark.usefixtures("checkpoints")
def test_versions_stay_that_are_not_confirmed_to_be_old(orders: TopicFiles) -> None:
    """The clock of a broker has stepped, or the broker has just begun."""
    logs = DeltaLogs()
    for n in range(2 * OFTEN + 3):
        orders.table(n, n + 1)
        logs.reconcile(DirectoryPlace(orders.root), orders.topic)
        for name in commits_of(orders):
            os.utime(log_of(orders) / name, (10_000, 10_000))
    assert history(DirectoryPlace(orders.root), orders.name)[0].version == 0
    for n in range(10, 10 + OFTEN):
        orders.table(n, n + 1)
        logs.reconcile(DirectoryPlace(orders.root), orders.topic, confirmed_us=(10_000 + 3_599) * US_PER_S)
    assert history(DirectoryPlace(orders.root), orders.name)[0].version == 0
    for n in range(20, 20 + OFTEN):
        orders.table(n, n + 1)
        logs.reconcile(DirectoryPlace(orders.root), orders.topic, confirmed_us=(10_000 + 3_601) * US_PER_S)
    assert history(DirectoryPlace(orders.root), orders.name)[0].version > 0


def test_a_log_that_seldom_gets_a_version_keeps_few_of_them(orders: TopicFiles) -> None:
    logs, hour_s = DeltaLogs(), 3_600.0

    def pass_an_hour() -> None:
        for path in log_of(orders).iterdir():
            stat = path.stat()
            os.utime(path, (stat.st_atime - hour_s, stat.st_mtime - hour_s))

    kept = []
    for n in range(20):
        orders.table(n, n + 1)
        by_now(logs, orders)
        pass_an_hour()
        by_now(DeltaLogs(), orders)  # a new process also knows its age
        kept.append(sum(1 for _ in log_of(orders).iterdir()))
    assert max(kept[5:]) == kept[5] <= 6
    assert len(offsets(orders)) == 20


@pytest.mark.usefixtures("checkpoints")
def test_a_job_lets_versions_stay_for_as_long_as_the_brokers_do(orders: TopicFiles) -> None:
    days_s = 10 * 86_400.0
    for n in range(OFTEN + 3):
        orders.table(n, n + 1)
        reconcile(DirectoryPlace(orders.root), orders.topic, grace_s=days_s)
    yesterday_s = time.time() - 86_400
    for name in commits_of(orders):
        os.utime(log_of(orders) / name, (yesterday_s, yesterday_s))
    for n in range(OFTEN + 3, 2 * OFTEN + 3):
        orders.table(2 * n, 2 * n + 1)
        compact_topic(DirectoryPlace(orders.root), orders.name)
    assert len([*log_of(orders).glob("*.checkpoint.parquet")]) == 2
    assert history(DirectoryPlace(orders.root), orders.name)[0].version == 0
    rebuild_topic(DirectoryPlace(orders.root), orders.name)
    (metadata,) = actions(orders, 0, "metaData")
    assert metadata["configuration"]["delta.deletedFileRetentionDuration"] == "interval 864000 seconds"


@pytest.mark.usefixtures("checkpoints")
def test_the_grace_of_a_log_is_believed_in_seconds_and_of_a_damaged_one_as_far_as_it_is_read(tmp_path: Path) -> None:
    grace = "delta.deletedFileRetentionDuration"

    def rebuilt(files: TopicFiles) -> str:
        rebuild_log(DirectoryPlace(files.root), files.topic)
        (metadata,) = actions(files, 0, "metaData")
        found: str = metadata["configuration"][grace]
        return found

    cases = [("interval 60 seconds", 60), *((said, 3_600) for said in ("interval 1 week", "60", "", None))]
    for said, kept_s in cases:
        files = TopicFiles(tmp_path / str(said))
        files.table(0, 10)
        reconcile(DirectoryPlace(files.root), files.topic, grace_s=77.0)
        commit = log_of(files) / f"{0:020d}.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "metaData" in line:
                line["metaData"]["configuration"] = {UID_KEY: str(files.topic.uid)} | (
                    {} if said is None else {grace: said}
                )
        commit.write_text("\n".join(map(json.dumps, lines)))
        assert rebuilt(files) == f"interval {kept_s} seconds", said

    damaged = TopicFiles(tmp_path / "damaged")
    for n in range(OFTEN + 2):
        damaged.table(n, n + 1)
        reconcile(DirectoryPlace(damaged.root), damaged.topic, grace_s=60.0)
    for version in (0, OFTEN + 1):
        (log_of(damaged) / f"{version:020d}.json").write_bytes(b"{")
    assert rebuilt(damaged) == "interval 60 seconds", "a checkpoint has it"


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize("damage", ["torn", "garbage", "empty", "missing", "checkpoint", "of another topic", "deep"])
def test_a_damaged_log_is_named_in_one_line_and_rebuilt_from_the_tables(orders: TopicFiles, damage: str) -> None:
    logs = DeltaLogs()
    for n in range(OFTEN + 2 if damage == "checkpoint" else 3):
        orders.table(n, n + 1)
        logs.reconcile(DirectoryPlace(orders.root), orders.topic)
    commit = log_of(orders) / f"{1:020d}.json"
    if damage == "torn":
        commit.write_bytes(commit.read_bytes()[:-40])
    elif damage == "garbage":
        commit.write_bytes(os.urandom(300))
    elif damage == "empty":
        commit.write_bytes(b"")
    elif damage == "missing":
        commit.unlink()
    elif damage == "checkpoint":
        (checkpoint,) = log_of(orders).glob("*.checkpoint.parquet")
        checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    elif damage == "deep":
        commit.write_text('{"add":{"path":1}}\n[1]\n')
    topic = replace(orders.topic, uid=9) if damage == "of another topic" else orders.topic
    if damage == "of another topic":
        orders.uid = 9
        for table in folder_of(orders).glob("*.parquet"):
            table.unlink()
        shutil.rmtree(folder_of(orders) / ".kept")
        orders.table(0, 5)
    orders.table(100, 110)
    before = sorted(p.name for p in log_of(orders).iterdir())
    with pytest.raises(Corrupt, match=r"_delta_log cannot be read: .*`seaweedmq table rebuild shop/orders`") as raised:
        reconcile(DirectoryPlace(orders.root), topic)
    assert "\n" not in str(raised.value)
    assert sorted(p.name for p in log_of(orders).iterdir()) == before, "nothing is touched"
    assert (rebuild_log(DirectoryPlace(orders.root), topic), offsets(orders)[-1]) == (0, (100, 110))
    assert len(offsets(orders)) == len(list(folder_of(orders).glob("*.parquet")))
    (aside,) = folder_of(orders).glob(".delta_log-aside-*")
    assert sorted(p.name for p in aside.iterdir()) == before


@pytest.mark.usefixtures("checkpoints")
def test_a_log_of_which_only_the_hint_is_damaged_mends_it(orders: TopicFiles) -> None:
    logs = DeltaLogs()
    for n in range(OFTEN + 1):
        orders.table(n, n + 1)
        logs.reconcile(DirectoryPlace(orders.root), orders.topic)
    hint = log_of(orders) / "_last_checkpoint"
    said = json.loads(hint.read_text())
    for wrong in (b"", b"{", b'{"version": 7}', b"[]"):
        hint.write_bytes(wrong)
        assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
        assert json.loads(hint.read_text()) == said


def test_logs_that_were_moved_aside_do_not_gather(orders: TopicFiles) -> None:
    orders.table(0, 10)
    for _ in range(6):
        rebuild_log(DirectoryPlace(orders.root), orders.topic)
    assert len(list(folder_of(orders).glob(".delta_log-aside-*"))) == 3


def test_who_remembers_a_log_that_was_rebuilt_reads_the_new_one(orders: TopicFiles) -> None:
    logs = DeltaLogs()
    for n in range(3):
        orders.table(n, n + 1)
        logs.reconcile(DirectoryPlace(orders.root), orders.topic)
    rebuild_log(DirectoryPlace(orders.root), orders.topic)
    orders.table(3, 4)
    assert logs.reconcile(DirectoryPlace(orders.root), orders.topic) == 1
    assert offsets(orders) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_topic_deleted_meanwhile_does_not_come_back(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.table(0, 10)
    listing = os.listdir

    def delete(path: Path | int) -> list[str]:
        found = listing(path)
        monkeypatch.setattr(os, "listdir", listing)
        folder_of(orders).parent.rename(orders.root / "topics/shop/.deleted-orders")
        return found

    monkeypatch.setattr(os, "listdir", delete)
    assert reconcile(DirectoryPlace(orders.root), orders.topic) is None
    assert [p.name for p in (orders.root / "topics/shop").iterdir()] == [".deleted-orders"]


@pytest.mark.parametrize("remembers", [False, True])
def test_what_another_writer_put_in_that_is_no_table_goes(orders: TopicFiles, remembers: bool) -> None:
    logs = DeltaLogs()

    def in_line() -> int | None:
        return (logs if remembers else DeltaLogs()).reconcile(DirectoryPlace(orders.root), orders.topic)

    def put(version: int, **paths: str) -> None:
        known = {"add": {"size": 1, "modificationTime": 1}, "remove": {"deletionTimestamp": 1}}
        more = {"partitionValues": {}, "dataChange": True}
        lines = [json.dumps({kind: {"path": path, **more, **known[kind]}}) for kind, path in paths.items()]
        (log_of(orders) / f"{version:020d}.json").write_text("\n".join(lines))

    name = "00000000-00000000000000000000-00000000000000000010.parquet"
    orders.table(0, 10)
    in_line()
    put(1, add="part-0001.parquet")
    assert (in_line(), offsets(orders)) == (2, [(0, 10)])
    assert [r["path"] for r in actions(orders, 2, "remove")] == ["part-0001.parquet"]
    assert [c["operation"] for c in actions(orders, 2, "commitInfo")] == ["DELETE"]
    put(3, add=name)
    assert in_line() == 4, "nor is a table in it by both of its names"
    assert offsets(orders) == [(0, 10)]
    put(5, add="part-0002.parquet")
    put(6, remove="part-0002.parquet")
    assert in_line() is None, "another writer removed it itself"
    put(7, add=name, remove=f".kept/{name}")
    assert in_line() is None, "one name suffices"
    put(8, remove=name)
    assert in_line() == 9, "a live table comes back"
    assert (offsets(orders), history(DirectoryPlace(orders.root), orders.name)[-1].records) == ([(0, 10)], 10)


def test_a_topic_that_gets_a_schema_gets_its_columns(tmp_path: Path) -> None:
    plain = TopicFiles(tmp_path)
    plain.table(0, 10)
    logs = DeltaLogs()
    assert logs.reconcile(DirectoryPlace(tmp_path), plain.topic) == 0
    typed = TopicFiles(tmp_path, schema=pa.schema([pa.field("number", pa.int64(), nullable=False)]))
    assert logs.reconcile(DirectoryPlace(tmp_path), typed.topic) == 1
    assert history(DirectoryPlace(tmp_path), typed.name)[-1].operation == "ADD COLUMNS"
    typed.table(10, 20)
    assert logs.reconcile(DirectoryPlace(tmp_path), typed.topic) == 2
    assert not actions(typed, 2, "metaData")
    (metadata,) = actions(typed, 1, "metaData")
    fields = {f["name"]: (f["type"], f["nullable"]) for f in json.loads(metadata["schemaString"])["fields"]}
    assert fields["number"] == ("long", True), "plain records have none"
    assert fields["_value"] == ("binary", True), "and keep theirs"
    assert metadata["id"] == actions(typed, 0, "metaData")[0]["id"]
