"""Duplicate detection: what each producer has stored in one segment, within a bound.

Sequences count a producer's records in one segment, from 0. The rule is Kafka's (KIP-98): a frame is new if it begins
where the last one ended, a repeat if it was stored before, and anything else is a gap that is refused.

Nobody takes a producer that is not here for one that has stored nothing: it begins where it says that it repeats
nothing below. So one may be forgotten as soon as it can not repeat anything any more: its stream has ended, and longer
ago than a client goes on delivering (``idle_s``).

Kafka's producers have no streams, and go on in a successor segment where they were: see ``known_producer`` for their
rules and ``heritage`` for what becomes of them. One may be forgotten ``idle_s`` after its last frame. Producer 0 has no
identity: it is neither looked up nor remembered.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from seaweedmq.core.segment.producer_entry import ProducerEntry
from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.producer import NO_PRODUCER, is_kafka_producer, unwrapped
from seaweedmq.model.publish import FrameAck
from seaweedmq.model.segment import ProducerSequence, ProducerState

SNAPSHOT_FRAMES_MAX = 16_384
"""Frames that a snapshot names, the same number of each producer. They only give lost acknowledgements their offsets
back; how far a producer got is known without them."""


class ProducerTable:
    """Every producer of one segment that may still repeat something. Times are seconds of one clock, any."""

    def __init__(
        self,
        limits: ProducerLimits | None = None,
        pool: ProducerPool | None = None,
        states: Iterable[ProducerState] = (),
    ) -> None:
        """Without limits nobody is forgotten."""
        self._limits = limits or ProducerLimits.none()
        self._pool = pool
        self.floor = 0
        """Offset below which frames are fsynced. Frames at or above it are remembered however many they are, since a
        snapshot for a file that begins there must be able to leave them out."""
        self._producers: OrderedDict[int, ProducerEntry] = OrderedDict()
        """The longest idle first."""
        self._idle: OrderedDict[int, float] = OrderedDict()
        """Those without a stream -> since when, the longest first. Of Kafka's, their last frame."""
        if pool is not None:
            pool.join(self)
        for state in states:
            self._restore(state)

    def __len__(self) -> int:
        return len(self._producers)

    # --- the primary's side -------------------------------------------------------------------------------------------

    def is_new_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether an earlier epoch of the producer is remembered, with what it stored: of this one nothing is. Ask
        before :meth:`open`, which begins the epoch."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch < producer_epoch and len(known.frames) > 0

    def open(self, producer_id: int, producer_epoch: int, first_sequence: int, now: float) -> int:
        """A stream of the producer, which repeats nothing below ``first_sequence``, begins; return the sequence it goes
        on from. It is not forgotten before :meth:`close`.

        Raises:
            Fenced: a newer epoch of the producer was here.
            InvalidArgument: it has no identity.
            ResourceExhausted: it is new, and the broker remembers as many as it may.
        """
        if producer_id == NO_PRODUCER:
            raise InvalidArgument("a publish stream of producer 0, which is no identity: give another one")
        known = self._producers.get(producer_id)
        if known is None:
            self._check_room(now)
            known = self._add(producer_id, producer_epoch, first_sequence)
        known.check_epoch(producer_id, producer_epoch)
        if known.epoch < producer_epoch:
            known.begin(producer_epoch, first_sequence)
        known.streams += 1
        self._idle.pop(producer_id, None)
        return known.next_sequence

    def close(self, producer_id: int, now: float) -> None:
        """A stream of the producer has ended, however it ended: it may come back and repeat what it sent."""
        known = self._producers.get(producer_id)
        if known is None:
            return  # the table was released in between
        known.streams -= 1
        if known.streams:
            return
        if not len(known.frames):
            self._forget(producer_id)
            return
        known.frames.trim(self._limits.frames, self.floor)
        self._idle[producer_id] = now

    def find_repeat(
        self, producer_id: int, producer_epoch: int, first_sequence: int, count: int, now: float = 0.0
    ) -> FrameAck | None:
        """The earlier acknowledgement if the frame was stored before, None if it is the next one.

        Raises:
            Fenced: a newer epoch of the producer was here.
            InvalidArgument: the producer has no stream; or the frame leaves a gap, or overlaps stored frames without
                being one of them.
            DuplicateSequence, OutOfOrderSequence: what Kafka's producers are told instead.
            ResourceExhausted: one of Kafka's is new, and the broker remembers as many as it may.
        """
        if producer_id == NO_PRODUCER:
            return None
        known = self._producers.get(producer_id)
        if known is None and is_kafka_producer(producer_id):
            self._check_room(now)
            return None
        if known is None:
            raise InvalidArgument(f"producer {producer_id} has no stream here: open one before frames are sent")
        known.check_epoch(producer_id, producer_epoch)
        if _is_kafkas(producer_id, known):
            return known.find_kafka_repeat(producer_id, producer_epoch, first_sequence, count)
        if first_sequence == known.next_sequence and known.epoch == producer_epoch:
            return None
        ack = known.frames.find(first_sequence, known.next_sequence) if known.epoch == producer_epoch else None
        if ack is None or ack.record_count != count:
            raise InvalidArgument(
                f"producer {producer_id} sent sequences {first_sequence}..{first_sequence + count - 1}, "
                f"but {known.next_sequence} is next and no stored frame matches: resend from {known.next_sequence}"
            )
        return ack

    def record(self, producer_id: int, producer_epoch: int, ack: FrameAck, now: float = 0.0) -> None:
        """Remember a frame that was appended. Requires that ``find_repeat`` said it is the next one."""
        if producer_id == NO_PRODUCER:
            return
        known, sequence = self._producers.get(producer_id), ack.first_sequence
        if known is None and is_kafka_producer(producer_id):
            known = self._add(producer_id, producer_epoch, sequence, begun=sequence)
        elif known is not None and _is_kafkas(producer_id, known):
            if known.epoch < producer_epoch and sequence == 0:
                known.begin(producer_epoch, 0, begun=0)
            sequence = unwrapped(sequence, known.next_sequence)
        if known is None or known.epoch != producer_epoch or sequence != known.next_sequence:
            raise AssertionError(f"{ack} of producer {producer_id} recorded out of order")
        self._append(producer_id, known, ack)
        if not known.streams:
            self._note_idle(producer_id, now)

    # --- Kafka's producers in a successor segment ---------------------------------------------------------------------

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._producers

    def may_be_older(self, producer_id: int, producer_epoch: int, first_sequence: int, count: int) -> bool:
        """Whether a frame was stored before those that are remembered of its producer, so that an earlier segment may
        tell where."""
        known = self._producers.get(producer_id)
        if known is None or not _is_kafkas(producer_id, known):
            return False
        return known.may_be_older(producer_epoch, first_sequence, count, self._limits.frames)

    def adopt(self, state: ProducerState, now: float) -> None:
        """Go on from what an earlier segment holds of a producer that is not known here.

        Raises:
            ResourceExhausted: the broker remembers as many as it may.
        """
        assert state.producer_id not in self._producers, f"{state} is known here"
        self._check_room(now)
        self._restore(state)
        self._note_idle(state.producer_id, now)

    def put_before(self, producer_id: int, producer_epoch: int, older: Sequence[FrameAck]) -> None:
        """Remember frames of a producer that an earlier segment holds, the oldest first, as far as they join."""
        known = self._producers.get(producer_id)
        if known is not None and known.epoch == producer_epoch and _is_kafkas(producer_id, known):
            known.put_before(older, self._limits.frames)

    # --- the side of a follower, and of whoever reads a log -----------------------------------------------------------

    def follow(self, producer_id: int, producer_epoch: int, ack: FrameAck, now: float = 0.0) -> None:
        """Remember a frame that a primary accepted, whatever this table would have said of it: the primary may have
        forgotten the producer earlier, or begun with it where it said it was."""
        if producer_id == NO_PRODUCER:
            return
        known, sequence = self._producers.get(producer_id), ack.first_sequence
        if known is not None and _is_kafkas(producer_id, known):
            sequence = unwrapped(sequence, known.next_sequence)
        if known is None:
            self._forget_idle(now, keep=self._limits.producers - 1)
            known = self._add(producer_id, producer_epoch, sequence)
        elif known.epoch != producer_epoch or known.next_sequence != sequence:
            known.begin(producer_epoch, ack.first_sequence)
        self._append(producer_id, known, ack)
        if not known.streams:
            self._note_idle(producer_id, now)

    # --- looking in ---------------------------------------------------------------------------------------------------

    def state(self, producer_id: int) -> ProducerState | None:
        """What is known of the producer; None if it is not known."""
        known = self._producers.get(producer_id)
        if known is None:
            return None
        return known.state(producer_id, known.next_sequence, self._limits.frames)

    def snapshot(self, below: int | None = None) -> tuple[ProducerState, ...]:
        """All states, the longest idle first: feeding them to a new table restores this one.

        With ``below``, the states as they were when the log ended at that offset: a frame that is not written yet must
        not count as stored in the file that begins there, or a crash would lose it silently.
        """
        share = min(self._limits.frames, SNAPSHOT_FRAMES_MAX // max(1, len(self._producers)))
        states: list[ProducerState] = []
        for producer_id, known in self._producers.items():
            next_sequence = known.next_sequence if below is None else known.frames.end_below(below, known.next_sequence)
            states.append(known.state(producer_id, next_sequence, share))
        return tuple(states)

    def unsettled(self, now: float) -> tuple[ProducerSequence, ...]:
        """Every producer that stored something and may not have heard of all of it yet, the longest idle first."""
        return tuple(
            ProducerSequence(producer_id=number, producer_epoch=known.epoch, next_sequence=known.next_sequence)
            for number, known in self._producers.items()
            if len(known.frames) and not self._is_settled(number, now)
        )

    def forget_settled(self, now: float) -> int:
        """Forget everybody who can not repeat anything any more; return how many."""
        return self._forget_idle(now, keep=0)

    def release(self) -> None:
        """The segment is no longer served: forget everybody."""
        if self._pool is not None:
            self._pool.leave(self, len(self._producers))
            self._pool = None
        self._producers.clear()
        self._idle.clear()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _append(self, producer_id: int, known: ProducerEntry, ack: FrameAck) -> None:
        known.frames.append(known.next_sequence, ack.base_offset)
        known.frames.trim(self._limits.frames, self.floor)
        known.next_sequence += ack.record_count
        self._producers.move_to_end(producer_id)

    def _note_idle(self, producer_id: int, now: float) -> None:
        self._idle[producer_id] = now
        self._idle.move_to_end(producer_id)

    def _check_room(self, now: float) -> None:
        self._forget_idle(now, keep=self._limits.producers - 1)
        if self._pool is not None:
            self._pool.check_room(now)

    def _add(
        self, producer_id: int, producer_epoch: int, next_sequence: int, begun: int | None = None
    ) -> ProducerEntry:
        known = self._producers[producer_id] = ProducerEntry(producer_epoch, next_sequence, begun)
        if self._pool is not None:
            self._pool.used += 1
        return known

    def _restore(self, state: ProducerState) -> None:
        known = self._add(state.producer_id, state.producer_epoch, state.next_sequence)
        for ack in state.recent:
            known.frames.append(ack.first_sequence, ack.base_offset)

    def _is_settled(self, producer_id: int, now: float) -> bool:
        since = self._idle.get(producer_id)
        return since is not None and now - since > self._limits.idle_s

    def _forget_idle(self, now: float, *, keep: int) -> int:
        """Forget those who are settled, the longest idle first, while there are more than ``keep``."""
        forgotten = 0
        while len(self._producers) > keep and self._idle:
            producer_id = next(iter(self._idle))
            if not self._is_settled(producer_id, now):
                break
            self._forget(producer_id)
            forgotten += 1
        return forgotten

    def _forget(self, producer_id: int) -> None:
        del self._producers[producer_id]
        self._idle.pop(producer_id, None)
        if self._pool is not None:
            self._pool.used -= 1


def _is_kafkas(producer_id: int, known: ProducerEntry) -> bool:
    """Whether Kafka's rules are for it. A publisher may have chosen such an id before it knew of the range."""
    return not known.streams and is_kafka_producer(producer_id)
