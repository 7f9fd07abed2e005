"""One segment that a member of a group holds: what arrived of it, what waits, and how far it is dealt with."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from seaweedmq.core.member.acks import ACKED, GIVEN_UP, OUT, WAITING, Ledger, Offsets, RowSpan
from seaweedmq.core.member.redelivery import NEVER, KeyOrder
from seaweedmq.model.groups import DELIVERIES_KEPT_MAX, Ownership, Position
from seaweedmq.model.subscribe import Start, StartKind

R = TypeVar("R")
"""The rows of a frame, as the shell holds them."""
M = TypeVar("M", bound="Record")
"""A record, as the shell made it of a row."""


class AckSource(Protocol):
    """Where a record is kept: shared by the records of one frame."""

    @property
    def assigned(self) -> "HeldSegment[Any, Any]": ...

    @property
    def span(self) -> RowSpan[Any]: ...


class Record(Protocol):
    """A row that somebody looks at."""

    @property
    def origin(self) -> AckSource: ...

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...


class HeldSegment(Generic[R, M]):
    """From its assignment to its release. In which states that is: see ``core.member.holdings``."""

    def __init__(self, given: Ownership, one_at_a_time: bool) -> None:
        """``one_at_a_time``: as of :class:`KeyOrder`."""
        self.segment = given.segment
        self.generation = given.generation
        self.start: Start = given.start
        self.ledger: Ledger[R] = Ledger(given.deliveries)
        self.order = KeyOrder(one_at_a_time)
        self.is_read = False
        """Everything there was has arrived."""
        self.is_revoked = False
        """To be released as soon as nothing of it is out."""
        self.is_refused = False
        """The coordinator took no commit of it: it belongs to another generation."""
        self.is_watched = False
        """Acknowledgements are to be reported."""
        self._crashes = given.crashes
        self._waiting: dict[int, M] = {}
        """Records that wait in ``order``, by offset."""
        if given.start.kind is StartKind.OFFSET:
            self._count_crashes(given.start.value)

    def _count_crashes(self, first_offset: int) -> None:
        """Owners that were lost may have been lost to the first record."""
        if self._crashes:
            self.ledger.refused[first_offset] = self.ledger.refused.get(first_offset, 0) + self._crashes
            self._crashes = 0

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether it is known where reading begins."""
        return self.ledger.fetched_to is not None

    @property
    def is_live(self) -> bool:
        """Whether its position may change without further notice."""
        return not self.has_begun or self.ledger.has_spans

    @property
    def is_finished(self) -> bool:
        """Everything there was is dealt with."""
        return self.is_read and self.ledger.position() == self.ledger.fetched_to

    def begin_at(self, offset: int) -> None:
        """The broker said where reading begins; rows may have said so before."""
        if self.ledger.fetched_to is None:
            self.ledger.fetched_to = offset

    def arrive(self, first: int, count: int, size_bytes: int) -> RowSpan[R]:
        """Rows arrived; they lie behind all others."""
        self._count_crashes(first)
        return self.ledger.arrive(first, count, size_bytes)

    def end_at(self, offset: int) -> None:
        """Nothing more will arrive."""
        self.is_read = True
        self.ledger.fetched_to = max(self.ledger.fetched_to or 0, offset)

    def position(self) -> Position | None:
        """What to commit; None while nobody knows where reading begins."""
        offset = self.ledger.position()
        if offset is None:
            return None
        deliveries = self.ledger.deliveries(DELIVERIES_KEPT_MAX)
        return Position(segment=self.segment, generation=self.generation, offset=offset, deliveries=deliveries)

    # --- records that wait ------------------------------------------------------------------------------------------

    def bring_back(self, record: M, due_s: float) -> None:
        """A record is to go out again at ``due_s``; later ones of its key wait for it."""
        self.keep(record)
        self.order.refuse(record.key, record.offset, due_s)

    def keep(self, record: M) -> None:
        """A record waits in ``order``."""
        record.origin.span.put(record.offset, WAITING)
        self._waiting[record.offset] = record

    def take_due(self, now_s: float, count_max: int | None) -> Sequence[M]:
        """Records that waited go out, ascending: at most so many; the others wait on."""
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
            record.origin.span.put(record.offset, OUT)
        return taken

    def give_up(self, record: M) -> None:
        """A record goes to the dead-letter topic; later ones of its key wait until it is there."""
        record.origin.span.put(record.offset, GIVEN_UP)
        self.order.refuse(record.key, record.offset, NEVER)

    def letter_kept(self, record: M) -> None:
        """It is there."""
        record.origin.span.put(record.offset, ACKED)
        if not self.is_revoked:
            self.order.drop(record.key, record.offset)

    def watch(self, is_watched: bool) -> None:
        """From here on acknowledgements are to be reported, or need not be any more."""
        self.is_watched = is_watched

    def refuse_commits(self) -> None:
        """The coordinator took no commit of it: none is tried again."""
        self.is_refused = True

    def revoke(self) -> None:
        """Nothing more of it goes out."""
        self.is_revoked = True
        self.order = KeyOrder(self.order.one_at_a_time)
        self._waiting.clear()

    def ack(self, offsets: Offsets) -> None:
        """Acknowledge rows that were handed out."""
        self.ledger.ack(offsets)
