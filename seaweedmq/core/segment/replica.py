"""A follower's copy of an open segment: frames from what is flushed to the end, in memory, until the primary dies.

States: *following* takes frames of its epoch; *fenced* takes nothing, and is there to be written out. There is no way
back. Invariants: ``flushed <= committed <= end``; entries are contiguous from at or below ``flushed`` to ``end``.
"""

from collections import deque

from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import Fenced, InvalidArgument, ProtocolViolation
from seaweedmq.model.publish import FrameAck
from seaweedmq.model.segment import ProducerSequence, ProducerState


class Replica:
    """The follower's side of one segment."""

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
        """For errors: ``namespace/topic#segment``."""
        self.epoch = epoch
        """Frames of an older epoch are refused."""
        self.end = start_offset
        self.committed = start_offset
        """As the primary told; it may be further."""
        self.flushed = start_offset
        self.fenced = False
        self.held_bytes = 0
        self._entries: deque[LogEntry] = deque()
        self._producers = ProducerTable(limits, pool)
        """It does not see streams, only frames: whoever sent none for ``idle_s`` can not repeat any."""
        self._producers.floor = start_offset

    def check_epoch(self, epoch: int) -> None:
        """Raise Fenced unless the epoch is this replica's and it still follows."""
        if self.fenced or epoch != self.epoch:
            raise Fenced(
                f"{self.name}: epoch {epoch} is fenced by epoch {self.epoch}; the segment is being sealed or "
                "followed here no more, a primary of the older epoch must stop"
            )

    def append(
        self, epoch: int, producer_id: int, producer_epoch: int, first_sequence: int, entry: LogEntry, now: float
    ) -> None:
        """Hold the next frame.

        Raises:
            Fenced: the sender's epoch is over.
            ProtocolViolation: the frame does not begin where the log ends.
        """
        self.check_epoch(epoch)
        if entry.base_offset != self.end:
            raise ProtocolViolation(
                f"{self.name}: a replicated frame begins at offset {entry.base_offset}, the log ends at {self.end}: "
                "the primary broke the protocol"
            )
        ack = FrameAck(first_sequence, entry.end_offset - entry.base_offset, entry.base_offset)
        self._producers.follow(producer_id, producer_epoch, ack, now)
        self._entries.append(entry)
        self.end = entry.end_offset
        self.held_bytes += entry.memory_bytes

    def on_progress(self, epoch: int, committed: int, flushed: int) -> int:
        """Take note of the primary's progress, forget what is flushed; return the bytes freed.

        Raises:
            Fenced: the sender's epoch is over.
            ProtocolViolation: the primary claims what can not be.
        """
        self.check_epoch(epoch)
        if not self.flushed <= flushed <= self.end or not self.committed <= committed <= self.end:
            raise ProtocolViolation(
                f"{self.name}: the primary says committed {committed} and flushed {flushed}, this replica holds "
                f"[{self.flushed}, {self.end}) and knew {self.committed} as committed: it broke the protocol"
            )
        self.committed, self.flushed = committed, flushed
        self._producers.floor = flushed
        freed = 0
        while self._entries and self._entries[0].end_offset <= flushed:
            freed += self._entries.popleft().memory_bytes
        self.held_bytes -= freed
        return freed

    def fence(self, epoch: int) -> int:
        """Take nothing more of any epoch below ``epoch``; return where the log ends. Fencing again is no error.

        Raises:
            Fenced: a newer epoch fenced it already.
            InvalidArgument: the epoch is the one it follows.
        """
        if epoch < self.epoch:
            raise Fenced(f"{self.name}: fencing with epoch {epoch}, but epoch {self.epoch} was here")
        if epoch == self.epoch and not self.fenced:
            raise InvalidArgument(f"{self.name}: fencing needs an epoch above {self.epoch}")
        self.epoch = epoch
        self.fenced = True
        return self.end

    def unflushed(self) -> list[LogEntry]:
        """What the primary may not have fsynced, in order."""
        return list(self._entries)

    def producers_below(self, offset: int) -> tuple[ProducerState, ...]:
        """What every producer had stored when the log ended at ``offset``."""
        return self._producers.snapshot(below=offset)

    def sequences(self, now: float) -> tuple[ProducerSequence, ...]:
        """Producers that may not have heard yet of all they stored, the longest idle first."""
        return self._producers.unsettled(now)

    def release_all(self) -> int:
        """Forget everything, and take nothing more: nobody would free it. Return the bytes freed."""
        self.fenced = True
        freed, self.held_bytes = self.held_bytes, 0
        self._entries.clear()
        self._producers.release()
        return freed
