"""All that one publisher has under way: the routes to the open segments, and a window for each. Pure.

What happens is told to a window, or here if it changes the routes; what comes of it are actions, which the publisher
does. Nothing here awaits, so between the end of a segment and the first frame to its successors no record of a key can
slip in: the order of the calls is the order of the records.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from seaweedmq.client.publish.batches.framing import FRAME_BYTES_MAX, by_segment, frames_of, rows_of_frame
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.outgoing_frame import FrameAcked, FrameFailed, FrameOutcome, FrameRerouted, OutgoingFrame
from seaweedmq.client.publish.routing import Routes, Trail
from seaweedmq.client.publish.send_window import SendWindow
from seaweedmq.codec.frame import SCHEMA_VERSION_SHIFT
from seaweedmq.errors import InvalidArgument, SeaweedMQError, Unavailable
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.publish import PublishReady, PublishSealed
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName

SEGMENTS_PER_BATCH_MAX = 8
"""A batch is made larger for more segments, up to this, so that the frames it is split into do not get small."""
AHEAD_BYTES = 4 * MIB
"""Frames encoded ahead of an open stream: enough to keep it busy, few enough to stay in the processor's cache."""


class Deliver(NamedTuple):
    """The segment's window has something new."""

    segment: int


class Reopen(NamedTuple):
    """The segment's stream is over: another one is needed."""

    segment: int


class SendLimits(NamedTuple):
    """What ``send`` is to keep to from now on."""

    frame_bytes_max: int
    batch_bytes: int


Action: TypeAlias = FrameAcked | FrameFailed | Deliver | Reopen | SendLimits


class Outbox:
    """Rows of one producer, from their routing to what becomes of them.

    Args:
        frame_bytes: a frame aims for. bytes_max: all frames that are not acknowledged.
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
        """The topic's, as known now; None for a plain topic."""
        self._routes: Routes | None = None
        self._successors: dict[int, Segment] = {}
        """The segments of the routes, as they were described when records began to go there."""
        self._windows: dict[int, SendWindow] = {}
        self._trail = Trail()
        """Segments whose window was handed over -> to whom. None of them gets a window again: it would number from 0
        on, and what the segment has of the first window would pass for what the second one sent."""

    # --- what it is asked ------------------------------------------------------------------------------------------

    @property
    def segments(self) -> Iterable[int]:
        """With a window."""
        return self._windows.keys()

    def window(self, segment: int) -> SendWindow:
        """Of a segment that rows went to, and that was not handed over yet."""
        return self._windows[segment]

    def follow(self, segments: Iterable[int]) -> set[int]:
        """These segments, and in place of those that were handed over the ones that came after them."""
        return self._trail.follow(segments)

    @property
    def rows_bytes(self) -> int:
        """To be routed together."""
        segments = len(self._current_routes().segments)
        return self._frame_bytes * min(SEGMENTS_PER_BATCH_MAX, max(1, segments))

    @property
    def is_crowded(self) -> bool:
        """Whether more rows are to wait before they become frames."""
        windows = self._windows.values()
        if sum(window.queued_bytes for window in windows) > self._bytes_max:
            return True
        return any(window.is_open and window.waiting_bytes > AHEAD_BYTES for window in windows)

    @property
    def refusal(self) -> InvalidArgument | None:
        """Why the topic takes no plain records."""
        if self.schema is None:
            return None
        return InvalidArgument(f"{self.topic} has a schema: publish tables of its columns with send_table")

    def last_errors(self) -> str:
        """What went wrong on the way, to be added to an error's text."""
        errors = [str(window.last_error) for window in self._windows.values() if window.last_error is not None]
        return f"; last: {'; '.join(errors[:3])}" if errors else ""

    # --- what happens ----------------------------------------------------------------------------------------------

    def begin(self, ring: KeyRange, segments: Iterable[Segment]) -> list[Action]:
        """These are the topic's ring and segments. Raises Unavailable: the open ones do not cover the ring."""
        heirs = {segment.id: segment for segment in segments if segment.is_open}
        self._routes = Routes.to_open(ring, heirs.values())
        self._successors = heirs
        return [self._limits()]

    def grow(self, ring: KeyRange, segments: Sequence[Segment]) -> None:
        """Partitions were added: what is sent from now on goes there, too. Raises Unavailable: not all are known."""
        routes = self._routes
        if routes is not None and ring.hi > routes.ring.hi:  # several looks may be under way, and an older one end last
            self._routes = routes.grow(ring, segments)
            self._successors.update({s.id: s for s in segments if s.is_open and s.slots.lo >= routes.ring.hi})

    def add(self, rows: Rows) -> list[Action]:
        """Route and encode rows, and queue their frames."""
        if not rows.flags >> SCHEMA_VERSION_SHIFT and (refusal := self.refusal) is not None:
            return [FrameFailed(rows.positions, rows.promise, refusal)]
        return self._queue(rows)

    def opened(self, segment: int, ready: PublishReady) -> list[Action]:
        """The segment's stream is open. Raises Corrupt: as :meth:`SendWindow.opened`."""
        left = self._windows[segment].opened(ready)
        # Whoever said it first, this window may have held frames that were cut before.
        self._frame_bytes_max = min(self._frame_bytes_max, ready.frame_bytes_max)
        return [self._limits(), *self._actions_of(left)]

    def sealed(self, segment: int, sealed: PublishSealed, successors: Iterable[Segment]) -> list[Action]:
        """The segment takes no more: what it did not keep goes to its successors.

        Raises:
            Unavailable: they do not cover it, or one came before it; nothing has changed.
        """
        heirs = list(successors)
        self._check_later(segment, heirs)
        routes = self._current_routes().replace(segment, heirs)
        left = self._windows[segment].sealed(sealed)
        return [*self._hand_over(segment, heirs, routes), *self._actions_of(left)]

    def forgotten(self, segment: int, heirs: Iterable[Segment]) -> list[Action]:
        """As ``sealed``, when nobody knows the segment any more: it goes on with the heirs.

        Raises:
            Unavailable: they do not cover it, or one came before it; nothing has changed.
        """
        heirs = list(heirs)
        self._check_later(segment, heirs)
        routes = self._current_routes().replace(segment, heirs)
        left = self._windows[segment].forgotten()
        return [*self._hand_over(segment, heirs, routes), *self._actions_of(left)]

    def expire(self, now: float) -> list[Action]:
        """Fail what is overdue."""
        actions: list[Action] = []
        for segment, window in self._windows.items():
            overdue, was_open = window.expire(now)
            actions += overdue
            if was_open:
                actions.append(Reopen(segment))
        return actions

    def clear(self, error: SeaweedMQError) -> list[Action]:
        """Deliver nothing any more."""
        return [failed for window in self._windows.values() for failed in window.give_up(error)]

    # --- inside ----------------------------------------------------------------------------------------------------

    def _queue(self, rows: Rows) -> list[Action]:
        actions: list[Action] = []
        routes = self._current_routes()
        keyless_slot = self._rng.randrange(routes.ring.lo, routes.ring.hi)
        for segment, part in by_segment(rows, routes, keyless_slot):
            window = self._windows.get(segment)
            if window is None:
                window = self._windows[segment] = SendWindow(self._successors[segment])
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
        """Whatever left a window, with what is to be routed anew in other windows."""
        actions: list[Action] = []
        for each in left:
            if isinstance(each, FrameRerouted):
                actions += self._again(each.frame)
            else:
                actions.append(each)
        return actions

    def _again(self, frame: OutgoingFrame) -> list[Action]:
        try:
            rows = rows_of_frame(frame, self.schema, self._current_routes().ring)
        except SeaweedMQError as error:
            return [FrameFailed(frame.positions, frame.promise, error)]  # it is in no window: nobody else would say so
        return self.add(rows)

    def _check_later(self, segment: int, heirs: Iterable[Segment]) -> None:
        """Raise Unavailable if one of the heirs is the segment itself or came before it.

        Its seal was lost with etcd, so a recovered one has it as open. A window of it was handed over, and another one
        would begin with the same sequences. The leader seals it again, and then its successors are known.
        """
        slots = self._windows[segment].segment.slots
        for successor in heirs:
            if successor.id <= segment and successor.slots.overlaps(slots):
                raise Unavailable(f"{successor} was sealed, and is open in a recovered etcd: retry")

    def _hand_over(self, segment: int, heirs: Iterable[Segment], routes: Routes) -> list[Action]:
        """End the window. The routes were made before it was emptied: that fails while metadata is changing."""
        known = self._successors | {successor.id: successor for successor in heirs}
        self._routes = routes
        self._successors = {number: known[number] for number in routes.segments}
        self._trail.leave(segment, (successor.id for successor in heirs), routes)
        del self._windows[segment]
        return [self._limits()]

    def _limits(self) -> SendLimits:
        return SendLimits(self._frame_bytes_max, min(self.rows_bytes, self._bytes_max))

    def _current_routes(self) -> Routes:
        if self._routes is None:
            raise AssertionError("begin() comes first")
        return self._routes
