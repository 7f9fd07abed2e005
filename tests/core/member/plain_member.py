"""A member of a group without threads, streams or Arrow: the minimum that the machine needs."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from seaweedmq.core.member.acks import ACKED, RowSpan
from seaweedmq.core.member.held_segment import HeldSegment
from seaweedmq.core.member.holdings import Holdings, Instructions
from seaweedmq.core.member.record_dispatch import Bounds, DeadRecord, NewRows, RecordDispatch
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted, Ownership, Position
from seaweedmq.model.messages.subscribe import EARLIEST, Start, StartKind

BYTES_PER_ROW = 10
ROWS_AT_ONCE = 4
Keys: TypeAlias = tuple[bytes | None, ...]


@dataclass(frozen=True, eq=False)
class Origin:
    """Acknowledgement state of the records of one frame."""

    assigned: "HeldSegment[Keys, Record]"
    span: RowSpan[Keys]


class Record(NamedTuple):
    """A row as a user sees it."""

    origin: Origin
    offset: int
    key: bytes | None


def ownership(
    segment: int, generation: int, offset: int = 0, deliveries: Mapping[int, int] | None = None, crashes: int = 0
) -> Ownership:
    """A segment to be read from an offset on; 0 is its beginning."""
    start = Start(StartKind.OFFSET, offset) if offset else EARLIEST
    return Ownership(segment=segment, generation=generation, start=start, deliveries=deliveries or {}, crashes=crashes)


class PlainMember:
    """Rows arrive by segment, wait in front of the machine until it wants them, and are taken by one user."""

    def __init__(self, bounds: Bounds) -> None:
        self.now = 0.0
        self.dispatch: RecordDispatch[Keys, Record] = RecordDispatch(bounds)
        self.holdings = Holdings(self.dispatch)
        self.origins: dict[RowSpan[Keys], Origin] = {}
        self.arriving: deque[tuple[HeldSegment[Keys, Record], int, Keys]] = deque()
        """First offset and keys of the rows that readers hold."""
        self.given_up: deque[DeadRecord[Record]] = deque()
        """Dead letters that are not stored yet."""

    # --- the coordinator --------------------------------------------------------------------------------------------
    def assign(self, *given: Ownership) -> Instructions[Keys, Record]:
        generation = max((each.generation for each in given), default=0)
        return self._carried_out(self.holdings.assign(GroupAssignment(generation=generation, owned=given)))

    def maintain(self, is_time: bool = True) -> Instructions[Keys, Record]:
        return self._carried_out(self.holdings.maintain(is_time))

    def commit(self) -> tuple[int, tuple[Position, ...]]:
        """Number and positions of the commit to send now; nothing while an answer is pending."""
        commit = self.holdings.commits.next()
        return (0, ()) if commit is None else (commit.number, commit.positions)

    def answer(self, number: int, refused: Mapping[int, str]) -> Instructions[Keys, Record]:
        return self._carried_out(self.holdings.answered(GroupCommitted(number, refused)))

    def _carried_out(self, instructions: Instructions[Keys, Record]) -> Instructions[Keys, Record]:
        self.arriving = deque(each for each in self.arriving if each[0] not in instructions.stop)
        return instructions

    # --- the broker -------------------------------------------------------------------------------------------------
    def read(self, assigned: HeldSegment[Keys, Record], first: int, keys: Keys) -> None:
        """Give a reader rows; those of a segment are contiguous."""
        self.arriving.append((assigned, first, keys))

    def _let_arrive(self) -> None:
        while self.arriving and self.dispatch.wants_rows and not self.dispatch.unacked.check():
            assigned, first, keys = self.arriving.popleft()
            span = self.dispatch.arrive(assigned, first, len(keys), len(keys) * BYTES_PER_ROW)
            span.rows = keys
            self.origins[span] = Origin(assigned, span)

    # --- the user ---------------------------------------------------------------------------------------------------
    def fetch(self) -> bool:
        """Whether there is anything to take."""
        if not self.dispatch.has_records:
            self.dispatch.take_due(self.now)
            self._let_arrive()
        return self.dispatch.has_records

    def fill(self) -> None:
        """Make records of some new rows."""
        if self.dispatch.ready:
            return
        self.dispatch.must_admit()
        run = self.dispatch.next_run(ROWS_AT_ONCE)
        if run is not None:
            self.dispatch.deliver(run, self._records(run)[::-1])

    def _records(self, run: NewRows[Keys, Record]) -> list[Record]:
        keys = run.span.rows
        assert keys is not None
        origin = self.origins[run.span]
        return [Record(origin, run.span.first + at, keys[at]) for at in range(run.at, run.at + run.count)]

    def take(self) -> Record | None:
        """Return the next record, for a user who takes one by one."""
        while self.fetch():
            self.fill()
            while self.dispatch.ready:
                record = self.dispatch.ready.pop()
                if not self.dispatch.is_strict or self._admit(record):
                    return record
        return None

    def take_rows(self) -> list[Record]:
        """Return the next rows, for a user who takes batches."""
        while self.fetch():
            if not self.dispatch.ready and not self.dispatch.must_admit():
                run = self.dispatch.next_run()
                if run is not None and self.dispatch.deliver(run):
                    return self._records(run)
            self.fill()
            taken = self.dispatch.take_neighbors()
            self._collect()
            if taken:
                return taken
        return []

    def take_for_handler(self) -> Record | None:
        """Return the next record whose key is free."""
        while self.fetch():
            record = self.dispatch.take_for_handler(self.now)
            if record is None:
                self.fill()
                record = self.dispatch.take_for_handler(self.now)
            self._collect()
            if record is not None:
                return record
        return None

    def _admit(self, record: Record) -> bool:
        is_admitted = self.dispatch.admit(record)
        self._collect()
        return is_admitted

    def ack(self, record: Record) -> None:
        """Acknowledge as any thread may, without a lock."""
        record.origin.span.put(record.offset, ACKED)

    def reject(self, record: Record, delay_s: float, reason: str = "nack") -> None:
        self.dispatch.reject(record, self.now + delay_s, reason)
        self._collect()

    def handler_ended(self, record: Record) -> None:
        self.dispatch.handler_ended(record)
        self._collect()

    def _collect(self) -> None:
        self.given_up += self.dispatch.given_up
        self.dispatch.given_up.clear()

    def keep_letter(self) -> DeadRecord[Record]:
        """Confirm that the oldest dead letter is in its topic."""
        given_up = self.given_up.popleft()
        self.dispatch.dead_letter_stored(given_up.record)
        return given_up
