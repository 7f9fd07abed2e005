"""The bundles of brokers that are gone, for a leader that seals their segments.

One fence and one index serve all segments of a broker. What no log object has yet is written into log objects before a
segment counts as sealed, so that its readers need no bundles.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from seaweedmq.broker.bundles.log_content import LogMaker, create_log
from seaweedmq.codec.bundle import run_frames
from seaweedmq.codec.object_keys import BUNDLES, parse_bundle_key
from seaweedmq.core.segment.bundle_recovery import LeftoverLog, RecoveredSegment, leftover_logs
from seaweedmq.errors import StorageFailed
from seaweedmq.model.bundle import BundleRun
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.segment import ProducerState, ReplicaKey, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import Environment, Objects, SegmentStore
from seaweedmq.storage.bundles.entries import SequenceEntries
from seaweedmq.storage.bundles.recovery import recover_sequence

KEPT_MAX = 16
"""Recovered sequences in memory; others are read again."""
HEADERS_AT_ONCE = 32
"""Headers that are read side by side before a deletion."""
LOGS_AT_ONCE = 4
"""Leftover log objects, of 16 MiB each, that are made at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSegment:
    """A segment as its replicas left it in bundles and log objects."""

    end_offset: int
    producers: tuple[ProducerState, ...]
    producers_complete: bool
    """Whether a missing producer has stored nothing that it may still repeat."""


class EndedSequences:
    """The sequences of brokers that are gone. All methods raise StorageFailed, Corrupt and Unsupported.

    A sequence is fenced at its first use. So call only once the leases of its broker have ended by its own clock: until
    then frames in memory may count, and are being put into bundles.
    """

    def __init__(
        self,
        objects: Objects,
        store: SegmentStore,
        env: Environment,
        *,
        by: str,
        lineage: Callable[[Segment], Sequence[Segment]],
    ) -> None:
        """Create the reader; ``by`` is the id of this broker, and ``lineage`` as of ``LogMaker``."""
        self._objects = objects
        self._store = store
        self._env = env
        self._by = by
        self._lineage = lineage
        self._read: OrderedDict[str, asyncio.Task[Mapping[ReplicaKey, RecoveredSegment]]] = OrderedDict()
        self._limit = asyncio.Semaphore(LOGS_AT_ONCE)

    async def recover(self, topic: Topic, segment: Segment) -> EndedSegment:
        """Return the end of a segment whose replicas are all gone, with all of its frames in log objects."""
        key = ReplicaKey(topic.uid, segment.id)
        sequences = await asyncio.gather(*(self._of(replica) for replica in segment.replicas))
        found = [sequence[key] for sequence in sequences if key in sequence]
        if not found:
            files = await self._store.list_files(topic.name, segment.id, uid=topic.uid)
            end = covered_end(files, segment.start_offset)
            return EndedSegment(end_offset=end, producers=(), producers_complete=end == segment.start_offset)
        longest = max(found, key=lambda each: each.end_offset)
        await self.write_logs(topic, segment, segment.replicas, longest.end_offset)
        return EndedSegment(end_offset=longest.end_offset, producers=longest.producers, producers_complete=True)

    async def write_logs(self, topic: Topic, segment: Segment, brokers: Sequence[str], end_offset: int) -> None:
        """Write what brokers that are gone left of a segment below its end into log objects."""
        key = ReplicaKey(topic.uid, segment.id)
        files = await self._store.list_files(topic.name, segment.id, uid=topic.uid)
        for broker in brokers:
            found = (await self._of(broker)).get(key)
            if found is None:
                continue
            left = [each for each in found.runs if not is_covered(files, each.run, end_offset)]
            for log in leftover_logs(replace(found, runs=tuple(left)), 0, end_offset):
                async with self._limit:
                    files.append(await self._write_log(topic, segment, broker, log))

    async def has(self, broker_id: str, topic: Topic, segment: Segment) -> bool:
        """Whether the bundles of a broker that is gone have a segment."""
        return ReplicaKey(topic.uid, segment.id) in await self._of(broker_id)

    async def brokers_with_bundles(self) -> set[str]:
        """Return the ids of all brokers, registered or not, that have more than one entry."""
        counts: Counter[str] = Counter()
        async for page in self._objects.list(BUNDLES):
            counts.update(parsed[0] for state in page if (parsed := parse_bundle_key(state.key)) is not None)
        return {broker_id for broker_id, entries in counts.items() if entries > 1}

    async def delete(self, broker_id: str) -> None:
        """Delete all bundles of a broker that is gone; fences stay. Log objects must have all frames."""
        entries = SequenceEntries(self._objects, broker_id)
        numbers = sorted(await entries.numbers())
        for start in range(0, len(numbers), HEADERS_AT_ONCE):
            some = numbers[start : start + HEADERS_AT_ONCE]
            headers = await asyncio.gather(*(entries.header(number) for number in some))
            bundles = [n for n, header in zip(some, headers, strict=True) if header is None or not header.is_fence]
            if bundles:
                await entries.delete(bundles)
        self._read.pop(broker_id, None)

    async def _write_log(self, topic: Topic, segment: Segment, broker: str, log: LeftoverLog) -> SegmentFile:
        entries = SequenceEntries(self._objects, broker)
        buffers: list[bytes | memoryview] = []
        for number, run in log.runs:
            data = await entries.frames(number, run)
            if data is None:
                self._read.pop(broker, None)
                raise StorageFailed(
                    f"{entries.name(number)} was deleted while it was read: another leader wrote its log objects; retry"
                )
            for frame in run_frames(data, run, entries.name(number)):
                buffers += [bytes(frame.header_bytes), frame.payload]
        maker = LogMaker(topic, segment, self._by, lambda: self._lineage(segment), self._env.wall_us)
        content = maker.make(log.base_offset, log.end_offset, (), buffers)
        await create_log(self._objects, content)
        return content.file

    async def _of(self, broker_id: str) -> Mapping[ReplicaKey, RecoveredSegment]:
        """Return what a broker left; nothing if log objects have all of it."""
        reading = self._read.get(broker_id)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception() is not None)):
            reading = self._read[broker_id] = asyncio.create_task(
                self._recover(broker_id), name=f"recover the bundles of {broker_id}"
            )
            reading.add_done_callback(_retrieve)
            while len(self._read) > KEPT_MAX:
                self._read.popitem(last=False)
        await asyncio.wait({reading})
        return reading.result()

    async def _recover(self, broker_id: str) -> Mapping[ReplicaKey, RecoveredSegment]:
        entries = SequenceEntries(self._objects, broker_id)
        found = await recover_sequence(entries, by=self._by, rng=self._env.rng, wall_us=self._env.wall_us())
        return found or {}


def is_covered(files: Sequence[SegmentFile], run: BundleRun, end_offset: int) -> bool:
    """Whether logs and tables together have all offsets of a run below the end of its segment."""
    covered = run.base_offset
    for base, end in sorted((file.base_offset, file.end_offset or 0) for file in files):
        if base <= covered < end:
            covered = end
    return covered >= min(run.end_offset, end_offset)


def covered_end(files: Sequence[SegmentFile], start_offset: int) -> int:
    """Return the end of the contiguous offsets that logs and tables have, from the lowest one on."""
    ends = sorted((file.base_offset, file.end_offset or 0) for file in files)
    covered = ends[0][0] if ends else start_offset
    for base, end in ends:
        if base > covered:
            break
        covered = max(covered, end)
    return covered


def _retrieve(task: "asyncio.Task[Mapping[ReplicaKey, RecoveredSegment]]") -> None:
    """Retrieve the error of a recovery whose callers gave up, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
