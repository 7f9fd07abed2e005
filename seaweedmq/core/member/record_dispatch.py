"""The delivery of records by a member of a group, as a pure state machine.

Events are methods, since some occur once per record. They change the state at once, and return the work for the caller
or keep it in ``given_up`` until the caller takes it. The byte of a record's row holds its state (``core.member.acks``):

| record | event | then |
|---|---|---|
| | arrived | new |
| new | taken for delivery, in a sequence of rows | in flight |
| in flight, not with the user yet | admitted | in flight; waiting if its key waits; dead letter after too many
deliveries |
| in flight | acknowledged | acknowledged |
| in flight | rejected; its handler failed | waiting; dead letter after too many deliveries |
| in flight | its handler returned | acknowledged |
| waiting | it is due, and nothing waits before it in its key | in flight |
| waiting, dead letter | acknowledged late | acknowledged |
| dead letter | it is in the dead-letter topic | acknowledged |
| new, waiting, or in flight and not with the user yet | its segment is revoked | waiting, for the segment's next owner
|

A record that is rejected while its handler still works first waits for the handler to end.

Invariants: a record is with one user at a time; while a record of a key waits, no later one of that key is admitted;
nothing of a revoked segment is delivered; all deliveries and ``left`` add up to the limit.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from seaweedmq.core.member.acks import ACKED, IN_FLIGHT, WAITING, Offsets, RowSpan
from seaweedmq.core.member.held_segment import HeldSegment, M, R
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.core.member.unacked import Unacked
from seaweedmq.model.messages.groups import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a member's deliveries."""

    limit: int | None = None
    """Records in all; None for no limit."""
    deliveries_max: int | None = None
    """Deliveries of one record before it becomes a dead letter; None for no limit."""
    unacked_max: int
    """Records in flight."""
    unacked_bytes_max: int
    """Bytes of the frames that are held for records in flight."""


@dataclass(frozen=True, slots=True)
class NewRows(Generic[R, M]):
    """Consecutive new rows of one frame that may be delivered."""

    assigned: HeldSegment[R, M]
    span: RowSpan[R]
    at: int
    count: int


@dataclass(frozen=True, slots=True)
class DeadRecord(Generic[M]):
    """A dead letter to publish; :meth:`RecordDispatch.dead_letter_stored` follows."""

    record: M
    deliveries: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Rejection:
    due_s: float
    reason: str


class RecordDispatch(Generic[R, M]):
    """The records that a member holds. ``now`` is in seconds on a steady clock.

    One thread takes records at a time. It may pop from ``ready`` without a lock, and any thread may acknowledge single
    records. Everything else needs the caller's lock.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.assigned: dict[int, HeldSegment[R, M]] = {}
        """Held segments by id."""
        self.unacked = Unacked(self.assigned, bounds.unacked_max, bounds.unacked_bytes_max)
        self.left = bounds.limit
        """Records that may still be delivered; None for no limit."""
        self.ready: list[M] = []
        """Records in flight that are not with the user yet, the next one last. The list object never changes."""
        self.is_strict = False
        """Whether records in ``ready`` must be admitted one by one."""
        self.one_at_a_time = False
        """Whether handlers take the records, one record of a key at a time."""
        self.is_closed = False
        """Whether the subscription is closed, so that rejected records are not redelivered here."""
        self.given_up: deque[DeadRecord[M]] = deque()
        """Dead letters for the caller to take."""
        self._deliveries_max = bounds.deliveries_max
        self._arrived: tuple[HeldSegment[R, M], RowSpan[R]] | None = None
        """Segment and span with new rows."""
        self.admitted: deque[M] = deque()
        """Records that waited, for handlers; they are in flight and already admitted."""
        self._with_handlers: dict[tuple[HeldSegment[R, M], int], _Rejection | None] = {}
        """Segment and offset of records whose handlers work -> their rejection in the meantime, if any."""
        self._held_back: dict[int, HeldSegment[R, M]] = {}
        """Segments, by id, where a record waits, or a key is held, or did before. Without revoked ones."""

    def assign(self, given: Ownership) -> HeldSegment[R, M]:
        """Hold a segment to read. Requires that no other generation of it is held."""
        assert given.segment not in self.assigned, f"segment {given.segment} is already held"
        assigned = self.assigned[given.segment] = HeldSegment[R, M](given, self.one_at_a_time)
        return assigned

    def revoke(self, assigned: HeldSegment[R, M]) -> None:
        """Stop delivering a segment: records that are not with the user are dropped."""
        assigned.revoke()
        # First the state, then the rest: a record popped meanwhile is seen as revoked there, or counts as in flight
        # here.
        self.is_strict = True
        for record in [*self.ready, *self.admitted]:
            if record.origin.assigned is assigned:
                self._take_back(record)
        self.admitted = deque(record for record in self.admitted if record.origin.assigned is not assigned)
        if self._arrived is not None and self._arrived[0] is assigned:
            self._arrived = None
        self._held_back.pop(assigned.segment, None)

    def release(self, assigned: HeldSegment[R, M]) -> None:
        """Remove a segment that is no longer held."""
        del self.assigned[assigned.segment]
        assigned.watch(False)

    def arrive(self, assigned: HeldSegment[R, M], first: int, count: int, size_bytes: int) -> RowSpan[R]:
        """Add rows that arrived. Requires ``wants_rows``."""
        span = assigned.arrive(first, count, size_bytes)
        self.unacked.arrive(size_bytes)
        self._arrived = assigned, span
        return span

    @property
    def wants_rows(self) -> bool:
        """Whether :meth:`arrive` may be called."""
        return self._arrived is None and self.left != 0 and not self.ready and not self.admitted

    @property
    def has_records(self) -> bool:
        """Whether a record may be delivered now."""
        if self.ready or self.admitted:
            return True
        return self._arrived is not None and self.left != 0 and self.unacked.room(1) > 0

    @property
    def has_waiting(self) -> bool:
        """Whether records or keys wait."""
        return any(not assigned.order.is_idle for assigned in self._held_back.values())

    @property
    def due_s(self) -> float:
        """Earliest time at which a waiting record may be delivered."""
        if self.left == 0:
            return NEVER
        return min((assigned.order.due_s() for assigned in self._held_back.values()), default=NEVER)

    def take_due(self, now: float) -> None:
        """Deliver waiting records that are due. Requires that nothing is ready, or that handlers take records."""
        for assigned in list(self._held_back.values()):
            if self.left == 0 or assigned.order.due_s() > now:
                continue
            taken = assigned.take_due(now, self.left)
            self._use(len(taken))
            if self.one_at_a_time:
                self.admitted += taken
            else:
                self.is_strict = True
                self.ready[:0] = reversed(taken)

    def next_run(self, count_max: int | None = None) -> NewRows[R, M] | None:
        """Return new rows that may be delivered now, as records or as rows. :meth:`deliver` then changes the state."""
        if self._arrived is None:
            return None
        assigned, span = self._arrived
        count = len(span) - span.new_at
        if count_max is not None:
            count = min(count, count_max)
        count = min(count, self.unacked.room(count))
        if self.left is not None:
            count = min(count, self.left)
        return NewRows(assigned, span, span.new_at, count) if count > 0 else None

    def deliver(self, run: NewRows[R, M], records: Sequence[M] = ()) -> bool:
        """Deliver a sequence of rows, and return whether it was, since its segment may have been revoked meanwhile.

        With ``records``, the last one first, they become ``ready``; otherwise the rows go to the user at once.
        """
        if run.assigned.is_revoked:
            return False
        run.span.deliver(run.count)
        if run.span.new_at == len(run.span):
            self._arrived = None
        self.unacked.deliver(run.count)
        self._use(run.count)
        self.ready += records
        return True

    def must_admit(self) -> bool:
        """Whether the next records must be admitted one by one, because others wait."""
        self._held_back = {s: assigned for s, assigned in self._held_back.items() if not assigned.order.is_idle}
        self.is_strict = (
            self.one_at_a_time
            or bool(self._held_back)
            or (self._deliveries_max is not None and any(a.ledger.rejected for a in self.assigned.values()))
        )
        return self.is_strict

    def admit(self, record: M) -> bool:
        """Whether a ready record still goes to the user. If not, its state is updated."""
        assigned = record.origin.assigned
        if assigned.is_revoked:
            self._take_back(record)
            return False
        if not assigned.order.offer(record.key, record.offset):
            assigned.keep(record)
            self._hold_back(assigned)
            self._use(-1)
            return False
        if self.one_at_a_time:
            self._hold_back(assigned)
        if self._deliveries_max is not None:
            rejected = assigned.ledger.rejected.get(record.offset, 0)
            if rejected >= self._deliveries_max:
                self._use(-1)
                self._give_up(assigned, record, f"delivered {rejected} times and not acknowledged")
                return False
        return True

    def take_neighbors(self) -> list[M]:
        """Take ready records of one frame with consecutive offsets."""
        taken: list[M] = []
        while self.ready:
            record = self.ready[-1]
            if taken and (record.origin is not taken[0].origin or record.offset != taken[-1].offset + 1):
                break
            self.ready.pop()
            if not self.is_strict or self.admit(record):
                taken.append(record)
            elif taken:
                break
        return taken

    def take_for_handler(self, now: float) -> M | None:
        """Take the next record whose key is free; :meth:`handler_ended` follows."""
        self.take_due(now)
        record = self.admitted.popleft() if self.admitted else self._next_admitted()
        if record is not None:
            self._with_handlers[record.origin.assigned, record.offset] = None
        return record

    def _next_admitted(self) -> M | None:
        while self.ready:
            record = self.ready.pop()
            if self.admit(record):
                return record
        return None

    def ack(self, segment: int, offsets: Offsets) -> HeldSegment[R, M] | None:
        """Acknowledge delivered rows, and return their segment; None if it is no longer held."""
        assigned = self.assigned.get(segment)
        if assigned is not None:
            assigned.ack(offsets)
        return assigned

    def in_flight_among(self, segment: int, offsets: Offsets) -> Iterable[tuple[RowSpan[R], list[int]]]:
        """Return those of these rows that are in flight: by span, ascending."""
        assigned = self.assigned.get(segment)
        return () if assigned is None else assigned.ledger.in_flight_among(offsets)

    def reject(self, record: M, due_s: float, reason: str) -> None:
        """Reject a record: if it is in flight, it is redelivered at ``due_s``."""
        origin = record.origin
        if origin.span.state(record.offset) != IN_FLIGHT:
            return
        assigned = origin.assigned
        assigned.ledger.reject(record.offset)
        origin.span.put(record.offset, WAITING)
        rejection = _Rejection(due_s, reason)
        if (assigned, record.offset) in self._with_handlers:
            self._with_handlers[assigned, record.offset] = rejection
        else:
            self._bring_back(record, rejection)

    def handler_ended(self, record: M) -> None:
        """Record that a record's handler ended: the record is acknowledged, unless it was rejected."""
        origin = record.origin
        rejection = self._with_handlers.pop((origin.assigned, record.offset))
        state = origin.span.state(record.offset)
        if state == IN_FLIGHT:
            origin.span.put(record.offset, ACKED)
        if state in (IN_FLIGHT, ACKED):
            origin.assigned.order.settle(record.key)
        elif rejection is not None:
            self._bring_back(record, rejection)

    def dead_letter_stored(self, record: M) -> None:
        """Acknowledge a dead letter that is in the dead-letter topic."""
        record.origin.assigned.dead_letter_stored(record)

    def hand_to_handlers(self, one_at_a_time: bool, now: float) -> None:
        """Switch to delivery by handlers, or back."""
        self.one_at_a_time = one_at_a_time
        self.is_strict = True
        while self.admitted:
            record = self.admitted.popleft()
            self._use(-1)
            record.origin.assigned.bring_back(record, now)
        for assigned in self.assigned.values():
            assigned.order.one_at_a_time = one_at_a_time

    def close(self) -> None:
        """Close the subscription: records rejected from now on are not redelivered here."""
        self.is_closed = True

    def _bring_back(self, record: M, rejection: _Rejection) -> None:
        assigned = record.origin.assigned
        if assigned.is_revoked or self.is_closed:
            return
        if self._deliveries_max is not None and assigned.ledger.rejected[record.offset] >= self._deliveries_max:
            self._give_up(assigned, record, rejection.reason)
        else:
            assigned.bring_back(record, rejection.due_s)
            self._hold_back(assigned)

    def _give_up(self, assigned: HeldSegment[R, M], record: M, reason: str) -> None:
        assigned.give_up(record)
        self._hold_back(assigned)
        self.given_up.append(DeadRecord(record, assigned.ledger.rejected[record.offset], reason))

    def _hold_back(self, assigned: HeldSegment[R, M]) -> None:
        self._held_back[assigned.segment] = assigned
        self.is_strict = True

    def _take_back(self, record: M) -> None:
        """Return a record of a revoked segment that did not reach the user."""
        if record.origin.span.state(record.offset) == IN_FLIGHT:
            record.origin.span.put(record.offset, WAITING)
            self._use(-1)

    def _use(self, count: int) -> None:
        if self.left is not None:
            self.left -= count
