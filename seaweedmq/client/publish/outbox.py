"""The unacknowledged rows of one publisher: routes to the open segments, and a send window for each. Pure.

The outbox owns the windows: every event of a segment's stream goes to it. Events result in actions, which the publisher
executes.
Nothing here awaits, so no record of a key can slip in between the end of a segment and the first frame to its
successors: the order of the calls is the order of the records.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from seaweedmq.client.publish.batches.framing import (
    FRAME_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    by_segment,
    frames_of,
    renumbered,
    rows_of_frame,
)
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.codec.frame import SCHEMA_VERSION_SHIFT
from seaweedmq.core.publish.outgoing_frame import FrameAcked, FrameFailed, FrameOutcome, FrameRerouted, OutgoingFrame
from seaweedmq.core.publish.routing import Routes, SuccessorMap
from seaweedmq.core.publish.send_window import SendWindow
from seaweedmq.errors import InvalidArgument, SeaweedMQError, Unavailable
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import FrameAck, PublishReady, PublishSealed
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName

SEGMENTS_PER_BATCH_MAX = 8
"""Limit of the factor by which a batch grows with the number of segments, so that its frames do not become small."""
AHEAD_BYTES = 4 * MIB
"""Limit of frames encoded ahead of an open stream: enough to keep it busy, few enough for the processor's cache."""


class Deliver(NamedTuple):
    """An action: the segment's window has changed."""

    segment: int


class Reopen(NamedTuple):
    """An action: the segment's stream is over and another one is needed."""

    segment: int


class SendLimits(NamedTuple):
    """An action: new limits for ``send``."""

    frame_bytes_max: int
    batch_bytes: int


Action: TypeAlias = FrameAcked | FrameFailed | Deliver | Reopen | SendLimits


class Outbox:
    """The rows of one producer, from routing to outcome.

    Frames have about ``frame_bytes``, and all unacknowledged ones at most ``bytes_max``. ``rng`` draws the slots of
    rows without a key.
    """

    def __init__(
        self, topic: TopicName, producer_id: int, rng: random.Random, *, frame_bytes: int, bytes_max: int
    ) -> None:
        self.topic = topic
        self.producer_id = producer_id
        self._rng = rng
        self._frame_bytes = frame_bytes
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._bytes_max = bytes_max
        self.schema: pa.Schema | None = None
        """The topic's latest known schema; None for a plain topic."""
        self._routes: Routes | None = None
        self._successors: dict[int, Segment] = {}
        """The segments of the routes, as described when the first records were routed there."""
        self._windows: dict[int, SendWindow] = {}
        self._successor_map = SuccessorMap()
        """Segments whose window was handed over, with their successors. None gets a window again: it would number
        from 0, and the segment's frames of the first window would pass for those of the second."""

    @property
    def segments(self) -> Iterable[int]:
        """The segments with a window."""
        return self._windows.keys()

    def window(self, segment: int) -> SendWindow:
        """Return the window of a segment, for queries: its events go to the outbox.

        Requires that rows were routed there, and that it was not handed over.
        """
        return self._windows[segment]

    def resolve(self, segments: Iterable[int]) -> set[int]:
        """Return the segments, with those handed over replaced by their current successors."""
        return self._successor_map.resolve(segments)

    @property
    def rows_bytes(self) -> int:
        """The target size of the rows that are routed together."""
        segments = len(self._current_routes().segments)
        return self._frame_bytes * min(SEGMENTS_PER_BATCH_MAX, max(1, segments))

    @property
    def is_crowded(self) -> bool:
        """Whether further rows must wait before they become frames."""
        windows = self._windows.values()
        if sum(window.queued_bytes for window in windows) > self._bytes_max:
            return True
        return any(window.is_open and window.waiting_bytes > AHEAD_BYTES for window in windows)

    @property
    def rejection(self) -> InvalidArgument | None:
        """The reason why the topic rejects plain records; None if it does not."""
        if self.schema is None:
            return None
        return InvalidArgument(f"{self.topic} has a schema: publish tables of its columns with send_table")

    def last_errors(self) -> str:
        """Return the last errors of the windows, as a suffix for an error message."""
        errors = [str(window.last_error) for window in self._windows.values() if window.last_error is not None]
        return f"; last: {'; '.join(errors[:3])}" if errors else ""

    def begin(self, ring: KeyRange, segments: Iterable[Segment], frame_bytes_max: int = 0) -> list[Action]:
        """Set the topic's ring and segments, and the limit of frames if it is known, not 0.

        Unavailable is raised if the open segments do not cover the ring.
        """
        self._frame_bytes_max = min(self._frame_bytes_max, frame_bytes_max or self._frame_bytes_max)
        open_segments = {segment.id: segment for segment in segments if segment.is_open}
        self._routes = Routes.to_open(ring, open_segments.values())
        self._successors = open_segments
        return [self._limits()]

    def grow(self, ring: KeyRange, segments: Sequence[Segment]) -> None:
        """Route later rows also to partitions that were added; Unavailable if not all of them are known."""
        routes = self._routes
        if routes is not None and ring.hi > routes.ring.hi:  # Of concurrent queries, an older one may end last.
            self._routes = routes.grow(ring, segments)
            self._successors.update({s.id: s for s in segments if s.is_open and s.slots.lo >= routes.ring.hi})

    def add(self, rows: Rows) -> list[Action]:
        """Route and encode rows, and queue their frames."""
        if not rows.flags >> SCHEMA_VERSION_SHIFT and (rejection := self.rejection) is not None:
            return [FrameFailed(rows.positions, rows.promise, rejection)]
        return self._queue(rows)

    def opened(self, segment: int, ready: PublishReady) -> list[Action]:
        """Handle the opening of a segment's stream. Raises as :meth:`SendWindow.opened`."""
        left = self._windows[segment].opened(ready)
        # Another stream may have reported the limit first; this window may still hold frames encoded before that.
        self._frame_bytes_max = min(self._frame_bytes_max, ready.frame_bytes_max)
        return [self._limits(), *self._actions_of(left)]

    def take(self, segment: int, message_bytes: int) -> list[Frames]:
        """Take the frames of a segment's next message, as :meth:`SendWindow.take`."""
        return self._windows[segment].take(message_bytes)

    def acked(self, segment: int, ack: FrameAck) -> list[Action]:
        """Handle the acknowledgement of a segment's first frame. Raises as :meth:`SendWindow.acked`."""
        return [self._windows[segment].acked(ack)]

    def rejected(self, segment: int, error: SeaweedMQError) -> list[Action]:
        """Handle the rejection of one of a segment's frames in flight."""
        return [*self._windows[segment].rejected(error)]

    def lost(self, segment: int, error: SeaweedMQError) -> None:
        """Handle a lost stream, or a failed attempt to open one. A window that was handed over has no frames."""
        if segment in self._windows:
            self._windows[segment].lost(error)

    def give_up(self, segment: int, error: SeaweedMQError) -> list[Action]:
        """Fail all frames of a segment: no stream can be opened. A window that was handed over has no frames."""
        return [*self._windows[segment].give_up(error)] if segment in self._windows else []

    def sealed(self, segment: int, sealed: PublishSealed, successors: Iterable[Segment]) -> list[Action]:
        """Handle the seal of a segment: frames that it does not hold go to its successors.

        Unavailable is raised, and nothing has changed, if the successors do not cover it, or one is older.
        """
        successors = list(successors)
        self._check_later(segment, successors)
        routes = self._current_routes().replace(segment, successors)
        left = self._windows[segment].sealed(sealed)
        return [*self._hand_over(segment, successors, routes), *self._actions_of(left)]

    def pruned(self, segment: int, successors: Iterable[Segment]) -> list[Action]:
        """Handle a pruned segment: later rows go to ``successors``; Unavailable as by :meth:`sealed`."""
        successors = list(successors)
        self._check_later(segment, successors)
        routes = self._current_routes().replace(segment, successors)
        left = self._windows[segment].pruned()
        return [*self._hand_over(segment, successors, routes), *self._actions_of(left)]

    def expire(self, now: float) -> list[Action]:
        """Fail overdue frames."""
        actions: list[Action] = []
        for segment, window in self._windows.items():
            overdue, was_open = window.expire(now)
            actions += overdue
            if was_open:
                actions.append(Reopen(segment))
        return actions

    def clear(self, error: SeaweedMQError) -> list[Action]:
        """Fail all frames with ``error``."""
        return [failed for window in self._windows.values() for failed in window.give_up(error)]

    def _queue(self, rows: Rows) -> list[Action]:
        actions: list[Action] = []
        routes = self._current_routes()
        keyless_slot = self._rng.randrange(routes.ring.lo, routes.ring.hi)
        for segment, part in by_segment(rows, routes, keyless_slot):
            window = self._windows.get(segment)
            if window is None:
                window = self._windows[segment] = SendWindow(self._successors[segment], renumbered)
            for frame in frames_of(
                part,
                segment_slots=window.segment.slots,
                keyless_slot=keyless_slot,
                producer_id=self.producer_id,
                first_sequence=window.next_sequence,
                frame_bytes=self._frame_bytes,
                frame_bytes_max=self._frame_bytes_max,
            ):
                if isinstance(frame, FrameFailed):
                    actions.append(frame)
                else:
                    window.add(frame)
            actions.append(Deliver(segment))
        return actions

    def _actions_of(self, left: Iterable[FrameOutcome]) -> list[Action]:
        """Return the actions of frames that left a window, after rerouting those that need it."""
        actions: list[Action] = []
        for each in left:
            if isinstance(each, FrameRerouted):
                actions += self._reroute(each.frame)
            else:
                actions.append(each)
        return actions

    def _reroute(self, frame: OutgoingFrame) -> list[Action]:
        try:
            rows = rows_of_frame(frame, self.schema, self._current_routes().ring)
        except SeaweedMQError as error:
            return [FrameFailed(frame.positions, frame.promise, error)]  # No window holds it: nothing else reports it.
        return self.add(rows)

    def _check_later(self, segment: int, successors: Iterable[Segment]) -> None:
        """Raise Unavailable if a successor is the segment itself or older.

        Such a seal was lost with etcd, so the recovered etcd has the segment as open. Its window was handed over, and
        another one would begin with the same sequences. The leader seals it again, which makes its successors known.
        """
        slots = self._windows[segment].segment.slots
        for successor in successors:
            if successor.id <= segment and successor.slots.overlaps(slots):
                raise Unavailable(f"{successor} was sealed, and is open in a recovered etcd: retry")

    def _hand_over(self, segment: int, successors: Iterable[Segment], routes: Routes) -> list[Action]:
        """End the window. The caller makes the routes before it empties the window, since that may fail."""
        known = self._successors | {successor.id: successor for successor in successors}
        self._routes = routes
        self._successors = {number: known[number] for number in routes.segments}
        self._successor_map.record(segment, (successor.id for successor in successors), routes)
        del self._windows[segment]
        return [self._limits()]

    def _limits(self) -> SendLimits:
        # A value that fits a batch also fits a frame; a larger one is sent by reference.
        fitting = max(1, self._frame_bytes_max - FRAME_OVERHEAD_BYTES)
        return SendLimits(self._frame_bytes_max, min(self.rows_bytes, self._bytes_max, fitting))

    def _current_routes(self) -> Routes:
        assert self._routes is not None, "begin() must be called first"
        return self._routes
