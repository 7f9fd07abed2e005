"""The records of one open segment in an object store: frames in bundles, then in log objects.

A frame is flushed once its bundle is done with all bundles below, and readable once a log object has it, together with
all frames before it. Until then it stays in memory, from which subscribers read it and a roll writes it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from seaweedmq.broker.bundles.bundler import Bundler
from seaweedmq.broker.bundles.log_content import LogContent, LoggedProducers, LogMaker, pending_frame
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import StorageFailed
from seaweedmq.model.config import MIB
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.segment import ProducerState, ReplicaKey, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.runtime.signal import Signal

UNFLUSHED_BYTES_MAX: Final = 64 * MIB
"""Bytes of a segment that the bundler has and that are not flushed: beyond it, writing waits. Four log objects and four
bundles of 8 MiB can be under way."""
_PAUSE_S: Final = 0.1


class _Written(NamedTuple):
    end_offset: int
    size_bytes: int
    since_s: float


class SegmentObjects:
    """The bundles and log objects of one open segment: a ``BundleSource``, and a sink of its primary."""

    def __init__(
        self,
        topic: Topic,
        segment: Segment,
        log: SegmentLog,
        *,
        bundler: Bundler,
        lineage: Callable[[], Sequence[Segment]],
        roll_bytes: int,
        on_progress: Callable[[], None],
    ) -> None:
        """Prepare an empty segment.

        ``lineage`` returns the segments that log objects record. ``on_progress`` is called at each ``changed``.
        """
        self.sealed: list[SegmentFile] = []
        self.roll_bytes = roll_bytes
        self.flushed = log.flushed
        self.readable = log.flushed
        self.changed = Signal()
        """Signal of each change of ``flushed``, ``readable`` or ``failure``, and of the end of the sequence."""
        self.has_ended = False
        """Whether another process ended the sequence."""
        self.key = ReplicaKey(topic.uid, segment.id)
        self._segment = segment
        self._maker = LogMaker(topic, segment, bundler.broker_id, lineage, bundler.wall_us)
        self._log = log
        self._bundler = bundler
        self._loop = asyncio.get_running_loop()
        self._written = log.written
        self._unflushed: deque[_Written] = deque()
        self._unflushed_bytes = 0
        self._unreadable: deque[_Written] = deque()
        self._unreadable_bytes = 0
        self._logs: dict[int, SegmentFile] = {}
        """Log objects above ``readable``, by base offset: those of the direct path may be ahead of rolls."""
        self._retired_at = 0
        """Offset up to which ``sync`` waits for log objects."""
        self._producers = LoggedProducers()
        """Producers as of ``readable``."""
        self._on_progress = on_progress
        self._held: list[LogEntry] | None = None
        """Frames of a closed segment that are in no log object; None while the log has them."""
        self._held_producers: Sequence[ProducerState] = ()
        """Producers of a closed segment as of its last bundle."""
        bundler.open(self)
        self.changed.listen(on_progress)

    @property
    def failure(self) -> StorageFailed | None:
        """The reason why nothing is flushed at the moment; None if there is none, or nothing waits."""
        return self._bundler.failure if self.readable < self._log.end else None

    @property
    def unflushed_s(self) -> float:
        """Seconds since the oldest frame was written that is not flushed; 0 if there is none."""
        return self._loop.time() - self._unflushed[0].since_s if self._unflushed else 0.0

    async def append(
        self, chunks: Sequence[bytes | memoryview], size_bytes: int, end: int, *, urgent: bool = False
    ) -> bool:
        """Give frames to the bundler, waiting while it has ``UNFLUSHED_BYTES_MAX`` of the segment; return False.

        The wait ends with the store's next answer, or with the segment: ``failure`` has the reason meanwhile.
        """
        while self._unflushed_bytes >= UNFLUSHED_BYTES_MAX and not self._is_over:
            await self.changed.wait()
        if self._is_over:
            return False
        frames = [
            pending_frame(header, len(header) + len(payload))
            for header, payload in zip(chunks[::2], chunks[1::2], strict=True)
        ]
        assert frames[0].base_offset == self._written, f"{self._segment}: {frames[0]} does not continue the bundles"
        self._written = end
        written = _Written(end, size_bytes, self._loop.time())
        self._unflushed.append(written)
        self._unreadable.append(written)
        self._unflushed_bytes += size_bytes
        self._unreadable_bytes += size_bytes
        self._producers.add(frames)
        self._bundler.add(self.key, frames, is_stored=urgent)
        return False

    async def probe(self) -> None:
        """Do nothing: ``append`` never fails."""

    def pause_s(self, failed: int) -> float:
        """Return the pause after a failure, which never occurs."""
        del failed
        return _PAUSE_S

    async def sync(self) -> None:
        """Put what is written into a bundle at once, and wait until it is done, the store fails, or the segment ends.

        What was retired is then also in log objects.
        """
        end, readable = self._written, self._retired_at
        self._bundler.hurry()
        while (self.flushed < end or self.readable < readable) and not (self.failure or self._is_over):
            await self.changed.wait()

    def hurry(self) -> None:
        """Put what is written into a bundle at once."""
        self._bundler.hurry()

    def relieve(self) -> None:
        """Have the largest segments of the broker rolled: its memory is full."""
        self._bundler.relieve()

    def retire(self) -> None:
        """Write all frames so far into log objects at once."""
        self._retired_at = self._written
        if self.readable < self._written:
            self._bundler.roll(self.key, self._written)

    def retire_if_older(self, age_s: float) -> None:
        """Write the flushed frames into log objects if the oldest one is ``age_s`` seconds old or older."""
        if (
            self._unreadable
            and self.readable < self.flushed
            and self._loop.time() - self._unreadable[0].since_s >= age_s
        ):
            self._bundler.roll(self.key, self.flushed)

    def is_last_due(self, low_watermark: int, expires_s: float | None) -> bool:
        """Return False: a log object has its end in its name, so retention can remove the last one."""
        del low_watermark, expires_s
        return False

    async def put_empty(self) -> None:
        """Do nothing: see ``is_last_due``."""

    async def close(self) -> None:
        """Give the bundler nothing more. Frames in bundles are rolled from memory unless it ends first."""
        if self._held is None:
            is_over = self._is_over
            self._held = [] if is_over else self._log.entries_between(self.readable, self._written)
            end = self._bundler.close_segment(self.key)
            self._held_producers = () if is_over else self._log.producers.snapshot(below=max(end, self.flushed))
            self.changed.fire()
            self.changed.unlisten(self._on_progress)

    @property
    def _is_over(self) -> bool:
        return self.has_ended or self._held is not None or self._bundler.has_ended

    def producers_below(self, offset: int) -> Sequence[ProducerState]:
        """See ``BundleSource``."""
        return self._log.producers.snapshot(below=offset) if self._held is None else self._held_producers

    def entries(self, base_offset: int, end_offset: int) -> Sequence[LogEntry]:
        """See ``BundleSource``."""
        if self._held is not None:
            return [entry for entry in self._held if base_offset <= entry.base_offset < end_offset]
        return self._log.entries_between(base_offset, end_offset)

    def log_content(self, base_offset: int, end_offset: int) -> LogContent:
        """See ``BundleSource``."""
        frames = [part for entry in self.entries(base_offset, end_offset) for part in (entry.header, entry.payload)]
        return self._maker.make(base_offset, end_offset, self._producers_at(base_offset), frames)

    def on_flushed(self, end_offset: int) -> None:
        """See ``BundleSource``."""
        self.flushed = end_offset
        while self._unflushed and self._unflushed[0].end_offset <= end_offset:
            self._unflushed_bytes -= self._unflushed.popleft().size_bytes
        self._advance_readable()
        if self._unreadable_bytes - self._unflushed_bytes >= self.roll_bytes:
            self._bundler.roll(self.key, self.flushed)
        self.changed.fire()

    def on_log(self, file: SegmentFile) -> None:
        """See ``BundleSource``."""
        self._logs[file.base_offset] = file
        self._advance_readable()
        self.changed.fire()

    def on_failure(self) -> None:
        """See ``BundleSource``."""
        self.changed.fire()

    def on_ended(self) -> None:
        """See ``BundleSource``."""
        self.has_ended = True
        self.changed.fire()

    def _advance_readable(self) -> None:
        while (file := self._logs.get(self.readable)) is not None:
            assert file.end_offset is not None
            if file.end_offset > self.flushed:
                return
            del self._logs[self.readable]
            self.readable = file.end_offset
            self.sealed.append(file)
        while self._unreadable and self._unreadable[0].end_offset <= self.readable:
            self._unreadable_bytes -= self._unreadable.popleft().size_bytes
        self._producers.advance(self.readable)

    def _producers_at(self, offset: int) -> Sequence[ProducerState]:
        """Return the producer states as of the first offset of a log object.

        Rolls begin at ``readable``, whose states the log's own table no longer knows. Log objects of the direct path
        begin at or above ``flushed``.
        """
        if offset != self.readable:
            return self._log.producers_below(offset)
        if self._held is None:
            self._producers.keep(self._log.producers.__contains__)
        return self._producers.snapshot()
