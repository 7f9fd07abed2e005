"""The group subscriber: reads assigned segments of a topic, and commits acknowledged offsets."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.dead_letter import DeadLetter, DeadLetters, default_topic, letter_of
from seaweedmq.client.group.handler_runner import Handler, HandlerRunner
from seaweedmq.client.group.member_reader import MemberReader
from seaweedmq.client.group.options import GroupOptions
from seaweedmq.client.subscribe.messages import Message, delay_s, rows_of
from seaweedmq.client.subscribe.options import ReadOptions
from seaweedmq.core.member.record_dispatch import DeadRecord
from seaweedmq.core.member.redelivery import NEVER
from seaweedmq.errors import InvalidArgument, fresh
from seaweedmq.model.topic import TopicName


class GroupSubscriber(MemberReader):
    """A subscriber to one topic as a member of a group. One task takes from it at a time; any thread acknowledges.

    Every record is delivered at least once. Records that are not acknowledged when a member ends, or loses a segment,
    go to another member. A segment's committed offset is the lowest unacknowledged one. :meth:`Client.subscriber` has
    the options.
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
        super().__init__(cluster, topic, config, on_close, options, member, self._give_up)
        self._dead_letters: DeadLetters | None = None
        if member.max_deliveries is not None:
            name = member.dead_letter or default_topic(topic, member.group)
            self._dead_letters = DeadLetters(cluster, config, name, partial(self.description, False))
        self._handling: HandlerRunner | None = None

    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Acknowledge a message, or all rows of a batch. Any thread may call it. Without a group this does nothing.

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

        Without a group this does nothing.

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
            if self._dispatcher.is_halted or self._handling_count() or self._dispatcher.has_waiting:
                idle_since = self._loop.time()
            if self._is_over(idle_since):
                self._end()
                break
            await self._wait_for_records(idle_since)
        return False

    def _is_over(self, idle_since: float) -> bool:
        """Whether no more records will come. Requires that none are available."""
        if self._dispatcher.is_exhausted and not self._handling_count():
            return True
        return self._timeout is not None and self._loop.time() >= idle_since + self._timeout

    def _handling_count(self) -> int:
        return 0 if self._handling is None else self._handling.running

    async def _wait_for_records(self, idle_since: float) -> None:
        self._wakeup.clear()
        until = self._dispatcher.due_s
        if self._timeout is not None:
            until = min(until, idle_since + self._timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until if until < NEVER else None):
                await self._wakeup.wait()

    def _give_up(self, given_up: DeadRecord[Message]) -> None:
        letter = letter_of(given_up, self.group)
        self._loop.call_soon_threadsafe(self._send_letter_soon, given_up.record, letter)

    def _send_letter_soon(self, message: Message, letter: DeadLetter) -> None:
        if not self._closed:
            self._helpers.spawn(self._send_letter(message, letter), "dead letter")

    async def _send_letter(self, message: Message, letter: DeadLetter) -> None:
        assert self._dead_letters is not None, "dead letters require max_deliveries"
        await self._dead_letters.keep(letter)
        self._dispatcher.dead_letter_stored(message)

    async def _close(self) -> None:
        # The steps run in reverse order, each even if earlier ones fail or the end of the event loop cancels them.
        async with contextlib.AsyncExitStack() as steps:
            steps.callback(self._on_close, self)
            if self._dead_letters is not None:
                steps.push_async_callback(self._dead_letters.close)
            steps.callback(self._dispatcher.mute)
            steps.push_async_callback(self._membership.leave, self._config.rpc_timeout_s)
            steps.push_async_callback(self._helpers.stop)
            steps.push_async_callback(self._stop_readers)
            steps.callback(self._dispatcher.close)
            steps.callback(self._note_closed)
            if self._handling is not None:
                await self._handling.finished(self._config.close_timeout_s)

    def _note_closed(self) -> None:
        self._closed = True
