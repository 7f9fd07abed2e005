"""What one producer has under way to one segment: which frames wait, which are out, which are stored. Pure.

States of a frame, in the order of the queue: acknowledged (gone from it) | out on the stream | waiting.

    add -> waiting -> take -> out -> acked -> gone
                       ^             |
                       +--- lost ----+      the stream broke: everything not acknowledged goes out again, same bytes

A frame leaves the queue by one of three doors, which every event answers with:

    Acked    acked, and sealed for what is committed
    Failed   expire (overdue), refused (the culprit), give_up, sealed and forgotten for what nobody can tell of
    Again    sealed and forgotten for what is not stored, opened for what is too long: to be routed anew

Sequences count records. Invariant: queued frames are contiguous and end at ``next_sequence``, but for a gap that
``expire`` or ``refused`` left in front of them, which ``opened`` closes.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from seaweedmq.client.publish.outgoing_frame import FrameAcked, FrameFailed, FrameOutcome, FrameRerouted, OutgoingFrame
from seaweedmq.codec.frame import HEADER_BYTES, decode_header, encode_header
from seaweedmq.errors import Corrupt, DeadlineExceeded, OutOfRange, ProtocolViolation, SeaweedMQError
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import FrameAck, PublishReady, PublishSealed
from seaweedmq.model.segment import Segment


class SendWindow:
    """Frames of one producer stream, and the limits the broker set."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        """As it was described when the first frame came here."""
        self._frames: deque[OutgoingFrame] = deque()
        self._out = 0
        self._out_bytes = 0
        self._frames_max = 0
        self._bytes_max = 0
        self._one_by_one = False
        self.next_sequence = 0
        """Of the next frame to be added."""
        self._acknowledged = 0
        """Everything below is acknowledged, or was given up before what is acknowledged."""
        self._sent = 0
        """Nothing from here on is stored."""
        self.waiting_bytes = 0
        """Frames not out on the stream."""
        self.is_open = False
        self.last_error: SeaweedMQError | None = None
        """Of the streams so far, or of what it takes to open one."""

    def __len__(self) -> int:
        """Frames not acknowledged."""
        return len(self._frames)

    @property
    def first_sequence(self) -> int:
        """Of the oldest frame that is not acknowledged; ``next_sequence`` if there is none. Nothing below is repeated,
        nor used again for other records, unless a broker that knows better says where to go on."""
        return self._frames[0].first_sequence if self._frames else self.next_sequence

    @property
    def _may_be_stored(self) -> bool:
        """Whether a frame in the queue was out on a stream."""
        return self.first_sequence < self._sent

    @property
    def queued_bytes(self) -> int:
        """Frames not acknowledged."""
        return self.waiting_bytes + self._out_bytes

    @property
    def out(self) -> int:
        """Frames on the stream."""
        return self._out

    # --- events of the queue ---------------------------------------------------------------------------------------

    def add(self, frame: OutgoingFrame) -> None:
        """Queue a frame, whose first sequence is ``next_sequence``."""
        if frame.first_sequence != self.next_sequence:
            raise AssertionError(f"a frame begins at sequence {frame.first_sequence}, {self.next_sequence} is next")
        self._frames.append(frame)
        self.next_sequence = frame.end_sequence
        self.waiting_bytes += len(frame.data)

    def expire(self, now: float) -> tuple[list[FrameFailed], bool]:
        """Overdue frames at the head of the queue leave it. Also whether a stream was open, which is lost now: only a
        new one closes the gap they leave, whether they were out on the old one or not.

        A frame behind one that is not overdue waits for it: sequences leave no other way.
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
            f"{self.segment} did not acknowledge within delivery_timeout_s; the record may be kept all the same{why}"
        )
        return _failed(overdue, error), was_open

    def give_up(self, error: SeaweedMQError) -> list[FrameFailed]:
        """No stream can be opened any more: everything fails."""
        self.last_error = error
        return _failed(self._take_all(), error)

    # --- events of the stream --------------------------------------------------------------------------------------

    def opened(self, ready: PublishReady) -> list[FrameRerouted]:
        """A stream is open; everything not acknowledged goes out on it again, but from the first frame on that is too
        long for the broker and not stored already.

        If the broker knows less than what should lie in front of the queue (frames there expired or were refused)
        nothing of the queue is stored, and it is numbered anew from what the broker knows.

        Raises:
            ProtocolViolation: the broker claims more than was ever sent.
            Corrupt: it lost what it had acknowledged.
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
        self._frames_max = ready.in_flight_frames_max
        self._bytes_max = ready.in_flight_bytes_max
        self.is_open = True
        too_long = (f for f in self._frames if len(f.data) > ready.frame_bytes_max)
        first = next((f.first_sequence for f in too_long if f.first_sequence >= ready.next_sequence), None)
        return [] if first is None else [FrameRerouted(frame) for frame in self._take_from(first)]

    def take(self, message_bytes: int) -> list[Frames]:
        """Frames to send now, in one message of up to ``message_bytes`` if it is more than one; empty if none may."""
        taken: list[Frames] = []
        size = 0
        while self.is_open and self._out < len(self._frames):
            data = self._frames[self._out].data
            if taken and size + len(data) > message_bytes:
                break
            frames_max = 1 if self._one_by_one else self._frames_max
            if self._out and (self._out >= frames_max or self._out_bytes + len(data) > self._bytes_max):
                break
            taken.append(data)
            size += len(data)
            self._sent = max(self._sent, self._frames[self._out].end_sequence)
            self._out += 1
            self._out_bytes += len(data)
            self.waiting_bytes -= len(data)
        return taken

    def acked(self, ack: FrameAck) -> FrameAcked:
        """A frame is kept: always the first one out.

        Raises:
            ProtocolViolation: it is for another.
        """
        first = self._frames[0] if self._out else None
        if first is None or (first.first_sequence, first.record_count) != (ack.first_sequence, ack.record_count):
            expected = "none is out" if first is None else f"{first.first_sequence} + {first.record_count} is next"
            raise ProtocolViolation(
                f"the broker acknowledged sequences {ack.first_sequence} + {ack.record_count}, but {expected}: "
                "it does not speak the protocol"
            )
        self._frames.popleft()
        self._acknowledged = first.end_sequence
        self._out -= 1
        self._out_bytes -= len(first.data)
        if not self._frames:
            self._one_by_one = False
        return FrameAcked(first.positions, first.promise, self.segment.id, ack.base_offset)

    def lost(self, error: SeaweedMQError | None = None) -> None:
        """The stream is gone, or none could be opened. Idempotent."""
        self.waiting_bytes += self._out_bytes
        self._out = self._out_bytes = 0
        self.is_open = False
        self.last_error = error or self.last_error

    def refused(self, error: SeaweedMQError) -> list[FrameFailed]:
        """The broker refused something that is out. If one frame was out alone it is that, and it fails; else send
        them one at a time from now on until the queue is empty.
        """
        is_alone = self._out == 1
        self.lost(error)
        if is_alone:
            return _failed([self._pop_first()], error)
        self._one_by_one = True
        return []

    # --- the end of the segment ------------------------------------------------------------------------------------

    def sealed_unasked(self, segment: Segment) -> PublishSealed | None:
        """What a broker would say, if the segment is sealed and nothing of the queue can be stored in it."""
        if segment.is_open or self._may_be_stored:
            return None
        return PublishSealed(
            end_offset=segment.end_offset or 0,
            next_sequence=self.first_sequence,
            recent=(),
            successors=segment.successors,
        )

    def sealed(self, sealed: PublishSealed) -> list[FrameOutcome]:
        """The segment takes no more: frames that are committed are acknowledged, all others go elsewhere; or fail, if
        the segment misses what it had acknowledged."""
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

    def forgotten(self) -> list[FrameOutcome]:
        """Nobody knows the segment any more, nor what of the queue it held. Requires that no stream is open."""
        unsent = [FrameRerouted(frame) for frame in self._take_from(self._sent)]
        error = OutOfRange(
            f"{self.segment} was sealed long ago and is forgotten: what was sent there and not acknowledged may have "
            "been kept, until retention removed it; publish it again only if a second copy does no harm"
        )
        return [*_failed(self._take_all(), error), *unsent]

    # --- inside ----------------------------------------------------------------------------------------------------

    def _loss(self, answer: PublishReady | PublishSealed) -> Corrupt | None:
        """The error to tell if the segment misses what it had acknowledged."""
        if answer.next_sequence >= self._acknowledged:
            return None
        return Corrupt(
            f"the segment has sequences up to {answer.next_sequence}, but had acknowledged those up to "
            f"{self._acknowledged}: the records between were lost; publish them again, with what fails now"
        )

    def _pop_first(self) -> OutgoingFrame:
        """Requires that nothing is out."""
        frame = self._frames.popleft()
        self.waiting_bytes -= len(frame.data)
        return frame

    def _take_from(self, sequence: int) -> list[OutgoingFrame]:
        """Frames from ``sequence`` on, none of them out, leave the queue; oldest first."""
        taken: list[OutgoingFrame] = []
        while len(self._frames) > self._out and self._frames[-1].first_sequence >= sequence:
            frame = self._frames.pop()
            self.waiting_bytes -= len(frame.data)
            self.next_sequence = frame.first_sequence
            taken.append(frame)
        return taken[::-1]

    def _take_all(self) -> list[OutgoingFrame]:
        """Empty the queue, oldest first, and forget the stream."""
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
                header = encode_header(decode_header(frame.data)._replace(first_sequence=sequence))
                data = b"".join((header, frame.data[HEADER_BYTES:]))
                frame = replace(frame, data=data, first_sequence=sequence)
            frames.append(frame)
            sequence = frame.end_sequence
        self._frames = frames
        self.next_sequence = sequence


def _failed(frames: Iterable[OutgoingFrame], error: SeaweedMQError) -> list[FrameFailed]:
    return [FrameFailed(frame.positions, frame.promise, error) for frame in frames]
