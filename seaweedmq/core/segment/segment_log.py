"""The log of one open segment on its primary: offsets, duplicate detection, and the stages of durability.

A frame passes ``append`` (offset assigned, held in memory), ``on_replicated`` (all followers hold it), ``on_written``
(in the log file), ``on_flushed`` (an fsync covers it) and ``on_committed`` (visible and acknowledged). It is written
only once all followers hold it, so that everything in the file survives with any of them. The caller does the work
between the stages and reports it here.

Invariants, checked at every step::

    cache_start <= readable <= flushed, committed <= written <= replicated <= end
    entries are contiguous from cache_start to end      nothing above committed is ever read
"""

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass

from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState
from seaweedmq.model.topic import Durability

ENTRY_OVERHEAD_BYTES = 768
"""Memory that Python adds to a frame: 727 bytes measured, with numbers, views and list entries. Without this constant,
a flood of frames of one record each would take three times the permitted memory."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A stamped frame in memory.

    It has the fields of the header that readers of memory use, so that none of them decodes the header again. The
    whole decoded header would take 250 to 500 bytes more.
    """

    base_offset: int
    end_offset: int
    encoding: int
    """Encoding of the payload: see ``codec.frame``."""
    header: bytes
    payload: bytes | memoryview

    @property
    def size_bytes(self) -> int:
        """Bytes of the frame in the log file."""
        return len(self.header) + len(self.payload)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the entry in memory."""
        return self.size_bytes + ENTRY_OVERHEAD_BYTES


_EVICTED = LogEntry(0, 0, 0, b"", b"")


class SegmentLog:
    """The state of one open segment. Sizes are bytes, positions are offsets. Not thread-safe."""

    def __init__(
        self,
        *,
        start_offset: int,
        durability: Durability,
        producers: ProducerTable,
        followers: bool = False,
        is_under_replicated: bool = False,
    ) -> None:
        self.durability = durability
        self.is_under_replicated = is_under_replicated
        """Whether the segment is under-replicated: the page cache of one machine is not a second copy, so that nothing
        is committed before it is flushed."""
        self._followers = followers
        self.producers = producers
        self.producers.floor = start_offset
        self.end = start_offset
        """Next offset to assign."""
        self._replicated = start_offset
        self.written = start_offset
        self.flushed = start_offset
        self.readable = start_offset
        """Offset below which readers find all frames in log files; on a directory, ``flushed``."""
        self.committed = start_offset
        """The high watermark."""
        self.unwritten_bytes = 0
        self.cached_bytes = 0
        """``memory_bytes`` of every entry in memory, unwritten ones included."""
        self._entries: list[LogEntry] = []
        self._bases: list[int] = []
        self._first = 0
        """Index of the oldest entry still held; the lists are compacted from time to time."""
        self._unwritten = 0
        """Index of the first entry that ``take_unwritten`` has not returned."""
        self._ends_seen: deque[tuple[float, int]] = deque()
        """Time of each ``forget_older`` call and the end of the log then, limited to the age that the call is given."""

    @property
    def cache_start(self) -> int:
        """Lowest offset still in memory; ``end`` if nothing is."""
        return self._bases[self._first] if self._first < len(self._bases) else self.end

    @property
    def replicated(self) -> int:
        """Offset below which every follower holds all frames; ``end`` without followers."""
        return self._replicated if self._followers else self.end

    def on_replicated(self, end_offset: int) -> None:
        """Record that every follower holds what is below ``end_offset``."""
        assert self._followers
        assert self._replicated <= end_offset <= self.end, f"replicated {self._replicated} -> {end_offset}"
        self._replicated = end_offset

    @property
    def has_followers(self) -> bool:
        """Whether a frame is written only once all followers hold it."""
        return self._followers

    def without_followers(self) -> None:
        """Stop waiting for followers: the segment is being sealed with what the primary holds."""
        self._followers = False

    def append(
        self, producer_id: int, producer_epoch: int, first_sequence: int, entry: LogEntry, now: float = 0.0
    ) -> FrameAck:
        """Hold a new frame whose header was stamped with base offset ``end``."""
        assert entry.base_offset == self.end, f"frame stamped {entry.base_offset}, expected {self.end}"
        assert entry.end_offset > entry.base_offset
        ack = FrameAck(first_sequence, entry.end_offset - entry.base_offset, entry.base_offset)
        self.producers.record(producer_id, producer_epoch, ack, now)
        self._entries.append(entry)
        self._bases.append(entry.base_offset)
        self.end = entry.end_offset
        self.unwritten_bytes += entry.size_bytes
        self.cached_bytes += entry.memory_bytes
        return ack

    def producers_below(self, offset: int) -> tuple[ProducerState, ...]:
        """Return every producer's state below ``offset``, at least ``flushed``, for a log file that begins there."""
        assert self.flushed <= offset <= self.end
        return self.producers.snapshot(below=offset)

    def entries_from(self, offset: int, bytes_max: int) -> list[LogEntry]:
        """Return entries from ``offset`` on, committed or not, for a follower: up to ``bytes_max``, or one.

        ``offset`` is the base of an entry, or the end of the log.
        """
        found: list[LogEntry] = []
        size = 0
        index = bisect_left(self._bases, offset)
        while index < len(self._entries) and (not found or size + self._entries[index].size_bytes <= bytes_max):
            found.append(self._entries[index])
            size += self._entries[index].size_bytes
            index += 1
        assert not found or found[0].base_offset == offset, f"offset {offset} is no longer held"
        return found

    def written_entries(self, offset: int) -> list[LogEntry]:
        """Return the entries in memory from ``offset`` to ``written``, to be written again after a failed fsync."""
        return [e for e in self._entries[self._first :] if offset <= e.base_offset < self.written]

    def entries_between(self, base_offset: int, end_offset: int) -> list[LogEntry]:
        """Return the entries of these offsets, which are in memory; both are the ends of entries."""
        first, last = bisect_left(self._bases, base_offset), bisect_left(self._bases, end_offset)
        found = self._entries[first:last]
        assert not found or (found[0].base_offset == base_offset and found[-1].end_offset == end_offset), (
            f"offsets [{base_offset}, {end_offset}) are no longer held"
        )
        return found

    def take_unwritten(self, bytes_max: int) -> list[LogEntry]:
        """Return the next entries to write, at least one if there is any, about ``bytes_max`` bytes at most."""
        taken: list[LogEntry] = []
        size = 0
        replicated = self.replicated
        while self._unwritten < len(self._entries) and (not taken or size < bytes_max):
            entry = self._entries[self._unwritten]
            if entry.end_offset > replicated:
                break
            taken.append(entry)
            size += entry.size_bytes
            self._unwritten += 1
        return taken

    def on_written(self, end_offset: int, size_bytes: int) -> None:
        """Record that everything below ``end_offset`` is in the log file."""
        assert self.written < end_offset <= self.end, f"written {self.written} -> {end_offset}, end {self.end}"
        self.written = end_offset
        self.unwritten_bytes -= size_bytes
        assert self.unwritten_bytes >= 0

    def on_flushed(self, end_offset: int, readable: int | None = None) -> None:
        """Record that everything below ``end_offset`` is flushed, and in log files below ``readable``, by default too.

        ``readable`` is at most ``end_offset``.
        """
        assert end_offset <= self.written, f"flushed {end_offset} above written {self.written}"
        assert readable is None or readable <= end_offset, f"readable {readable} above flushed {end_offset}"
        self.flushed = max(self.flushed, end_offset)
        self.readable = max(self.readable, end_offset if readable is None else readable)
        self.producers.floor = self.flushed

    @property
    def waits_for_fsync(self) -> bool:
        """Whether only flushed frames may be committed."""
        return self.is_under_replicated or self.durability is Durability.STORED

    @property
    def committable(self) -> int:
        """Offset below which every frame satisfies the topic's durability."""
        return self.flushed if self.waits_for_fsync else self.written

    def on_committed(self, offset: int) -> None:
        """Make everything below ``offset`` visible. The caller saw after the durable step that its lease lives."""
        assert self.committed <= offset <= self.committable, f"commit {offset} above {self.committable}"
        self.committed = offset

    def read(self, offset: int, bytes_max: int) -> list[LogEntry]:
        """Return committed entries from the one that holds ``offset`` on; none at the high watermark.

        Requires ``offset >= cache_start``. At least one entry is returned if any is committed, else about ``bytes_max``
        bytes.
        """
        assert offset >= self.cache_start, f"offset {offset} is below the cache, which starts at {self.cache_start}"
        found: list[LogEntry] = []
        if offset >= self.committed:
            return found
        size = 0
        for index in range(bisect_right(self._bases, offset) - 1, len(self._entries)):
            entry = self._entries[index]
            size += entry.size_bytes
            if entry.end_offset > self.committed or (found and size > bytes_max):
                break
            found.append(entry)
        return found

    def evict(self, bytes_wanted: int) -> int:
        """Drop the oldest entries that are committed and readable in log files; return the bytes freed.

        An entry that is not flushed stays: if its fsync fails, it is written again from memory.
        """
        return self._forget(self.end, bytes_wanted)

    def forget_older(self, age_s: float, now: float) -> int:
        """Drop the committed and readable entries that are older than ``age_s``; return the bytes freed.

        An entry's age counts from the first call that saw it, so that it may stay one interval between calls longer.
        """
        old = 0
        while self._ends_seen and self._ends_seen[0][0] <= now - age_s:
            _, old = self._ends_seen.popleft()
        if not self._ends_seen or self._ends_seen[-1][1] < self.end:
            self._ends_seen.append((now, self.end))
        return self._forget(old, self.cached_bytes)

    def _forget(self, below: int, bytes_wanted: int) -> int:
        freed = 0
        kept_from = min(self.committed, self.readable, below)
        while freed < bytes_wanted and self._first < len(self._entries):
            entry = self._entries[self._first]
            if entry.end_offset > kept_from:
                break
            freed += entry.memory_bytes
            self._entries[self._first] = _EVICTED  # frees the bytes now; the lists are compacted later
            self._first += 1
        self.cached_bytes -= freed
        if self._first and self._first * 2 >= len(self._entries):
            del self._entries[: self._first]
            del self._bases[: self._first]
            self._unwritten -= self._first
            self._first = 0
        return freed

    def release_all(self) -> int:
        """Drop every entry, since the segment is no longer served; return the bytes freed."""
        freed, self.cached_bytes = self.cached_bytes, 0
        self._entries.clear()
        self._bases.clear()
        self._first = self._unwritten = 0
        return freed
