"""A member of a group: reads the segments the coordinator gives it, and commits what was acknowledged.

Threads: everything runs in the event loop, except that the thread that iterates pops messages and batches, and any
thread acknowledges or refuses. They meet under one lock, which is never held while something is awaited or decoded.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from seaweedmq.client.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.dead_letter import DeadLetter, DeadLetters, default_topic
from seaweedmq.client.handlers import Handler, Handling
from seaweedmq.client.intake import MESSAGES_AT_ONCE, Intake
from seaweedmq.client.member import Member, ended
from seaweedmq.client.messages import (
    Arrived,
    Message,
    check_columns,
    delay_s,
    messages_of,
    record_batch_of,
    rows_of,
)
from seaweedmq.client.ownership import Handed, Owned
from seaweedmq.client.reader import SegmentReader
from seaweedmq.client.retry import deadline, retrying
from seaweedmq.client.stop import is_finished
from seaweedmq.client.subscriber import StartAt, start_of
from seaweedmq.core.redelivery import NEVER
from seaweedmq.errors import Closed, InvalidArgument, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.model.groups import GroupAssignment, GroupCommitted, GroupOpen, Ownership
from seaweedmq.model.protocol import EARLIEST, StartKind
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, check_name

log = logging.getLogger(__name__)

MAX_UNACKED = 100_000
STOP_POLL_S = 0.2
"""How often the coordinator is asked whether all members together have reached the stop."""


class GroupSubscriber(Intake):
    """Reads one topic as a member of a group. One task takes from it at a time; any thread acknowledges.

    Every record is delivered at least once: what is not acknowledged when a member ends, or loses a segment, is
    delivered to another. A segment's committed offset is the lowest that is not acknowledged.

    Args:
        group: named like a topic; begins at ``start`` when it first reads the topic, else where it was.
        member: a name of its own, 1 to 100 of the characters of names; made up by default. A later member of the same
            name fences the earlier.
        auto_ack: what was handed out is acknowledged when the next is asked for.
        max_deliveries: after so many, a record goes to ``dead_letter``, by default ``<topic>.<group>.dead-letter``,
            which is created if it does not exist, with the source in headers ``dead-letter-...``.
        max_unacked: records handed out and not acknowledged, beyond which delivery waits.
        limit, stop_at, timeout, columns: as of :class:`Subscriber`; ``stop_at="latest"`` waits for all members.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[["GroupSubscriber"], None],
        *,
        group: str,
        start: StartAt = "latest",
        member: str | None = None,
        auto_ack: bool = False,
        max_deliveries: int | None = None,
        dead_letter: TopicName | None = None,
        max_unacked: int = MAX_UNACKED,
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            cluster, topic, config, on_close, limit=limit, stop_at=stop_at, timeout=timeout, columns=columns
        )
        if max_unacked < 1:
            raise InvalidArgument(f"max_unacked={max_unacked} is below 1: nothing could be delivered")
        if max_deliveries is not None and max_deliveries < 1:
            raise InvalidArgument(f"max_deliveries={max_deliveries} is below 1: give how often a record is tried")
        if dead_letter is not None and max_deliveries is None:
            raise InvalidArgument("dead_letter= needs max_deliveries=: after how many deliveries a record goes there")
        self.group = check_name("group", group)
        rng = cluster.env.rng
        self.member = check_name("member", f"m-{rng.getrandbits(64):016x}" if member is None else member)
        opening = GroupOpen(
            group=group,
            topic=topic,
            member=self.member,
            incarnation=rng.getrandbits(63),
            start=start_of(start),
            client=f"{socket.gethostname()} {os.getpid()}",
            held={},
        )
        self._auto_ack = auto_ack
        self._max_deliveries = max_deliveries
        self._max_unacked = max_unacked
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._membership = Member(cluster, opening, self)
        self._member_task: asyncio.Task[None] | None = None
        self._helpers: set[asyncio.Task[None]] = set()
        self._dead_letters: DeadLetters | None = None
        if max_deliveries is not None:
            name = dead_letter or default_topic(topic, group)
            self._dead_letters = DeadLetters(cluster, config, name, lambda: self.description(False))
        self._owned: dict[int, Owned] = {}
        self._assigned: dict[int, Ownership] = {}
        """The newest assignment."""
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._error: SeaweedMQError | None = None
        self._attention = asyncio.Event()
        self._notified = False
        self._resting = True
        self._commit_at = 0.0
        self._halted = False
        """Paused or closed: nothing is handed out."""
        self._chunk: list[Message] = []
        """Messages to hand out, the next one last."""
        self._granted: deque[Message] = deque()
        """Messages that waited for their key and go to handlers next."""
        self._handed: tuple[Handed, int, int] | None = None
        """What ``auto_ack`` acknowledges when the next is asked for: from an offset, so many."""
        self._strict = False
        """Records are looked at one by one before they are handed out."""
        self._waiting: set[Owned] = set()
        """Where a key is held back, or was."""
        self._unsettled_max = 0
        """At least as many as are handed out and not acknowledged; counted anew when it looks like too many."""
        self._size_bytes_max = 0
        self._blocked = False
        self._warned = False
        self._handling: Handling | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Join the group and learn what to read. Raises NotFound, InvalidArgument, Unavailable, ResourceExhausted."""
        description = await self.description(True)
        check_columns(self._columns, self.schema)
        if self._stop_at_latest:
            ends = await self._stop_offsets(description, set())
            starts = {s.id: s.start_offset for s in (await self.description(False)).segments}
            self._stops = {segment: end for segment, end in ends.items() if end > starts.get(segment, 0)}
        self._member_task = asyncio.create_task(self._membership.run(), name=f"member {self.member} of {self.group}")
        self._member_task.add_done_callback(self._on_member_done)
        try:
            async with asyncio.timeout(self._config.admin_timeout_s):
                await self._joined
        except TimeoutError:
            await self.close()
            raise Unavailable(
                f"could not join group {self.group} of {self._topic} within {self._config.admin_timeout_s:g} s: "
                "no broker leads; try again"
            ) from None
        except BaseException:
            await self.close()
            raise
        self._help(self._keep(), "commits")
        if self._stops is not None:
            self._help(self._watch_stop(self._stops), "watch of the stop")

    # --- what users call -------------------------------------------------------------------------------------------

    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Say that a message, or all rows of a batch, are dealt with. From any thread.

        Raises:
            InvalidArgument: the batch has no columns ``_segment`` and ``_offset``.
        """
        if isinstance(delivered, Message):
            delivered.ack()
            return
        for segment, offsets in rows_of(delivered):
            with self._lock:
                owned = self._owned.get(segment)
                if owned is not None:
                    owned.ack(offsets)

    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Say that a message, or all rows of a batch, are not dealt with: see :meth:`Message.nack`. From any thread."""
        seconds = delay_s(delay)
        if isinstance(delivered, Message):
            delivered.nack(seconds)
            return
        for segment, offsets in rows_of(delivered):
            with self._lock:
                owned = self._owned.get(segment)
                messages = [] if owned is None else owned.messages(owned.ledger.out_among(offsets))
            for message in messages:
                message.nack(seconds)

    def pause(self) -> None:
        """Hand nothing out until :meth:`resume`. The membership goes on."""
        self._halted = True

    def resume(self) -> None:
        """Hand out again."""
        self._halted = self._closed
        self._loop.call_soon_threadsafe(self._news.set)

    async def commit(self, timeout: float | None = None) -> None:
        """Return when what was acknowledged is kept by the cluster.

        Raises:
            DeadlineExceeded: not within ``timeout`` seconds (``admin_timeout_s`` by default).
            Fenced: another member with the same id took over.
        """
        if self._error is not None:
            raise self._error
        self._commit_at = 0.0
        self._look_after()
        await self._membership.settled(self._config.admin_timeout_s if timeout is None else timeout)

    async def handle(self, handler: Handler, concurrency: int = 1) -> None:
        """Call ``handler(message)`` for every record, until the subscription ends.

        A record is acknowledged when its handler returns, and delivered again later, with a delay that grows, when it
        raises. Records of one key are handled one after the other, in order. Coroutine functions run as tasks of this
        loop, others in threads.

        Args:
            concurrency: handlers that run at the same time.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency={concurrency} is below 1: give the number of handlers")
        if self._handling is not None:
            raise InvalidArgument("handle() runs already: one at a time")
        self._handling = Handling(self, self._config, handler, concurrency)
        self._one_at_a_time(True)
        try:
            await self._handling.run()
        finally:
            self._handling = None
            self._one_at_a_time(False)

    async def close(self) -> None:
        """End iteration, commit what was acknowledged, leave the group. Waits for handlers, unless one of them calls
        it. What is not acknowledged is delivered to others. Idempotent.
        """
        if self.is_inside_handler():
            self.end()
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close {self.member}")
        await asyncio.shield(self._closing)

    def is_inside_handler(self) -> bool:
        """Whether a handler of this subscriber is the caller."""
        return self._handling is not None and self._handling.is_inside()

    def end(self) -> None:
        """End iteration; :meth:`close` is still to come. From any thread."""
        self._loop.call_soon_threadsafe(self._end)

    # --- taking ----------------------------------------------------------------------------------------------------

    @property
    def has_rows(self) -> bool:
        if self._halted:
            return False
        if self._chunk or self._granted:
            return True
        with self._lock:
            return self._rest is not None and self._left != 0 and self._room() > 0

    async def fetch(self) -> bool:
        with self._lock:
            self._settle_handed()
        idle_since = self._loop.time()
        while not self._ended:
            if self._error is not None:
                raise self._error
            if self.has_rows:
                return True
            self._advance()
            if self.has_rows:
                return True
            if self._paused() or self._handles_some():
                idle_since = self._loop.time()
            if self._is_over(idle_since):
                self._end()
                break
            await self._until_news(idle_since)
        return False

    def _is_over(self, idle_since: float) -> bool:
        """Whether nothing more is to come. Requires that there is nothing to hand out."""
        if self._left == 0 and self._handling_count() == 0:
            return True
        return self._timeout is not None and self._loop.time() >= idle_since + self._timeout

    def pop_messages(self) -> Iterator[Message]:
        self._fill()
        return self._hand_out()

    def pop_batch(self) -> pa.RecordBatch | None:
        with self._lock:
            self._settle_handed()
            if not self._chunk and self._rest is not None and not self._is_strict():
                return self._whole_batch(self._rest)
        self._fill()
        run = self._run()
        rows = run[0][0].span.rows if run else None
        if rows is None:
            return None
        handed, first = run[0][0], run[0].offset
        if self._auto_ack:
            self._handed = handed, first, len(run)
        return record_batch_of(rows.slice(first - handed.first, len(run)), self._columns)

    def pop_one(self) -> Message | None:
        """For handlers: the next record whose key is free."""
        with self._lock:
            self._take_due()
            if self._granted:
                return self._granted.popleft()
        self._fill()
        while self._chunk and not self._halted:
            message = self._chunk.pop()
            if self._may_go(message):
                return message
        return None

    def _hand_out(self) -> Iterator[Message]:
        chunk, auto_ack = self._chunk, self._auto_ack
        while not self._halted:
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
                self._settle_handed()

    def _may_go(self, message: Message) -> bool:
        """Whether a message that is due may be handed out. If not, it is seen to."""
        handed: Handed = message[0]
        owned, offset = handed.owned, message.offset
        with self._lock:
            if owned.revoked:
                if handed.is_out(offset):
                    handed.keep(offset)
                    self._give_back(1)
                    self.on_settled()
                return False
            if not owned.order.offer(message.key, offset):
                owned.park(message)
                self._waiting.add(owned)
                self._give_back(1)
                return False
            if owned.order.one_at_a_time:
                self._waiting.add(owned)
            refused = owned.ledger.refused.get(offset, 0)
            if self._max_deliveries is not None and refused >= self._max_deliveries:
                self._give_back(1)
                self._bury(owned, message, refused, f"delivered {refused} times and not acknowledged")
                return False
        return True

    def _give_back(self, count: int) -> None:
        if self._left is not None:
            self._left += count

    def _fill(self) -> None:
        """Turn some rows into messages if there are none."""
        with self._lock:
            self._settle_handed()
            rest = self._rest
            if self._chunk or rest is None:
                return
            self._strict = self._is_strict()
            part, self._rest = rest.cut(self._cut_count(rest))
        messages = messages_of(part)
        messages.reverse()
        with self._lock:
            if self._hand_over(part):
                self._chunk[:] = messages

    def _whole_batch(self, rest: Arrived) -> pa.RecordBatch | None:
        part, self._rest = rest.cut(self._cut_count(rest, len(rest)))
        if not self._hand_over(part):
            return None
        if self._auto_ack and isinstance(part.origin, Handed):
            self._handed = part.origin, part.first_offset, len(part)
        return record_batch_of(part, self._columns)

    def _cut_count(self, rows: Arrived, count_max: int = MESSAGES_AT_ONCE) -> int:
        count = min(len(rows), count_max, self._room())
        return count if self._left is None else min(count, self._left)

    def _hand_over(self, part: Arrived) -> bool:
        """Rows of a frame go out for the first time, unless their segment is not ours any more."""
        handed = part.origin
        if not isinstance(handed, Handed) or handed.owned.revoked:
            return False
        handed.span.hand_out(part.first_offset - handed.first, len(part))
        self._unsettled_max += len(part)
        self._give_back(-len(part))
        return True

    def _run(self) -> list[Message]:
        """Messages of one frame with neighbouring offsets, to go out as one batch."""
        run: list[Message] = []
        while self._chunk:
            message = self._chunk[-1]
            if run and (message[0] is not run[0][0] or message.offset != run[-1].offset + 1):
                break
            self._chunk.pop()
            may_go = not self._strict or self._may_go(message)
            if may_go:
                run.append(message)
            elif run:
                break
        return run

    def _room(self) -> int:
        """How many more records may be out. Requires the lock."""
        if self._unsettled_max + min(MESSAGES_AT_ONCE, self._max_unacked) > self._max_unacked:
            self._unsettled_max = sum(owned.ledger.unsettled() for owned in self._owned.values())
        return self._max_unacked - self._unsettled_max

    def _is_strict(self) -> bool:
        self._waiting = {owned for owned in self._waiting if not owned.revoked and not owned.order.is_idle}
        if self._waiting or self._handling is not None:
            return True
        return self._max_deliveries is not None and any(owned.ledger.refused for owned in self._owned.values())

    def _settle_handed(self) -> None:
        """With ``auto_ack``, the next is asked for: what was handed out, and not refused, is dealt with."""
        if self._handed is None:
            return
        (handed, first, count), self._handed = self._handed, None
        if count == 1:
            if handed.is_out(first):
                handed.ack(first)
        else:
            out = handed.owned.ledger.out_among(np.arange(first, first + count))
            handed.owned.ack(np.array(out, dtype=np.int64))

    # --- getting more ----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Get what may be handed out next, if there is anything."""
        if self._paused():
            return
        with self._lock:
            self._take_due()
        if not self._chunk and not self._granted and self._rest is None and self._left != 0:
            self._pull_rows()
        self._blocked = self._is_full()
        if self._blocked:
            with self._lock:
                for owned in self._owned.values():
                    owned.watched = True
            self._blocked = self._is_full()  # again: from here on, who acknowledges says so
        if self._blocked and not self._warned:
            self._warned = True
            log.warning(
                "group %s: delivery waits, for %d records are not acknowledged: call ack(), or raise max_unacked (%d) "
                "and group_unacked_bytes_max",
                self.group,
                self._unsettled_max,
                self._max_unacked,
            )

    def _is_full(self) -> bool:
        limit = self._config.group_unacked_bytes_max
        with self._lock:
            if self._size_bytes_max > limit:
                for owned in self._owned.values():
                    owned.ledger.position()
                self._size_bytes_max = sum(owned.ledger.size_bytes() for owned in self._owned.values())
            return self._room() <= 0 or self._size_bytes_max > limit

    def _take_due(self) -> None:
        """Move records that need not wait any more to where they are handed out. Requires the lock, and that nothing
        is left in ``_chunk`` or handlers take."""
        now = self._loop.time()
        for owned in list(self._waiting):
            if owned.revoked or owned.order.due_s() > now or self._left == 0:
                continue
            messages = owned.take_due(now)
            taken = messages if self._left is None else messages[: self._left]
            for message in messages[len(taken) :]:
                owned.refuse(message, now)
            for message in taken:
                message[0].span.hand_out(message.offset - message[0].first, 1)
            self._give_back(-len(taken))
            if self._handling is not None:
                self._granted += taken
            else:
                self._strict = True
                self._chunk[:0] = reversed(taken)

    def _pull_rows(self) -> None:
        while self._rest is None and not self._is_full():
            pulled = self._pull()
            if pulled is None:
                return
            reader, arrived = pulled
            owned = self._owned.get(reader.segment.id)
            if owned is None or owned.reader is not reader:
                raise AssertionError(f"rows of {reader.segment} arrived for nobody")
            if arrived is not None:
                with self._lock:
                    self._rest = owned.receive(arrived)
                self._size_bytes_max += arrived.batch.nbytes
                if self._resting:
                    self._attention.set()
            elif reader.error is not None:
                self._on_reader_error(owned, reader, reader.error)
            else:
                with self._lock:
                    owned.on_end()
                self._drop_reader(owned.segment)
                self._attention.set()

    def _on_reader_error(self, owned: Owned, reader: SegmentReader, error: SeaweedMQError) -> None:
        if not isinstance(error, OutOfRange):
            self.on_arrived(reader)
            raise error
        log.warning("group %s: %s", self.group, error)
        self._drop_reader(owned.segment)
        self._help(self._open_segment(owned, from_earliest=True), f"opening of segment {owned.segment}")

    async def _until_news(self, idle_since: float) -> None:
        self._news.clear()
        with self._lock:
            dues = [owned.order.due_s() for owned in self._waiting if self._left != 0 and not self._halted]
        until = min([NEVER, *dues]) if self._timeout is None else min([idle_since + self._timeout, *dues])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until if until < NEVER else None):
                await self._news.wait()

    def _paused(self) -> bool:
        return self._halted and not self._closed

    def _handling_count(self) -> int:
        return 0 if self._handling is None else self._handling.running

    def _handles_some(self) -> bool:
        return self._handling_count() > 0 or any(not owned.order.is_idle for owned in self._waiting)

    # --- for handlers ----------------------------------------------------------------------------------------------

    def settled(self, message: Message) -> None:
        """A handler returned: acknowledge, unless it acknowledged or refused by itself."""
        handed: Handed = message[0]
        if handed.is_out(message.offset):
            message.ack()
        with self._lock:
            if not handed.owned.revoked and handed.flags[message.offset - handed.first] == 1:
                handed.owned.order.settle(message.key)
        self._news.set()

    def refused(self, message: Message, delay_seconds: float, reason: str) -> None:
        """A handler raised."""
        self.on_refused(message[0].owned, message, delay_seconds, reason)

    def _one_at_a_time(self, value: bool) -> None:
        with self._lock:
            self._strict = True
            now = self._loop.time()
            while self._granted:
                message = self._granted.popleft()
                self._give_back(1)
                message[0].owned.refuse(message, now)
            for owned in self._owned.values():
                owned.order.one_at_a_time = value

    # --- for ownerships --------------------------------------------------------------------------------------------

    def on_settled(self) -> None:
        if not self._notified:
            self._notified = True
            self._loop.call_soon_threadsafe(self._attend)

    def _attend(self) -> None:
        self._notified = False
        self._attention.set()

    def on_refused(self, owned: Owned, message: Message, delay_s: float, reason: str) -> None:
        handed: Handed = message[0]
        with self._lock:
            if not handed.is_out(message.offset):
                return
            count = owned.ledger.refuse(message.offset)
            if owned.revoked or self._closed:
                handed.keep(message.offset)
            elif self._max_deliveries is not None and count >= self._max_deliveries:
                self._bury(owned, message, count, reason)
            else:
                owned.refuse(message, self._loop.time() + delay_s)
                self._waiting.add(owned)
                self._strict = True
        if not self._closed:
            self._loop.call_soon_threadsafe(self._news.set)
            self.on_settled()

    # --- dead letters ----------------------------------------------------------------------------------------------

    def _bury(self, owned: Owned, message: Message, deliveries: int, reason: str) -> None:
        """The record counts as out until it is kept as a dead letter; its key is held meanwhile."""
        handed: Handed = message[0]
        rows = handed.span.rows
        if rows is None:
            raise AssertionError("a record that is out has no rows")
        letter = DeadLetter(
            rows=rows.slice(message.offset - handed.first, 1), group=self.group, deliveries=deliveries, reason=reason
        )
        owned.refuse(message, NEVER)
        self._waiting.add(owned)
        self._strict = True
        self._loop.call_soon_threadsafe(self._begin_burial, owned, message, letter)

    def _begin_burial(self, owned: Owned, message: Message, letter: DeadLetter) -> None:
        if not self._closed:
            self._help(self._keep_dead_letter(owned, message, letter), "dead letter")

    async def _keep_dead_letter(self, owned: Owned, message: Message, letter: DeadLetter) -> None:
        if self._dead_letters is None:
            raise AssertionError("records are given up only with max_deliveries")
        try:
            await self._dead_letters.keep(letter)
        except SeaweedMQError as error:
            self._fail(error)
            return
        with self._lock:
            owned.drop(message)
        self._news.set()
        self._attention.set()

    # --- for the membership ----------------------------------------------------------------------------------------

    def held(self) -> Mapping[int, int]:
        return {owned.segment: owned.generation for owned in self._owned.values()}

    def on_assignment(self, assignment: GroupAssignment) -> None:
        self._assigned = {given.segment: given for given in assignment.owned}
        for owned in list(self._owned.values()):
            given = self._assigned.get(owned.segment)
            if given is None or given.generation != owned.generation:
                self._revoke(owned)
        self._begin_assigned()
        if not self._joined.done():
            self._joined.set_result(None)
        self._attention.set()

    def on_committed(self, committed: GroupCommitted) -> None:
        for segment, why in committed.refused.items():
            owned = self._owned.get(segment)
            if owned is not None and not owned.is_refused:
                log.warning("group %s: a commit was refused: %s", self.group, why)
                owned.is_refused = True
                self._revoke(owned)
        self._attention.set()

    def on_failed(self, error: SeaweedMQError) -> None:
        if not self._joined.done():
            self._joined.set_exception(error)
        self._fail(error)

    def _fail(self, error: SeaweedMQError) -> None:
        if self._error is None:
            self._error = error
            for owned in list(self._owned.values()):
                self._revoke(owned)
        self._news.set()

    def _on_member_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would be assigned or committed, so whoever waits is told.
            broken = Closed(f"the membership in group {self.group} broke down: {error!r}; report this")
            broken.__cause__ = error
            self._membership.fail(broken)

    def _begin_assigned(self) -> None:
        """Read what is new, unless what came before it of the same segment is still out."""
        if self._error is not None or self._closed:
            return
        for segment, given in self._assigned.items():
            if segment not in self._owned:
                with self._lock:
                    owned = Owned(self, self.topic, given, self._handling is not None)
                    self._owned[segment] = owned
                    self._strict = True
                self._help(self._open_segment(owned), f"opening of segment {segment}")

    async def _open_segment(self, owned: Owned, from_earliest: bool = False) -> None:
        segment = await self._segment(owned.segment)
        if segment is None or owned.revoked or self._ended:
            return  # retention took it, and the coordinator learns that by itself
        stop = None
        if self._stops is not None:
            stop = self._stops.get(segment.id)
            if stop is None:
                return
        start = owned.start
        if from_earliest or (start.kind is StartKind.OFFSET and start.value <= segment.start_offset):
            start = EARLIEST
        owned.reader = self._start_reader(segment, start, stop)

    async def _segment(self, number: int) -> Segment | None:
        """A segment by its number, however far the broker that is asked lags; None if it is gone."""
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                description = await self.description(attempt.retry_state.attempt_number > 1)
                found = next((s for s in description.segments if s.id == number), None)
                if found is None and description.topic.next_segment <= number:
                    raise Unavailable(f"segment {number} of {self._topic} is not known yet")
                return found
        raise AssertionError("retrying ended without a result")

    def _revoke(self, owned: Owned) -> None:
        """Deliver nothing more of it: what is out is waited for, the rest goes."""
        with self._lock:
            if owned.revoked:
                return
            owned.revoke()
            self._strict = True
            # In this order: a message popped meanwhile is either seen as revoked there, or counts as out here.
            self._drop_undelivered(owned)
        self._drop_reader(owned.segment)
        self._attention.set()

    def _drop_undelivered(self, owned: Owned) -> None:
        for message in [*self._chunk, *self._granted]:
            handed: Handed = message[0]
            if handed.owned is owned and handed.is_out(message.offset):
                handed.keep(message.offset)
                self._give_back(1)
        self._granted = deque(message for message in self._granted if message[0].owned is not owned)
        if self._rest is not None and isinstance(self._rest.origin, Handed) and self._rest.origin.owned is owned:
            self._rest = None

    # --- commits ---------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Commit now and then while there is anything to commit, and at once what others wait for."""
        while True:
            self._resting = not any(owned.is_live for owned in self._owned.values())
            wait_s = None if self._resting else max(0.0, self._commit_at - self._loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._attention.wait()
            self._attention.clear()
            self._look_after()

    def _look_after(self) -> None:
        commits = self._membership.commits
        now = self._loop.time()
        is_time = now >= self._commit_at
        if is_time:
            self._commit_at = now + self._config.group_commit_interval_s
        with self._lock:
            for owned in self._owned.values():
                urgent = owned.revoked or owned.is_read
                owned.watched = urgent or self._blocked
                if (is_time or urgent) and not owned.is_refused:
                    position = owned.position()
                    if position is not None:
                        commits.want(position)
        for owned in [o for o in self._owned.values() if o.revoked]:
            if not owned.ledger.is_out() and not commits.is_pending(owned.segment):
                self._release(owned)
        self._membership.wake()
        if self._blocked:
            self._news.set()

    def _release(self, owned: Owned) -> None:
        with self._lock:
            owned.watched = False
            del self._owned[owned.segment]
        self._membership.commits.forget(owned.segment)
        self._membership.release(owned.segment, owned.generation)
        self._begin_assigned()

    async def _watch_stop(self, stops: Mapping[int, int]) -> None:
        """End when the group has read all there was."""
        while True:
            if all(owned.is_finished for owned in self._owned.values() if owned.segment in stops):
                try:
                    description = await self._cluster.call(
                        f"describe group {self.group}", lambda api: api.describe_group(self.group)
                    )
                    known = {s.id for s in (await self.description(False)).segments}
                except SeaweedMQError as error:
                    self._fail(error)
                    return
                if is_finished(description, self._topic, stops, known):
                    self._end()
                    return
            await asyncio.sleep(STOP_POLL_S)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _help(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.create_task(coroutine, name=f"{what} of {self.group}")
        self._helpers.add(task)
        task.add_done_callback(partial(self._on_helper_done, what))

    def _on_helper_done(self, what: str, task: "asyncio.Task[None]") -> None:
        self._helpers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, SeaweedMQError):
                self._fail(error)
                return
            broken = Closed(f"the {what} in group {self.group} broke down: {error!r}; report this")
            broken.__cause__ = error
            self._fail(broken)

    async def _close(self) -> None:
        self._end()
        if self._handling is not None:
            await self._handling.finished(self._config.close_timeout_s)
        self._closed = self._halted = True
        await self._stop_readers()
        for task in list(self._helpers):
            task.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        if self._member_task is not None:
            if self._error is None and self._joined.done() and not self._joined.cancelled():
                self._commit_at = 0.0
                self._look_after()
                self._membership.leave()
                await ended(self._member_task, self._config.rpc_timeout_s)
            self._member_task.cancel()
            await asyncio.wait({self._member_task})
        self._joined.cancel()
        if not self._membership.commits.is_empty and self._error is None:
            log.warning("group %s: the last commit was not answered; its records are delivered again", self.group)
        with self._lock:
            for owned in self._owned.values():
                owned.watched = False
        if self._dead_letters is not None:
            await self._dead_letters.close()
        self._on_close(self)
