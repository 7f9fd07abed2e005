"""The group subscriber: reads assigned segments of a topic, and commits acknowledged offsets."""

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
    """A subscriber to one topic as a member of a group. One task takes from it at a time; any thread acknowledges.

    Every record is delivered at least once. Records that are not acknowledged when a member ends, or loses a segment,
    go to another member. A segment's committed offset is the lowest unacknowledged one.

    ``Client.subscriber`` takes these options:

    - ``group``: The group's name, 1 to 100 of ``A-Z a-z 0-9 . _ -``, beginning with a letter or digit. A new group
      begins at ``start``, a known one at its committed offsets.
    - ``member``: The member's name, with the same rule. Default: a random name. A later member of the same name fences
      the earlier one.
    - ``auto_ack``: Whether the request for the next records acknowledges the previous ones.
    - ``max_deliveries``: The number of deliveries after which a record goes to ``dead_letter``. Default: unlimited.
    - ``dead_letter``: The dead-letter topic, which is created if it does not exist. Default:
      ``<topic>.<group>.dead-letter``. Headers ``dead-letter-...`` name the source.
    - ``max_unacked``: The limit of unacknowledged records, above which delivery waits. Default: 100,000.
    - ``limit``, ``timeout``, ``columns``, ``on_missing``: See :class:`Subscriber`.
    - ``stop_at``: See :class:`Subscriber`; ``"latest"`` waits for the acknowledgements of all members.
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
        """Join the group, and return after the first assignment.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If an option is invalid, or a column is unknown.
            Unavailable: If no coordinator answers within ``admin_timeout_s``.
            ResourceExhausted: If ``groups_max``, ``group_members_max`` or the leader's memory for groups is reached.
        """
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
                "the cluster has no leader: retry"
            ) from None
        except BaseException:
            await self.close()
            raise
        self._help(self._membership.keep(), "commit loop")
        if self._stops is not None:
            self._help(self._watch_stop(self._stops), "watch of the stop offsets")

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

    # --- public methods --------------------------------------------------------------------------------------------

    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Acknowledge a message, or all rows of a batch. Any thread may call it.

        Args:
            delivered: A message, or rows of a delivered batch with ``_segment`` and ``_offset``.

        Raises:
            InvalidArgument: If the batch has no columns ``_segment`` and ``_offset``.
        """
        if isinstance(delivered, Message):
            delivered.ack()
            return
        for segment, offsets in rows_of(delivered):
            self._dispatcher.ack(segment, offsets)

    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Reject a message, or all rows of a batch: the group redelivers them. Any thread may call it.

        Args:
            delivered: A message, or rows of a delivered batch with ``_segment`` and ``_offset``.
            delay: The time before redelivery, in seconds or as a timedelta.

        Raises:
            InvalidArgument: If the delay is negative, or the batch has no columns ``_segment`` and ``_offset``.
        """
        seconds = delay_s(delay)
        if isinstance(delivered, Message):
            delivered.nack(seconds)
            return
        for segment, offsets in rows_of(delivered):
            self._dispatcher.refuse_rows(segment, offsets, seconds, "nack")

    def pause(self) -> None:
        """Stop delivery until :meth:`resume`. The membership continues."""
        self._dispatcher.pause()

    def resume(self) -> None:
        """Continue delivery."""
        self._dispatcher.resume()

    async def commit(self, timeout: float | None = None) -> None:
        """Commit acknowledged offsets now, and return when the cluster has stored them.

        Without this call they are committed every ``group_commit_interval_s``.

        Args:
            timeout: The longest wait in seconds. Default: ``admin_timeout_s``.

        Raises:
            DeadlineExceeded: If they are not stored within ``timeout``. The commit is still being retried.
            Fenced: If another member with the same name took over.
        """
        if self._error is not None:
            raise fresh(self._error)
        await self._membership.commit(self._config.admin_timeout_s if timeout is None else timeout)

    async def handle(self, handler: Handler, concurrency: int = 1) -> None:
        """Call ``handler(message)`` for every record, until the subscription ends.

        A record is acknowledged when its handler returns. If the handler raises, the record is redelivered after a
        delay that grows from ``redelivery_s_min`` to ``redelivery_s_max``. Records of one key are handled one at a
        time, in order.

        Args:
            handler: A coroutine function, which runs as a task of the client's loop, or a function, which runs in a
                thread.
            concurrency: The limit of concurrent handlers, at least 1.

        Raises:
            InvalidArgument: If ``concurrency`` is below 1, or another ``handle()`` runs.
            SystemExit: If a handler raises it. The record is redelivered.
            KeyboardInterrupt: If a handler raises it. The record is redelivered.
            SeaweedMQError: If reading fails, as with iteration.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency={concurrency} is below 1: set the number of handlers")
        self._cluster.check_loop()
        if self._handling is not None:
            raise InvalidArgument("handle() is running already: call it again after it returns")
        self._handling = HandlerRunner(self._dispatcher, self.fetch, self._config, handler, concurrency)
        self._dispatcher.hand_to_handlers(True)
        try:
            await self._handling.run()
        finally:
            self._handling = None
            self._dispatcher.hand_to_handlers(False)

    async def close(self) -> None:
        """End iteration, commit acknowledged offsets, and leave the group. Idempotent.

        It waits for handlers up to ``close_timeout_s``, unless a handler calls it. Unacknowledged records go to other
        members.
        """
        if self.is_inside_handler():
            self.end()
            return
        await super().close()

    def _begin_to_close(self) -> None:
        """End only iteration: handlers continue, and their acknowledgements are committed."""
        self._end()

    def is_inside_handler(self) -> bool:
        """Whether a handler of this subscriber is the caller."""
        return self._handling is not None and self._handling.is_inside()

    def end(self) -> None:
        """End iteration; the caller still needs :meth:`close`. Any thread may call it."""
        self._loop.call_soon_threadsafe(self._end)

    # --- taking ----------------------------------------------------------------------------------------------------

    @property
    def has_rows(self) -> bool:
        """Whether ``pop_messages`` or ``pop_batch`` may be called."""
        return self._dispatcher.has_rows

    def pop_messages(self) -> Iterator[Message]:
        """Return some messages. Requires ``has_rows``."""
        return self._dispatcher.messages()

    def pop_batch(self) -> pa.RecordBatch | None:
        """Return a batch; None if all of it has to wait. Requires ``has_rows``."""
        return self._dispatcher.batch()

    async def fetch(self) -> bool:
        """Wait for rows. Return False at the end."""
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
        """Whether no more records will come. Requires that none are available."""
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
                raise AssertionError(f"rows of {reader.segment} arrived, which is not assigned")
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
        """Begin to read a segment."""
        self._help(self._read(assigned, assigned.start), f"opening of segment {assigned.segment}")

    def stop_reading(self, assigned: AssignedSegment) -> None:
        """Stop reading a segment."""
        begin = self.begun_at(assigned.segment)
        if begin is not None:  # The group's first offset is committed even if no record arrived.
            self._dispatcher.begin_at(assigned, begin)
        self._drop_reader(assigned.segment)

    def begun_at(self, segment: int) -> int | None:
        """Return the offset at which reading of a segment began; None if unknown, or if it is not read."""
        reader = self._readers.get(segment)
        return None if reader is None else reader.begin_offset

    async def _read(self, assigned: AssignedSegment, start: Start) -> None:
        segment = await self._segment(assigned.segment)
        if segment is None or assigned.is_revoked or self._ended:
            return  # The coordinator notices a pruned segment by itself.
        stop = None
        if self._stops is not None:
            stop = self._stops.get(segment.id)
            if stop is None:
                return
        if start.kind is StartKind.OFFSET and start.value <= segment.start_offset:
            start = EARLIEST
        self._start_reader(segment, start, stop)

    async def _segment(self, number: int) -> Segment | None:
        """Return a segment, waiting for a broker that knows it; None if it was pruned."""
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                description = await self.description(attempt.retry_state.attempt_number > 1, (number,))
                found = description.segment(number)
                if found is None and description.topic.next_segment <= number:
                    raise Unavailable(f"segment {number} of {self._topic} is not known yet: retry")
                return found
        raise AssertionError("retrying ended without a result")

    def _on_reader_error(self, assigned: AssignedSegment, reader: SegmentReader, error: SeaweedMQError) -> None:
        if not isinstance(error, OutOfRange):
            self.on_arrived(reader)
            raise fresh(error)
        log.warning("records removed: group %s continues from the earliest: %s", self.group, error)
        self.stop_reading(assigned)
        self._help(self._read(assigned, EARLIEST), f"opening of segment {assigned.segment}")

    # --- the end ---------------------------------------------------------------------------------------------------

    def fail(self, error: SeaweedMQError) -> None:
        """End the subscription with an error, which iteration raises."""
        if self._error is None:
            self._error = error
            self._membership.end()
        self._news.set()

    async def _watch_stop(self, stops: Mapping[int, int]) -> None:
        """End iteration when the group has reached the stops."""

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
            raise AssertionError("dead letters require max_deliveries")
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
                broken = Closed(f"the {what} in group {self.group} failed: {error!r}: report this")
                broken.__cause__ = error
                error = broken
            self.fail(error)

    async def _close(self) -> None:
        # The steps run in reverse order, each even if earlier ones fail or the end of the event loop cancels them.
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
