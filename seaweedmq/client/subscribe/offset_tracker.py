"""Where a reader is in its segment: which offsets come next, which of them are wanted, and where it ends. Pure.

    asked --- ready, begin_beyond ---> reading --- passed (the stop), end, pruned ---> ended

Invariant: what is wanted is contiguous and never wanted twice, over however many streams.
"""

from seaweedmq.errors import OutOfRange, ProtocolViolation
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.subscribe import Start, StartKind, SubscribeEnd
from seaweedmq.model.segment import Segment


class OffsetTracker:
    """Offsets of one segment from a start to its end, or to ``stop_offset``."""

    def __init__(self, segment: Segment, start: Start, stop_offset: int | None) -> None:
        self.segment = segment
        """As described last."""
        self._start = start
        self._stop_offset = stop_offset
        self._next_offset: int | None = None
        self._skip_below = 0
        self.begin_offset: int | None = None
        """Where delivery began; None until the broker said it, or if records in front of the start are skipped."""
        self.ended = False
        """Nothing more is wanted."""
        self.successors: tuple[int, ...] = ()
        """Of a segment that ended for good."""

    @property
    def start(self) -> Start:
        """Where the next stream is to begin."""
        return self._start if self._next_offset is None else Start(StartKind.OFFSET, self._next_offset)

    @property
    def end_offset(self) -> int:
        """Where delivery ended. Requires ``ended``."""
        if self._next_offset is None:
            raise AssertionError(f"{self.segment} has not begun")
        return self._next_offset if self._stop_offset is None else min(self._next_offset, self._stop_offset)

    @property
    def may_be_beyond(self) -> bool:
        """Whether it begins at an offset that the segment may not have reached yet."""
        return self._next_offset is None and self._start.kind is StartKind.OFFSET

    def ready(self, offset: int) -> None:
        """A stream delivers from there on.

        Raises:
            OutOfRange: what came next was removed.
        """
        if self._next_offset is None:
            self._next_offset = self.begin_offset = offset
        elif offset > self._next_offset:
            raise OutOfRange(
                f"{self.segment}: retention removed offsets {self._next_offset} to {offset - 1} before they were read; "
                "read faster, or keep records longer"
            )
        self._stop_if_reached()

    def begin_beyond(self, end_offset: int) -> bool:
        """Begin at the segment's end and skip what is below the start; False if the start does not lie beyond it."""
        if self._start.value < end_offset:
            return False
        self._next_offset = end_offset
        self._skip_below = self._start.value
        return True

    def wanted(self, base_offset: int, end_offset: int) -> range:
        """Which offsets of a frame that was received are to be delivered.

        Raises:
            ProtocolViolation: it does not follow what was received before.
        """
        expected = self._next_offset
        if expected is None:
            raise ProtocolViolation(f"{self.segment} sent frames before saying where they begin")
        if base_offset > expected:
            raise ProtocolViolation(
                f"{self.segment} left a gap: offset {expected} is next, a frame begins at {base_offset}"
            )
        stop = end_offset if self._stop_offset is None else min(end_offset, self._stop_offset)
        return range(max(expected, self._skip_below), stop)

    def skipped(self, start_offset: int, end_offset: int) -> range:
        """Continue behind records that are lost, and return the offsets of those that were wanted.

        Raises:
            ProtocolViolation: If they do not follow what was received before.
        """
        missing = self.wanted(start_offset, end_offset)
        self.passed(end_offset)
        return missing

    def passed(self, end_offset: int) -> None:
        """What was wanted of a frame is there."""
        if self._next_offset is None or end_offset > self._next_offset:
            self._next_offset = end_offset
            self._stop_if_reached()

    def end(self, reply: SubscribeEnd) -> None:
        """The segment is sealed, and the broker has sent all of it.

        Raises:
            ProtocolViolation: it has not.
        """
        if self._next_offset is not None and self._next_offset < reply.end_offset:
            raise ProtocolViolation(
                f"{self.segment} ended at offset {reply.end_offset}, but delivery only reached {self._next_offset}"
            )
        self.successors = reply.successors
        self.ended = True

    def pruned(self, description: TopicDescription) -> None:
        """The segment is known no more, since nothing is left of it: the end, if nothing of it was awaited. Without
        retention it never had a record, unless some were read: then retention was switched off since.

        Raises:
            OutOfRange: what came next may have been removed before it was delivered.
        """
        segment, topic = self.segment, description.topic
        had_records = self._next_offset not in (None, segment.start_offset)
        if had_records or topic.has_retention:
            end = segment.end_offset
            is_awaited = self._next_offset is not None or self._start.kind is StartKind.OFFSET
            if end is None or (is_awaited and self._next_offset != end):
                raise OutOfRange(
                    f"{segment} is gone, retention removed its records or a recovery of etcd did not find any: "
                    "continue with the segments there are, from earliest"
                )
        self._next_offset = segment.start_offset if segment.end_offset is None else segment.end_offset
        open_now = tuple(s.id for s in description.segments if s.is_open and s.slots.overlaps(segment.slots))
        self.successors = open_now if segment.is_open else segment.successors
        self.ended = True

    def _stop_if_reached(self) -> None:
        if self._stop_offset is not None and (self._next_offset or 0) >= self._stop_offset:
            self.ended = True
