"""The synchronous face: the same publisher, subscriber and administration for threads."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from itertools import chain
from types import TracebackType
from typing import Any, Literal, Self, overload

import pyarrow as pa

from seaweedmq.client import client as aio_client
from seaweedmq.client.blocking.admin import Admin
from seaweedmq.client.blocking.background import Background
from seaweedmq.client.blocking.derive import blocking, documented_as
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group import subscriber as aio_group_subscriber
from seaweedmq.client.group.options import MAX_UNACKED
from seaweedmq.client.publish import publisher as aio_publisher
from seaweedmq.client.publish.batches.arguments import Headers
from seaweedmq.client.publish.futures import RecordFuture, TableFuture
from seaweedmq.client.start import StartAt, Timestamp
from seaweedmq.client.subscribe import subscriber as aio_subscriber
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.client.subscribe.options import OnMissing
from seaweedmq.client.subscribe.topic_reader import SkippedRecords
from seaweedmq.errors import Closed
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Dialer, Environment


class _Context(ABC):
    """``with`` closes."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Publisher(_Context):
    """Publishes to one topic. Safe for any number of threads.

    Records of one key are kept in the order of the calls. A record is stored once, however often its frame had to be
    sent. With ``with``, leaving the block delivers everything.
    """

    def __init__(self, core: aio_publisher.Publisher, background: Background) -> None:
        self._core = core
        self._background = background
        self.send = core.buffer.send  # type: ignore[method-assign]  # one call less a record than the method below

    @property
    def topic(self) -> str:
        """``namespace/name``."""
        return self._core.topic

    def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        timeout: float | None = None,
    ) -> RecordFuture:
        """Take a record in and return the future of its :class:`Receipt`; blocks while ``buffer_bytes_max`` is reached.

        Args:
            key: records of one key stay in order; without one the record goes anywhere.
            headers: names with their bytes or None, as a mapping, or as pairs where a name is repeated.
            timestamp: aware datetime or microseconds since 1970; now by default.
            timeout: seconds to block at most.

        Raises:
            InvalidArgument: an argument has the wrong type, or the topic has a schema (use ``send_table``).
            DeadlineExceeded: there was no room within ``timeout``; the record was not sent.
            Closed: the publisher is closed.
        """
        return self._core.buffer.send(value, key=key, headers=headers, timestamp=timestamp, timeout=timeout)

    def send_table(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str | None = None,
        timestamp: str | None = None,
        timeout: float | None = None,
    ) -> TableFuture:
        """Publish every row, without touching one in Python, and return the future of a :class:`TableReceipt`.

        The topic's schema decides which columns the table has. A topic without one takes tables of ``_value`` and,
        if wanted, ``_key, _timestamp, _headers``; given another table while still empty, it adopts its schema.

        Args:
            key, timestamp: columns to take them from. Keys are text as UTF-8, bytes, or integers as decimal text.
                Timestamps without a time zone are UTC.
            timeout: seconds to block at most while ``buffer_bytes_max`` is reached.

        Raises:
            InvalidArgument: names the column that does not fit.
            DeadlineExceeded: there was no room within ``timeout``; nothing was sent.
        """
        job = self._background.run(self._core.prepare(table, key, timestamp))
        while not self._core.buffer.add_table(job):
            self._core.buffer.wait(job.size_bytes, timeout)
        return job.promise

    flush = blocking(aio_publisher.Publisher.flush)

    @documented_as(aio_publisher.Publisher.close)
    def close(self, timeout: float | None = None) -> None:
        if not (self._core.is_close_reported or (self._core.is_closed and self._background.is_stopped)):
            self._background.run(self._core.close(timeout))


class Subscriber(_Context):
    """Reads one topic. One thread takes from it at a time; any thread may close it, which ends iteration."""

    def __init__(
        self, core: aio_subscriber.Subscriber | aio_group_subscriber.GroupSubscriber, background: Background
    ) -> None:
        self._core = core
        self._background = background
        self._pending: Future[bool] | None = None

    @property
    def topic(self) -> str:
        """``namespace/name``."""
        return self._core.topic

    @property
    def skipped(self) -> Sequence[SkippedRecords]:
        """Lost records that were skipped, by ``on_missing="skip"``: the last gaps, in the order of reading."""
        return tuple(self._core.skipped)

    @property
    def schema(self) -> pa.Schema | None:
        """The topic's, as known now; None for a plain topic."""
        return self._core.schema

    @documented_as(aio_subscriber.Subscriber.__aiter__)
    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[Message]]:
        while self._fetch():
            yield self._core.pop_messages()

    @documented_as(aio_subscriber.Subscriber.batches)
    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._fetch():
            batch = self._core.pop_batch()
            if batch is not None:
                yield batch

    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Say that a message, or all rows of a batch, are dealt with. From any thread. Without a group nothing keeps a
        position, and this does nothing.

        Raises:
            InvalidArgument: the batch has no columns ``_segment`` and ``_offset``.
        """
        self._core.ack(delivered)

    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Say that a message, or all rows of a batch, are not dealt with: the group gets them again after ``delay``.
        From any thread. Without a group this does nothing.
        """
        self._core.nack(delivered, delay)

    def close(self) -> None:
        """End iteration. Idempotent."""
        if not self._core.is_closed:
            self._background.run(self._core.close())

    def _fetch(self) -> bool:
        # An interrupt leaves the call running; the next one waits for the same, so that nothing is lost in between.
        # What it fetched may have been taken by then.
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
    """A member of a group. One thread takes from it at a time; any thread acknowledges, pauses, or closes it.

    Every record is delivered at least once: what is not acknowledged when a member ends, or loses a segment, is
    delivered to another. A segment's committed offset is the lowest that is not acknowledged.
    """

    _core: aio_group_subscriber.GroupSubscriber

    def __init__(self, core: aio_group_subscriber.GroupSubscriber, background: Background) -> None:
        super().__init__(core, background)

    @property
    def group(self) -> str:
        return self._core.group

    @property
    def member(self) -> str:
        """Id in the group."""
        return self._core.member

    @documented_as(aio_group_subscriber.GroupSubscriber.pause)
    def pause(self) -> None:
        self._core.pause()

    @documented_as(aio_group_subscriber.GroupSubscriber.resume)
    def resume(self) -> None:
        self._core.resume()

    commit = blocking(aio_group_subscriber.GroupSubscriber.commit)
    handle = blocking(aio_group_subscriber.GroupSubscriber.handle)

    def close(self) -> None:
        """End iteration, commit what was acknowledged, leave the group. Waits for handlers, unless one of them calls
        it. Idempotent.
        """
        if self._core.is_inside_handler():
            self._core.end()
        else:
            super().close()


class Client(_Context):
    """A connection to a cluster, made by ``seaweedmq.connect``. Safe for any number of threads.

    It is closed by ``with``, by :meth:`close`, and at the end of the interpreter. It can not be used after ``fork``.
    """

    def __init__(self, bootstrap: str | Sequence[str], dialer: Dialer, env: Environment, config: ClientConfig) -> None:
        self._background = Background(self.close, self._on_fork)
        self._publishers: list[aio_publisher.Publisher] = []
        try:
            self._core = self._background.run(
                aio_client.Client.connect(bootstrap, dialer, env, config, self._background.loop.call_soon_threadsafe)
            )
        except BaseException:
            self._background.stop()
            raise
        self._closed = False
        self.admin = Admin(self._core.admin, self._background)

    def publisher(
        self,
        topic: str | TopicName,
        *,
        linger_s: float | None = None,
        batch_bytes: int | None = None,
        buffer_bytes_max: int | None = None,
        delivery_timeout_s: float | None = None,
    ) -> Publisher:
        """A publisher to one topic; the options are those of :class:`ClientConfig`. Raises NotFound."""
        opening = self._core.publisher(
            topic,
            linger_s=linger_s,
            batch_bytes=batch_bytes,
            buffer_bytes_max=buffer_bytes_max,
            delivery_timeout_s=delivery_timeout_s,
        )
        core = self._background.run(_opened(opening))
        self._publishers = [known for known in self._publishers if not known.is_closed] + [core]
        return Publisher(core, self._background)

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: None = None,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> Subscriber: ...

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: str,
        start: StartAt = "latest",
        member: str | None = None,
        auto_ack: bool = False,
        max_deliveries: int | None = None,
        dead_letter: str | TopicName | None = None,
        max_unacked: int = MAX_UNACKED,
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> GroupSubscriber: ...

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: str | None,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> Subscriber | GroupSubscriber: ...

    def subscriber(
        self, topic: str | TopicName, *, group: str | None = None, **options: Any
    ) -> Subscriber | GroupSubscriber:
        """A subscriber to one topic.

        Args:
            group: read as a member of this group, which shares the segments out and remembers what was acknowledged.
                Without one the subscriber reads everything itself.
            start: "earliest": what retention kept. "latest": what is committed from now on. An int: every record
                whose offset is at least that, in every segment. A datetime: in every segment, the first record with
                at least that timestamp and all that follow it. A group that read the topic before goes on where it was.
            limit: end after this many records.
            stop_at: "latest": end when everything committed at the time of opening was delivered; with a group, when
                all its members have acknowledged that.
            timeout: end when nothing arrived for this many seconds.
            columns: of the batches; all by default.
            on_missing: "fail": raise ``DataLoss`` where records are lost, which neither retention nor a low watermark
                removed. "skip": continue behind them, with a warning and an entry in ``skipped``.
            member: with a group, a name of one's own; a later member of the same name fences the earlier.
            auto_ack: with a group, what was handed out is acknowledged when the next is asked for.
            max_deliveries: with a group, after so many a record goes to ``dead_letter``, by default
                ``<topic>.<group>.dead-letter``, which is created if it does not exist.
            max_unacked: with a group, records handed out and not acknowledged, beyond which delivery waits.

        Raises:
            NotFound: no such topic.
        """
        opened = self._background.run(_opened(self._core.subscriber(topic, group=group, **options)))
        kind = Subscriber if group is None else GroupSubscriber
        return kind(opened, self._background)

    def close(self) -> None:
        """Close every publisher, which delivers what was sent, and subscriber, then the connections. Idempotent.

        Raises:
            SeaweedMQError: the first failure to deliver that was not told yet; everything is closed all the same.
            InvalidArgument: called by a callback or a coroutine handler, whose thread would wait for itself.
        """
        if self._closed:
            return
        self._background.check_thread()
        self._closed = True
        try:
            self._background.run(self._core.close())
        finally:
            self._background.stop()

    def _on_fork(self, error: Closed) -> None:
        self._closed = True
        for publisher in self._publishers:
            publisher.buffer.after_fork(error)


async def _opened(opening: aio_client.Opening[Any]) -> Any:
    return await opening
