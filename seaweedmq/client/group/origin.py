"""The shared origin of delivered messages of one frame, through which a group member acknowledges and rejects them."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from seaweedmq.client.subscribe.messages import FetchedRows, Message, MessageRun, Origin
from seaweedmq.core.member.acks import ACKED, RowSpan
from seaweedmq.core.member.held_segment import HeldSegment

AssignedSegment: TypeAlias = HeldSegment[FetchedRows, Message]


class OriginOwner(Protocol):
    """The dispatcher, as its delivered records see it. Any thread may call it."""

    def on_acked(self) -> None:
        """Handle an acknowledgement in a watched segment."""

    def reject(self, messages: Sequence[Message], delay_s: float, reason: str) -> None:
        """Redeliver messages that are in flight, all at the same time."""


class GroupOrigin(Origin):
    """The origin of a group's messages, also an ``AckSource`` of the core.

    An acknowledgement takes no lock: it sets one byte and notifies the dispatcher if the segment is watched.
    """

    __slots__ = ("_first", "_owner", "_states", "assigned", "span")

    def __init__(
        self, origin: Origin, assigned: AssignedSegment, span: RowSpan[FetchedRows], owner: OriginOwner
    ) -> None:
        super().__init__(origin.topic, assigned.segment, origin.partition, origin.payloads)
        self.assigned = assigned
        self.span = span
        self._first = span.first
        self._states = span.states
        self._owner = owner

    def ack(self, offset: int) -> None:
        """Acknowledge a record."""
        self._states[offset - self._first] = ACKED
        if self.assigned.is_watched:
            self._owner.on_acked()

    def nack(self, message: Message, delay_s: float) -> None:
        """Redeliver a record after ``delay_s`` seconds."""
        self._owner.reject([message], delay_s, "nack")

    def deliveries(self, offset: int) -> int:
        """Return the number of deliveries of a record, including the current one."""
        return self.assigned.ledger.rejected.get(offset, 0) + 1


def messages_at(rows: FetchedRows, offsets: list[int]) -> list[Message]:
    """Return some rows of a frame as messages. ``offsets`` ascend and are not empty."""
    wanted = set(offsets)
    part = rows.slice(offsets[0] - rows.first_offset, offsets[-1] + 1 - offsets[0])
    return [message for message in MessageRun(part) if message.offset in wanted]


def row_of(message: Message) -> FetchedRows:
    """Return a record as it arrived. Requires that it was delivered and is not acknowledged."""
    rows: FetchedRows | None = message.origin.span.rows
    assert rows is not None, "a record that is not acknowledged has no rows"
    return rows.slice(message.offset - rows.first_offset, 1)
