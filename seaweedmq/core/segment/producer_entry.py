"""The producer state of one producer in one segment, and Kafka's rules for its next frame.

A Kafka producer (KIP-98, KIP-360) numbers its records in a partition without a restart, except at a new epoch or after
sequence 2^31 - 1. Here sequences continue beyond that end, so that they always rise.
"""

from collections.abc import Sequence

from seaweedmq.core.segment.recent_frames import RecentFrames
from seaweedmq.errors import DuplicateSequence, Fenced, OutOfOrderSequence
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.producer import KAFKA_SEQUENCES, unwrapped
from seaweedmq.model.segment import ProducerState


class ProducerEntry:
    """The entry of a producer in a ``ProducerTable``.

    Invariant: without frames, nothing was stored since its creation.
    """

    __slots__ = ("begun", "epoch", "frames", "next_sequence", "streams")

    def __init__(self, epoch: int, next_sequence: int, begun: int | None = None) -> None:
        self.streams = 0
        self.begin(epoch, next_sequence, begun)

    def begin(self, epoch: int, next_sequence: int, begun: int | None = None) -> None:
        """Start an epoch of which nothing is stored."""
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.begun = begun
        """First sequence of a Kafka producer that was unknown when it began here: whether lower sequences were stored
        is unknown. None if this table or another one knew the producer before."""
        self.frames = RecentFrames()

    @property
    def oldest(self) -> int:
        """First sequence of the oldest remembered frame, or of the next frame if none is remembered."""
        return self.frames.first_sequence if len(self.frames) else self.next_sequence

    def state(self, producer_id: int, next_sequence: int, frames_max: int) -> ProducerState:
        """Return the state as of the time when ``next_sequence`` was next, with at most ``frames_max`` frames."""
        return ProducerState(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            next_sequence=next_sequence,
            recent=self.frames.last(frames_max, next_sequence),
        )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise Fenced if a newer epoch of the producer is known."""
        if self.epoch > producer_epoch:
            raise Fenced(
                f"producer {producer_id} epoch {producer_epoch} is fenced by epoch {self.epoch}: "
                "another instance took over its identity, stop this one"
            )

    def find_kafka_repeat(self, producer_id: int, producer_epoch: int, sequence: int, count: int) -> FrameAck | None:
        """Find a repeated frame as ``ProducerTable.find_repeat``, by Kafka's rules; needs ``check_epoch`` first."""
        if self.epoch < producer_epoch:
            if sequence:
                raise OutOfOrderSequence(
                    f"producer {producer_id} sent sequence {sequence} first in its new epoch {producer_epoch}: "
                    "begin an epoch at sequence 0"
                )
            return None
        at = unwrapped(sequence, self.next_sequence)
        if at == self.next_sequence:
            return None
        stored = self.frames.find(at, self.next_sequence)
        if stored is not None and stored.record_count == count:
            return FrameAck(sequence, count, stored.base_offset)
        if self._is_below(at, count):
            raise DuplicateSequence(
                f"producer {producer_id} repeated sequence {sequence} + {count}: it is stored, at an offset that is no "
                "longer remembered; continue with the next frame"
            )
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {sequence} + {count}, but {self.next_sequence % KAFKA_SEQUENCES} is "
            "next and no stored frame matches: send the frames before it first, or begin a new epoch"
        )

    def may_be_older(self, producer_epoch: int, sequence: int, count: int, frames_max: int) -> bool:
        """Whether a Kafka frame lies just below the remembered ones, so that an ancestor may know its offset."""
        if self.epoch != producer_epoch or self.begun is not None or len(self.frames) >= frames_max:
            return False
        return self._is_below(unwrapped(sequence, self.next_sequence), count)

    def _is_below(self, at: int, count: int) -> bool:
        return at + count <= self.oldest and (self.begun is None or at >= self.begun)

    def put_before(self, older: Sequence[FrameAck], frames_max: int) -> None:
        """Remember at most ``frames_max`` frames in all, with those that a Kafka producer stored in an earlier segment.

        Of ``older`` frames, the oldest first, those that do not join the remembered ones without a gap are ignored.
        """
        oldest = self.oldest
        joining: list[FrameAck] = []
        for ack in reversed(older):
            if len(self.frames) + len(joining) >= frames_max:
                break
            first = unwrapped(ack.first_sequence, oldest)
            if first + ack.record_count > oldest:
                continue  # already remembered
            if first + ack.record_count < oldest:
                break
            joining.append(FrameAck(first, ack.record_count, ack.base_offset))
            oldest = first
        lap = KAFKA_SEQUENCES if oldest < 0 else 0
        self.next_sequence += lap
        self.frames.put_before(joining[::-1], lap)
