"""What one producer has under way to one segment: which frames wait, which are out, which are stored. Pure.

States of a frame, in the order of the queue: acknowledged (gone from it) | out on the stream | waiting.

    add -> waiting -> take -> out -> acked -> gone
                       ^             |
                       +--- lost ----+      the stream broke: everything not acknowledged goes out again, same bytes
    sealed: committed frames are gone, the rest is handed back to be routed anew
    expire: overdue frames are gone; the stream must be opened anew

Sequences count records. Invariant: queued frames are contiguous and end at ``next_sequence``, but for a gap that
``expire`` or ``refuse_first`` left in front of them, which ``opened`` closes.
"""

from collections import deque
from dataclasses import dataclass, replace

from seaweedmq.client.publish.delivery import Outcome, Rows
from seaweedmq.codec.frame import HEADER_BYTES, decode_header, encode_header
from seaweedmq.errors import Corrupt, ProtocolViolation
from seaweedmq.model.frames import Frames
from seaweedmq.model.publish import FrameAck, PublishReady, PublishSealed


@dataclass(frozen=True, slots=True)
class OutFrame:
    """A frame to be delivered. Its sequences never change once it may have been stored."""

    data: Frames
    first_sequence: int
    rows: Rows
    outcome: Outcome

    @property
    def record_count(self) -> int:
        return len(self.rows)

    @property
    def end_sequence(self) -> int:
        return self.first_sequence + len(self.rows)


class Window:
    """Frames of one producer stream, and the limits the broker set."""

    def __init__(self) -> None:
        self._frames: deque[OutFrame] = deque()
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

    def __len__(self) -> int:
        """Frames not acknowledged."""
        return len(self._frames)

    @property
    def first_sequence(self) -> int:
        """Of the oldest frame that is not acknowledged; ``next_sequence`` if there is none. Nothing below is repeated,
        nor used again for other records, unless a broker that knows better says where to go on."""
        return self._frames[0].first_sequence if self._frames else self.next_sequence

    @property
    def may_be_stored(self) -> bool:
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

    def add(self, data: Frames, rows: Rows, outcome: Outcome) -> None:
        """Queue a frame whose first sequence is ``next_sequence``."""
        self._frames.append(OutFrame(data, self.next_sequence, rows, outcome))
        self.next_sequence += len(rows)
        self.waiting_bytes += len(data)

    def opened(self, ready: PublishReady) -> None:
        """A stream is open; everything not acknowledged goes out on it again.

        If the broker knows less than what should lie in front of the queue (frames there expired or were refused)
        nothing of the queue is stored, and it is numbered anew from what the broker knows.

        Raises:
            Corrupt: the broker claims more than was ever sent, or lost what it had acknowledged.
        """
        self.lost()
        lost = self.loss(ready)
        if lost is not None:
            raise lost
        if ready.next_sequence > self.next_sequence:
            raise Corrupt(
                f"the broker has sequences up to {ready.next_sequence}, but {self.next_sequence} is next to be sent: "
                "another producer uses the same id"
            )
        if ready.next_sequence < self.first_sequence or not self._frames:
            self._renumber(ready.next_sequence)
        self._sent = ready.next_sequence
        self._frames_max = ready.in_flight_frames_max
        self._bytes_max = ready.in_flight_bytes_max
        self.is_open = True

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

    def acked(self, ack: FrameAck) -> OutFrame:
        """The frame an acknowledgement is for: always the first one out.

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
        return first

    def lost(self) -> None:
        """The stream is gone. Idempotent."""
        self.waiting_bytes += self._out_bytes
        self._out = self._out_bytes = 0
        self.is_open = False

    def loss(self, answer: PublishReady | PublishSealed) -> Corrupt | None:
        """The error to tell if the segment misses what it had acknowledged."""
        if answer.next_sequence >= self._acknowledged:
            return None
        return Corrupt(
            f"the segment has sequences up to {answer.next_sequence}, but had acknowledged those up to "
            f"{self._acknowledged}: the records between were lost; publish them again, with what fails now"
        )

    def sealed(self, sealed: PublishSealed) -> tuple[list[tuple[OutFrame, int | None]], list[OutFrame]]:
        """Empty the queue: frames that are committed with their base offsets (None: not known), and all others."""
        bases = {(ack.first_sequence, ack.record_count): ack.base_offset for ack in sealed.recent}
        committed: list[tuple[OutFrame, int | None]] = []
        rest: list[OutFrame] = []
        for frame in self.take_all():
            base = bases.get((frame.first_sequence, frame.record_count))
            if frame.end_sequence <= sealed.next_sequence:
                committed.append((frame, base))
            else:
                rest.append(frame)
        return committed, rest

    def first_longer(self, frame_bytes: int, sequence: int) -> int | None:
        """Sequence of the first frame from ``sequence`` on that is longer than that, if one is."""
        return next(
            (f.first_sequence for f in self._frames if f.first_sequence >= sequence and len(f.data) > frame_bytes), None
        )

    def take_from(self, sequence: int) -> list[OutFrame]:
        """Frames from ``sequence`` on, none of them out, are gone from the queue; oldest first."""
        taken: list[OutFrame] = []
        while len(self._frames) > self._out and self._frames[-1].first_sequence >= sequence:
            frame = self._frames.pop()
            self.waiting_bytes -= len(frame.data)
            self.next_sequence = frame.first_sequence
            taken.append(frame)
        return taken[::-1]

    def take_unstored(self) -> list[OutFrame]:
        """Frames of which nothing can be stored are gone from the queue; oldest first. Requires that no stream is
        open."""
        return self.take_from(self._sent)

    def take_all(self) -> list[OutFrame]:
        """Empty the queue, oldest first, and forget the stream."""
        self.lost()
        frames = list(self._frames)
        self._frames.clear()
        self.waiting_bytes = 0
        self._one_by_one = False
        return frames

    def expire(self, now: float) -> tuple[list[OutFrame], bool]:
        """Overdue frames at the head of the queue, now gone from it, and whether a stream was open, which is lost now.

        A frame behind one that is not overdue waits for it: sequences leave no other way. Only a new stream closes the
        gap they leave, whether they were out on the old one or not.
        """
        if not self._frames or self._frames[0].outcome.deadline > now:
            return [], False
        was_open = self.is_open
        if was_open:
            self.lost()
        overdue: list[OutFrame] = []
        while self._frames and self._frames[0].outcome.deadline <= now:
            frame = self._frames.popleft()
            self.waiting_bytes -= len(frame.data)
            overdue.append(frame)
        return overdue, was_open

    def suspect(self) -> OutFrame | None:
        """The broker refused something that is out. If one frame was out alone it is that, and it is gone now;
        else send them one at a time from now on until the queue is empty.
        """
        alone = self._frames[0] if self._out == 1 else None
        self.lost()
        if alone is None:
            self._one_by_one = True
            return None
        self._frames.popleft()
        self.waiting_bytes -= len(alone.data)
        return alone

    def _renumber(self, sequence: int) -> None:
        frames: deque[OutFrame] = deque()
        for frame in self._frames:
            if frame.first_sequence != sequence:
                header = encode_header(decode_header(frame.data)._replace(first_sequence=sequence))
                data = b"".join((header, frame.data[HEADER_BYTES:]))
                frame = replace(frame, data=data, first_sequence=sequence)
            frames.append(frame)
            sequence = frame.end_sequence
        self._frames = frames
        self.next_sequence = sequence
