"""Reading a segment from an offset on, for whatever door passes it on: from memory, else from files, to its end."""

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
from seaweedmq.storage.logs.log_index import LogIndex
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.recovery import earliest_offset

log = logging.getLogger(__name__)

LOSSES_REMEMBERED_MAX = 1_000
"""Gaps that were logged; beyond that they may be logged again."""


class TailState(Enum):
    """What lies at a tail's position."""

    READABLE = "a committed record"
    CAUGHT_UP = "nothing yet"
    ENDED = "the end of the sealed segment"


class TailChunk(NamedTuple):
    """Frames, in parts that lie behind one another: nothing is joined here."""

    end_offset: int
    parts: Sequence[Frames]


class Tail:
    """A position in one segment. Nothing waits here for its reader, who asks in this order::

        look -> READABLE -> ready -> next_bytes -> take -> look ...
             -> CAUGHT_UP -> ``change``, or ``changed`` of many tails at once -> look ...
             -> ENDED

    What is in memory is taken straight from the segment's log. For the rest it has a turn at reading files, which holds
    memory: from the first ``ready`` to the one that is False, or to ``close``. While the reader wants nothing it
    ``offer``s the turn to whoever needs the memory.
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
        """
        Args:
            lookup: says who serves the segment by now.
            store: where its files are.
            index: of log files, by whoever read them.
            reading: what turns take their memory from.
            found: the segment, as it is now.
            position: offset to begin at.
            chunk_bytes: about how much is read, and taken, at once.
            losses: logs records that are missing.
        """
        self.position = position
        """Offset after what was taken; where it begins, frames may begin below."""
        self.found = found
        """The segment as of the last look."""
        self._lookup = lookup
        self._store = store
        self._index = index
        self._reading = reading
        self._chunk_bytes = chunk_bytes
        self._losses = losses
        self._turn: ReadPermit | None = None
        self._largest_bytes = 0
        """Of what was read from files at once."""

    @property
    def reads_files(self) -> bool:
        """Whether it has a turn, with the memory for it."""
        return self._turn is not None

    @property
    def changed(self) -> Signal:
        """Fires when more is committed or the segment's fate changes. Requires that it was CAUGHT_UP."""
        assert self.found.open is not None
        return self.found.open.committed_changed

    async def look(self) -> TailState:
        """What lies at the position now.

        Raises:
            OutOfRange: what lies at the position was deleted by hand.
            NotFound: the topic was deleted, even if another one has its name now.
            StaleMetadata: this broker serves the segment no more.
        """
        if self._turn is not None:
            return TailState.READABLE
        self._check_exists()
        topic, segment = self.found.topic, self.found.segment
        self.found = await self._lookup.segment(topic.name, segment.id, topic.uid)
        if self.position < min(self.found.low_watermark, self.found.high_watermark):
            raise OutOfRange(
                f"{segment}: offset {self.position} was deleted, and all before {self.found.low_watermark}: start from "
                "the earliest"
            )
        if self.position < self.found.high_watermark:
            return TailState.READABLE
        return TailState.CAUGHT_UP if self.found.open else TailState.ENDED

    async def change(self, *others: Signal) -> None:
        """Wait until ``changed`` fires, or one of the others. Requires that it was CAUGHT_UP."""
        await self.changed.wait(*others)

    async def ready(self) -> bool:
        """Have frames to take, from files if need be, for which it waits for its turn. False: look again; others wait
        for the turn, or it has come to its end. Requires that it was READABLE.

        Raises:
            OutOfRange: retention removed what lies at the position.
            NotFound: the topic was deleted.
            DataLoss: committed records are missing at the position, and nothing explains it; see ``skip``.
            Corrupt, StorageFailed: as ``reader.read_segment``.
        """
        if self._turn is None:
            if self._log_in_memory() is not None:
                return True
            self._turn = await self._begin_turn()
        try:
            if await self._turn.more():
                return True
        except (OutOfRange, NotFound, Corrupt, DataLoss) as error:
            self._check_exists()  # with its topic a segment loses its files
            if isinstance(error, Corrupt | DataLoss):
                await self._check_kept()
            if isinstance(error, DataLoss):
                self._losses.add(error)
            raise
        await self.close()
        return False

    async def skip(self, loss: DataLoss) -> range:
        """Continue behind records that ``ready`` found to be missing; return their offsets."""
        assert loss.end_offset is not None
        await self.close()
        skipped = range(self.position, loss.end_offset)
        self.position = loss.end_offset
        return skipped

    def next_bytes(self, bytes_max: int) -> int:
        """What ``take`` would give now. Requires ``ready``."""
        if self._turn is not None:
            return self._turn.next_bytes(bytes_max)
        log = self._log_in_memory()
        return 0 if log is None else sum(e.size_bytes for e in self._entries(log, bytes_max))

    def take(self, bytes_max: int) -> TailChunk | None:
        """The next frames that fit, the first one at least; the position moves behind them. None: they went away since
        ``ready``, look again.

        Raises:
            NotFound: the topic was deleted.
        """
        self._check_exists()
        if self._turn is not None:
            if self._turn.evicted:
                return None
            chunk = self._turn.take(bytes_max)
            self.position = chunk.end_offset
            return TailChunk(chunk.end_offset, (chunk.data,))
        log = self._log_in_memory()
        if log is None:
            return None
        entries = self._entries(log, bytes_max)
        self.position = entries[-1].end_offset
        return TailChunk(self.position, [part for e in entries for part in (e.header, e.payload)])

    def offer(self) -> None:
        """Whoever needs the memory of its turn may take it from here on."""
        if self._turn is not None:
            self._turn.offer()

    def keep(self) -> None:
        """Nobody may any more."""
        if self._turn is not None:
            self._turn.keep()

    async def close(self) -> None:
        """Give its turn back. It may go on after that."""
        if self._turn is not None:
            turn, self._turn = self._turn, None
            self._largest_bytes = turn.largest_bytes
            await turn.end()

    def _log_in_memory(self) -> SegmentLog | None:
        """The log, if it holds what lies at the position in memory."""
        log = self.found.open.log if self.found.open else None
        return log if log is not None and log.cache_start <= self.position < log.committed else None

    def _entries(self, log: SegmentLog, bytes_max: int) -> list[LogEntry]:
        return log.read(self.position, min(self._chunk_bytes, bytes_max))

    async def _begin_turn(self) -> ReadPermit:
        """A turn at what is not in memory. It is the caller's to end."""
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
        """Raise OutOfRange if retention or a low watermark removed what is wanted since the last look."""
        topic, segment = self._lookup.view.topics[self.found.topic.name], self.found.segment
        earliest = await earliest_offset(self._store, topic, segment)
        if self.position < earliest:
            raise OutOfRange(
                f"{segment}: offset {self.position} was removed by retention, the lowest that is kept is {earliest}: "
                "start from the earliest"
            ) from None

    def _check_exists(self) -> None:
        """Raise NotFound if the topic was deleted, even if another one has its name now."""
        mine = self.found.topic
        topic = self._lookup.view.topics.get(mine.name)
        if topic is None or topic.uid != mine.uid:
            raise NotFound(f"topic {mine.name} was deleted")


class Losses:
    """A log of missing records that names each gap once, however many readers meet it."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def add(self, loss: DataLoss) -> None:
        """Log the gap unless it was logged before."""
        text = str(loss)
        if text in self._known:
            return
        if len(self._known) >= LOSSES_REMEMBERED_MAX:
            self._known.clear()
        self._known.add(text)
        log.error("data loss: %s", text)


class Tails:
    """Makes positions in segments, all of a broker, with one index of the log files that were read."""

    def __init__(self, lookup: Lookup, store: SegmentStore, reading: MemoryBudget, chunk_bytes: int) -> None:
        self._lookup = lookup
        self._store = store
        self._reading = reading
        self._chunk_bytes = chunk_bytes
        self._index = LogIndex()
        self._losses = Losses()

    def at(self, found: ServedSegment, offset: int) -> Tail:
        """The position of that offset in a segment. Close it after use."""
        return Tail(
            self._lookup, self._store, self._index, self._reading, found, offset, self._chunk_bytes, self._losses
        )
