"""Batches that sinks leave in the storage, and their cleanup."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import FrameHeader, encode_header
from seaweedmq.codec.paths import TOPICS
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.staged import (
    BatchProgress,
    CompletedBatch,
    FinishedSegment,
    Manifest,
    SegmentProgress,
    StagedFile,
    StagedSegment,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import staged_frames
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.snapshot import list_files, read_snapshot
from seaweedmq.storage.staged_sweep import sweep
from seaweedmq.storage.staging import StagedBatch, StagedSink
from tests.support.topic_files import TopicFiles

NAME = TopicName("shop", "orders")


def swept_later(root: Path) -> int:
    """Return the folders that a second sweep removed, more than an hour after the first one."""
    assert sweep(DirectoryPlace(root), NAME) == 0
    aged(3_700 / 86_400, *(root / "topics" / "shop" / "orders" / ".staged").glob(".due-*"))
    return sweep(DirectoryPlace(root), NAME)


def staged(batch: StagedBatch, *frames: bytes) -> StagedFile:
    with batch.staging("0") as file:
        file.write(frames, 3 * len(frames))
        return file.finish()


def aged(days: float, *paths: Path) -> None:
    at = time.time() - days * 86_400
    for path in paths:
        os.utime(path, (at, at))


def frame(slot_min: int, slot_max: int, payload: bytes = b"8 bytes.") -> bytes:
    header = FrameHeader(
        encoding=1, flags=1, record_count=3, payload_length=len(payload), payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=0, timestamp_max=0, producer_id=1, first_sequence=0, producer_epoch=0, slot_min=slot_min,
        slot_max=slot_max, histogram=(0,) * 16,
    )  # fmt: skip
    return encode_header(header) + payload


def manifest(*files: StagedFile, batch: int = 3) -> Manifest:
    roots = (StagedSegment(0, WHOLE_RING, ()),)
    return Manifest(topic_uid=7, batch=batch, producer_id=9, ring=WHOLE_RING, files=files, roots=roots)


@pytest.fixture
def sink(tmp_path: Path) -> StagedSink:
    TopicFiles(tmp_path)
    return StagedSink(DirectoryPlace(tmp_path), NAME, "q-1")


def test_the_first_manifest_of_a_batch_counts(sink: StagedSink) -> None:
    batch = sink.batch(3)
    one, two = staged(batch, frame(0, 5), frame(6, 9)), staged(batch)
    assert batch.manifest() is None
    assert batch.put_manifest(manifest(one)) == manifest(one)
    assert (batch.put_manifest(manifest(two)), one.record_count) == (manifest(one), 6)
    frames = batch.frames([one])
    assert [(f.position, f.header.slot_min) for f in frames.headers()] == [(0, 0), (152, 6)]
    assert [f.header.slot_min for f in frames.headers(7, 8)] == [6]
    assert frames.payload(next(frames.headers())) == b"8 bytes."
    frames.close()


def test_a_task_that_fails_leaves_nothing(sink: StagedSink) -> None:
    batch = sink.batch(0)
    with pytest.raises(ZeroDivisionError), batch.staging("0"):
        raise ZeroDivisionError
    assert list(Path(batch.where).iterdir()) == []


def test_a_topic_that_was_deleted_does_not_come_to_life_by_what_is_staged_for_it(tmp_path: Path) -> None:
    topics = tmp_path / TOPICS
    topics.mkdir()
    batch = StagedSink(DirectoryPlace(tmp_path), NAME, "q-1").batch(0)
    with pytest.raises(NotFound, match="topic shop/orders is no longer in the storage"), batch.staging("0"):
        raise AssertionError("there is no place for it")
    assert list(topics.iterdir()) == []


def test_what_was_noted_last_is_what_is_known(sink: StagedSink) -> None:
    batch = sink.batch(3)
    batch.put_manifest(manifest(staged(batch)))
    assert batch.progress() == BatchProgress()
    note = BatchProgress(
        segments=(StagedSegment(1, WHOLE_RING, (0,)),),
        finished={0: FinishedSegment(5, (1,))},
        reached={0: SegmentProgress(5, 50), 1: SegmentProgress(1, 51)},
    )
    batch.note(BatchProgress(reached={0: SegmentProgress(5, 50)}))
    batch.note(note)
    assert batch.progress() == note
    assert note.record_count == 6  # five in the first segment, and one in its successor


def test_a_batch_is_as_old_as_its_manifest_whatever_was_noted_since(sink: StagedSink) -> None:
    batch = sink.batch(3)
    batch.put_manifest(manifest(staged(batch)))
    at = int(time.time()) - 700
    os.utime(Path(batch.where) / "manifest.json", (at, at))
    batch.note(BatchProgress(reached={0: SegmentProgress(5, 50)}))
    assert batch.begun_us() == at * US_PER_S
    os.utime(Path(batch.where) / "manifest.json", (at + 1_000, at + 1_000))
    assert batch.begun_us() == 0, "the clock was set back since: it may be of any age"


def test_a_batch_that_is_done_leaves_a_mark_and_nothing_else(sink: StagedSink) -> None:
    assert sink.done() is None
    for number in (2, 3):
        staged(sink.batch(number))
    done = CompletedBatch(batch=3, ranges=(WHOLE_RING,))
    sink.finish(done)
    assert sink.done() == done
    assert [path.name for path in Path(sink.batch(3).where).parent.iterdir()] == ["done.json"]


def test_a_driver_that_comes_late_sets_no_mark_back(sink: StagedSink) -> None:
    for number in (3, 4):
        staged(sink.batch(number))
    newer = CompletedBatch(batch=4, ranges=(WHOLE_RING,))
    sink.finish(newer)
    sink.finish(CompletedBatch(batch=3, ranges=()))
    assert sink.done() == newer


def test_damage_of_a_payload_is_not_passed_on(sink: StagedSink) -> None:
    batch = sink.batch(3)
    written = staged(batch, frame(0, 5), frame(6, 9))
    path = Path(batch.where) / written.name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    frames = batch.frames([written])
    first, second = frames.headers()
    assert frames.payload(first) == b"8 bytes."
    with pytest.raises(Corrupt, match=r"\.frames is damaged after byte 152: restore it"):
        frames.payload(second)
    frames.close()


def test_each_segment_reads_the_headers_of_its_own_frames(sink: StagedSink, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = sink.batch(3)
    slots = [frame(slot, slot) for slot in range(4)]
    files = [staged(batch, *slots) for _ in range(staged_frames.OPEN_FILES_MAX + 3)]
    frames = batch.frames(files)
    assert len(list(frames.headers(0, 1))) == len(files)
    looked: list[bytes] = []
    decode = staged_frames.decode_header
    monkeypatch.setattr(staged_frames, "decode_header", lambda data: looked.append(data) or decode(data))
    assert [f.file for f in frames.headers(2, 3)] == list(range(len(files)))
    assert len(looked) == len(files), "and of no other batch"
    assert len(frames._open) <= staged_frames.OPEN_FILES_MAX  # noqa: SLF001
    frames.close()


def test_a_sink_keeps_to_its_topic_though_another_one_takes_the_name(tmp_path: Path, sink: StagedSink) -> None:
    sink.bind_topic(7)
    StagedSink(DirectoryPlace(tmp_path), NAME, "q-2").bind_topic(8)
    sink.bind_topic(7)
    for _ in range(2):
        with pytest.raises(NotFound, match="shop/orders was deleted and created again since this query began to"):
            sink.bind_topic(8)
    StagedSink(DirectoryPlace(tmp_path), NAME, "q").bind_topic(8)


def test_a_sink_of_a_namespace_that_is_not_there_brings_nothing_to_life(tmp_path: Path) -> None:
    topics = tmp_path / TOPICS
    topics.mkdir()
    with pytest.raises(NotFound, match="topic shop/orders is no longer in the storage"):
        StagedSink(DirectoryPlace(tmp_path), NAME, "q-1").bind_topic(7)
    assert list(topics.iterdir()) == []


def test_which_topic_a_sink_keeps_to_is_forgotten_long_after_the_sink_is_gone(tmp_path: Path, sink: StagedSink) -> None:
    with sink.batch(1).staging("0"):
        sink.bind_topic(7)
    StagedSink(DirectoryPlace(tmp_path), NAME, "q-2").bind_topic(7)
    StagedSink(DirectoryPlace(tmp_path), NAME, "q-3").bind_topic(7)
    marks = tmp_path / "topics" / "shop" / ".sinks" / "orders"
    for name, days in (("q-1-7", 31), ("q-2-7", 31), ("q-3-7", 29)):
        aged(days, marks / name)
    swept_later(tmp_path)
    assert sorted(path.name for path in marks.iterdir()) == ["q-1-7", "q-3-7"]
    assert time.time() - (marks / "q-1-7").stat().st_mtime < 60


def test_damage_is_said_and_where_it_is(sink: StagedSink) -> None:
    batch = sink.batch(3)
    written = staged(batch, frame(0, 5))
    batch.put_manifest(manifest(written))
    for name in ("manifest.json", written.name):
        path = Path(batch.where) / name
        whole = path.read_bytes()
        path.write_bytes(whole[:20])
        with pytest.raises(Corrupt, match=name.replace(".", r"\.")):
            (batch.manifest(), list(batch.frames([written]).headers()))
        path.write_bytes(whole)
    (Path(batch.where) / written.name).unlink()
    with pytest.raises(Corrupt, match="of the manifest is missing"):
        list(batch.frames([written]).headers())


def test_what_is_staged_is_no_part_of_the_topic(tmp_path: Path, sink: StagedSink) -> None:
    staged(sink.batch(0))
    assert (read_snapshot(DirectoryPlace(tmp_path), NAME).files, list_files(DirectoryPlace(tmp_path), NAME, [0])) == (
        (),
        (),
    )


def test_the_dead_are_swept_by_their_age_and_what_is_to_be_finished_stays(tmp_path: Path, sink: StagedSink) -> None:
    begun, given_up, young = sink.batch(1), sink.batch(2), sink.batch(3)
    for batch in (begun, given_up, young):
        staged(batch)
    begun.put_manifest(manifest(batch=1))
    long_ago = StagedSink(DirectoryPlace(tmp_path), NAME, "q-2")
    staged(long_ago.batch(0))
    long_ago.finish(CompletedBatch(batch=0, ranges=()))
    ages = (
        (Path(begun.where), 90),
        (Path(given_up.where), 2),
        (Path(young.where), 0.5),
        (Path(long_ago.batch(0).where).parent, 31),
    )
    for folder, days in ages:
        aged(days, *folder.iterdir(), folder)
    assert swept_later(tmp_path) == 2
    assert sorted(path.name for path in Path(begun.where).parent.iterdir()) == [
        Path(begun.where).name,
        Path(young.where).name,
    ]
    assert not Path(long_ago.batch(0).where).parent.exists()


def test_what_a_killed_writer_left_goes_after_a_day_and_keeps_no_sink(tmp_path: Path, sink: StagedSink) -> None:
    staged(sink.batch(0))
    sink.finish(CompletedBatch(batch=0, ranges=()))
    folder = Path(sink.batch(0).where).parent
    topic = folder.parent.parent
    for where in (folder, topic):
        (where / ".tmp-1-a-1").touch()
        (where / ".tmp-1-a-2").touch()
        aged(2, where / ".tmp-1-a-1")
    sweep(DirectoryPlace(tmp_path), NAME)
    assert sorted(path.name for path in folder.iterdir()) == [".tmp-1-a-2", "done.json"]
    assert sorted(path.name for path in topic.glob(".tmp-*")) == [".tmp-1-a-2"]
    aged(31, *folder.iterdir(), folder)
    assert swept_later(tmp_path) == 1
    assert not folder.exists()


def test_a_clock_ahead_sweeps_nothing(tmp_path: Path, sink: StagedSink, monkeypatch: pytest.MonkeyPatch) -> None:
    staged(sink.batch(0))
    sink.bind_topic(7)
    StagedSink(DirectoryPlace(tmp_path), NAME, "q-2").bind_topic(7)
    clock_s = time.time()
    monkeypatch.setattr(DirectoryPlace, "clock_s", lambda _place, _folder: clock_s)
    touch = Path.touch

    def touch_by_the_clock(path: Path, **options: Any) -> None:
        touch(path, **options)
        os.utime(path, (clock_s, clock_s))

    monkeypatch.setattr(Path, "touch", touch_by_the_clock)

    def sweep_at(days: float, minutes: float = 0.0) -> int:
        nonlocal clock_s
        clock_s = time.time() + days * 86_400 + minutes * 60
        return sweep(DirectoryPlace(tmp_path), NAME)

    top = Path(sink.batch(0).where).parent.parent
    assert [sweep_at(40, minute) for minute in (0, 20, 50)] == [0, 0, 0]
    assert len(list(top.glob(".due-*"))) == 2, "the batch, and the mark of the sink that has nothing else"
    assert sweep_at(0) == 0
    assert list(top.glob(".due-*")) == [], "removed"
    assert [sweep_at(50, minute) for minute in (0, 59)] == [0, 0]
    assert sweep_at(40) == 0, "the decision is of a later day"
    assert sweep_at(40, 61) == 1
    assert not Path(sink.batch(0).where).exists()


def test_nobody_comes_back_for_what_was_to_be_written_once(tmp_path: Path, sink: StagedSink) -> None:
    killed, young = (StagedSink(DirectoryPlace(tmp_path), NAME, f"w-{number}").batch(0) for number in (1, 2))
    for batch, days in ((killed, 2.0), (young, 0.5)):
        batch.put_manifest(manifest(staged(batch), batch=0))
        (Path(batch.where).parent / ".tmp-1").touch()
        aged(
            days,
            *Path(batch.where).iterdir(),
            Path(batch.where),
            Path(batch.where).parent / ".tmp-1",
            Path(batch.where).parent,
        )
    assert (swept_later(tmp_path), Path(killed.where).exists(), Path(young.where).exists()) == (1, False, True)
    aged(2, Path(killed.where).parent)
    assert swept_later(tmp_path) == 1
    assert not Path(killed.where).parent.exists()
