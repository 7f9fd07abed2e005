"""What is known of one producer in one segment, and Kafka's rules for what it sends next.

A Kafka producer (KIP-98, KIP-360) counts its records in a partition for good, and begins again at 0 only with a new
epoch, or after sequence 2^31 - 1. Here the sequences are counted on over that end, so that they rise.
"""

from collections.abc import Sequence

from seaweedmq.core.segment.recent_frames import RecentFrames
from seaweedmq.errors import DuplicateSequence, Fenced, OutOfOrderSequence
from seaweedmq.model.producer import KAFKA_SEQUENCES, unwrapped
from seaweedmq.model.publish import FrameAck
from seaweedmq.model.segment import ProducerState


class ProducerEntry:
    """As the table keeps it. Invariant: no frames means that nothing was stored since it is known."""

    __slots__ = ("begun", "epoch", "frames", "next_sequence", "streams")

    def __init__(self, epoch: int, next_sequence: int, begun: int | None = None) -> None:
        self.streams = 0
        self.begin(epoch, next_sequence, begun)

    def begin(self, epoch: int, next_sequence: int, begun: int | None = None) -> None:
        """From now on this epoch counts, and nothing of it is stored."""
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.begun = begun
        """Of a Kafka producer of which nothing was known when it began here: nobody can say that anything below was
        stored. None: it was known before, by this table or another one."""
        self.frames = RecentFrames()

    @property
    def oldest(self) -> int:
        """Where the oldest frame that is remembered begins, or the next one will."""
        return self.frames.first_sequence if len(self.frames) else self.next_sequence

    def state(self, producer_id: int, next_sequence: int, frames_max: int) -> ProducerState:
        """As it was when ``next_sequence`` was next, with up to so many frames."""
        return ProducerState(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            next_sequence=next_sequence,
            recent=self.frames.last(frames_max, next_sequence),
        )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise Fenced unless nobody of a newer epoch was here."""
        if self.epoch > producer_epoch:
            raise Fenced(
                f"producer {producer_id} epoch {producer_epoch} is fenced by epoch {self.epoch}: "
                "another instance took its identity over; stop this one"
            )

    # --- Kafka's ------------------------------------------------------------------------------------------------------

    def find_kafka_repeat(self, producer_id: int, producer_epoch: int, sequence: int, count: int) -> FrameAck | None:
        """As ``ProducerTable.find_repeat``, by Kafka's rules. Requires that ``check_epoch`` passed."""
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
                f"producer {producer_id} sent sequence {sequence} + {count} again: it is stored, where is not "
                "remembered any more; go on"
            )
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {sequence} + {count}, but {self.next_sequence % KAFKA_SEQUENCES} is "
            "next and no stored frame matches: send what comes before it first, or begin a new epoch"
        )

    def may_be_older(self, producer_epoch: int, sequence: int, count: int, frames_max: int) -> bool:
        """Whether a frame of a Kafka producer lies so little below those that are remembered that an earlier segment
        may tell where it is."""
        if self.epoch != producer_epoch or self.begun is not None or len(self.frames) >= frames_max:
            return False
        return self._is_below(unwrapped(sequence, self.next_sequence), count)

    def _is_below(self, at: int, count: int) -> bool:
        return at + count <= self.oldest and (self.begun is None or at >= self.begun)

    def put_before(self, older: Sequence[FrameAck], frames_max: int) -> None:
        """Remember frames that a Kafka producer had stored elsewhere, the oldest first, as far as they go on to those
        that are remembered, and up to ``frames_max`` in all."""
        oldest = self.oldest
        joining: list[FrameAck] = []
        for ack in reversed(older):
            if len(self.frames) + len(joining) >= frames_max:
                break
            first = unwrapped(ack.first_sequence, oldest)
            if first + ack.record_count > oldest:
                continue  # it is remembered
            if first + ack.record_count < oldest:
                break
            joining.append(FrameAck(first, ack.record_count, ack.base_offset))
            oldest = first
        lap = KAFKA_SEQUENCES if oldest < 0 else 0
        self.next_sequence += lap
        self.frames.put_before(joining[::-1], lap)
