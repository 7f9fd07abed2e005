"""The synchronous subscribers."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from itertools import chain

import pyarrow as pa

from seaweedmq.client.blocking.background import Background
from seaweedmq.client.blocking.derive import BlockingContext, blocking, documented_as
from seaweedmq.client.group import subscriber as aio_group_subscriber
from seaweedmq.client.subscribe import subscriber as aio_subscriber
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.client.subscribe.topic_reader import SkippedRecords


class Subscriber(BlockingContext):
    """A subscriber to one topic. One thread takes from it at a time; any thread may close it, which ends iteration."""

    def __init__(
        self, core: aio_subscriber.Subscriber | aio_group_subscriber.GroupSubscriber, background: Background
    ) -> None:
        self._core = core
        self._background = background
        core.payloads.run = background.run
        self._pending: Future[bool] | None = None

    @property
    def topic(self) -> str:
        """The topic, ``namespace/name``."""
        return self._core.topic

    @property
    def skipped(self) -> Sequence[SkippedRecords]:
        """The lost records skipped by ``on_missing="skip"``: the last 1,000 gaps, in the order of reading."""
        return tuple(self._core.skipped)

    @property
    def schema(self) -> pa.Schema | None:
        """The topic's latest known schema; None for a plain topic."""
        return self._core.schema

    @documented_as(aio_subscriber.Subscriber.__aiter__)
    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[Message]]:
        while self._fetch():
            yield self._core.pop_messages()

    @documented_as(aio_subscriber.Subscriber.batches)
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the records as Arrow batches."""
        while self._fetch():
            batch = self._core.pop_batch()
            if batch is not None:
                yield batch

    @documented_as(aio_group_subscriber.GroupSubscriber.ack)
    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Acknowledge a message, or all rows of a batch."""
        self._core.ack(delivered)

    @documented_as(aio_group_subscriber.GroupSubscriber.nack)
    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Reject a message, or all rows of a batch."""
        self._core.nack(delivered, delay)

    def close(self) -> None:
        """End iteration. Idempotent."""
        if not self._core.is_closed:
            self._background.run(self._core.close())

    def _fetch(self) -> bool:
        # An interrupt leaves the call running, and the next call waits for the same one, so that nothing is lost. Its
        # rows may have been taken by then.
        while not self._core.has_rows:
            if self._pending is None:
                if self._core.is_closed:
                    return False
                self._pending = self._background.start(self._core.fetch())
            try:
                if not self._background.wait(self._pending):
                    return False
            finally:
                if self._pending.done():
                    self._pending = None
        return True


class GroupSubscriber(Subscriber):
    """A member of a group. One thread takes from it at a time; any thread may acknowledge, pause or close.

    Every record is delivered at least once. Records that are not acknowledged when a member ends, or loses a segment,
    go to another member. A segment's committed offset is the lowest unacknowledged one.
    """

    _core: aio_group_subscriber.GroupSubscriber

    def __init__(self, core: aio_group_subscriber.GroupSubscriber, background: Background) -> None:
        super().__init__(core, background)

    @property
    def group(self) -> str:
        """The group's name."""
        return self._core.group

    @property
    def member(self) -> str:
        """The member's name in the group."""
        return self._core.member

    @documented_as(aio_group_subscriber.GroupSubscriber.pause)
    def pause(self) -> None:
        """Stop delivery until :meth:`resume`."""
        self._core.pause()

    @documented_as(aio_group_subscriber.GroupSubscriber.resume)
    def resume(self) -> None:
        """Continue delivery."""
        self._core.resume()

    commit = blocking(aio_group_subscriber.GroupSubscriber.commit)
    handle = blocking(aio_group_subscriber.GroupSubscriber.handle)

    @documented_as(aio_group_subscriber.GroupSubscriber.close)
    def close(self) -> None:
        """End iteration, commit acknowledged offsets, and leave the group."""
        if self._core.is_inside_handler():
            self._core.end()
        else:
            super().close()
