"""The progress of a reader in its segment: the next offset, the wanted offsets, and the end. Pure.

    unopened --- ready, begin_beyond ---> reading --- passed (the stop), end, pruned ---> ended

Invariant: wanted offsets are contiguous, and none is wanted twice, over any number of streams.
"""

from seaweedmq.errors import OutOfRange, ProtocolViolation
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.subscribe import Start, StartKind, SubscribeEnd
from seaweedmq.model.segment import Segment


class OffsetTracker:
    """The offsets of one segment from a start to its end, or to ``stop_offset``."""

    def __init__(self, segment: Segment, start: Start, stop_offset: int | None) -> None:
        self.segment = segment
        """The segment, as described last."""
        self._start = start
        self._stop_offset = stop_offset
        self._next_offset: int | None = None
        self._skip_below = 0
        self.begin_offset: int | None = None
        """The first offset of delivery; None until the broker reports it, or if offsets below the start are skipped."""
        self.ended = False
        """Whether no more offsets are wanted."""
        self.successors: tuple[int, ...] = ()
        """The successors of a segment that was read to its seal."""

    @property
    def start(self) -> Start:
        """The start of the next stream."""
        return self._start if self._next_offset is None else Start(StartKind.OFFSET, self._next_offset)

    @property
    def end_offset(self) -> int:
        """The offset after the last delivered one. Requires ``ended``."""
        assert self._next_offset is not None, f"{self.segment} has not begun"
        return self._next_offset if self._stop_offset is None else min(self._next_offset, self._stop_offset)

    @property
    def may_be_beyond(self) -> bool:
        """Whether reading begins at an offset that the segment may not have reached yet."""
        return self._next_offset is None and self._start.kind is StartKind.OFFSET

    def ready(self, offset: int) -> None:
        """Handle the start of a stream, which delivers from ``offset`` on; OutOfRange if the next offset is removed."""
        if self._next_offset is None:
            self._next_offset = self.begin_offset = offset
        elif offset > self._next_offset:
            raise OutOfRange(
                f"{self.segment}: retention removed offsets {self._next_offset} to {offset - 1} before they were read: "
                "read faster, or raise the topic's retention"
            )
        self._stop_if_reached()

    def begin_beyond(self, end_offset: int) -> bool:
        """Begin at the segment's end, and skip offsets below the start. Return False if the start is below the end."""
        if self._start.value < end_offset:
            return False
        self._next_offset = end_offset
        self._skip_below = self._start.value
        return True

    def wanted(self, base_offset: int, end_offset: int) -> range:
        """Return the offsets of a received frame that are to be delivered; it must follow the previous one."""
        expected = self._next_offset
        if expected is None:
            raise ProtocolViolation(f"{self.segment} sent frames before their first offset: report this")
        if base_offset > expected:
            raise ProtocolViolation(
                f"{self.segment} left a gap: offset {expected} is next, a frame begins at {base_offset}: report this"
            )
        stop = end_offset if self._stop_offset is None else min(end_offset, self._stop_offset)
        return range(max(expected, self._skip_below), stop)

    def skipped(self, start_offset: int, end_offset: int) -> range:
        """Continue after lost records, which follow the previous frame, and return the wanted offsets among them."""
        missing = self.wanted(start_offset, end_offset)
        self.passed(end_offset)
        return missing

    def passed(self, end_offset: int) -> None:
        """Advance past a frame whose wanted rows were taken in."""
        if self._next_offset is None or end_offset > self._next_offset:
            self._next_offset = end_offset
            self._stop_if_reached()

    def end(self, reply: SubscribeEnd) -> None:
        """Handle the end of a sealed segment, of which the broker must have sent all records."""
        if self._next_offset is not None and self._next_offset < reply.end_offset:
            raise ProtocolViolation(
                f"{self.segment} ended at offset {reply.end_offset}, but delivery only reached {self._next_offset}: "
                "report this"
            )
        self.successors = reply.successors
        self.ended = True

    def pruned(self, description: TopicDescription) -> None:
        """Handle a pruned segment, which has no records left: reading ends, if no record was still expected.

        OutOfRange is raised if the next records may have been removed before they were delivered. Without retention the
        segment never had a record, unless some were read: then retention was disabled since.
        """
        segment, topic = self.segment, description.topic
        had_records = self._next_offset not in (None, segment.start_offset)
        if had_records or topic.has_retention:
            end = segment.end_offset
            is_awaited = self._next_offset is not None or self._start.kind is StartKind.OFFSET
            if end is None or (is_awaited and self._next_offset != end):
                raise OutOfRange(
                    f"{segment} is pruned, since retention removed its records or a recovery of etcd found none: "
                    'continue with the other segments, from "earliest"'
                )
        self._next_offset = segment.start_offset if segment.end_offset is None else segment.end_offset
        open_now = tuple(s.id for s in description.segments if s.is_open and s.slots.overlaps(segment.slots))
        self.successors = open_now if segment.is_open else segment.successors
        self.ended = True

    def _stop_if_reached(self) -> None:
        if self._stop_offset is not None and (self._next_offset or 0) >= self._stop_offset:
            self.ended = True
