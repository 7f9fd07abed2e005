"""Duplicate detection: the bounded producer state of one segment.

Sequences number a producer's records in one segment, from 0. The rule is Kafka's (KIP-98): a frame that begins where
the last one ended is new, and a frame that was stored before is a repeat. Any other frame is a gap and is rejected.

An unknown producer may have stored records here: it begins at the sequence below which it promises to repeat nothing.
So a producer can be dropped as soon as it can no longer repeat anything: its stream ended longer ago than a client
retries (``idle_s``).

Kafka producers have no streams, and continue in a successor segment where they were: see ``producer_entry`` for their
rules and ``broker.serve.inherited_producers`` for the inheritance. They expire ``idle_s`` after their last frame.
Producer 0 has no identity: its frames are neither looked up nor remembered.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from seaweedmq.core.segment.producer_entry import ProducerEntry
from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.producer import NO_PRODUCER, is_kafka_producer, unwrapped
from seaweedmq.model.segment import ProducerSequence, ProducerState

SNAPSHOT_FRAMES_MAX = 16_384
"""Limit of the frames in a snapshot, the same number per producer. Frames only restore the offsets of lost
acknowledgements; the next sequence of each producer is known without them."""


class ProducerTable:
    """The producers of one segment that may still repeat frames. Times are seconds of any one clock."""

    def __init__(
        self,
        limits: ProducerLimits | None = None,
        pool: ProducerPool | None = None,
        states: Iterable[ProducerState] = (),
    ) -> None:
        """Create a table, which drops no producer without ``limits``."""
        self._limits = limits or ProducerLimits.none()
        self._pool = pool
        self.floor = 0
        """Offset below which frames are flushed. Frames at or above it are remembered however many they are, since a
        snapshot for a file that begins there must be able to leave them out."""
        self._producers: OrderedDict[int, ProducerEntry] = OrderedDict()
        """Entry of each producer, the longest idle first."""
        self._idle: OrderedDict[int, float] = OrderedDict()
        """Idle since, of each producer without a stream, the longest idle first; for a Kafka producer the time of its
        last frame."""
        if pool is not None:
            pool.join(self)
        for state in states:
            self._restore(state)

    def __len__(self) -> int:
        return len(self._producers)

    def is_new_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this epoch is new and an earlier one has frames here; ask before :meth:`open` begins it."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch < producer_epoch and len(known.frames) > 0

    def open(self, producer_id: int, producer_epoch: int, first_sequence: int, now: float) -> int:
        """Open a stream of a producer, and return the sequence it continues from.

        The producer repeats nothing below ``first_sequence``. It is not dropped before :meth:`close`.

        Raises:
            Fenced: If a newer epoch of the producer is known.
            InvalidArgument: If the producer has no identity.
            ResourceExhausted: If the producer is new, and the broker remembers as many as it may.
        """
        if producer_id == NO_PRODUCER:
            raise InvalidArgument("publish stream of producer 0: 0 means no identity, give another id")
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
        """Close a stream of the producer, however it ended: the producer may return and repeat what it sent."""
        known = self._producers.get(producer_id)
        if known is None:
            return  # the table was released in the meantime
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
        """Return the earlier acknowledgement if the frame was stored before, None if it is the next one.

        Raises:
            Fenced: If a newer epoch of the producer is known.
            InvalidArgument: If the producer has no stream, or the frame leaves a gap or partly overlaps stored frames.
            DuplicateSequence: If a Kafka producer repeats a frame whose offset is no longer remembered.
            OutOfOrderSequence: If the frame of a Kafka producer leaves a gap.
            ResourceExhausted: If a Kafka producer is new, and the broker remembers as many as it may.
        """
        if producer_id == NO_PRODUCER:
            return None
        known = self._producers.get(producer_id)
        if known is None and is_kafka_producer(producer_id):
            self._check_room(now)
            return None
        if known is None:
            raise InvalidArgument(f"producer {producer_id} has no stream here: open one before sending frames")
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
        """Remember an appended frame. Requires that ``find_repeat`` returned None for it."""
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

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._producers

    def may_be_older(self, producer_id: int, producer_epoch: int, first_sequence: int, count: int) -> bool:
        """Whether a Kafka frame precedes the remembered ones, so that an ancestor may know its offset."""
        known = self._producers.get(producer_id)
        if known is None or not _is_kafkas(producer_id, known):
            return False
        return known.may_be_older(producer_epoch, first_sequence, count, self._limits.frames)

    def adopt(self, state: ProducerState, now: float) -> None:
        """Continue from an ancestor's state of a producer unknown here; ResourceExhausted if there are too many."""
        assert state.producer_id not in self._producers, f"{state} is known here"
        self._check_room(now)
        self._restore(state)
        self._note_idle(state.producer_id, now)

    def put_before(self, producer_id: int, producer_epoch: int, older: Sequence[FrameAck]) -> None:
        """Remember a producer's frames in an ancestor, as :meth:`ProducerEntry.put_before`."""
        known = self._producers.get(producer_id)
        if known is not None and known.epoch == producer_epoch and _is_kafkas(producer_id, known):
            known.put_before(older, self._limits.frames)

    def follow(self, producer_id: int, producer_epoch: int, ack: FrameAck, now: float = 0.0) -> None:
        """Remember a frame that a primary accepted, without checks.

        The primary may have dropped the producer earlier, or begun at the sequence that the producer named.
        """
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

    def state(self, producer_id: int) -> ProducerState | None:
        """Return the state of the producer, None if it is unknown."""
        known = self._producers.get(producer_id)
        if known is None:
            return None
        return known.state(producer_id, known.next_sequence, self._limits.frames)

    def snapshot(self, below: int | None = None) -> tuple[ProducerState, ...]:
        """Return all states, the longest idle first: a new table given them equals this one.

        With ``below``, return the states as they were when the log ended at that offset. A frame that is not written
        yet must not count as stored in the file that begins there, or a crash would lose it silently.
        """
        share = min(self._limits.frames, SNAPSHOT_FRAMES_MAX // max(1, len(self._producers)))
        states: list[ProducerState] = []
        for producer_id, known in self._producers.items():
            next_sequence = known.next_sequence if below is None else known.frames.end_below(below, known.next_sequence)
            states.append(known.state(producer_id, next_sequence, share))
        return tuple(states)

    def unsettled(self, now: float) -> tuple[ProducerSequence, ...]:
        """Return the producers that stored frames and may still wait for acknowledgements, the longest idle first."""
        return tuple(
            ProducerSequence(producer_id=number, producer_epoch=known.epoch, next_sequence=known.next_sequence)
            for number, known in self._producers.items()
            if len(known.frames) and not self._is_settled(number, now)
        )

    def drop_settled(self, now: float) -> int:
        """Drop every producer that can no longer repeat anything, and return their number."""
        return self._forget_idle(now, keep=0)

    def release(self) -> None:
        """Drop every producer, since the segment is no longer served."""
        if self._pool is not None:
            self._pool.leave(self, len(self._producers))
            self._pool = None
        self._producers.clear()
        self._idle.clear()

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
        """Drop settled producers, the longest idle first, while more than ``keep`` remain."""
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
    """Whether Kafka's rules apply. A publisher may have chosen such an id before the range was reserved."""
    return not known.streams and is_kafka_producer(producer_id)
