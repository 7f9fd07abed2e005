"""Reading of a segment from an offset to its end, from memory or else from files, for all listeners."""

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.read_permit import ReadPermit
from seaweedmq.broker.serve.lookup import Lookup, ServedSegment
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import Corrupt, DataLoss, NotFound, OutOfRange
from seaweedmq.model.messages.frames import Frames
from seaweedmq.ports import SegmentStore
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.bundles.entries import has_bundles
from seaweedmq.storage.logs.log_index import LogIndex
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.recovery import earliest_offset

log = logging.getLogger(__name__)

LEFTOVERS_S_MAX = 600.0
"""Longest time in seconds for which missing records may still appear in log objects."""
LEFTOVERS_PAUSE_S = 0.2
LOSSES_REMEMBERED_MAX = 1_000
"""Number of logged gaps that are remembered. Beyond it a gap may be logged again."""


class TailState(Enum):
    """The state of a tail, by what is at its position."""

    READABLE = "a committed record"
    CAUGHT_UP = "nothing yet"
    ENDED = "the end of the sealed segment"


class TailChunk(NamedTuple):
    """A sequence of consecutive frames, as parts that are not joined."""

    end_offset: int
    parts: Sequence[Frames]


class Tail:
    """A position in one segment, which its reader advances.

    The reader calls in this order::

        poll -> READABLE -> ready -> next_bytes -> take -> poll ...
             -> CAUGHT_UP -> ``change``, or ``changed`` of many tails at once -> poll ...
             -> ENDED

    Frames in memory come straight from the segment's log. For the others the tail holds a permit to read files, with
    its memory, from the first ``ready`` until ``ready`` returns False or ``close`` is called. A reader that pauses
    calls ``offer``, so that others can take that memory.
    """

    def __init__(
        self,
        lookup: Lookup,
        store: SegmentStore,
        index: LogIndex,
        reading: MemoryBudget,
        found: ServedSegment,
        position: int,
        chunk_bytes: int,
        losses: "Losses",
    ) -> None:
        """Create a tail at the first offset to read; close it after use. Each chunk has about ``chunk_bytes``."""
        self.position = position
        """The offset after the frames taken. The first frame may begin below it."""
        self.found = found
        """The state of the segment at the last ``poll``."""
        self._lookup = lookup
        self._store = store
        self._index = index
        self._reading = reading
        self._chunk_bytes = chunk_bytes
        self._losses = losses
        self._permit: ReadPermit | None = None
        self._waits_until_s: float | None = None
        """Time until which missing records may still appear in log objects; None while none are missing."""
        self._largest_bytes = 0
        """The size of the largest chunk read from files, in bytes."""

    @property
    def reads_files(self) -> bool:
        """Whether the tail holds a permit to read files, with its memory."""
        return self._permit is not None

    @property
    def changed(self) -> Signal:
        """The signal of more committed records or a changed segment. Requires CAUGHT_UP."""
        assert self.found.open is not None
        return self.found.open.committed_changed

    async def poll(self) -> TailState:
        """Return the current state at the position.

        Raises:
            OutOfRange: If the records at the position were deleted manually.
            NotFound: If the topic was deleted, even if it was recreated.
            StaleMetadata: If this broker no longer serves the segment.
            Corrupt: If the segment cannot be recovered.
        """
        if self._permit is not None:
            return TailState.READABLE
        self._check_exists()
        topic, segment = self.found.topic, self.found.segment
        self.found = await self._lookup.segment(topic.name, segment.id, topic.uid)
        if self.position < min(self.found.low_watermark, self.found.high_watermark):
            raise OutOfRange(
                f"{segment}: offset {self.position} was deleted with all before {self.found.low_watermark}: start from "
                "the earliest"
            )
        if self.position < self.found.high_watermark:
            return TailState.READABLE
        return TailState.CAUGHT_UP if self.found.open else TailState.ENDED

    async def change(self, *others: Signal) -> None:
        """Wait until ``changed`` or one of the other signals fires. Requires CAUGHT_UP."""
        await self.changed.wait(*others)

    async def ready(self) -> bool:
        """Make frames available for ``take``, waiting for a permit if they are in files. Requires READABLE.

        Returns whether there are frames. If not, call ``poll``: the permit has ended, or others wait for its memory.

        Raises:
            OutOfRange: If retention removed the records at the position.
            NotFound: If the topic was deleted.
            DataLoss: If committed records are missing at the position for no known reason; see ``skip``.
            Corrupt, StorageFailed: If a file is damaged or cannot be read: see ``reader.read_segment``.
        """
        if self._permit is None:
            if self._log_in_memory() is not None:
                return True
            self._permit = await self._acquire_permit()
        try:
            if await self._permit.more():
                self._waits_until_s = None
                return True
        except (OutOfRange, NotFound, Corrupt, DataLoss) as error:
            self._check_exists()  # deleting a topic removes the files of its segments
            if isinstance(error, Corrupt | DataLoss):
                await self._check_kept()
            if isinstance(error, DataLoss):
                if await self._waits_for_logs():
                    return False
                self._losses.add(error)
            raise
        await self.close()
        return False

    async def _waits_for_logs(self) -> bool:
        """Whether missing records may be in bundles of a broker that is gone; pauses if so, for a limited time.

        The leader writes log objects of them, see ``broker.leader.leftover_writer``.
        """
        now = asyncio.get_running_loop().time()
        self._waits_until_s = self._waits_until_s or now + LEFTOVERS_S_MAX
        objects, segment = self._store.objects, self.found.segment
        if objects is None or now >= self._waits_until_s or not await has_bundles(objects, segment.replicas):
            return False
        await self.close()
        await asyncio.sleep(LEFTOVERS_PAUSE_S)
        return True

    async def skip(self, loss: DataLoss) -> range:
        """Move the position past the records that ``ready`` reported missing, and return their offsets."""
        assert loss.end_offset is not None
        await self.close()
        skipped = range(self.position, loss.end_offset)
        self.position = loss.end_offset
        return skipped

    def next_bytes(self, bytes_max: int) -> int:
        """Return the size in bytes of what ``take`` would return now. Requires ``ready``."""
        if self._permit is not None:
            return self._permit.next_bytes(bytes_max)
        log = self._log_in_memory()
        return 0 if log is None else sum(e.size_bytes for e in self._entries(log, bytes_max))

    def take(self, bytes_max: int) -> TailChunk | None:
        """Return the next frames that fit, at least one, and move the position past them.

        None if they were freed since ``ready``: call ``poll`` then. Raises NotFound if the topic was deleted.
        """
        self._check_exists()
        if self._permit is not None:
            if self._permit.evicted:
                return None
            chunk = self._permit.take(bytes_max)
            self.position = chunk.end_offset
            return TailChunk(chunk.end_offset, (chunk.data,))
        log = self._log_in_memory()
        if log is None:
            return None
        entries = self._entries(log, bytes_max)
        self.position = entries[-1].end_offset
        return TailChunk(self.position, [part for e in entries for part in (e.header, e.payload)])

    def offer(self) -> None:
        """Let others take the memory of the read permit from now on."""
        if self._permit is not None:
            self._permit.offer()

    def keep(self) -> None:
        """Withdraw the offer of the read permit's memory."""
        if self._permit is not None:
            self._permit.keep()

    async def close(self) -> None:
        """Return the read permit. The tail remains usable."""
        if self._permit is not None:
            turn, self._permit = self._permit, None
            self._largest_bytes = turn.largest_bytes
            await turn.end()

    def _log_in_memory(self) -> SegmentLog | None:
        """Return the segment's log if it holds the record at the position in memory; else None."""
        log = self.found.open.log if self.found.open else None
        return log if log is not None and log.cache_start <= self.position < log.committed else None

    def _entries(self, log: SegmentLog, bytes_max: int) -> list[LogEntry]:
        return log.read(self.position, min(self._chunk_bytes, bytes_max))

    async def _acquire_permit(self) -> ReadPermit:
        """Return a permit to read the frames that are not in memory. The caller ends it."""
        found = self.found
        end_offset = found.high_watermark
        if found.open:
            end_offset = min(found.open.log.cache_start, end_offset)
        turn = ReadPermit(self._reading, self._chunk_bytes, self._largest_bytes)
        chunks = read_segment(
            self._store,
            found.topic,
            found.segment.id,
            self.position,
            end_offset,
            chunk_bytes=self._chunk_bytes,
            index=self._index,
        )
        await turn.begin(chunks)
        return turn

    async def _check_kept(self) -> None:
        """Raise OutOfRange if retention or a low watermark removed the records at the position since ``poll``."""
        topic, segment = self._lookup.view.topics[self.found.topic.name], self.found.segment
        earliest = await earliest_offset(self._store, topic, segment)
        if self.position < earliest:
            raise OutOfRange(
                f"{segment}: offset {self.position} was removed by retention, the lowest retained is {earliest}: "
                "start from the earliest"
            ) from None

    def _check_exists(self) -> None:
        """Raise NotFound if the topic was deleted, even if it was recreated."""
        mine = self.found.topic
        topic = self._lookup.view.topics.get(mine.name)
        if topic is None or topic.uid != mine.uid:
            raise NotFound(f"topic {mine.name} was deleted")


class Losses:
    """A log of missing records that names each gap once, although many readers find it."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def add(self, loss: DataLoss) -> None:
        """Log the gap, unless it was logged before."""
        text = str(loss)
        if text in self._known:
            return
        if len(self._known) >= LOSSES_REMEMBERED_MAX:
            self._known.clear()
        self._known.add(text)
        log.error("data loss: %s", text)


class Tails:
    """A factory of all tails of a broker, which share one index of log files."""

    def __init__(self, lookup: Lookup, store: SegmentStore, reading: MemoryBudget, chunk_bytes: int) -> None:
        self._lookup = lookup
        self._store = store
        self._reading = reading
        self._chunk_bytes = chunk_bytes
        self._index = LogIndex()
        self._losses = Losses()

    def at(self, found: ServedSegment, offset: int) -> Tail:
        """Return a tail of the segment at ``offset``. Close it after use."""
        return Tail(
            self._lookup, self._store, self._index, self._reading, found, offset, self._chunk_bytes, self._losses
        )
