"""What a member of a group hands out: new rows, and records that waited for their time or their key.

Threads: the one that takes (an iterating user's, or the loop's for handlers), the loop's, and any that acknowledges or
refuses. They meet under ``lock``, which is never held while something is decoded or awaited. Only who takes changes
``_chunk``.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from seaweedmq.client.group.assigned import Handed, Owned
from seaweedmq.client.group.contact import Contact
from seaweedmq.client.group.unacked import Unsettled
from seaweedmq.client.subscribe.messages import Arrived, Message, messages_of, record_batch_of
from seaweedmq.client.subscribe.reading import MESSAGES_AT_ONCE
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.runtime.notice import Notice

GiveUp = Callable[[Owned, Message, int, str], None]
"""Sees to a record that was delivered too often: how often, and why it is refused. Called under the lock."""


class Handout:
    """Decides record by record, but only where something waits; else whole frames pass.

    Args:
        owned: what this member reads, by segment.
        contact: with the coordinator.
        limit: records to hand out in all.
        news: whoever waits for records looks again.
        attention: a position may have changed that others wait for.
    """

    def __init__(
        self,
        owned: Mapping[int, Owned],
        unsettled: Unsettled,
        *,
        clock: Callable[[], float],
        contact: Contact,
        limit: int | None,
        auto_ack: bool,
        deliveries_max: int | None,
        give_up: GiveUp,
        columns: Sequence[str] | None,
        news: Notice,
        attention: Notice,
    ) -> None:
        self._owned = owned
        self._unsettled = unsettled
        self.lock = unsettled.lock
        self._clock = clock
        self._contact = contact
        self.left = limit
        self._auto_ack = auto_ack
        self._deliveries_max = deliveries_max
        self._give_up = give_up
        self._columns = columns
        self._news = news
        self._attention = attention
        self.paused = False
        self.closed = False
        self.one_at_a_time = False
        """Handlers take, one record of a key at a time."""
        self._rest: Arrived | None = None
        self._chunk: list[Message] = []
        """Messages to hand out, the next one last."""
        self._granted: deque[Message] = deque()
        """Messages that waited, for handlers."""
        self._handed: tuple[Handed, int, int] | None = None
        """What ``auto_ack`` acknowledges when the next is asked for: from an offset, so many."""
        self._strict = False
        """Records are looked at one by one before they are handed out."""
        self._waiting: set[Owned] = set()
        """Where a key is held back, or was."""

    # --- for who waits ---------------------------------------------------------------------------------------------

    @property
    def halted(self) -> bool:
        """Nothing is handed out: paused, closed, or what was assigned may have been given to others."""
        return self.paused or self.closed or not self._contact.is_fresh

    @property
    def has_rows(self) -> bool:
        """Whether something may be popped now."""
        if self.halted:
            return False
        if self._chunk or self._granted:
            return True
        with self.lock:
            return self._rest is not None and self.left != 0 and self._unsettled.room(1) > 0

    @property
    def wants_rows(self) -> bool:
        """Whether :meth:`receive` may be called."""
        return self._rest is None and self.left != 0 and not self._chunk and not self._granted

    @property
    def holds_back(self) -> bool:
        """Whether records wait to be delivered again."""
        return any(not owned.order.is_idle for owned in self._waiting)

    def due_s(self) -> float:
        """When a record that waits may go out at the earliest."""
        if self.left == 0 or self.halted:
            return NEVER
        with self.lock:
            return min((owned.order.due_s() for owned in self._waiting), default=NEVER)

    def receive(self, owned: Owned, arrived: Arrived) -> None:
        """Rows of a frame arrived."""
        with self.lock:
            self._rest = owned.receive(arrived)
            self._unsettled.arrived(arrived)

    def refill(self) -> None:
        """Take what waited and need not wait any more. Requires that nothing is left to pop, or that handlers take."""
        with self.lock:
            self._take_due()

    def _take_due(self) -> None:
        now = self._clock()
        for owned in list(self._waiting):
            if owned.revoked or self.left == 0 or owned.order.due_s() > now:
                continue
            messages = owned.take_due(now)
            taken = messages if self.left is None else messages[: self.left]
            for message in messages[len(taken) :]:
                owned.refuse(message, now)
            for message in taken:
                message[0].span.hand_out(message.offset - message[0].first, 1)
            self._give_back(-len(taken))
            if self.one_at_a_time:
                self._granted += taken
            else:
                self._strict = True
                self._chunk[:0] = reversed(taken)

    # --- for who takes ---------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Message]:
        """Some thousand at most."""
        self._fill()
        chunk, auto_ack = self._chunk, self._auto_ack
        contact, clock = self._contact, self._contact.clock
        while not (self.paused or self.closed or clock() > contact.until):  # ``halted``, for each record in 0.1 us
            try:
                message = chunk.pop()
            except IndexError:
                return
            if self._strict and not self._may_go(message):
                continue
            if auto_ack:
                self._handed = message[0], message.offset, 1
            yield message
            if auto_ack:
                self.settle_handed()

    def batch(self) -> pa.RecordBatch | None:
        """What is left of the messages, else the next frame, or a part of it; None if all of it has to wait."""
        with self.lock:
            self.settle_handed()
            if not self._chunk and self._rest is not None and not self._is_strict():
                return self._whole(self._rest)
        self._fill()
        run = self._run()
        rows = run[0][0].span.rows if run else None
        if rows is None:
            return None
        handed, first = run[0][0], run[0].offset
        if self._auto_ack:
            self._handed = handed, first, len(run)
        return record_batch_of(rows.slice(first - handed.first, len(run)), self._columns)

    def one(self) -> Message | None:
        """The next record whose key is free, for a handler."""
        with self.lock:
            self._take_due()
            if self._granted:
                return self._granted.popleft()
        self._fill()
        while self._chunk:
            message = self._chunk.pop()
            if self._may_go(message):
                return message
        return None

    def settle_handed(self) -> None:
        """With ``auto_ack``, the next is asked for: what was handed out, and not refused, is dealt with."""
        if self._handed is None:
            return
        (handed, first, count), self._handed = self._handed, None
        if count > 1:
            out = handed.owned.ledger.out_among(range(first, first + count))
            handed.owned.ack(np.array(out, dtype=np.int64))
        elif handed.is_out(first):
            handed.ack(first)

    def _fill(self) -> None:
        """Turn some rows into messages if there are none."""
        with self.lock:
            self.settle_handed()
            if self._chunk or self._rest is None:
                return
            self._strict = self._is_strict()
            part, self._rest = self._rest.cut(self._count(self._rest, MESSAGES_AT_ONCE))
        messages = messages_of(part)
        messages.reverse()
        with self.lock:
            if self._hand_out(part):
                self._chunk[:] = messages

    def _whole(self, rows: Arrived) -> pa.RecordBatch | None:
        part, self._rest = rows.cut(self._count(rows, len(rows)))
        if not self._hand_out(part):
            return None
        if self._auto_ack and isinstance(part.origin, Handed):
            self._handed = part.origin, part.first_offset, len(part)
        return record_batch_of(part, self._columns)

    def _count(self, rows: Arrived, count_max: int) -> int:
        count = min(len(rows), count_max)
        count = min(count, self._unsettled.room(count))
        return count if self.left is None else min(count, self.left)

    def _hand_out(self, part: Arrived) -> bool:
        """Rows go out for the first time, unless their segment was revoked meanwhile."""
        handed = part.origin
        if not isinstance(handed, Handed) or handed.owned.revoked:
            return False
        handed.span.hand_out(part.first_offset - handed.first, len(part))
        self._unsettled.handed_out(len(part))
        self._give_back(-len(part))
        return True

    def _run(self) -> list[Message]:
        """Messages of one frame with neighbouring offsets."""
        run: list[Message] = []
        while self._chunk:
            message = self._chunk[-1]
            if run and (message[0] is not run[0][0] or message.offset != run[-1].offset + 1):
                break
            self._chunk.pop()
            if not self._strict or self._may_go(message):
                run.append(message)
            elif run:
                break
        return run

    def _may_go(self, message: Message) -> bool:
        """Whether a message may be handed out after all. If not, it is seen to."""
        handed: Handed = message[0]
        owned, offset = handed.owned, message.offset
        with self.lock:
            if owned.revoked:
                if handed.is_out(offset):
                    handed.keep(offset)
                    self._give_back(1)
                    self._attention.notify()
                return False
            if not owned.order.offer(message.key, offset):
                owned.park(message)
                self._waiting.add(owned)
                self._give_back(1)
                return False
            if self.one_at_a_time:
                self._waiting.add(owned)
            refused = owned.ledger.refused.get(offset, 0)
            if self._deliveries_max is not None and refused >= self._deliveries_max:
                self._give_back(1)
                self._bury(owned, message, refused, f"delivered {refused} times and not acknowledged")
                return False
        return True

    def _is_strict(self) -> bool:
        self._waiting = {owned for owned in self._waiting if not owned.revoked and not owned.order.is_idle}
        if self._waiting or self.one_at_a_time:
            return True
        return self._deliveries_max is not None and any(owned.ledger.refused for owned in self._owned.values())

    def _give_back(self, count: int) -> None:
        if self.left is not None:
            self.left += count

    # --- what becomes of records -----------------------------------------------------------------------------------

    def on_settled(self) -> None:
        self._attention.notify()

    def on_refused(self, owned: Owned, message: Message, delay_s: float, reason: str) -> None:
        self.refuse(owned, (message,), delay_s, reason)

    def refuse(self, owned: Owned, messages: Sequence[Message], delay_s: float, reason: str) -> None:
        """Those that are out go out again, all at one time. From any thread, without the lock."""
        with self.lock:
            due_s = self._clock() + delay_s
            for message in messages:
                self._refuse(owned, message, due_s, reason)
        self._news.notify()
        self._attention.notify()

    def _refuse(self, owned: Owned, message: Message, due_s: float, reason: str) -> None:
        handed: Handed = message[0]
        if not handed.is_out(message.offset):
            return
        count = owned.ledger.refuse(message.offset)
        if owned.revoked or self.closed:
            handed.keep(message.offset)
        elif self._deliveries_max is not None and count >= self._deliveries_max:
            self._bury(owned, message, count, reason)
        else:
            owned.refuse(message, due_s)
            self._hold_back(owned)

    def _bury(self, owned: Owned, message: Message, deliveries: int, reason: str) -> None:
        """A record was delivered too often. It counts as out, and its key is held, until it is kept elsewhere."""
        owned.refuse(message, NEVER)
        self._hold_back(owned)
        self._give_up(owned, message, deliveries, reason)

    def buried(self, owned: Owned, message: Message) -> None:
        """It is."""
        with self.lock:
            owned.drop(message)
        self._news.notify()
        self._attention.notify()

    def handled(self, message: Message) -> None:
        """A handler returned: acknowledge, unless it acknowledged or refused by itself."""
        handed: Handed = message[0]
        with self.lock:
            if handed.is_out(message.offset):
                handed.ack(message.offset)
            if handed.is_acked(message.offset) and not handed.owned.revoked:
                handed.owned.order.settle(message.key)
        self._news.notify()

    def _hold_back(self, owned: Owned) -> None:
        self._waiting.add(owned)
        self._strict = True

    # --- changes ---------------------------------------------------------------------------------------------------

    def hand_to_handlers(self, one_at_a_time: bool) -> None:
        """From here on handlers take, or they do no more."""
        with self.lock:
            self.one_at_a_time = one_at_a_time
            self._strict = True
            now = self._clock()
            while self._granted:
                message = self._granted.popleft()
                self._give_back(1)
                message[0].owned.refuse(message, now)
            for owned in self._owned.values():
                owned.order.one_at_a_time = one_at_a_time

    def look_again(self) -> None:
        """There may be room now."""
        self._news.set()

    def revoke(self, owned: Owned) -> None:
        """Hand nothing of it out any more: what was not handed out is forgotten."""
        with self.lock:
            owned.revoke()
            # First this, then the rest: a message popped meanwhile is seen as revoked there, or counts as out here.
            self._strict = True
            for message in [*self._chunk, *self._granted]:
                handed: Handed = message[0]
                if handed.owned is owned and handed.is_out(message.offset):
                    handed.keep(message.offset)
                    self._give_back(1)
            self._granted = deque(message for message in self._granted if message[0].owned is not owned)
            if self._rest is not None and isinstance(self._rest.origin, Handed) and self._rest.origin.owned is owned:
                self._rest = None
        self._news.notify()
