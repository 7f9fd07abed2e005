"""A subscriber that is a member of a group: reads the segments it is given, and remembers what was acknowledged."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.assigned import Owned
from seaweedmq.client.group.assignment import Shares
from seaweedmq.client.group.contact import Contact
from seaweedmq.client.group.dead_letter import DeadLetter, DeadLetters, default_topic, letter_of
from seaweedmq.client.group.finish import until_finished
from seaweedmq.client.group.handlers import Handler, Handling
from seaweedmq.client.group.handout import Handout
from seaweedmq.client.group.member import Member
from seaweedmq.client.group.unacked import Unsettled
from seaweedmq.client.retry import retrying
from seaweedmq.client.start import StartAt, start_of
from seaweedmq.client.subscribe.messages import Message, check_columns, delay_s, rows_of
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.client.subscribe.reading import Intake
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.errors import Closed, InvalidArgument, OutOfRange, SeaweedMQError, Unavailable, fresh
from seaweedmq.model.groups import GroupOpen
from seaweedmq.model.segment import Segment
from seaweedmq.model.subscribe import EARLIEST, Start, StartKind
from seaweedmq.model.topic import TopicName, check_name
from seaweedmq.runtime.notice import Notice
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)

MAX_UNACKED = 100_000


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
        rng = cluster.env.rng
        self.group = check_name("group", group)
        self.member = check_name("member", f"m-{rng.getrandbits(64):016x}" if member is None else member)
        self._start = start_of(start)
        self._incarnation = rng.getrandbits(63)
        self._loop = asyncio.get_running_loop()
        self._news: Notice = Notice()
        self._attention = Notice()
        self._owned: dict[int, Owned] = {}
        self._unsettled = Unsettled(self._owned, group, max_unacked, config.group_unacked_bytes_max)
        self._contact = Contact(cluster.env.boot_s)
        self._handout = Handout(
            self._owned,
            self._unsettled,
            clock=self._loop.time,
            contact=self._contact,
            limit=limit,
            auto_ack=auto_ack,
            deliveries_max=max_deliveries,
            give_up=self._give_up,
            columns=columns,
            news=self._news,
            attention=self._attention,
        )
        what = f"group {group} of {topic}"
        self._shares = Shares(
            self, config, what, self.topic, self._owned, self._unsettled, self._handout, self._attention
        )
        self._dead_letters: DeadLetters | None = None
        if max_deliveries is not None:
            name = dead_letter or default_topic(topic, group)
            self._dead_letters = DeadLetters(cluster, config, name, partial(self.description, False))
        self._helpers: set[asyncio.Task[None]] = set()
        self._handling: Handling | None = None
        self._error: SeaweedMQError | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Join the group and learn what to read. Raises NotFound, InvalidArgument, Unavailable, ResourceExhausted."""
        try:
            description = await (self._view.whole() if self._stop_at_latest else self.description(True))
            check_columns(self._columns, self.schema)
            if self._stop_at_latest:
                segments = {s.id: s for s in description.segments}
                ends = await self._stop_offsets(segments, ())
                self._stops = {number: end for number, end in ends.items() if end > segments[number].start_offset}
            member = Member(self._cluster, self._opening(description.topic.uid), self._shares, self._contact)
            await self._shares.join(member, self._config.admin_timeout_s)
        except TimeoutError:
            await self.close()
            raise Unavailable(
                f"could not join group {self.group} of {self._topic} within {self._config.admin_timeout_s:g} s: "
                "nobody leads the cluster; try again"
            ) from None
        except BaseException:
            await self.close()
            raise
        self._help(self._shares.keep(), "keeping of positions")
        if self._stops is not None:
            self._help(self._watch_stop(self._stops), "watch of the stop")

    def _opening(self, topic_uid: int) -> GroupOpen:
        return GroupOpen(
            group=self.group,
            topic=self._topic,
            member=self.member,
            incarnation=self._incarnation,
            start=self._start,
            client=f"{socket.gethostname()} {os.getpid()}",
            held={},
            topic_uid=topic_uid,
        )

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
            with self._unsettled.lock:
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
            with self._unsettled.lock:
                owned = self._owned.get(segment)
                messages = [] if owned is None else owned.messages(owned.ledger.out_among(offsets))
            if owned is not None:
                self._handout.refuse(owned, messages, seconds, "nack")

    def pause(self) -> None:
        """Hand nothing out until :meth:`resume`. The membership goes on."""
        self._handout.paused = True

    def resume(self) -> None:
        """Hand out again."""
        self._handout.paused = False
        self._news.notify()

    async def commit(self, timeout: float | None = None) -> None:
        """Return when what was acknowledged is kept by the cluster; it is soon anyhow.

        Raises:
            DeadlineExceeded: not within ``timeout`` seconds (``admin_timeout_s`` by default).
            Fenced: another member with the same id took over.
        """
        if self._error is not None:
            raise fresh(self._error)
        await self._shares.commit(self._config.admin_timeout_s if timeout is None else timeout)

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
        self._handling = Handling(self._handout, self.fetch, self._config, handler, concurrency)
        self._handout.hand_to_handlers(True)
        try:
            await self._handling.run()
        finally:
            self._handling = None
            self._handout.hand_to_handlers(False)

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
        return self._handout.has_rows

    def pop_messages(self) -> Iterator[Message]:
        return self._handout.messages()

    def pop_batch(self) -> pa.RecordBatch | None:
        return self._handout.batch()

    async def fetch(self) -> bool:
        with self._unsettled.lock:
            self._handout.settle_handed()
        idle_since = self._loop.time()
        while not self._ended:
            if self._error is not None:
                raise fresh(self._error)
            if not self._handout.halted and not self._handout.has_rows:
                self._handout.refill()
                self._pull_rows()
            if self._handout.has_rows:
                return True
            if self._handout.halted or self._handling_count() or self._handout.holds_back:
                idle_since = self._loop.time()
            if self._is_over(idle_since):
                self._end()
                break
            await self._until_news(idle_since)
        return False

    def _is_over(self, idle_since: float) -> bool:
        """Whether nothing more is to come. Requires that there is nothing to hand out."""
        if self._handout.left == 0 and not self._handling_count():
            return True
        return self._timeout is not None and self._loop.time() >= idle_since + self._timeout

    def _handling_count(self) -> int:
        return 0 if self._handling is None else self._handling.running

    async def _until_news(self, idle_since: float) -> None:
        self._news.clear()
        until = self._handout.due_s()
        if self._timeout is not None:
            until = min(until, idle_since + self._timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until if until < NEVER else None):
                await self._news.wait()

    def _pull_rows(self) -> None:
        while not self._unsettled.check() and self._handout.wants_rows:
            pulled = self._pull()
            if pulled is None:
                return
            reader, arrived = pulled
            owned = self._owned.get(reader.segment.id)
            if owned is None or owned.reader is not reader:
                raise AssertionError(f"rows of {reader.segment} arrived for nobody")
            if arrived is not None:
                self._handout.receive(owned, arrived)
                self._shares.on_rows()
            elif reader.error is None:
                with self._unsettled.lock:
                    owned.on_end()
                self._drop_reader(owned.segment)
                self._attention.set()
            else:
                self._on_reader_error(owned, reader, reader.error)

    # --- reading segments ------------------------------------------------------------------------------------------

    def start_reading(self, owned: Owned) -> None:
        self._help(self._read(owned, owned.start), f"opening of segment {owned.segment}")

    def stop_reading(self, owned: Owned) -> None:
        self._drop_reader(owned.segment)

    async def _read(self, owned: Owned, start: Start) -> None:
        segment = await self._segment(owned.segment)
        if segment is None or owned.revoked or self._ended:
            return  # gone: the coordinator sees that by itself
        stop = None
        if self._stops is not None:
            stop = self._stops.get(segment.id)
            if stop is None:
                return
        if start.kind is StartKind.OFFSET and start.value <= segment.start_offset:
            start = EARLIEST
        owned.reader = self._start_reader(segment, start, stop)

    async def _segment(self, number: int) -> Segment | None:
        """A segment by its number, however far the broker that is asked lags; None if retention took it."""
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                description = await self.description(attempt.retry_state.attempt_number > 1, (number,))
                found = next((s for s in description.segments if s.id == number), None)
                if found is None and description.topic.next_segment <= number:
                    raise Unavailable(f"segment {number} of {self._topic} is not known yet")
                return found
        raise AssertionError("retrying ended without a result")

    def _on_reader_error(self, owned: Owned, reader: SegmentReader, error: SeaweedMQError) -> None:
        if not isinstance(error, OutOfRange):
            self.on_arrived(reader)
            raise fresh(error)
        log.warning("group %s goes on with what there is: %s", self.group, error)
        self._drop_reader(owned.segment)
        self._help(self._read(owned, EARLIEST), f"opening of segment {owned.segment}")

    # --- the end ---------------------------------------------------------------------------------------------------

    def fail(self, error: SeaweedMQError) -> None:
        if self._error is None:
            self._error = error
            self._shares.end()
        self._news.set()

    async def _watch_stop(self, stops: Mapping[int, int]) -> None:
        """End when the group has read all there was."""

        def is_done_here() -> bool:
            return all(owned.is_finished for owned in self._owned.values() if owned.segment in stops)

        await until_finished(self._cluster, self.group, self._topic, self.description, stops, is_done_here)
        self._end()

    def _give_up(self, owned: Owned, message: Message, deliveries: int, reason: str) -> None:
        letter = letter_of(message, self.group, deliveries, reason)
        self._loop.call_soon_threadsafe(self._begin_burial, owned, message, letter)

    def _begin_burial(self, owned: Owned, message: Message, letter: DeadLetter) -> None:
        if not self._closed:
            self._help(self._bury(owned, message, letter), "dead letter")

    async def _bury(self, owned: Owned, message: Message, letter: DeadLetter) -> None:
        if self._dead_letters is None:
            raise AssertionError("records are given up only with max_deliveries")
        await self._dead_letters.keep(letter)
        self._handout.buried(owned, message)

    def _help(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.create_task(coroutine, name=f"{what} in {self.group}")
        self._helpers.add(task)
        task.add_done_callback(partial(self._on_helper_done, what))

    def _on_helper_done(self, what: str, task: "asyncio.Task[None]") -> None:
        self._helpers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, SeaweedMQError):
                broken = Closed(f"the {what} in group {self.group} broke down: {error!r}; report this")
                broken.__cause__ = error
                error = broken
            self.fail(error)

    async def _close(self) -> None:
        self._end()
        if self._handling is not None:
            await self._handling.finished(self._config.close_timeout_s)
        self._closed = self._handout.closed = True
        await self._stop_readers()
        helpers = list(self._helpers)
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self._shares.leave(self._config.rpc_timeout_s)
        self._news.mute()
        self._attention.mute()
        if self._dead_letters is not None:
            await self._dead_letters.close()
        self._on_close(self)
