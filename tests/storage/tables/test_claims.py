"""Converters whose locks do not exclude each other: no two tables overlap, in any order of their steps."""

import itertools
import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seaweedmq.codec.paths import table_dir
from seaweedmq.core.files.compaction import TableMerge
from seaweedmq.errors import Unavailable
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables import files as table_files
from seaweedmq.storage.tables.compact import publish_merge
from seaweedmq.storage.tables.files import CLAIM_AGE_S_MAX, CLAIM_PREFIX, DirectoryTarget
from tests.support.segments import NAME, logs_of, make_frame, make_topic, tables_of, write_log

RANGES = st.tuples(st.integers(0, 6), st.integers(1, 6)).map(lambda r: (r[0], r[0] + r[1]))


class Turns:
    """A scheduler that lets one random thread at a time do its next step."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self._rng = rng
        self._left = count
        self._waiting: dict[int, threading.Event] = {}
        self._lock = threading.Lock()

    def step(self) -> None:
        mine = threading.Event()
        with self._lock:
            self._waiting[threading.get_ident()] = mine
            self._go_on()
        assert mine.wait(10)

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self._left and len(self._waiting) == self._left:
            self._waiting.pop(self._rng.choice(sorted(self._waiting))).set()


def before(turns: Turns, call: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*args: Any, **options: Any) -> Any:
        turns.step()
        return call(*args, **options)

    return stepped


def in_turns(turns: Turns, work: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Do all work at once, step by step: each call of the storage is one."""
    with pytest.MonkeyPatch.context() as patch:
        steps = (
            (DirectoryPlace, "tables"),
            (DirectoryPlace, "publish"),
            (Path, "touch"),
            (Path, "glob"),
            (Path, "unlink"),
        )
        for owner, name in steps:
            patch.setattr(owner, name, before(turns, getattr(owner, name)))
        patch.setattr(file_io, "remove_stale_temporaries", lambda *args: None)
        with ThreadPoolExecutor(len(items)) as pool:
            for _ in pool.map(work, items):
                pass


@given(ranges=st.lists(RANGES, min_size=2, max_size=3), seed=st.integers(0, 10**6))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_of_converters_without_a_common_lock_never_overlap(
    ranges: list[tuple[int, int]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("storage")
    (root / table_dir(NAME)).mkdir(parents=True)
    turns = Turns(random.Random(seed), len(ranges))

    def convert(span: tuple[int, int]) -> None:
        try:
            target = DirectoryTarget(DirectoryPlace(root), NAME, 0)
            sink = target.create()
            turns.step()
            target.publish(sink, *span)
        except Unavailable:
            pass  # another one was faster
        finally:
            turns.done()

    in_turns(turns, convert, ranges)
    tables = sorted((t.base_offset, t.end_offset or 0) for t in DirectoryPlace(root).tables(NAME, [0]))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(tables)), tables
    assert not list((root / table_dir(NAME)).glob(f"{CLAIM_PREFIX}*"))


@given(ranges=st.lists(RANGES, min_size=2, max_size=3), seed=st.integers(0, 10**6))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_of_merges_on_machines_that_do_not_see_each_other_no_two_replace_the_same_table(
    ranges: list[tuple[int, int]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("storage")
    (root / table_dir(NAME)).mkdir(parents=True)
    target = DirectoryTarget(DirectoryPlace(root), NAME, 0)
    tables = [target.publish(target.create(), n, n + 1) for n in range(12)]
    merges = [TableMerge(tables=tuple(tables[base : max(end, base + 2)])) for base, end in ranges]
    turns = Turns(random.Random(seed), len(merges))

    def merge(one: TableMerge) -> None:
        try:
            sink = DirectoryTarget(DirectoryPlace(root), NAME, 0).create()
            sink.close()
            turns.step()
            publish_merge(DirectoryPlace(root), make_topic(), one, str(Path(sink.name).relative_to(root)))
        except Unavailable:
            pass  # another one was faster
        finally:
            turns.done()

    in_turns(turns, merge, merges)
    left = sorted((t.base_offset, t.end_offset or 0) for t in DirectoryPlace(root).tables(NAME, [0]))
    assert [left[0][0], left[-1][1]] == [0, 12]
    assert all(one[1] == other[0] for one, other in itertools.pairwise(left)), left
    assert not list((root / table_dir(NAME)).glob(".[ct]*"))


async def test_a_claim_that_was_left_behind_holds_others_up_for_a_while(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path)
    await write_log(store, 0, [make_frame(0, 10)])
    claim = tmp_path / table_dir(NAME) / f"{CLAIM_PREFIX}0-5-20-1-dead-0"
    claim.parent.mkdir()
    claim.touch()
    elsewhere = [claim.with_name(f"{CLAIM_PREFIX}{rest}-1-dead-0") for rest in ("0-90-99", "1-5-20", "10-0-10")]
    for other in elsewhere:
        other.touch()
    with pytest.raises(Unavailable, match=r"about to publish offsets \[5, 20\)"):
        table_files.convert_files(DirectoryPlace(tmp_path), make_topic(), await logs_of(store), None, 10_000)
    old_s = claim.stat().st_mtime - CLAIM_AGE_S_MAX - 1
    for old in (claim, *elsewhere[:2]):
        os.utime(old, (old_s, old_s))
    table_files.convert_files(DirectoryPlace(tmp_path), make_topic(), await logs_of(store), None, 10_000)
    assert [(t.base_offset, t.end_offset) for t in await tables_of(store)] == [(0, 10)]
    assert list(claim.parent.glob(f"{CLAIM_PREFIX}*")) == elsewhere[2:]
    await store.close()
