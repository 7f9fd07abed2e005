"""Batches that sinks stage on an object store, and their cleanup by the store's clock."""

import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import FrameHeader, encode_header
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, batch_dir, document_path, sink_dir, staged_dir
from seaweedmq.codec.state.documents import deleted_document, lineage_document, topic_document
from seaweedmq.core.clock_doubt import CLOCK_DOUBT_S
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.staged import BatchProgress, CompletedBatch, Manifest, StagedFile, StagedSegment
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.staged_sweep import DONE_AGE_S, SWEPT_AGE_S, sweep
from seaweedmq.storage.staging import StagedBatch, StagedSink
from tests.doubles.memory_objects import MemoryBucket
from tests.support.object_places import memory_place
from tests.support.segments import NAME, make_topic


class Clock:
    """The clock of a store, which stands still until it is set forward."""

    now_us = 1_700_000_000 * US_PER_S

    def __call__(self) -> int:
        return self.now_us

    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * US_PER_S)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def place(clock: Clock) -> ObjectPlace:
    made = memory_place(MemoryBucket(clock))
    made.replace(document_path(NAME, TOPIC_DOCUMENT), topic_document(make_topic()))
    made.replace(document_path(NAME, LINEAGE_DOCUMENT), lineage_document(NAME, ()))
    return made


@pytest.fixture
def sink(place: ObjectPlace) -> StagedSink:
    return StagedSink(place, NAME, "q-1")


def frame(payload: bytes) -> bytes:
    header = FrameHeader(
        encoding=1, flags=1, record_count=3, payload_length=len(payload), payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=0, timestamp_max=0, producer_id=1, first_sequence=0, producer_epoch=0, slot_min=0,
        slot_max=9, histogram=(0,) * 16,
    )  # fmt: skip
    return encode_header(header) + payload


def staged(batch: StagedBatch, *frames: bytes) -> StagedFile:
    with batch.staging("0") as file:
        file.write(frames, 3 * len(frames))
        return file.finish()


def manifest(*files: StagedFile, batch: int = 0) -> Manifest:
    roots = (StagedSegment(0, WHOLE_RING, ()),)
    return Manifest(topic_uid=7, batch=batch, producer_id=9, ring=WHOLE_RING, files=files, roots=roots)


def test_a_batch_is_staged_read_and_completed(place: ObjectPlace, sink: StagedSink, clock: Clock) -> None:
    batch = sink.batch(0)
    one, other = staged(batch, frame(b"one"), frame(b"two")), staged(batch, frame(b"three"))
    assert place.names(batch_dir(NAME, "q-1", 0)) == sorted((one.name, other.name))
    assert place.has(f"topics/shop/orders/7/.staged/q-1/{0:020d}/{one.name}")
    assert batch.manifest() is None
    assert batch.put_manifest(manifest(one)) == manifest(one)
    assert batch.put_manifest(manifest(other)) == manifest(one), "the first one counts"
    assert batch.begun_us() == clock.now_us
    batch.discard([other.name])
    frames = batch.frames([one])
    assert [frames.payload(each) for each in frames.headers()] == [b"one", b"two"]
    frames.close()
    assert batch.progress() == BatchProgress()
    sink.finish(CompletedBatch(batch=0, ranges=()))
    assert sink.done() == CompletedBatch(batch=0, ranges=())
    assert place.listdir(sink_dir(NAME, "q-1")) == ["done.json"]


def test_a_late_process_does_not_set_a_sink_back(sink: StagedSink) -> None:
    sink.finish(CompletedBatch(batch=4, ranges=()))
    sink.finish(CompletedBatch(batch=3, ranges=()))
    assert sink.done() == CompletedBatch(batch=4, ranges=())


def test_a_failed_task_leaves_nothing(place: ObjectPlace, sink: StagedSink) -> None:
    def fail() -> None:
        with sink.batch(0).staging("0") as file:
            file.write([frame(b"one")], 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not place.has(staged_dir(NAME))


def test_frames_that_are_gone_are_an_error(place: ObjectPlace, sink: StagedSink) -> None:
    batch = sink.batch(0)
    one = staged(batch, frame(b"one"))
    place.delete(f"{batch_dir(NAME, 'q-1', 0)}/{one.name}")
    with pytest.raises(Corrupt, match=r"of the manifest is missing"):
        list(batch.frames([one]).headers())


def test_a_sink_writes_to_one_topic_of_a_name(place: ObjectPlace, sink: StagedSink) -> None:
    sink.bind_topic(7)
    sink.bind_topic(7)
    with pytest.raises(NotFound, match="created again"):
        sink.bind_topic(8)
    place.replace(document_path(NAME, TOPIC_DOCUMENT), deleted_document(7))
    with pytest.raises(NotFound, match="it was deleted"):
        staged(sink.batch(1))


def test_what_dead_sinks_left_is_swept_a_day_later(place: ObjectPlace, sink: StagedSink, clock: Clock) -> None:
    sink.bind_topic(7)
    begun, given_up, dead = sink.batch(0), sink.batch(1), StagedSink(place, NAME, "q-2")
    begun.put_manifest(manifest(staged(begun)))
    staged(given_up)
    dead.finish(CompletedBatch(batch=0, ranges=()))
    clock.wait(SWEPT_AGE_S + 10)
    young = sink.batch(2)
    staged(young)
    assert sweep(place, NAME) == 0, "the first look at what is due"
    clock.wait(CLOCK_DOUBT_S + 1)
    assert sweep(place, NAME) == 1
    assert [name for name, is_folder in place.entries(sink_dir(NAME, "q-1")) if is_folder] == [f"{0:020d}", f"{2:020d}"]
    clock.wait(DONE_AGE_S)
    assert sweep(place, NAME) == 0
    clock.wait(CLOCK_DOUBT_S + 1)
    assert sweep(place, NAME) == 2, "the batch of two steps before, and the sink without a batch"
    assert not place.has(sink_dir(NAME, "q-2"))
    assert begun.manifest() is not None
