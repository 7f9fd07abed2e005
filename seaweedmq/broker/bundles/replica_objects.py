"""The bundles of one replica on its follower: written when leases are in doubt, and when a leader asks for them.

A follower usually writes nothing, since the primary flushes the same frames within a second. What it has written is
done with once the primary has flushed it. After a write-out the frames are rolled into log objects from memory.
"""

from collections import deque
from collections.abc import Sequence

from seaweedmq.broker.bundles.bundler import Bundler
from seaweedmq.broker.bundles.log_content import LogContent, LoggedProducers, LogMaker, pending_frame
from seaweedmq.core.segment.replica import Replica
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import NotFound, fresh
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.segment import ProducerState, ReplicaKey, Segment
from seaweedmq.runtime.signal import Signal


class ReplicaObjects:
    """The frames of one replica in the bundles of its follower: a ``BundleSource``, and a writer of the replica."""

    def __init__(self, replica: Replica, bundler: Bundler, maker: LogMaker) -> None:
        self.key = ReplicaKey(maker.topic.uid, maker.segment.id)
        self.is_done = False
        """Whether all frames of the fenced replica are in bundles."""
        self._replica = replica
        self._bundler = bundler
        self._maker = maker
        self._changed = Signal()
        self._entries: deque[LogEntry] = deque()
        """Frames that the bundler has and the primary may not have flushed."""
        self._end = replica.flushed
        """End of the frames that the bundler has."""
        self._flushed = replica.flushed
        """Offset below which the bundles of the primary, or of this broker, have all frames."""
        self._producers: LoggedProducers | None = None
        """Producers as of the first of ``_entries``; None while there is none."""
        self._last_producers: Sequence[ProducerState] = ()
        """Producers at the end of a dropped replica."""
        self._dropped = False
        bundler.open(self)

    @property
    def segment(self) -> Segment:
        """The segment."""
        return self._maker.segment

    def hurry(self) -> None:
        """Put all frames that the primary may not have flushed into a bundle at once."""
        entries = [entry for entry in self._replica.unflushed() if entry.base_offset >= self._end]
        if not entries:
            return
        if self._producers is None:
            self._producers = LoggedProducers(self._replica.producers_below(entries[0].base_offset))
        frames = [pending_frame(entry.header, entry.size_bytes) for entry in entries]
        self._producers.add(frames)
        self._entries.extend(entries)
        self._end = entries[-1].end_offset
        self._bundler.add(self.key, frames, is_stored=True)
        self._bundler.hurry()

    def on_progress(self, flushed: int) -> None:
        """Record that the primary has flushed everything below an offset."""
        self._flushed = max(self._flushed, flushed)
        if self._entries and flushed >= self._end:
            self._bundler.discard(self.key)
            self._entries.clear()
            self._producers = None
            self._end = flushed
        elif self._entries:
            self._bundler.release(self.key, flushed)
        else:
            self._end = max(self._end, flushed)

    async def run(self) -> None:
        """Put all frames of the fenced replica into bundles, and return once they are done.

        Raises StorageFailed while the store fails, and NotFound if the replica was dropped, or this broker's sequence
        ended.
        """
        self.hurry()
        while self._flushed < self._replica.end:
            if self._dropped or self._bundler.has_ended:
                raise NotFound(f"{self._replica.name}: broker no longer holds a replica of this segment")
            if self._bundler.failure is not None:
                raise fresh(self._bundler.failure)
            await self._changed.wait()
        self.is_done = True

    def drop(self) -> None:
        """Write nothing more. After a write-out, roll what the bundles have."""
        self._dropped = True
        if self.is_done and self._entries:
            self._last_producers = self._replica.producers_below(self._end)
            self._bundler.close_segment(self.key)
        else:
            self._bundler.discard(self.key)
            self._bundler.remove(self.key)
        self._changed.fire()

    def producers_below(self, offset: int) -> Sequence[ProducerState]:
        """See ``BundleSource``."""
        return self._last_producers if self._dropped else self._replica.producers_below(offset)

    def entries(self, base_offset: int, end_offset: int) -> Sequence[LogEntry]:
        """See ``BundleSource``."""
        return [entry for entry in self._entries if base_offset <= entry.base_offset < end_offset]

    def log_content(self, base_offset: int, end_offset: int) -> LogContent:
        """See ``BundleSource``."""
        assert self._producers is not None
        self._producers.advance(base_offset)
        frames = [part for entry in self.entries(base_offset, end_offset) for part in (entry.header, entry.payload)]
        return self._maker.make(base_offset, end_offset, self._producers.snapshot(), frames)

    def on_flushed(self, end_offset: int) -> None:
        """See ``BundleSource``."""
        self._flushed = max(self._flushed, end_offset)
        self._changed.fire()

    def on_log(self, file: SegmentFile) -> None:
        """See ``BundleSource``."""
        assert file.end_offset is not None
        while self._entries and self._entries[0].end_offset <= file.end_offset and self._dropped:
            self._entries.popleft()

    def on_failure(self) -> None:
        """See ``BundleSource``."""
        self._changed.fire()

    def on_ended(self) -> None:
        """See ``BundleSource``."""
        self._changed.fire()
