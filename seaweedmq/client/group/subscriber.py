"""A subscriber that is a member of a group: reads the segments it is given, and remembers what was acknowledged."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.client.group.completion import wait_finished
from seaweedmq.client.group.dead_letter import DeadLetter, DeadLetters, default_topic, letter_of
from seaweedmq.client.group.dispatcher import Dispatcher
from seaweedmq.client.group.handler_runner import Handler, HandlerRunner
from seaweedmq.client.group.member_stream import MemberStream
from seaweedmq.client.group.membership import GroupMembership
from seaweedmq.client.group.options import GroupOptions
from seaweedmq.client.group.origin import AssignedSegment
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.messages import Message, check_columns, delay_s, rows_of
from seaweedmq.client.subscribe.options import ReadOptions
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.client.subscribe.topic_reader import TopicReader
from seaweedmq.core.member.record_dispatch import Bounds, GivenUp
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.errors import Closed, InvalidArgument, OutOfRange, SeaweedMQError, Unavailable, fresh
from seaweedmq.model.messages.groups import GroupOpen
from seaweedmq.model.messages.subscribe import EARLIEST, Start, StartKind
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)


class GroupSubscriber(TopicReader):
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
        limit, stop_at, timeout, columns, on_missing: as of :class:`Subscriber`; ``stop_at="latest"`` waits for all
            members.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[["GroupSubscriber"], None],
        options: ReadOptions,
        member: GroupOptions,
    ) -> None:
        super().__init__(cluster, topic, config, on_close, options)
        rng = cluster.env.rng
        self.group = member.group
        self.member = f"m-{rng.getrandbits(64):016x}" if member.member is None else member.member
        self._incarnation = rng.getrandbits(63)
        self._loop = asyncio.get_running_loop()
        self._assignment_lease = AssignmentLease(cluster.env.boot_s)
        bounds = Bounds(
            limit=options.limit,
            deliveries_max=member.max_deliveries,
            unacked_max=member.max_unacked,
            unacked_bytes_max=config.group_unacked_bytes_max,
        )
        self._dispatcher = Dispatcher(
            f"group {member.group}",
            bounds,
            self._assignment_lease,
            self._loop.time,
            self._give_up,
            auto_ack=member.auto_ack,
            columns=options.columns,
        )
        self._news = self._dispatcher.news
        self._membership = GroupMembership(self, self._dispatcher, config, f"group {member.group} of {topic}")
        self._dead_letters: DeadLetters | None = None
        if member.max_deliveries is not None:
            name = member.dead_letter or default_topic(topic, member.group)
            self._dead_letters = DeadLetters(cluster, config, name, partial(self.description, False))
        self._helpers: set[asyncio.Task[None]] = set()
        self._handling: HandlerRunner | None = None
        self._error: SeaweedMQError | None = None

    async def open(self) -> None:
        """Join the group and learn what to read. Raises NotFound, InvalidArgument, Unavailable, ResourceExhausted."""
        try:
            description = await (self._view.whole() if self._stop_at_latest else self.description(True))
            check_columns(self._columns, self.schema, self.has_partitions)
            if self._stop_at_latest:
                segments = description.by_id()
                ends = await self._stop_offsets(segments, ())
                self._stops = {number: end for number, end in ends.items() if end > segments[number].start_offset}
            opening = self._opening(description.topic.uid)
            commits = self._dispatcher.commits
            stream = MemberStream(self._cluster, opening, self._membership, commits, self._assignment_lease)
            await self._membership.join(stream, self._config.admin_timeout_s)
        except TimeoutError:
            await self.close()
            raise Unavailable(
                f"could not join group {self.group} of {self._topic} within {self._config.admin_timeout_s:g} s: "
                "nobody leads the cluster; try again"
            ) from None
        except BaseException:
            await self.close()
            raise
        self._help(self._membership.keep(), "keeping of positions")
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
            self._dispatcher.ack(segment, offsets)

    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Say that a message, or all rows of a batch, are not dealt with: see :meth:`Message.nack`. From any thread."""
        seconds = delay_s(delay)
        if isinstance(delivered, Message):
            delivered.nack(seconds)
            return
        for segment, offsets in rows_of(delivered):
            self._dispatcher.refuse_rows(segment, offsets, seconds, "nack")

    def pause(self) -> None:
        """Hand nothing out until :meth:`resume`. The membership goes on."""
        self._dispatcher.pause()

    def resume(self) -> None:
        """Hand out again."""
        self._dispatcher.resume()

    async def commit(self, timeout: float | None = None) -> None:
        """Return when what was acknowledged is kept by the cluster; it is soon anyhow.

        Raises:
            DeadlineExceeded: not within ``timeout`` seconds (``admin_timeout_s`` by default).
            Fenced: another member with the same id took over.
        """
        if self._error is not None:
            raise fresh(self._error)
        await self._membership.commit(self._config.admin_timeout_s if timeout is None else timeout)

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
        self._cluster.check_loop()
        if self._handling is not None:
            raise InvalidArgument("handle() runs already: one at a time")
        self._handling = HandlerRunner(self._dispatcher, self.fetch, self._config, handler, concurrency)
        self._dispatcher.hand_to_handlers(True)
        try:
            await self._handling.run()
        finally:
            self._handling = None
            self._dispatcher.hand_to_handlers(False)

    async def close(self) -> None:
        """End iteration, commit what was acknowledged, leave the group. Waits for handlers, unless one of them calls
        it. What is not acknowledged is delivered to others. Idempotent.
        """
        if self.is_inside_handler():
            self.end()
            return
        await super().close()

    def _begin_to_close(self) -> None:
        """End iteration only: handlers continue, and their acknowledgements are committed."""
        self._end()

    def is_inside_handler(self) -> bool:
        """Whether a handler of this subscriber is the caller."""
        return self._handling is not None and self._handling.is_inside()

    def end(self) -> None:
        """End iteration; :meth:`close` is still to come. From any thread."""
        self._loop.call_soon_threadsafe(self._end)

    # --- taking ----------------------------------------------------------------------------------------------------

    @property
    def has_rows(self) -> bool:
        return self._dispatcher.has_rows

    def pop_messages(self) -> Iterator[Message]:
        return self._dispatcher.messages()

    def pop_batch(self) -> pa.RecordBatch | None:
        return self._dispatcher.batch()

    async def fetch(self) -> bool:
        self._dispatcher.ack_taken()
        idle_since = self._loop.time()
        while not self._ended:
            if self._error is not None:
                raise fresh(self._error)
            if not self._dispatcher.is_halted and not self._dispatcher.has_rows:
                self._dispatcher.refill()
                self._pull_rows()
            if self._dispatcher.has_rows:
                return True
            if self._dispatcher.is_halted or self._handling_count() or self._dispatcher.holds_back:
                idle_since = self._loop.time()
            if self._is_over(idle_since):
                self._end()
                break
            await self._until_news(idle_since)
        return False

    def _is_over(self, idle_since: float) -> bool:
        """Whether nothing more is to come. Requires that there is nothing to hand out."""
        if self._dispatcher.is_exhausted and not self._handling_count():
            return True
        return self._timeout is not None and self._loop.time() >= idle_since + self._timeout

    def _handling_count(self) -> int:
        return 0 if self._handling is None else self._handling.running

    async def _until_news(self, idle_since: float) -> None:
        self._news.clear()
        until = self._dispatcher.due_s
        if self._timeout is not None:
            until = min(until, idle_since + self._timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until if until < NEVER else None):
                await self._news.wait()

    def _pull_rows(self) -> None:
        while self._dispatcher.wants_rows():
            pulled = self._pull()
            if pulled is None:
                return
            reader, arrived = pulled
            assigned = self._dispatcher.assigned(reader.segment.id)
            if assigned is None or self._readers.get(assigned.segment) is not reader:
                raise AssertionError(f"rows of {reader.segment} arrived for nobody")
            if arrived is not None:
                self._dispatcher.receive(assigned, arrived)
                self._membership.on_rows()
            elif reader.error is None:
                self._drop_reader(assigned.segment)
                self._dispatcher.end_at(assigned, reader.end_offset)
            else:
                self._on_reader_error(assigned, reader, reader.error)

    # --- reading segments -------------------------------------------------------------------------------------------

    def start_reading(self, assigned: AssignedSegment) -> None:
        self._help(self._read(assigned, assigned.start), f"opening of segment {assigned.segment}")

    def stop_reading(self, assigned: AssignedSegment) -> None:
        begin = self.begun_at(assigned.segment)
        if begin is not None:  # where a group begins is committed, though nothing may have arrived
            self._dispatcher.begin_at(assigned, begin)
        self._drop_reader(assigned.segment)

    def begun_at(self, segment: int) -> int | None:
        reader = self._readers.get(segment)
        return None if reader is None else reader.begin_offset

    async def _read(self, assigned: AssignedSegment, start: Start) -> None:
        segment = await self._segment(assigned.segment)
        if segment is None or assigned.is_revoked or self._ended:
            return  # gone: the coordinator sees that by itself
        stop = None
        if self._stops is not None:
            stop = self._stops.get(segment.id)
            if stop is None:
                return
        if start.kind is StartKind.OFFSET and start.value <= segment.start_offset:
            start = EARLIEST
        self._start_reader(segment, start, stop)

    async def _segment(self, number: int) -> Segment | None:
        """A segment by its number, however far the broker that is asked lags; None if retention took it."""
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                description = await self.description(attempt.retry_state.attempt_number > 1, (number,))
                found = description.segment(number)
                if found is None and description.topic.next_segment <= number:
                    raise Unavailable(f"segment {number} of {self._topic} is not known yet")
                return found
        raise AssertionError("retrying ended without a result")

    def _on_reader_error(self, assigned: AssignedSegment, reader: SegmentReader, error: SeaweedMQError) -> None:
        if not isinstance(error, OutOfRange):
            self.on_arrived(reader)
            raise fresh(error)
        log.warning("group %s goes on with what there is: %s", self.group, error)
        self.stop_reading(assigned)
        self._help(self._read(assigned, EARLIEST), f"opening of segment {assigned.segment}")

    # --- the end ---------------------------------------------------------------------------------------------------

    def fail(self, error: SeaweedMQError) -> None:
        if self._error is None:
            self._error = error
            self._membership.end()
        self._news.set()

    async def _watch_stop(self, stops: Mapping[int, int]) -> None:
        """End when the group has read all there was."""

        def is_done_here() -> bool:
            return self._dispatcher.is_finished(stops)

        await wait_finished(self._cluster, self.group, self._topic, self.description, stops, is_done_here)
        self._end()

    def _give_up(self, given_up: GivenUp[Message]) -> None:
        letter = letter_of(given_up, self.group)
        self._loop.call_soon_threadsafe(self._send_letter_soon, given_up.record, letter)

    def _send_letter_soon(self, message: Message, letter: DeadLetter) -> None:
        if not self._closed:
            self._help(self._send_letter(message, letter), "dead letter")

    async def _send_letter(self, message: Message, letter: DeadLetter) -> None:
        if self._dead_letters is None:
            raise AssertionError("records are given up only with max_deliveries")
        await self._dead_letters.keep(letter)
        self._dispatcher.letter_kept(message)

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
        # Each step follows, in the reverse order, if those before it fail or the end of the event loop cancels them.
        async with contextlib.AsyncExitStack() as steps:
            steps.callback(self._on_close, self)
            if self._dead_letters is not None:
                steps.push_async_callback(self._dead_letters.close)
            steps.callback(self._dispatcher.mute)
            steps.push_async_callback(self._membership.leave, self._config.rpc_timeout_s)
            steps.push_async_callback(self._stop_helpers)
            steps.push_async_callback(self._stop_readers)
            steps.callback(self._dispatcher.close)
            steps.callback(self._note_closed)
            if self._handling is not None:
                await self._handling.finished(self._config.close_timeout_s)

    def _note_closed(self) -> None:
        self._closed = True

    async def _stop_helpers(self) -> None:
        helpers = list(self._helpers)
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
