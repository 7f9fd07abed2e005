"""Publishing of a staged batch: every attempt sends the same rows to the same segments, until all are committed.

``core.replay`` has the rules, ``staged_rows`` the rows, and ``staged_sender`` sends those of one segment.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.publish.staged_rows import StagedFrameReader, StagedRows
from seaweedmq.client.publish.staged_sender import Offload, Search, StagedSender
from seaweedmq.client.retry import retrying
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.core.replay import Replay
from seaweedmq.errors import Corrupt, NotFound, OutOfRange, Unavailable
from seaweedmq.model.segment import Segment
from seaweedmq.model.staged import BatchProgress, FinishedSegment, Manifest, SegmentProgress, StagedSegment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.runtime.retrying import deadline

NOTE_S = 5.0
"""Interval at which the progress is recorded while rows are acknowledged."""


@asynccontextmanager
async def one_thread() -> AsyncIterator[Offload]:
    """Provide an :data:`Offload` to a dedicated thread."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1, "seaweedmq-staged")
    try:
        yield lambda call: loop.run_in_executor(executor, call)
    finally:
        await asyncio.to_thread(executor.shutdown)


class StagedPublisher:
    """A publisher of one staged batch. Used once.

    ``frames`` and ``note``, which records progress durably, block. ``search`` is given if another process may have
    begun so long ago that brokers dropped the producer state.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        manifest: Manifest,
        progress: BatchProgress,
        frames: StagedFrameReader,
        note: Callable[[BatchProgress], None],
        search: Search | None,
        offload: Offload,
    ) -> None:
        self._cluster = cluster
        self._topic = topic.name
        self._manifest = manifest
        self._replay = Replay(manifest.roots)
        self._replay.learn(progress.segments)
        self._replay.restore(progress.finished)
        schema = None if topic.schema is None else schema_from_bytes(topic.schema)
        self._rows = StagedRows(frames, manifest, self._replay, schema)
        self._reached = dict(progress.reached)
        self._note = note
        self._search = search
        self._offload = offload
        self._noting = asyncio.Lock()
        self._noted_s = asyncio.get_running_loop().time()
        self._tasks: dict[asyncio.Task[FinishedSegment], int] = {}
        self._view = TopicView(cluster, topic.name, lambda _: None, self._segments_in_progress)

    async def run(self) -> None:
        """Publish until every row is committed.

        OutOfRange is raised if it is unknown which rows of the batch are stored, DeadlineExceeded if a segment
        acknowledged nothing for ``delivery_timeout_s``, Corrupt if the segments hold other rows than the batch,
        NotFound if the topic was deleted or recreated.
        """
        try:
            await self._known(())
            while not self._replay.is_done:
                while unknown := self._replay.unknown():  # Predecessors are known once their successor is.
                    await self._known(unknown)
                for segment in self._replay.ready():
                    self._replay.begin(segment)
                    task = asyncio.create_task(self._sender(segment).run(), name=f"batch to {self._topic}#{segment}")
                    self._tasks[task] = segment
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await self._finish(self._tasks.pop(task), task.result())
            kept = sum(end.kept for end in self._replay.finished.values())
            if kept != self._manifest.record_count:
                raise Corrupt(
                    f"batch {self._manifest.batch} has {self._manifest.record_count} rows, but {self._topic} has taken "
                    f"{kept}: the staged files differ from the manifest, or a broker miscounts: report this"
                )
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._view.close()

    def _sender(self, segment: int) -> StagedSender:
        reached = self._reached.get(segment, SegmentProgress(0, 0))
        return StagedSender(
            self._cluster, self._view, segment, self._rows, reached, self._search, self._offload, self._on_progress
        )

    async def _on_progress(self, segment: int, reached: SegmentProgress) -> None:
        self._reached[segment] = reached
        await self._put_note(must=False)

    async def _finish(self, segment: int, end: FinishedSegment) -> None:
        """Record that a segment is finished, before its successors get the other rows."""
        successors = end.successors
        await self._known(successors)
        left = [self._replay.staged(segment).slots] if successors else []
        for slots in (self._replay.staged(successor).slots for successor in successors):
            left = [part for each in left for part in each.without(slots)]
        if left:
            raise Corrupt(f"the successors {successors} of {self._topic}#{segment} do not cover its slots: {left[0]}")
        self._replay.finish(segment, end.kept, successors)
        await self._put_note(must=bool(successors))

    def _segments_in_progress(self) -> list[int]:
        return sorted(self._tasks.values())

    async def _known(self, segments: Iterable[int]) -> None:
        """Query segments, which may be so new that not every broker knows them, and pass them to the replay."""
        wanted = set(segments)
        config = self._cluster.config
        async for attempt in retrying(config, self._cluster.env.rng, deadline(config.delivery_timeout_s)):
            with attempt:
                refresh = attempt.retry_state.attempt_number > 1 or not wanted
                description = await self._view.description(refresh, wanted)
                if description.topic.uid != self._manifest.topic_uid:
                    raise recreated(self._topic, self._manifest.batch)
                self._replay.learn(staged_segment_of(s) for s in description.segments if s.id in wanted)
                wanted -= {s.id for s in description.segments}
                if wanted and min(wanted) < description.topic.next_segment:
                    raise OutOfRange(
                        f"{self._topic}#{min(wanted)} is pruned: batch {self._manifest.batch} was begun so long ago "
                        "that the segments of its rows are unknown"
                    )
                if wanted:
                    raise Unavailable(f"segments {sorted(wanted)} of {self._topic} are not known yet: retry")

    async def _put_note(self, *, must: bool) -> None:
        """Record the progress: every ``NOTE_S``, or at once with ``must``, before other segments rely on it."""
        now_s = asyncio.get_running_loop().time()
        if not must and (now_s - self._noted_s < NOTE_S or self._noting.locked()):
            return
        async with self._noting:
            self._noted_s = asyncio.get_running_loop().time()
            progress = BatchProgress(
                segments=self._replay.segments, finished=dict(self._replay.finished), reached=dict(self._reached)
            )
            await self._offload(partial(self._note, progress))


def staged_segment_of(segment: Segment) -> StagedSegment:
    """Convert a segment's description."""
    return StagedSegment(segment.id, segment.slots, segment.predecessors)


def recreated(topic: TopicName, batch: int) -> NotFound:
    """Make the error of a batch that was staged for an earlier topic of the same name."""
    return NotFound(
        f"topic {topic} was deleted and recreated since batch {batch} was staged for it: restart the query with "
        "another checkpoint to fill the new topic"
    )
