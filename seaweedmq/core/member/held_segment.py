"""A segment that a member of a group holds: its rows, its waiting records, and its position."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from seaweedmq.core.member.acks import ACKED, DEAD_LETTER, IN_FLIGHT, WAITING, Ledger, Offsets, RowSpan
from seaweedmq.core.member.redelivery import NEVER, KeyOrder
from seaweedmq.model.messages.groups import DELIVERIES_KEPT_MAX, Ownership, Position
from seaweedmq.model.messages.subscribe import Start, StartKind

R = TypeVar("R")
"""The rows of a frame, in the caller's representation."""
M = TypeVar("M", bound="Record")
"""A record that the caller made from a row."""


class AckSource(Protocol):
    """The origin of a record, shared by the records of one frame."""

    @property
    def assigned(self) -> "HeldSegment[Any, Any]":
        """The segment that holds the record."""

    @property
    def span(self) -> RowSpan[Any]:
        """The span with the record's state."""


class Record(Protocol):
    """A row that was made into a record."""

    @property
    def origin(self) -> AckSource:
        """Segment and span of the record."""

    @property
    def offset(self) -> int:
        """Offset of the record in its segment."""

    @property
    def key(self) -> bytes | None:
        """Key of the record, None if it has none."""


class HeldSegment(Generic[R, M]):
    """A segment from its assignment to its release. See ``core.member.holdings`` for the states."""

    def __init__(self, given: Ownership, one_at_a_time: bool) -> None:
        """Hold a segment; ``one_at_a_time`` as in :class:`KeyOrder`."""
        self.segment = given.segment
        self.generation = given.generation
        self.start: Start = given.start
        self.ledger: Ledger[R] = Ledger(given.deliveries)
        self.order = KeyOrder(one_at_a_time)
        self.is_read = False
        """Whether all rows have arrived."""
        self.is_revoked = False
        """Whether the segment is to be released as soon as none of its records is in flight."""
        self.is_refused = False
        """Whether the coordinator rejected a commit of it, since it belongs to another generation."""
        self.is_watched = False
        """Whether acknowledgements must be reported."""
        self._crashes = given.crashes
        self._waiting: dict[int, M] = {}
        """Records that wait in ``order``, by offset."""
        if given.start.kind is StartKind.OFFSET:
            self._count_crashes(given.start.value)

    def _count_crashes(self, first_offset: int) -> None:
        """Charge losses of earlier owners to the first record, which may have caused them."""
        if self._crashes:
            self.ledger.rejected[first_offset] = self.ledger.rejected.get(first_offset, 0) + self._crashes
            self._crashes = 0

    @property
    def has_begun(self) -> bool:
        """Whether the first offset is known."""
        return self.ledger.fetched_to is not None

    @property
    def is_live(self) -> bool:
        """Whether its position may change without further notice."""
        return not self.has_begun or self.ledger.has_spans

    @property
    def is_finished(self) -> bool:
        """Whether all rows have arrived and are acknowledged."""
        return self.is_read and self.ledger.position() == self.ledger.fetched_to

    def begin_at(self, offset: int) -> None:
        """Set the first offset that the broker reported, unless rows have arrived before."""
        if self.ledger.fetched_to is None:
            self.ledger.fetched_to = offset

    def arrive(self, first: int, count: int, size_bytes: int) -> RowSpan[R]:
        """Add rows that arrived, after all others."""
        self._count_crashes(first)
        return self.ledger.arrive(first, count, size_bytes)

    def end_at(self, offset: int) -> None:
        """Record that nothing more arrives, from ``offset`` on."""
        self.is_read = True
        self.ledger.fetched_to = max(self.ledger.fetched_to or 0, offset)

    def position(self) -> Position | None:
        """Return the position to commit; None while the first offset is unknown."""
        offset = self.ledger.position()
        if offset is None:
            return None
        deliveries = self.ledger.deliveries(DELIVERIES_KEPT_MAX)
        return Position(segment=self.segment, generation=self.generation, offset=offset, deliveries=deliveries)

    def bring_back(self, record: M, due_s: float) -> None:
        """Queue a record for redelivery at ``due_s``; later ones of its key wait for it."""
        self.keep(record)
        self.order.reject(record.key, record.offset, due_s)

    def keep(self, record: M) -> None:
        """Hold a record that waits in ``order``."""
        record.origin.span.put(record.offset, WAITING)
        self._waiting[record.offset] = record

    def take_due(self, now_s: float, count_max: int | None) -> Sequence[M]:
        """Deliver waiting records that are due, ascending, at most ``count_max``; the others keep waiting."""
        due: list[M] = []
        for offset in self.order.take_due(now_s):
            record = self._waiting.pop(offset)
            if record.origin.span.state(offset) == WAITING:
                due.append(record)
            elif self.order.one_at_a_time:  # acknowledged while it waited
                self.order.settle(record.key)
        taken = due[:count_max]
        for record in due[len(taken) :]:
            self.bring_back(record, now_s)
        for record in taken:
            record.origin.span.put(record.offset, IN_FLIGHT)
        return taken

    def give_up(self, record: M) -> None:
        """Make a record a dead letter; later ones of its key wait until the dead-letter topic has it."""
        record.origin.span.put(record.offset, DEAD_LETTER)
        self.order.reject(record.key, record.offset, NEVER)

    def dead_letter_stored(self, record: M) -> None:
        """Acknowledge a dead letter that the dead-letter topic has."""
        record.origin.span.put(record.offset, ACKED)
        if not self.is_revoked:
            self.order.drop(record.key, record.offset)

    def watch(self, is_watched: bool) -> None:
        """Set whether acknowledgements must be reported from now on."""
        self.is_watched = is_watched

    def refuse_commits(self) -> None:
        """Stop committing, since the coordinator rejected a commit of the segment."""
        self.is_refused = True

    def revoke(self) -> None:
        """Deliver nothing more of the segment."""
        self.is_revoked = True
        self.order = KeyOrder(self.order.one_at_a_time)
        self._waiting.clear()

    def ack(self, offsets: Offsets) -> None:
        """Acknowledge rows that were delivered."""
        self.ledger.ack(offsets)
