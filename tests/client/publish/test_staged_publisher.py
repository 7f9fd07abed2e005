"""A staged batch is stored once and in order, through everything a cluster and its publisher can do. Seeded.

A story is a few batches; while one is published, segments split and merge, brokers lose what they did not commit,
connections break, acknowledgements are lost, and the publisher is killed and started again from what was noted, or from
what was noted before that.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.publish.batches.framing import by_segment, frames_of
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.staged_publisher import StagedPublisher, staged_segment_of
from seaweedmq.client.publish.staged_rows import RowSelection, StagedRows
from seaweedmq.client.publish.staged_sender import Search, StagedSender
from seaweedmq.codec.frame import HEADER_BYTES, decode_header
from seaweedmq.codec.staged import manifest_from_bytes, manifest_to_bytes, progress_from_bytes, progress_to_bytes
from seaweedmq.core.publish.outgoing_frame import OutgoingFrame
from seaweedmq.core.publish.routing import Routes
from seaweedmq.core.replay import Replay
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.errors import DeadlineExceeded, Fenced, InvalidArgument, NotFound, OutOfRange, SeaweedMQError
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.ring import WHOLE_RING, KeyRange, even_ranges, slot_of
from seaweedmq.model.segment import Segment
from seaweedmq.model.staged import BatchProgress, FinishedSegment, Manifest, SegmentProgress, StagedFile
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.storage.staged_frames import StagedFrame
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster
from tests.client.publish.troubles import TROUBLES, lose_tail, open_segments, stored, trouble

NAME = TopicName("shop", "orders")
PRODUCER = NATIVE_PRODUCER_BIT | 77
SEEDS = range(100)
CONFIG = replace(QUICK, delivery_timeout_s=30.0)


class Memory:
    """Staged frames without files."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames

    def headers(self, lo: int, hi: int) -> Iterator[StagedFrame]:
        for number, data in enumerate(self.frames):
            header = decode_header(data)
            if header.slot_min < hi and header.slot_max >= lo:
                yield StagedFrame(number, 0, header)

    def payload(self, frame: StagedFrame) -> bytes:
        return self.frames[frame.file][HEADER_BYTES:]


def staged(batch: int, rows: int, ranges: tuple[KeyRange, ...], rng: random.Random, keys: int = 12) -> Memory:
    """Return rows ``batch/number`` of a few keys, some without one, in frames for these ranges."""
    routes = Routes(WHOLE_RING, ((slots, number) for number, slots in enumerate(ranges)))
    frames: list[bytes] = []
    number = 0
    while number < rows:
        count = min(rows - number, rng.randint(1, 6))
        numbers = range(number, number + count)
        names = [None if rng.random() < 0.1 else b"key-%d" % rng.randrange(keys) for _ in numbers]
        columns = pa.record_batch(
            [pa.array(names, pa.binary()), pa.array([b"%d/%d" % (batch, n) for n in numbers], pa.binary())],
            names=["_key", "_value"],
        )
        keyless = rng.randrange(WHOLE_RING.hi)
        gathered = Rows(columns, 1, 1_700_000_000_000_000, range(count), None)  # type: ignore[arg-type]
        for at, part in by_segment(gathered, routes, keyless):
            for frame in frames_of(
                part,
                segment_slots=ranges[at],
                keyless_slot=keyless,
                producer_id=NATIVE_PRODUCER_BIT,
                first_sequence=0,
                frame_bytes=1 << 20,
                frame_bytes_max=1 << 20,
            ):
                assert isinstance(frame, OutgoingFrame)
                frames.append(bytes(frame.data))
        number += count
    return Memory(frames)


async def direct(call: Callable[[], Any]) -> Any:
    """Call it in the event loop, whose virtual time does not advance."""
    return call()


class Driver:
    """A publisher of one batch that may be killed and started again."""

    def __init__(self, cluster: FakeCluster, batch: int, memory: Memory, seed: int) -> None:
        self.fake = cluster
        self.memory = memory
        self.search: Search | None = None
        described = cluster.describe(NAME)
        self.topic = described.topic
        self.manifest = Manifest(
            topic_uid=described.topic.uid,
            batch=batch,
            producer_id=PRODUCER,
            ring=described.topic.ring,
            files=(StagedFile("a.frames", 1, sum(decode_header(data).record_count for data in memory.frames)),),
            roots=tuple(staged_segment_of(segment) for segment in described.segments if segment.is_open),
        )
        assert manifest_from_bytes(manifest_to_bytes(self.manifest), "m") == self.manifest
        self.notes = [progress_to_bytes(BatchProgress())]
        self.seed = seed
        self.task: asyncio.Task[None] | None = None

    async def run(self, note: bytes) -> None:
        progress = progress_from_bytes(note, "p")
        cluster = Cluster(("fake:9000", "fake:9001"), self.fake.dialer(), environment(self.seed), CONFIG)
        parts = cluster, self.topic, self.manifest, progress, self.memory

        def keep(progress: BatchProgress) -> None:
            self.notes.append(progress_to_bytes(progress))

        try:
            await StagedPublisher(*parts, note=keep, search=self.search, offload=direct).run()
        finally:
            await cluster.close()

    def start(self, note: int = -1) -> None:
        self.task = asyncio.create_task(self.run(self.notes[note]))

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def check(cluster: FakeCluster, batches: dict[int, int]) -> None:
    """Check that every row is stored once, and those of a key in order, in any lineage."""
    records = stored(cluster, NAME)
    values = sorted(value for *_, value in records)
    assert values == sorted(b"%d/%d" % (batch, n) for batch, rows in batches.items() for n in range(rows))
    by_key: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for _, segment, key, value in records:
        if key is not None:
            assert slot_of(key) in cluster.segments[NAME][segment].meta.slots
            batch, number = value.split(b"/")
            by_key[key].append((int(batch), int(number)))
    for key, order in by_key.items():
        assert order == sorted(order), key


async def chaos(cluster: FakeCluster, driver: Driver, rng: random.Random) -> None:
    """Cause one random event."""
    segment = rng.choice(open_segments(cluster, NAME))
    what = rng.choice((*TROUBLES, "kill", "kill", "old kill"))

    async def perhaps_kill() -> None:
        if rng.random() < 0.5:
            await driver.kill()
            driver.start(rng.randrange(len(driver.notes)))

    if what in ("kill", "old kill"):
        await driver.kill()
        driver.start(-1 if what == "kill" else rng.randrange(len(driver.notes)))
    else:
        await trouble(cluster, NAME, segment, what, rng, perhaps_kill)


async def story(seed: int) -> None:
    """Run one story; fail if a row is lost, repeated or out of order, or if a batch ends with an error."""
    rng = random.Random(seed)
    cluster = FakeCluster(3)
    cluster.create(TopicSpec(name=NAME, segments=rng.randint(1, 4)))
    cluster.in_flight_frames_max = rng.randint(1, 2)
    cluster.recent_known = rng.random() < 0.5
    batches: dict[int, int] = {}
    for batch in range(2):
        rows = rng.randint(0, 70)
        opened = tuple(sorted(s.slots for s in open_segments(cluster, NAME)))
        ranges = rng.choice((opened, (WHOLE_RING,), even_ranges(WHOLE_RING, 3)))
        driver = Driver(cluster, batch, staged(batch, rows, ranges, rng), seed)
        batches[batch] = rows
        driver.start()
        for _ in range(rng.randint(2, 9)):
            for _ in range(rng.randint(0, 40)):
                await asyncio.sleep(0)
            await chaos(cluster, driver, rng)
        assert driver.task is not None
        await driver.task
        before = stored(cluster, NAME)
        driver.start(rng.randrange(len(driver.notes)))  # a repeated completion stores nothing
        await driver.task
        assert stored(cluster, NAME) == before
        check(cluster, batches)


async def test_a_hundred_seeds_store_every_row_once_and_in_order() -> None:
    for seed in SEEDS:
        try:
            await story(seed)
        except (AssertionError, SeaweedMQError) as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


async def first_failure() -> BaseException | None:
    for seed in SEEDS:
        try:
            async with asyncio.timeout(600):
                await story(seed)
        except (AssertionError, SeaweedMQError, TimeoutError) as error:
            return error
    return None


def early_successors(replay: Replay, segment: int, missing: set[int]) -> bool:
    return False


def origins_by_time(replay: Replay, segment: int) -> Any:
    sources = _sources(replay, segment)
    order = list(replay.finished)
    return replace(sources, origins=tuple(sorted(sources.origins, key=lambda origin: order.index(origin[0]))))


def forgetful_beyond(pieces: StagedRows, given: Iterator[RowSelection], count: int) -> Iterator[RowSelection]:
    return given


def never_again(rows: StagedRows, segment: int, first_sequence: int) -> Any:
    at = 0
    for piece in rows.of(segment):
        if at >= first_sequence:
            yield piece, at
        at += piece.record_count


def all_kept(sender: StagedSender, sealed: Any) -> FinishedSegment:
    return FinishedSegment(sender._total, ())  # noqa: SLF001


_sources = Replay.sources

MUTANTS: tuple[tuple[type, str, Any], ...] = (
    (Replay, "_is_open_to_more", early_successors),
    (Replay, "sources", origins_by_time),
    (StagedRows, "beyond", forgetful_beyond),
    (StagedRows, "rest", never_again),
    (StagedSender, "_sealed", all_kept),
)


@pytest.mark.parametrize(("where", "what", "broken"), MUTANTS, ids=[broken.__name__ for *_, broken in MUTANTS])
async def test_a_hundred_seeds_catch(monkeypatch: pytest.MonkeyPatch, where: type, what: str, broken: Any) -> None:
    monkeypatch.setattr(where, what, broken)
    assert await first_failure() is not None


# --- one thing at a time ----------------------------------------------------------------------------------------------
def one_segment() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create(TopicSpec(name=NAME, segments=1))
    return cluster


async def begun_and_killed(cluster: FakeCluster, search: Search | None) -> Driver:
    """Store all 20 rows of a batch, and kill the driver before any acknowledgement."""
    driver = Driver(cluster, 0, staged(0, 20, (WHOLE_RING,), random.Random(1)), 1)
    cluster.holds_acks = True
    driver.start()
    await cluster.until_stored(str(NAME), 20)
    await driver.kill()
    cluster.release_acks()
    driver.search = search
    return driver


async def test_who_comes_late_asks_the_files_where_brokers_have_forgotten_the_producer() -> None:
    cluster = one_segment()
    asked: list[tuple[int, SegmentProgress]] = []

    def search(segment: Segment, reached: SegmentProgress) -> int:
        asked.append((segment.id, reached))
        return 20

    driver = await begun_and_killed(cluster, search)
    cluster.stored(str(NAME)).producers = ProducerTable()
    await driver.run(driver.notes[-1])
    check(cluster, {0: 20})
    assert asked == [(0, SegmentProgress(0, 0))]


async def test_who_comes_late_need_not_ask_the_files_where_brokers_know_the_producer_or_an_earlier_batch() -> None:
    def search(segment: Segment, reached: SegmentProgress) -> int:
        raise AssertionError("brokers know")

    cluster = one_segment()
    first = await begun_and_killed(cluster, search)
    await first.run(first.notes[-1])
    check(cluster, {0: 20})
    second = Driver(cluster, 1, staged(1, 20, (WHOLE_RING,), random.Random(2)), 2)
    second.search = search
    await second.run(second.notes[-1])
    check(cluster, {0: 20, 1: 20})


async def test_who_comes_late_asks_the_files_where_an_earlier_batch_was_asked_for_and_is_not_known() -> None:
    """The question leaves no producer state that could answer it."""
    asked: list[int] = []

    def search(segment: Segment, reached: SegmentProgress) -> int:
        asked.append(segment.id)
        raise OutOfRange("the log files are gone")

    cluster = one_segment()
    for batch in range(2):
        driver = Driver(cluster, batch, staged(batch, 20, (WHOLE_RING,), random.Random(1)), 1)
        driver.search = search
        with pytest.raises(OutOfRange, match="the log files are gone"):
            await driver.run(driver.notes[-1])
    assert asked == [0, 0]
    check(cluster, {})


async def test_where_nobody_can_tell_nothing_is_stored_twice_and_what_was_lost_is_published_again() -> None:
    def search(segment: Segment, reached: SegmentProgress) -> int:
        raise OutOfRange("the log files are gone")

    cluster = one_segment()
    driver = await begun_and_killed(cluster, search)
    cluster.stored(str(NAME)).producers = ProducerTable()
    with pytest.raises(OutOfRange, match="the log files are gone"):
        await driver.run(driver.notes[-1])
    check(cluster, {0: 20})
    cluster = one_segment()
    driver = await begun_and_killed(cluster, None)
    lose_tail(cluster, NAME, 0, 1)
    assert 0 < len(stored(cluster, NAME)) < 20
    await driver.run(progress_to_bytes(BatchProgress(reached={0: SegmentProgress(15, 15)})))
    check(cluster, {0: 20})


async def test_a_batch_fails_for_a_later_topic_or_batch_or_if_brokers_do_not_take_or_acknowledge_it() -> None:
    cluster = one_segment()
    driver = Driver(cluster, 0, staged(0, 20, (WHOLE_RING,), random.Random(1)), 1)
    del cluster.topics[NAME]
    cluster.create(TopicSpec(name=NAME))
    with pytest.raises(NotFound, match="was deleted and recreated since batch 0 was staged"):
        await driver.run(driver.notes[-1])
    assert stored(cluster, NAME) == []
    cluster = one_segment()
    cluster.frame_bytes_max = 200
    driver = Driver(cluster, 0, staged(0, 20, (WHOLE_RING,), random.Random(1)), 1)
    with pytest.raises(InvalidArgument, match="raise frame_bytes_max on every broker"):
        await driver.run(driver.notes[-1])
    cluster = one_segment()
    cluster.holds_acks = True
    driver = Driver(cluster, 0, staged(0, 20, (WHOLE_RING,), random.Random(1)), 1)
    with pytest.raises(DeadlineExceeded, match="acknowledged nothing for 30 s: start again"):
        await driver.run(driver.notes[-1])
    cluster = one_segment()
    older = Driver(cluster, 0, staged(0, 20, (WHOLE_RING,), random.Random(1)), 1)
    newer = Driver(cluster, 1, staged(1, 20, (WHOLE_RING,), random.Random(2)), 1)
    await newer.run(newer.notes[-1])
    with pytest.raises(Fenced):
        await older.run(older.notes[-1])
    check(cluster, {1: 20})
