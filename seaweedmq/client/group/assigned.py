"""One segment that a member reads: what arrived of it, what is out, what waits, and how far it is dealt with.

Threads: the event loop's thread and the one that takes records meet here. Whoever touches an ownership holds the
subscriber's lock, except for :meth:`Handed.ack`, which only sets a byte and looks whether somebody waits for it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from seaweedmq.client.subscribe.messages import Arrived, Message, Origin, messages_of
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.core.member.acks import ACKED, KEPT, OUT, Ledger, Offsets, Span
from seaweedmq.core.member.redelivery import NEVER, KeyOrder
from seaweedmq.model.groups import DELIVERIES_KEPT_MAX, Ownership, Position
from seaweedmq.model.subscribe import Start, StartKind


class OwnershipOwner(Protocol):
    """The subscriber, as its ownerships see it."""

    def on_settled(self) -> None:
        """Something that was watched may be dealt with now. From any thread."""

    def on_refused(self, owned: "Owned", message: Message, delay_s: float, reason: str) -> None:
        """The user gave a record back. From any thread, without the lock."""


class Handed(Origin):
    """Shared by the messages of one frame that a group's member handed out."""

    __slots__ = ("first", "flags", "owned", "span")

    def __init__(self, owned: "Owned", span: Span[Arrived]) -> None:
        super().__init__(owned.topic, owned.segment)
        self.owned = owned
        self.span = span
        self.first = span.first
        self.flags = span.flags

    def ack(self, offset: int) -> None:
        self.flags[offset - self.first] = ACKED
        if self.owned.watched:
            self.owned.owner.on_settled()

    def nack(self, message: Message, delay_s: float) -> None:
        self.owned.owner.on_refused(self.owned, message, delay_s, "nack")

    def deliveries(self, offset: int) -> int:
        return self.owned.ledger.refused.get(offset, 0) + 1

    def is_out(self, offset: int) -> bool:
        return self.flags[offset - self.first] == OUT

    def is_acked(self, offset: int) -> bool:
        return self.flags[offset - self.first] == ACKED

    def keep(self, offset: int) -> None:
        """What was about to be handed out, or was, stays here for now."""
        self.flags[offset - self.first] = KEPT


class Owned:
    """One ownership, from its assignment to its release."""

    def __init__(self, owner: OwnershipOwner, topic: str, given: Ownership, one_at_a_time: bool) -> None:
        self.owner = owner
        self.topic = topic
        self.segment = given.segment
        self.generation = given.generation
        self.start: Start = given.start
        self.ledger: Ledger[Arrived] = Ledger(given.deliveries)
        self._crashes = given.crashes
        self.order = KeyOrder(one_at_a_time)
        self.reader: SegmentReader | None = None
        self.is_read = False
        """Everything there was has arrived."""
        self.revoked = False
        """To be released as soon as nothing of it is out."""
        self.is_refused = False
        """The coordinator took no commit of it: it belongs to another generation."""
        self.watched = False
        """Acknowledgements are to be reported."""
        self._waiting: dict[int, Message] = {}
        """Messages that wait in ``order``, by offset."""
        if given.start.kind is StartKind.OFFSET:
            self._count_crashes(given.start.value)

    def _count_crashes(self, first_offset: int) -> None:
        """Owners that were lost may have been lost to the first record."""
        if self._crashes:
            self.ledger.refused[first_offset] = self.ledger.refused.get(first_offset, 0) + self._crashes
            self._crashes = 0

    @property
    def is_live(self) -> bool:
        """Whether its position may change without further notice."""
        return self.ledger.fetched_to is None or self.ledger.has_spans

    @property
    def is_finished(self) -> bool:
        """Everything there was is dealt with."""
        return self.is_read and self.ledger.position() == self.ledger.fetched_to

    def receive(self, arrived: Arrived) -> Arrived:
        """Rows arrived; the same rows, whose messages report here."""
        self._count_crashes(arrived.first_offset)
        span = self.ledger.arrive(arrived.first_offset, len(arrived), arrived.batch.nbytes)
        rows = Arrived(Handed(self, span), arrived.batch, arrived.flags, arrived.first_offset, arrived.timestamp)
        span.rows = rows
        return rows

    def position(self) -> Position | None:
        """What to commit; None while nobody knows where reading begins."""
        if self.ledger.fetched_to is None and self.reader is not None:
            self.ledger.fetched_to = self.reader.begin_offset
        offset = self.ledger.position()
        if offset is None:
            return None
        deliveries = self.ledger.deliveries(DELIVERIES_KEPT_MAX)
        return Position(segment=self.segment, generation=self.generation, offset=offset, deliveries=deliveries)

    def on_end(self) -> None:
        """The reader has nothing more."""
        if self.reader is None:
            raise AssertionError("an ownership without a reader ended")
        self.is_read = True
        self.ledger.fetched_to = max(self.ledger.fetched_to or 0, self.reader.end_offset)

    def park(self, message: Message) -> None:
        """A message waits in ``order``."""
        message[0].keep(message.offset)
        self._waiting[message.offset] = message

    def refuse(self, message: Message, due_s: float) -> None:
        """A message that was out goes out again at ``due_s``. ``NEVER``: its key is held until it is dropped."""
        if due_s < NEVER:
            self.park(message)
        self.order.refuse(message.key, message.offset, due_s)

    def drop(self, message: Message) -> None:
        """A message refused for ever was dealt with in another way."""
        message[0].ack(message.offset)
        if not self.revoked:
            self.order.drop(message.key, message.offset)

    def take_due(self, now_s: float) -> list[Message]:
        """Messages that waited and may go out now, ascending."""
        taken = []
        for offset in self.order.take_due(now_s):
            message = self._waiting.pop(offset)
            if message[0].flags[offset - message[0].first] == KEPT:
                taken.append(message)
            elif self.order.one_at_a_time:  # acknowledged while it waited
                self.order.settle(message.key)
        return taken

    def messages(self, offsets: Sequence[int]) -> list[Message]:
        """Messages of rows that are out; ``offsets`` ascend."""
        found: list[Message] = []
        wanted = set(offsets)
        at = 0
        while at < len(offsets):
            span = self.ledger.find(offsets[at])
            if span is None or span.rows is None:
                at += 1
                continue
            behind = bisect_left(offsets, span.end)
            first = offsets[at]
            rows = span.rows.slice(first - span.first, offsets[behind - 1] + 1 - first)
            found += [message for message in messages_of(rows) if message.offset in wanted]
            at = behind
        return found

    def ack(self, offsets: Offsets) -> None:
        """Acknowledge rows that were handed out."""
        self.ledger.ack(offsets)
        if self.watched:
            self.owner.on_settled()

    def revoke(self) -> None:
        """Nothing more of it goes out."""
        self.revoked = True
        self.order = KeyOrder(self.order.one_at_a_time)
        self._waiting.clear()
