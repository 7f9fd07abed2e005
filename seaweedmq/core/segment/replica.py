"""A follower's copy of an open segment: the unflushed frames, in memory, until the primary fails.

States: *following* takes frames of its epoch; *fenced* takes nothing, and can be written out. A fenced replica stays
fenced. Invariants: ``flushed <= committed <= end``; entries are contiguous from at or below ``flushed`` to ``end``.
"""

from collections import deque

from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import Deposed, Fenced, InvalidArgument, ProtocolViolation
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerSequence, ProducerState


class Replica:
    """The follower's state of one segment."""

    def __init__(
        self,
        *,
        name: str,
        start_offset: int,
        epoch: int,
        limits: ProducerLimits | None = None,
        pool: ProducerPool | None = None,
    ) -> None:
        self.name = name
        """Name in error messages: ``namespace/topic#segment``."""
        self.epoch = epoch
        """Epoch of the primary. Frames of another epoch are rejected."""
        self.end = start_offset
        self.committed = start_offset
        """High watermark as last reported by the primary, whose own may be higher."""
        self.flushed = start_offset
        self.fenced = False
        self.held_bytes = 0
        self._entries: deque[LogEntry] = deque()
        self._producers = ProducerTable(limits, pool)
        """Producer state: it sees frames, not streams, and a producer without one for ``idle_s`` repeats none."""
        self._producers.floor = start_offset

    def check_epoch(self, epoch: int) -> None:
        """Raise Fenced unless the replica still follows this epoch."""
        if self.fenced or epoch != self.epoch:
            raise Fenced(
                f"{self.name}: epoch {epoch} is fenced by epoch {self.epoch}, since the segment is being sealed or no "
                "longer followed here: a primary of the older epoch must stop"
            )

    def append(
        self, epoch: int, producer_id: int, producer_epoch: int, first_sequence: int, entry: LogEntry, now: float
    ) -> None:
        """Hold the next frame: raise Fenced for an old epoch, ProtocolViolation if the log ends elsewhere."""
        self.check_epoch(epoch)
        if entry.base_offset != self.end:
            raise ProtocolViolation(
                f"{self.name}: a replicated frame begins at offset {entry.base_offset}, but the log ends at "
                f"{self.end}: the primary broke the protocol"
            )
        ack = FrameAck(first_sequence, entry.end_offset - entry.base_offset, entry.base_offset)
        self._producers.follow(producer_id, producer_epoch, ack, now)
        self._entries.append(entry)
        self.end = entry.end_offset
        self.held_bytes += entry.memory_bytes

    def on_progress(self, epoch: int, committed: int, flushed: int) -> int:
        """Record the primary's progress and drop what is flushed; return the bytes freed.

        Raises Fenced if the epoch is no longer followed, ProtocolViolation if the offsets are impossible.
        """
        self.check_epoch(epoch)
        if not self.flushed <= flushed <= self.end or not self.committed <= committed <= self.end:
            raise ProtocolViolation(
                f"{self.name}: the primary reports committed {committed} and flushed {flushed}, but this replica holds "
                f"[{self.flushed}, {self.end}) with {self.committed} committed: the primary broke the protocol"
            )
        self.committed, self.flushed = committed, flushed
        self._producers.floor = flushed
        freed = 0
        while self._entries and self._entries[0].end_offset <= flushed:
            freed += self._entries.popleft().memory_bytes
        self.held_bytes -= freed
        return freed

    def fence(self, epoch: int) -> int:
        """Reject every epoch below ``epoch`` from now on, repeatably, and return the end of the log.

        Raises Deposed if a newer epoch fenced the replica: the caller no longer leads; InvalidArgument if it follows
        this one.
        """
        if epoch < self.epoch:
            raise Deposed(f"{self.name}: cannot fence with epoch {epoch}: epoch {self.epoch} is newer")
        if epoch == self.epoch and not self.fenced:
            raise InvalidArgument(f"{self.name}: fencing needs an epoch above {self.epoch}")
        self.epoch = epoch
        self.fenced = True
        return self.end

    def unflushed(self) -> list[LogEntry]:
        """Return the entries that the primary may not have flushed, in order."""
        return list(self._entries)

    def producers_below(self, offset: int) -> tuple[ProducerState, ...]:
        """Return the state of every producer as of the time when the log ended at ``offset``."""
        return self._producers.snapshot(below=offset)

    def sequences(self, now: float) -> tuple[ProducerSequence, ...]:
        """Return the producers that may still wait for acknowledgements, the longest idle first."""
        return self._producers.unsettled(now)

    def release_all(self) -> int:
        """Drop everything and return the bytes freed. The replica takes nothing more, since its memory would leak."""
        self.fenced = True
        freed, self.held_bytes = self.held_bytes, 0
        self._entries.clear()
        self._producers.release()
        return freed
