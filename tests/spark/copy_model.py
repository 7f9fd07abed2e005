"""A query that copies one changing topic into another, killed and restarted, in memory and virtual time.

The source is ``stream_model``'s, the copy is in a ``FakeCluster``. The product's code connects them: the stream reader
plans, the sink stages real frames, writes manifests and publishes. Spark is modeled by its two logs: the input of a
batch is recorded before it runs, and its completion afterwards. Files are real, their fsyncs are left out.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.codec.paths import topic_dir
from seaweedmq.core.lineage.batch_ranges import tasks
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName, TopicSpec
from seaweedmq.spark.streams import stream
from seaweedmq.spark.streams.stream import SeaweedMQStreamReader, StreamPartition
from seaweedmq.spark.streams.stream_offset import frontier_of
from seaweedmq.spark.streams.stream_options import parse_stream_options
from seaweedmq.spark.write import sink, sink_publish, stager
from seaweedmq.spark.write.sink import StreamSink
from seaweedmq.spark.write.sink_columns import plan_columns
from seaweedmq.spark.write.sink_options import SinkOptions
from seaweedmq.spark.write.sink_plan import SinkPlan, open_ranges
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.scan.columns import columns_of
from seaweedmq.storage.staging import StagedSink
from seaweedmq.storage.watch import TopicState
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster
from tests.client.publish.troubles import TROUBLES, lose_broker, open_segments, stored, trouble
from tests.core.lineage.stream_model import (
    HAPPENINGS,
    NAME,
    SLOTS,
    Broken,
    Record,
    Source,
    check_copy,
    committed_ends,
    read_up_to,
    table_ends,
)
from tests.sim.machines.loop import SimLoop

COPY = TopicName("shop", "copies")
QUERY = "7a4c"
COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary())])
KILLS = 5
KEYLESS = SLOTS - 1
"""The source's last key stands for records without one."""
STEPS_MAX = 1_000
"""Limit of steps of one driver. It reaches its kill in some dozens."""
BATCHES_LEFT_MAX = 100
"""Limit of batches after the last change."""


class Point(Enum):
    """State of a batch at which a driver is killed."""

    PLANNED = "what it reads is noted"
    STAGING = "a task has put down its rows"
    PROMISED = "the manifest is there"
    HALF = "the manifest is there, and some of the rows may be stored"
    PUBLISHED = "all rows are committed, and no log shows it"
    MARKED = "the sink knows that it is done, and Spark does not"
    NOTED = "Spark knows it"


class Checkpoint:
    """Spark's logs, which outlive a driver."""

    def __init__(self) -> None:
        self.offsets: list[str] = []
        """End of each batch, as text, recorded before it runs."""
        self.commits = 0
        """Number of completed batches."""


class Watch:
    """The source as its storage shows it."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def poll(self) -> TopicState:
        segments = tuple(stored.as_segment() for stored in self._source.segments.values())
        topic = Topic(
            name=NAME,
            uid=5,
            replicas=1,
            durability=Durability.STORED,
            scaling=Scaling.AUTO,
            schema=None,
            retention_s=None,  # the model removes nothing that is still unread
            retention_bytes=None,
            next_segment=self._source.next_segment,
            created_us=1,
        )
        return TopicState(topic, segments, table_ends(self._source))


class Brokers:
    """Committed ends from its brokers, if they are reachable."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def high_watermarks_if_any(self) -> Mapping[int, int]:
        is_there = self._world.asks_brokers and self._world.rng.random() < 0.8
        return committed_ends(self._world.source) if is_there else {}

    def all_high_watermarks(self, open_segments: object) -> Mapping[int, int]:
        return committed_ends(self._world.source) if self._world.asks_brokers else {}


class World:
    """Both topics, and the query between them."""

    def __init__(self, seed: int, root: Path) -> None:
        self.seed = seed
        self.root = root
        self.rng = rng = random.Random(seed)
        self.source = Source(rng)
        self.asks_brokers = rng.random() < 0.7
        self.limit: int | None = rng.choice((None, 20, 60))
        self.checkpoint = Checkpoint()
        self.driver: Driver | None = None
        self.task: object = None
        """Spark's context of the running task."""
        self.commits: list[Coroutine[Any, Any, int]] = []
        """Pending work of the sink."""
        self.killed: list[tuple[Point, int]] = []
        self.cluster = FakeCluster(3)
        self.cluster.create(TopicSpec(name=COPY, segments=rng.randint(1, 4)))
        self.cluster.in_flight_frames_max = rng.randint(1, 2)
        self.cluster.recent_known = rng.random() < 0.5
        (root / topic_dir(COPY)).mkdir(parents=True)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Patch the model into the product's interfaces, and limit batches to a few rows."""
        rng = self.rng
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda fd: None)
        patch.setattr(stream, "REFRESH_INTERVAL_S", 0.0)
        patch.setattr(stream, "SERIAL_RECORDS_MAX", rng.choice((0, 5, 40, 100_000)))
        patch.setattr(stream, "tasks", partial(tasks, records_min=rng.choice((1, 10, 1_000))))
        patch.setattr(stager, "FRAME_BYTES", rng.choice((100, 400, 1 << 20)))
        patch.setattr(sink, "system_environment", lambda: environment(rng.getrandbits(32)))
        patch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: self.task))
        patch.setattr(sink, "run", self.commits.append)
        patch.setattr(sink_publish, "connected", self._connected)
        patch.setattr(sink_publish, "check_storage", _is_right)
        for point, name in ((Point.PROMISED, "_publish"), (Point.PUBLISHED, "_ranges_now")):
            patch.setattr(sink_publish, name, partial(self._reaching, point, getattr(sink_publish, name)))

    async def transcript(self) -> None:
        """Run the whole history. Raises Broken, or the error that ends a batch."""
        for point in self.rng.sample(list(Point), KILLS):
            await self._life(point)
            for _ in range(self.rng.randrange(20)):
                await self._happen()
        self.source.everything_committed()
        self.limit = None
        last = Driver(self, None, 0)
        last.start()
        assert last.running is not None
        await last.running
        self.check()

    def check(self) -> None:
        """Assert that the copy equals the source, and nothing else remains."""
        copy: list[Record] = []
        keyless: list[Record] = []
        for *_, key, value in stored(self.cluster, COPY):
            mine, number = map(int, value.split(b"/"))
            if key != _key(mine):
                raise Broken(f"record {value!r} has key {key!r}")
            (keyless if key is None else copy).append((mine, number))
        check_copy([*copy, *sorted(keyless)], self.source.sent)
        left = [path.name for path in (self.root / topic_dir(COPY)).glob(".staged/*/*") if path.name != "done.json"]
        if left:
            raise Broken(f"{left} are left over")

    async def _life(self, point: Point) -> None:
        """Run one driver until it is killed."""
        driver = Driver(self, point, self.checkpoint.commits + self.rng.randrange(3))
        driver.start()
        assert driver.running is not None
        for _ in range(STEPS_MAX):
            if driver.is_there.is_set():
                break
            await self._happen()
            await self._pass()
            if driver.running.done():
                driver.running.result()
        else:
            raise Broken(f"a driver does not come to {point}")
        for _ in range(self.rng.randrange(4)):  # pending work continues, and topics change
            await (self._trouble() if point is Point.HALF else self._happen())
            await self._turns(10)
        self.killed.append((point, self.checkpoint.commits))
        await driver.kill()

    async def _pass(self) -> None:
        """Let the loop turn a few times, or some time pass."""
        if self.rng.random() < 0.3:
            await asyncio.sleep(self.rng.choice((0.001, 0.02)))
        await self._turns(40)

    async def _turns(self, most: int) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)

    async def _happen(self) -> None:
        """Apply one change to either topic."""
        rng = self.rng
        happening = rng.choice((*HAPPENINGS, "prune", *("copy",) * 6, "broker"))
        if happening == "copy":
            await self._trouble()
        elif happening == "broker":
            await lose_broker(self.cluster, COPY, rng)
        elif happening == "retain":
            self.source.retain(self._read_up_to)
        else:
            getattr(self.source, happening)()

    async def _trouble(self) -> None:
        segment = self.rng.choice(open_segments(self.cluster, COPY))
        await trouble(self.cluster, COPY, segment, self.rng.choice(TROUBLES), self.rng, self._pass)

    def _read_up_to(self, segment: int) -> int:
        done = self.checkpoint.commits
        if not done:
            return 0
        offset = json.loads(self.checkpoint.offsets[done - 1])
        place = frontier_of(offset, Watch(self.source).poll().topic, DirectoryPlace(self.root))
        return read_up_to(self.source, place, segment)

    @asynccontextmanager
    async def _connected(self, options: SinkOptions) -> AsyncIterator[Cluster]:
        cluster = Cluster(options.bootstrap, self.cluster.dialer(), environment(self.rng.getrandbits(32)), QUICK)
        try:
            await cluster.connect()
            yield cluster
        finally:
            await cluster.close()

    async def _reaching(self, point: Point, call: Any, *args: Any) -> Any:
        assert self.driver is not None
        await self.driver.reach(point)
        return await call(*args)


class Driver:
    """Run one driver of the query: Spark's part.

    Args:
        stops_at: Point at which it stands still, in this batch or a later one, until it is killed; None: it ends when
            no work is left.
    """

    def __init__(self, world: World, stops_at: Point | None, stops_in: int) -> None:
        self.world = world
        self.is_there = asyncio.Event()
        self.running: asyncio.Task[None] | None = None
        self._stops_at = stops_at
        self._stops_in = stops_in
        self._checkpoint = world.checkpoint
        self._reader = self._new_reader()
        self._sink = self._new_sink()

    def start(self) -> None:
        self.world.driver = self
        self.running = asyncio.create_task(self._run())

    async def kill(self) -> None:
        assert self.running is not None
        self.running.cancel()
        await asyncio.wait({self.running})
        for commit in self.world.commits:
            commit.close()
        self.world.commits.clear()

    async def reach(self, point: Point) -> None:
        """Stand still if the driver ends at this point."""
        at = Point.PROMISED if self._stops_at is Point.HALF else self._stops_at
        if point is at and self._checkpoint.commits + (point is not Point.NOTED) > self._stops_in:
            self.is_there.set()
            if self._stops_at is not Point.HALF:
                await asyncio.Event().wait()

    async def _run(self) -> None:
        checkpoint = self._checkpoint
        while self._stops_at is not None or checkpoint.commits < BATCHES_LEFT_MAX + self._stops_in:
            number = checkpoint.commits
            start = json.loads(checkpoint.offsets[number - 1]) if number else self._reader.initialOffset()
            if len(checkpoint.offsets) == number:
                end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
                if number and end == start:
                    if self._stops_at is None:
                        return
                    await asyncio.sleep(0.005)
                    continue
                checkpoint.offsets.append(json.dumps(end))
                await self.reach(Point.PLANNED)
            await self._copy(number, start, json.loads(checkpoint.offsets[number]))
            checkpoint.commits += 1
            await self.reach(Point.NOTED)
        raise Broken("the query does not come to an end")

    async def _copy(self, number: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Run one batch, for the first time or again."""
        partitions = cast(list[StreamPartition], self._reader.partitions(start, end))
        given = [[row for part in task.ranges for row in self.world.source.read(part)] for task in partitions]
        order = list(range(len(given)))
        self.world.rng.shuffle(order)
        messages: list[sink.Staged | None] = []
        for partition in order:
            messages.append(self._stage(number, partition, given[partition]))
            await self.reach(Point.STAGING)
        self._sink.commit(messages, number)
        if self.world.commits:
            await self.world.commits.pop()
        await self.reach(Point.MARKED)

    def _stage(self, number: int, partition: int, rows: list[Record]) -> "sink.Staged":
        rng = self.world.rng
        named = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(number)}
        self.world.task = SimpleNamespace(
            partitionId=lambda: partition, taskAttemptId=lambda: rng.randrange(1 << 20), getLocalProperty=named.get
        )
        return self._sink.write(iter(_batches(rows, rng)))

    def _new_reader(self) -> SeaweedMQStreamReader:
        world = self.world
        given = {"storage": str(world.root), "topic": str(NAME), "bootstrap": "b:1", "startingOffsets": "earliest"}
        if world.limit is not None:
            given["maxRecordsPerTrigger"] = str(world.limit)
        topic = Watch(world.source).poll().topic
        reader = SeaweedMQStreamReader(
            DirectoryPlace(world.root), parse_stream_options(given), topic, columns_of(topic)
        )
        for part, of_the_model in (("_watch", Watch(world.source)), ("_brokers", Brokers(world))):
            setattr(reader, part, of_the_model)
        return reader

    def _new_sink(self) -> StreamSink:
        described = self.world.cluster.describe(COPY)
        plan = SinkPlan(
            place=DirectoryPlace(self.world.root),
            topic=COPY,
            topic_uid=described.topic.uid,
            ring=described.topic.ring,
            ranges=open_ranges(described),
            frame_bytes_max=BrokerConfig().frame_bytes_max,
            columns=plan_columns(COLUMNS, None, None, None),
        )
        options = SinkOptions(bootstrap=("fake:9000", "fake:9001"), storage=str(self.world.root), topic=COPY)
        return StreamSink(options, plan)


async def _is_right(options: object, described: object) -> None:
    """The storage."""


def _key(key: int) -> bytes | None:
    return None if key == KEYLESS else b"key-%d" % key


def _batches(rows: list[Record], rng: random.Random) -> Iterable[pa.RecordBatch]:
    """Divide a task's rows into batches as Spark does: differently each time."""
    while rows:
        count = rng.randint(1, 12)
        part, rows = rows[:count], rows[count:]
        columns = [[_key(key) for key, _ in part], [b"%d/%d" % record for record in part]]
        yield pa.record_batch([pa.array(column, pa.binary()) for column in columns], schema=COLUMNS)


def run(seed: int, root: Path) -> World:
    """Run one history. Raises Broken, or the error that ends a batch."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=SimLoop) as runner:
        world = World(seed, root)
        world.patch(patch)
        runner.run(world.transcript())
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        assert not loop.failures()
        done = StagedSink(DirectoryPlace(root), COPY, f"q-{QUERY}").done()
        assert done is None or done.batch < world.checkpoint.commits
    return world
