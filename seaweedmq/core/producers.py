"""Duplicate detection: what each producer has stored in one segment, within a bound.

Sequences count a producer's records in one segment, from 0. The rule is Kafka's (KIP-98): a frame is new if it begins
where the last one ended, a repeat if it was stored before, and anything else is a gap that is refused.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from seaweedmq.errors import Fenced, InvalidArgument
from seaweedmq.model.protocol import FrameAck
from seaweedmq.model.segment import ProducerSequence

RECENT_FRAMES = 16
"""Frames remembered a producer. Invariant: not below ``stream_in_flight_frames_max``, so every frame that a client may
still repeat finds its acknowledgement here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """One producer's stream in one segment. ``recent`` are its last frames, oldest first, contiguous, up to
    ``next_sequence``."""

    producer_id: int
    producer_epoch: int
    next_sequence: int
    recent: tuple[FrameAck, ...] = ()

    @property
    def sequence(self) -> ProducerSequence:
        """The part that is kept in the metadata of a sealed segment."""
        return ProducerSequence(
            producer_id=self.producer_id, producer_epoch=self.producer_epoch, next_sequence=self.next_sequence
        )


class ProducerTable:
    """Every producer of one segment, the longest idle forgotten first beyond ``limit``."""

    def __init__(self, limit: int, states: Iterable[ProducerState] = ()) -> None:
        self._limit = limit
        self.floor = 0
        """Offset below which frames are fsynced. Frames at or above it are remembered however many they are, since a
        snapshot for a file that begins there must be able to leave them out."""
        self._states: OrderedDict[int, ProducerState] = OrderedDict((s.producer_id, s) for s in states)
        self._trim()

    def state(self, producer_id: int, producer_epoch: int) -> ProducerState:
        """The producer's state; a fresh one if it is unknown or comes with a newer epoch.

        Raises:
            Fenced: a newer epoch of the producer was here.
        """
        known = self._states.get(producer_id)
        if known is None or known.producer_epoch < producer_epoch:
            return ProducerState(producer_id=producer_id, producer_epoch=producer_epoch, next_sequence=0)
        if known.producer_epoch > producer_epoch:
            raise Fenced(
                f"producer {producer_id} epoch {producer_epoch} is fenced by epoch {known.producer_epoch}: "
                "another instance took its identity over; stop this one"
            )
        return known

    def find_repeat(self, producer_id: int, producer_epoch: int, first_sequence: int, count: int) -> FrameAck | None:
        """The earlier acknowledgement if the frame was stored before, None if it is the next one.

        Raises:
            Fenced: as :meth:`state`.
            InvalidArgument: the frame leaves a gap, or overlaps stored frames without being one of them.
        """
        state = self.state(producer_id, producer_epoch)
        if first_sequence == state.next_sequence:
            return None
        for ack in state.recent:
            if ack.first_sequence == first_sequence and ack.record_count == count:
                return ack
        raise InvalidArgument(
            f"producer {producer_id} sent sequences {first_sequence}..{first_sequence + count - 1}, "
            f"but {state.next_sequence} is next and no stored frame matches: resend from {state.next_sequence}"
        )

    def record(self, producer_id: int, producer_epoch: int, ack: FrameAck) -> None:
        """Remember a frame that was appended. Requires that ``find_repeat`` said it is the next one."""
        state = self.state(producer_id, producer_epoch)
        if ack.first_sequence != state.next_sequence:
            raise AssertionError(f"{ack} recorded out of order, next is {state.next_sequence}")
        recent = state.recent
        surplus = len(recent) - (RECENT_FRAMES - 1)
        while surplus > 0 and recent[surplus - 1].base_offset >= self.floor:
            surplus -= 1
        self._states[producer_id] = ProducerState(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_sequence=ack.first_sequence + ack.record_count,
            recent=(*recent[max(surplus, 0) :], ack),
        )
        self._states.move_to_end(producer_id)
        self._trim()

    def snapshot(self, below: int | None = None) -> tuple[ProducerState, ...]:
        """All states, the longest idle first: feeding them to a new table restores this one.

        With ``below``, the states as they were when the log ended at that offset: a frame that is not written yet must
        not count as stored in the file that begins there, or a crash would lose it silently.
        """
        if below is None:
            return tuple(self._states.values())
        return tuple(_state_below(state, below) for state in self._states.values())

    def _trim(self) -> None:
        while len(self._states) > self._limit:
            self._states.popitem(last=False)


def _state_below(state: ProducerState, offset: int) -> ProducerState:
    kept = tuple(ack for ack in state.recent if ack.base_offset < offset)
    dropped = state.recent[len(kept) :]
    next_sequence = dropped[0].first_sequence if dropped else state.next_sequence
    return replace(state, next_sequence=next_sequence, recent=kept[-RECENT_FRAMES:])
