"""Transcripts of a group member and its records: each line is an event and its effects.

A record is named by its key and its offset, as ``a7``, in segment 0; in another one as ``3/a7``. ``-7`` has no key.
"""

from seaweedmq.core.member.holdings import Instructions
from seaweedmq.core.member.record_dispatch import Bounds
from seaweedmq.model.messages.groups import Ownership
from tests.core.member.plain_member import Keys, PlainMember, Record, ownership


class Transcript:
    """A member that was assigned segment 0, unless a test says otherwise. Each line is the effect of one call."""

    def __init__(
        self,
        *given: Ownership,
        limit: int | None = None,
        deliveries_max: int | None = None,
        unacked_max: int = 1_000,
        unacked_bytes_max: int = 1_000_000,
    ) -> None:
        self.member = PlainMember(
            Bounds(
                limit=limit, deliveries_max=deliveries_max, unacked_max=unacked_max, unacked_bytes_max=unacked_bytes_max
            )
        )
        self.ends: dict[int, int] = {}
        self.taken: dict[str, Record] = {}
        self.number = 0
        self.is_assigned(*(given or (ownership(0, 1),)))

    # --- segments ---------------------------------------------------------------------------------------------------
    def is_assigned(self, *given: Ownership) -> str:
        """Assign these segments and no others."""
        return self._told(self.member.assign(*given))

    def arrives(self, keys: str, segment: int = 0) -> None:
        """Deliver rows by their keys, such as ``"a b - a"``, after earlier ones, or where reading begins."""
        assigned = self.member.dispatch.assigned[segment]
        first = self.ends.get(segment, assigned.start.value or 0)
        names = keys.split()
        self.ends[segment] = first + len(names)
        self.member.read(assigned, first, tuple(None if name == "-" else name.encode() for name in names))

    def ends_there(self, segment: int = 0) -> None:
        """End the segment: nothing more arrives."""
        self.member.dispatch.assigned[segment].end_at(self.ends[segment])

    def looks_after(self, is_time: bool = True) -> str:
        """Let the commit interval pass, or run what waits only for other events."""
        return self._told(self.member.maintain(is_time))

    def commits(self) -> str:
        """Send the next commit to the coordinator."""
        number, positions = self.member.commit()
        self.number = number or self.number
        told = []
        for position in positions:
            seen = "".join(f" seen {at}x{count}" for at, count in position.deliveries.items())
            told.append(f"{position.segment}@{position.generation} to {position.offset}{seen}")
        return ", ".join(told) or "nothing"

    def is_answered(self, *refused: int) -> str:
        """Let the coordinator store the commit, except for these segments."""
        return self._told(self.member.answer(self.number, dict.fromkeys(refused, "not yours")))

    def is_over(self) -> str:
        return self._told(self.member.holdings.end())

    def _told(self, instructions: Instructions[Keys, Record]) -> str:
        told = [f"stop {each.segment}@{each.generation}" for each in instructions.stop]
        told += [f"release {segment}@{generation}" for segment, generation in instructions.release.items()]
        told += [f"begin {each.segment}@{each.generation}" for each in instructions.begin]
        for each in instructions.begin:
            self.ends.pop(each.segment, None)
        return ", ".join(told) or "nothing"

    # --- records ----------------------------------------------------------------------------------------------------
    def takes(self, count: int = 1_000) -> str:
        """Take records one by one, all of them or so many."""
        taken: list[Record] = []
        while len(taken) < count and (record := self.member.take()) is not None:
            taken.append(record)
        return self._names(taken)

    def takes_rows(self) -> str:
        """Take a batch."""
        return self._names(self.member.take_rows())

    def handlers_begin(self) -> None:
        self.member.dispatch.hand_to_handlers(True, self.member.now)

    def handlers_stop(self) -> None:
        self.member.dispatch.hand_to_handlers(False, self.member.now)

    def handlers_take(self, count: int = 1_000) -> str:
        """Free so many handlers."""
        taken: list[Record] = []
        while len(taken) < count and (record := self.member.take_for_handler()) is not None:
            taken.append(record)
        return self._names(taken)

    def acks(self, names: str) -> None:
        for name in names.split():
            self.member.ack(self.taken[name])

    def nacks(self, names: str, delay_s: float = 0.0) -> None:
        for name in names.split():
            self.member.reject(self.taken[name], delay_s)

    def handler_returns(self, name: str) -> None:
        self.member.handler_ended(self.taken[name])

    def handler_raises(self, name: str, delay_s: float = 0.0) -> None:
        self.member.reject(self.taken[name], delay_s, "ValueError: no")
        self.member.handler_ended(self.taken[name])

    def waits(self, seconds: float) -> None:
        self.member.now += seconds

    def gives_up(self) -> str:
        """Records on their way to the dead-letter topic."""
        told = [f"{_name(each.record)} after {each.deliveries}: {each.reason}" for each in self.member.given_up]
        return ", ".join(told) or "nothing"

    def letter_is_kept(self) -> None:
        self.member.keep_letter()

    def _names(self, records: list[Record]) -> str:
        self.taken |= {_name(record): record for record in records}
        return " ".join(map(_name, records)) or "nothing"

    # --- looks ------------------------------------------------------------------------------------------------------
    @property
    def has_in_flight(self) -> str:
        """Names of the taken records that are in flight, as a rejection of their rows finds them."""
        dispatch = self.member.dispatch
        out = {
            (segment, offset)
            for segment in dispatch.assigned
            for _, offsets in dispatch.in_flight_among(segment, range(1_000))
            for offset in offsets
        }
        names = [name for name, record in self.taken.items() if (record.origin.assigned.segment, record.offset) in out]
        return " ".join(sorted(names)) or "nothing"

    @property
    def left(self) -> int | None:
        return self.member.dispatch.left

    @property
    def is_blocked(self) -> bool:
        """Whether rows have to wait for acknowledgements."""
        return self.member.dispatch.unacked.check()


def _name(record: Record) -> str:
    segment = record.origin.assigned.segment
    name = f"{record.key.decode() if record.key else '-'}{record.offset}"
    return name if segment == 0 else f"{segment}/{name}"
