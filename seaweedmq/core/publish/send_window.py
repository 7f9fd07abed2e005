"""The send window of one producer to one segment: its queue of unacknowledged frames. Pure.

States of a frame, in the order of the queue: removed (acknowledged) | in flight | waiting.

    add -> waiting -> take -> in flight -> acked -> removed
                       ^             |
                       +--- lost ----+      the stream broke: all unacknowledged frames are sent again, same bytes

A frame leaves the queue with one of three outcomes, which every event returns:

    FrameAcked     acked; sealed, for committed frames
    FrameFailed    expire (overdue), rejected (the culprit), give_up; sealed and pruned, for frames of unknown fate
    FrameRerouted  sealed and pruned, for frames that were not appended; opened, for frames that are too long

Sequences count records. Invariant: queued frames are contiguous and end at ``next_sequence``. Only ``expire`` and
``rejected`` leave a gap in front of them, which ``opened`` closes.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from seaweedmq.core.publish.in_flight import InFlight, SentFrame
from seaweedmq.core.publish.outgoing_frame import FrameAcked, FrameFailed, FrameOutcome, FrameRerouted, OutgoingFrame
from seaweedmq.errors import Corrupt, DeadlineExceeded, OutOfRange, ProtocolViolation, SeaweedMQError
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import FrameAck, PublishReady, PublishSealed
from seaweedmq.model.segment import Segment


class SendWindow:
    """The unacknowledged frames of one producer in one segment, and the limits of the broker.

    ``renumber`` returns the bytes of a frame with another first sequence.
    """

    def __init__(self, segment: Segment, renumber: Callable[[Frames, int], Frames]) -> None:
        self.segment = segment
        """The segment, as described when the first frame was added."""
        self._renumber_frame = renumber
        self._frames: deque[OutgoingFrame] = deque()
        self._in_flight = InFlight()
        """The first frames of the queue."""
        self._one_by_one = False
        self.next_sequence = 0
        """The first sequence of the next frame to be added."""
        self._acknowledged = 0
        """The sequence below which every frame was acknowledged, or failed before an acknowledged one."""
        self._sent = 0
        """The sequence from which on no frame was sent."""
        self.waiting_bytes = 0
        """The bytes of frames that are not in flight."""
        self.is_open = False
        """Whether a stream is open."""
        self.last_error: SeaweedMQError | None = None
        """The last error of a stream, or of the attempt to open one."""

    def __len__(self) -> int:
        """Return the number of unacknowledged frames."""
        return len(self._frames)

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest unacknowledged frame; ``next_sequence`` if there is none.

        Lower sequences are neither sent again nor reused for other records, unless a broker reports a lower next one.
        """
        return self._frames[0].first_sequence if self._frames else self.next_sequence

    @property
    def _may_be_stored(self) -> bool:
        """Whether a frame in the queue was sent, so that the segment may hold it."""
        return self.first_sequence < self._sent

    @property
    def queued_bytes(self) -> int:
        """The bytes of unacknowledged frames."""
        return self.waiting_bytes + self._in_flight.size_bytes

    @property
    def in_flight(self) -> int:
        """The number of frames in flight."""
        return len(self._in_flight)

    def add(self, frame: OutgoingFrame) -> None:
        """Queue a frame, whose first sequence is ``next_sequence``."""
        if frame.first_sequence != self.next_sequence:
            raise AssertionError(f"a frame begins at sequence {frame.first_sequence}, {self.next_sequence} is next")
        self._frames.append(frame)
        self.next_sequence = frame.end_sequence
        self.waiting_bytes += len(frame.data)

    def expire(self, now: float) -> tuple[list[FrameFailed], bool]:
        """Fail overdue frames at the head of the queue; return them, and whether a stream was open and is lost now.

        An overdue frame behind one that is not overdue waits for it: sequences leave only in order. Only a new stream
        closes the gap that the failed frames leave, whether they were in flight or not.
        """
        if not self._frames or self._frames[0].promise.deadline_s > now:
            return [], False
        was_open = self.is_open
        if was_open:
            self.lost()
        overdue: list[OutgoingFrame] = []
        while self._frames and self._frames[0].promise.deadline_s <= now:
            overdue.append(self._pop_first())
        why = f"; last: {self.last_error}" if self.last_error is not None else ""
        error = DeadlineExceeded(
            f"{self.segment} did not acknowledge within delivery_timeout_s: the record may be stored nevertheless{why}"
        )
        return _failed(overdue, error), was_open

    def give_up(self, error: SeaweedMQError) -> list[FrameFailed]:
        """Fail all frames: no stream can be opened."""
        self.last_error = error
        return _failed(self._take_all(), error)

    def opened(self, ready: PublishReady) -> list[FrameRerouted]:
        """Handle an open stream, on which all unacknowledged frames are sent again; return those to be routed again.

        If the broker's next sequence is below the queue, because frames in front of it expired or were rejected, the
        segment holds none of the queue, which is renumbered from the broker's next sequence. Routed again are all
        frames from the first one on that exceeds the broker's limit and is not held by the segment already. Raises
        ProtocolViolation if the broker has more sequences than were sent, and Corrupt if the segment lost acknowledged
        records.
        """
        self.lost()
        loss = self._loss(ready)
        if loss is not None:
            raise loss
        if ready.next_sequence > self.next_sequence:
            raise ProtocolViolation(
                f"the broker has sequences up to {ready.next_sequence}, but {self.next_sequence} is next to be sent: "
                "another producer uses the same id"
            )
        if ready.next_sequence < self.first_sequence or not self._frames:
            self._renumber(ready.next_sequence)
        self._sent = ready.next_sequence
        self._in_flight.opened(ready)
        self.is_open = True
        too_long = (f for f in self._frames if len(f.data) > ready.frame_bytes_max)
        first = next((f.first_sequence for f in too_long if f.first_sequence >= ready.next_sequence), None)
        return [] if first is None else [FrameRerouted(frame) for frame in self._take_from(first)]

    def take(self, message_bytes: int) -> list[Frames]:
        """Take the frames of the next message, up to ``message_bytes`` if there are several; empty if none may go."""
        taken: list[Frames] = []
        size = 0
        while self.is_open and self.in_flight < len(self._frames):
            frame = self._frames[self.in_flight]
            if taken and size + len(frame.data) > message_bytes:
                break
            if (self._one_by_one and self.in_flight) or not self._in_flight.has_room(1, len(frame.data)):
                break
            taken.append(frame.data)
            size += len(frame.data)
            self._sent = max(self._sent, frame.end_sequence)
            self._in_flight.add(SentFrame(frame.first_sequence, frame.record_count, len(frame.data)))
            self.waiting_bytes -= len(frame.data)
        return taken

    def acked(self, ack: FrameAck) -> FrameAcked:
        """Handle the acknowledgement of the first frame in flight; raise ProtocolViolation if it is another frame's."""
        self._in_flight.acked(ack)
        first = self._frames.popleft()
        self._acknowledged = first.end_sequence
        if not self._frames:
            self._one_by_one = False
        return FrameAcked(first.positions, first.promise, self.segment.id, ack.base_offset)

    def lost(self, error: SeaweedMQError | None = None) -> None:
        """Handle a lost stream, or a failed attempt to open one. Idempotent."""
        self.waiting_bytes += self._in_flight.size_bytes
        self._in_flight.clear()
        self.is_open = False
        self.last_error = error or self.last_error

    def rejected(self, error: SeaweedMQError) -> list[FrameFailed]:
        """Handle the rejection of a frame in flight.

        A single frame in flight is the rejected one, and fails. Otherwise frames are sent one at a time until the queue
        is empty, which finds it.
        """
        is_alone = self.in_flight == 1
        self.lost(error)
        if is_alone:
            return _failed([self._pop_first()], error)
        self._one_by_one = True
        return []

    def sealed_unasked(self, segment: Segment) -> PublishSealed | None:
        """Return the reply that a broker would send, if the segment is sealed and holds nothing of the queue."""
        if segment.is_open or self._may_be_stored:
            return None
        return PublishSealed(
            end_offset=segment.end_offset or 0,
            next_sequence=self.first_sequence,
            recent=(),
            successors=segment.successors,
        )

    def sealed(self, sealed: PublishSealed) -> list[FrameOutcome]:
        """Handle the seal: committed frames are acknowledged, the others rerouted, or failed if records were lost."""
        loss = self._loss(sealed)
        bases = {(ack.first_sequence, ack.record_count): ack.base_offset for ack in sealed.recent}
        left: list[FrameOutcome] = []
        for frame in self._take_all():
            if frame.end_sequence <= sealed.next_sequence:
                base = bases.get((frame.first_sequence, frame.record_count))
                left.append(FrameAcked(frame.positions, frame.promise, self.segment.id, base))
            elif loss is not None:
                left.append(FrameFailed(frame.positions, frame.promise, loss))
            else:
                left.append(FrameRerouted(frame))
        return left

    def pruned(self) -> list[FrameOutcome]:
        """Handle a pruned segment, whose records of the queue are unknown. Requires that no stream is open."""
        unsent = [FrameRerouted(frame) for frame in self._take_from(self._sent)]
        error = OutOfRange(
            f"{self.segment} was sealed long ago and is pruned: records that were sent there and not acknowledged may "
            "have been stored: publish them again only if a second copy does no harm"
        )
        return [*_failed(self._take_all(), error), *unsent]

    def _loss(self, answer: PublishReady | PublishSealed) -> Corrupt | None:
        """Return an error if the segment lost acknowledged records."""
        if answer.next_sequence >= self._acknowledged:
            return None
        return Corrupt(
            f"the segment has sequences up to {answer.next_sequence}, but had acknowledged those up to "
            f"{self._acknowledged}: the records between were lost; publish them again, with those that fail now"
        )

    def _pop_first(self) -> OutgoingFrame:
        """Remove the first frame. Requires that none is in flight."""
        frame = self._frames.popleft()
        self.waiting_bytes -= len(frame.data)
        return frame

    def _take_from(self, sequence: int) -> list[OutgoingFrame]:
        """Remove the frames from ``sequence`` on that are not in flight. Return them oldest first."""
        taken: list[OutgoingFrame] = []
        while len(self._frames) > self.in_flight and self._frames[-1].first_sequence >= sequence:
            frame = self._frames.pop()
            self.waiting_bytes -= len(frame.data)
            self.next_sequence = frame.first_sequence
            taken.append(frame)
        return taken[::-1]

    def _take_all(self) -> list[OutgoingFrame]:
        """Remove all frames and drop the stream. Return the frames oldest first."""
        self.lost()
        frames = list(self._frames)
        self._frames.clear()
        self.waiting_bytes = 0
        self._one_by_one = False
        return frames

    def _renumber(self, sequence: int) -> None:
        frames: deque[OutgoingFrame] = deque()
        for frame in self._frames:
            if frame.first_sequence != sequence:
                data = self._renumber_frame(frame.data, sequence)
                frame = replace(frame, data=data, first_sequence=sequence)
            frames.append(frame)
            sequence = frame.end_sequence
        self._frames = frames
        self.next_sequence = sequence


def _failed(frames: Iterable[OutgoingFrame], error: SeaweedMQError) -> list[FrameFailed]:
    return [FrameFailed(frame.positions, frame.promise, error) for frame in frames]
