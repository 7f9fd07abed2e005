"""What the messages of one frame share that a member of a group handed out: where they are acknowledged and refused."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from seaweedmq.client.subscribe.messages import FetchedRows, Message, MessageRun, Origin
from seaweedmq.core.member.acks import ACKED, RowSpan
from seaweedmq.core.member.held_segment import HeldSegment

AssignedSegment: TypeAlias = HeldSegment[FetchedRows, Message]


class OriginOwner(Protocol):
    """The dispatcher, as the records it handed out see it. From any thread."""

    def on_acked(self) -> None:
        """Something that is watched may be dealt with now."""

    def refuse(self, messages: Sequence[Message], delay_s: float, reason: str) -> None:
        """Those that are out go out again, all at one time."""


class GroupOrigin(Origin):
    """A ``Place`` of the core, too. Acknowledging takes no lock: it sets one byte, and looks whether somebody waits for
    that.
    """

    __slots__ = ("_first", "_owner", "_states", "assigned", "span")

    def __init__(
        self, origin: Origin, assigned: AssignedSegment, span: RowSpan[FetchedRows], owner: OriginOwner
    ) -> None:
        super().__init__(origin.topic, assigned.segment, origin.partition)
        self.assigned = assigned
        self.span = span
        self._first = span.first
        self._states = span.states
        self._owner = owner

    def ack(self, offset: int) -> None:
        self._states[offset - self._first] = ACKED
        if self.assigned.is_watched:
            self._owner.on_acked()

    def nack(self, message: Message, delay_s: float) -> None:
        self._owner.refuse([message], delay_s, "nack")

    def deliveries(self, offset: int) -> int:
        return self.assigned.ledger.refused.get(offset, 0) + 1


def messages_at(rows: FetchedRows, offsets: list[int]) -> list[Message]:
    """Some rows of a frame as messages. ``offsets`` ascend and are not empty."""
    wanted = set(offsets)
    part = rows.slice(offsets[0] - rows.first_offset, offsets[-1] + 1 - offsets[0])
    return [message for message in MessageRun(part) if message.offset in wanted]


def row_of(message: Message) -> FetchedRows:
    """A record as it arrived. Requires that it was handed out and is not acknowledged."""
    rows: FetchedRows | None = message.origin.span.rows
    if rows is None:
        raise AssertionError("a record that is not acknowledged has no rows")
    return rows.slice(message.offset - rows.first_offset, 1)
