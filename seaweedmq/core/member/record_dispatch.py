"""What a member of a group hands out, and what becomes of it, as a pure state machine.

Events are methods, for some come once a record; they change the state at once and return what the shell is to do, or
keep it in ``given_up`` until the shell takes it. A record is in one state, which the byte of its row says
(``core.member.acks``):

| record | event | then |
|---|---|---|
| | arrived | new |
| new | handed out, as one of a run of rows | out |
| out, not with the user yet | admitted | out; waiting if its key waits; given up if it was delivered too often |
| out | acknowledged | acknowledged |
| out | refused; its handler failed | waiting; given up if it was delivered too often |
| out | its handler returned | acknowledged |
| waiting | its time has come, and nothing waits in front of it in its key | out |
| waiting, given up | acknowledged after all | acknowledged |
| given up | it is in the dead-letter topic | acknowledged |
| new, waiting, or out and not with the user yet | its segment is revoked | waiting, for the segment's next owner |

A record that is refused while its handler still works waits for the handler to end before anything else.

Invariants: a record is with one user at a time; while a record of a key waits, no later one of that key is admitted;
nothing of a revoked segment goes out; what went out, each time it did, and ``left`` are the limit together.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from seaweedmq.core.member.acks import ACKED, OUT, WAITING, Offsets, RowSpan
from seaweedmq.core.member.held_segment import HeldSegment, M, R
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.core.member.unacked import Unacked
from seaweedmq.model.groups import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a member hands out at most."""

    limit: int | None = None
    """Records in all."""
    deliveries_max: int | None = None
    """Of one record; then it is given up."""
    unacked_max: int
    """Records that are out and not acknowledged."""
    unacked_bytes_max: int
    """Of the frames that are held for those."""


@dataclass(frozen=True, slots=True)
class NewRows(Generic[R, M]):
    """Neighbouring new rows of one frame that may go out."""

    assigned: HeldSegment[R, M]
    span: RowSpan[R]
    at: int
    count: int


@dataclass(frozen=True, slots=True)
class GivenUp(Generic[M]):
    """A record is to go to the dead-letter topic; then comes :meth:`RecordDispatch.letter_kept`."""

    record: M
    deliveries: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Refusal:
    due_s: float
    reason: str


class RecordDispatch(Generic[R, M]):
    """All that a member holds. ``now`` is in seconds on a steady clock.

    One thread takes records at a time. Without a lock it may pop from ``ready``, and any thread may acknowledge single
    records; all else needs the shell's lock.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.assigned: dict[int, HeldSegment[R, M]] = {}
        """By segment."""
        self.unacked = Unacked(self.assigned, bounds.unacked_max, bounds.unacked_bytes_max)
        self.left = bounds.limit
        """Records that may still go out; None: any number."""
        self.ready: list[M] = []
        """Records that are out and not with the user yet, the next one last. One list for good."""
        self.is_strict = False
        """Records in ``ready`` are to be admitted one by one."""
        self.one_at_a_time = False
        """Handlers take, one record of a key at a time."""
        self.is_closed = False
        """What is refused does not come again here."""
        self.given_up: deque[GivenUp[M]] = deque()
        """For the shell to take."""
        self._deliveries_max = bounds.deliveries_max
        self._arrived: tuple[HeldSegment[R, M], RowSpan[R]] | None = None
        """Has new rows."""
        self.admitted: deque[M] = deque()
        """Records that waited, for handlers; they are out, and need not be looked at again."""
        self._with_handlers: dict[tuple[HeldSegment[R, M], int], _Refusal | None] = {}
        """Segment and offset of records whose handlers work -> how they were refused meanwhile."""
        self._held_back: dict[int, HeldSegment[R, M]] = {}
        """Where a record waits, or a key is held, or did. By segment; nothing that is revoked."""

    # --- segments ---------------------------------------------------------------------------------------------------

    def assign(self, given: Ownership) -> HeldSegment[R, M]:
        """A segment is to be read. Requires that no other generation of it is held."""
        if given.segment in self.assigned:
            raise AssertionError(f"segment {given.segment} is held already")
        assigned = self.assigned[given.segment] = HeldSegment[R, M](given, self.one_at_a_time)
        return assigned

    def revoke(self, assigned: HeldSegment[R, M]) -> None:
        """Nothing of it goes out any more: what is not with the user is forgotten."""
        assigned.revoke()
        # First this, then the rest: a record popped meanwhile is seen as revoked there, or counts as out here.
        self.is_strict = True
        for record in [*self.ready, *self.admitted]:
            if record.origin.assigned is assigned:
                self._take_back(record)
        self.admitted = deque(record for record in self.admitted if record.origin.assigned is not assigned)
        if self._arrived is not None and self._arrived[0] is assigned:
            self._arrived = None
        self._held_back.pop(assigned.segment, None)

    def release(self, assigned: HeldSegment[R, M]) -> None:
        """It is held no more."""
        del self.assigned[assigned.segment]
        assigned.watch(False)

    def arrive(self, assigned: HeldSegment[R, M], first: int, count: int, size_bytes: int) -> RowSpan[R]:
        """Rows arrived. Requires ``wants_rows``."""
        span = assigned.arrive(first, count, size_bytes)
        self.unacked.arrive(size_bytes)
        self._arrived = assigned, span
        return span

    # --- what may go out --------------------------------------------------------------------------------------------

    @property
    def wants_rows(self) -> bool:
        """Whether :meth:`arrive` may come."""
        return self._arrived is None and self.left != 0 and not self.ready and not self.admitted

    @property
    def has_records(self) -> bool:
        """Whether something may go out now."""
        if self.ready or self.admitted:
            return True
        return self._arrived is not None and self.left != 0 and self.unacked.room(1) > 0

    @property
    def holds_back(self) -> bool:
        """Whether records wait, or keys do."""
        return any(not assigned.order.is_idle for assigned in self._held_back.values())

    @property
    def due_s(self) -> float:
        """When a record that waits may go out at the earliest."""
        if self.left == 0:
            return NEVER
        return min((assigned.order.due_s() for assigned in self._held_back.values()), default=NEVER)

    # --- going out --------------------------------------------------------------------------------------------------

    def take_due(self, now: float) -> None:
        """Records that waited long enough go out. Requires that nothing is ready, or that handlers take."""
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
        """New rows that may go out now, as whole records or as rows. Nothing changes before :meth:`hand_out`."""
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

    def hand_out(self, run: NewRows[R, M], records: Sequence[M] = ()) -> bool:
        """A run goes out, unless its segment was revoked meanwhile: to be ``ready``, last record first, if there are
        ``records``, else to the user at once."""
        if run.assigned.is_revoked:
            return False
        run.span.hand_out(run.count)
        if run.span.new_at == len(run.span):
            self._arrived = None
        self.unacked.hand_out(run.count)
        self._use(run.count)
        self.ready += records
        return True

    def must_admit(self) -> bool:
        """Whether records that go out next are to be admitted one by one, for something waits."""
        self._held_back = {s: assigned for s, assigned in self._held_back.items() if not assigned.order.is_idle}
        self.is_strict = (
            self.one_at_a_time
            or bool(self._held_back)
            or (self._deliveries_max is not None and any(a.ledger.refused for a in self.assigned.values()))
        )
        return self.is_strict

    def admit(self, record: M) -> bool:
        """Whether a record that was ready goes to the user after all. If not, it is seen to."""
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
            refused = assigned.ledger.refused.get(record.offset, 0)
            if refused >= self._deliveries_max:
                self._use(-1)
                self._give_up(assigned, record, f"delivered {refused} times and not acknowledged")
                return False
        return True

    def take_neighbours(self) -> list[M]:
        """Records that are ready, of one frame and with neighbouring offsets."""
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
        """The next record whose key is free; :meth:`handler_ended` will follow."""
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

    # --- what becomes of records ------------------------------------------------------------------------------------

    def ack(self, segment: int, offsets: Offsets) -> HeldSegment[R, M] | None:
        """Acknowledge rows that were handed out, and say whose they are; None: nobody's any more."""
        assigned = self.assigned.get(segment)
        if assigned is not None:
            assigned.ack(offsets)
        return assigned

    def out_among(self, segment: int, offsets: Offsets) -> Iterable[tuple[RowSpan[R], list[int]]]:
        """Which of these rows are out: by span, ascending."""
        assigned = self.assigned.get(segment)
        return () if assigned is None else assigned.ledger.out_among(offsets)

    def refuse(self, record: M, due_s: float, reason: str) -> None:
        """A record is not dealt with: if it is out, it goes out again at ``due_s``."""
        place = record.origin
        if place.span.state(record.offset) != OUT:
            return
        assigned = place.assigned
        assigned.ledger.refuse(record.offset)
        place.span.put(record.offset, WAITING)
        refusal = _Refusal(due_s, reason)
        if (assigned, record.offset) in self._with_handlers:
            self._with_handlers[assigned, record.offset] = refusal
        else:
            self._bring_back(record, refusal)

    def handler_ended(self, record: M) -> None:
        """A record's handler is done: with the record, too, unless it was refused."""
        place = record.origin
        refusal = self._with_handlers.pop((place.assigned, record.offset))
        state = place.span.state(record.offset)
        if state == OUT:
            place.span.put(record.offset, ACKED)
        if state in (OUT, ACKED):
            place.assigned.order.settle(record.key)
        elif refusal is not None:
            self._bring_back(record, refusal)

    def letter_kept(self, record: M) -> None:
        """A record that was given up is in the dead-letter topic."""
        record.origin.assigned.letter_kept(record)

    def hand_to_handlers(self, one_at_a_time: bool, now: float) -> None:
        """From here on handlers take, or they do no more."""
        self.one_at_a_time = one_at_a_time
        self.is_strict = True
        while self.admitted:
            record = self.admitted.popleft()
            self._use(-1)
            record.origin.assigned.bring_back(record, now)
        for assigned in self.assigned.values():
            assigned.order.one_at_a_time = one_at_a_time

    def close(self) -> None:
        """What is refused from here on does not come again here."""
        self.is_closed = True

    # --- inside -----------------------------------------------------------------------------------------------------

    def _bring_back(self, record: M, refusal: _Refusal) -> None:
        assigned = record.origin.assigned
        if assigned.is_revoked or self.is_closed:
            return
        if self._deliveries_max is not None and assigned.ledger.refused[record.offset] >= self._deliveries_max:
            self._give_up(assigned, record, refusal.reason)
        else:
            assigned.bring_back(record, refusal.due_s)
            self._hold_back(assigned)

    def _give_up(self, assigned: HeldSegment[R, M], record: M, reason: str) -> None:
        assigned.give_up(record)
        self._hold_back(assigned)
        self.given_up.append(GivenUp(record, assigned.ledger.refused[record.offset], reason))

    def _hold_back(self, assigned: HeldSegment[R, M]) -> None:
        self._held_back[assigned.segment] = assigned
        self.is_strict = True

    def _take_back(self, record: M) -> None:
        """A record of a revoked segment did not get to the user."""
        if record.origin.span.state(record.offset) == OUT:
            record.origin.span.put(record.offset, WAITING)
            self._use(-1)

    def _use(self, count: int) -> None:
        if self.left is not None:
            self.left -= count
