"""The synchronous client, publisher and subscribers, for threads."""

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
    """A context manager that closes at the end of the block."""

    @abstractmethod
    def close(self) -> None:
        """Close."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Publisher(_Context):
    """A publisher to one topic. Any number of threads may use it.

    Records of one key keep the order of the calls. A record is stored once, however often its frame is sent. With
    ``with``, the end of the block delivers all records.
    """

    def __init__(self, core: aio_publisher.Publisher, background: Background) -> None:
        self._core = core
        self._background = background
        self.send = core.buffer.send  # type: ignore[method-assign]  # saves one call per record

    @property
    def topic(self) -> str:
        """The topic, ``namespace/name``."""
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
        """Send a record, and return the future of its :class:`Receipt`. Blocks while ``buffer_bytes_max`` is reached.

        Args:
            value: The value.
            key: The key. Records of one key stay in order; a record without a key goes to any segment.
            headers: Names with bytes or None, as a mapping, or as pairs, which may repeat a name.
            timestamp: A datetime with a time zone, or microseconds since 1970. Default: now.
            timeout: The longest wait for room, in seconds. Default: unlimited.

        Raises:
            InvalidArgument: If an argument has the wrong type, or the topic has a schema (use ``send_table``).
            DeadlineExceeded: If there is no room within ``timeout``. The record was not sent.
            Closed: If the publisher is closed.
        """
        return self._core.buffer.send(value, key=key, headers=headers, timestamp=timestamp, timeout=timeout)

    def send_table(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str | None = None,
        timestamp: str | None = None,
        timeout: float | None = None,
    ) -> TableFuture:
        """Publish every row of a table, and return the future of a :class:`TableReceipt`.

        No row becomes a Python object. The topic's schema determines the table's columns. A topic without a schema
        takes tables of ``_value`` and optionally ``_key``, ``_timestamp`` and ``_headers``. An empty topic adopts the
        schema of any other table.

        Args:
            table: The rows.
            key: The column of the keys: text (as UTF-8), bytes, or integers (as decimal text). Default: ``_key``.
            timestamp: The column of the timestamps; UTC if it has no time zone. Default: ``_timestamp``.
            timeout: The longest wait while ``buffer_bytes_max`` is reached, in seconds. Default: unlimited.

        Raises:
            InvalidArgument: If a column does not fit. The message names it.
            DeadlineExceeded: If there is no room within ``timeout``. Nothing was sent.
            Closed: If the publisher is closed.
        """
        job = self._background.run(self._core.prepare(table, key, timestamp))
        while not self._core.buffer.add_table(job):
            self._core.buffer.room.wait(job.size_bytes, timeout)
        return job.promise

    flush = blocking(aio_publisher.Publisher.flush)

    @documented_as(aio_publisher.Publisher.close)
    def close(self, timeout: float | None = None) -> None:
        """Deliver all records, then stop."""
        if not (self._core.is_close_reported or (self._core.is_closed and self._background.is_stopped)):
            self._background.run(self._core.close(timeout))


class Subscriber(_Context):
    """A subscriber to one topic. One thread takes from it at a time; any thread may close it, which ends iteration."""

    def __init__(
        self, core: aio_subscriber.Subscriber | aio_group_subscriber.GroupSubscriber, background: Background
    ) -> None:
        self._core = core
        self._background = background
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

    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Acknowledge a message, or all rows of a batch. Any thread may call it. Without a group this does nothing.

        Args:
            delivered: A message, or rows of a delivered batch with ``_segment`` and ``_offset``.

        Raises:
            InvalidArgument: If the batch has no columns ``_segment`` and ``_offset``.
        """
        self._core.ack(delivered)

    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Reject a message, or all rows of a batch: the group redelivers them. Any thread may call it.

        Without a group this does nothing.

        Args:
            delivered: A message, or rows of a delivered batch with ``_segment`` and ``_offset``.
            delay: The time before redelivery, in seconds or as a timedelta.

        Raises:
            InvalidArgument: If the delay is negative, or the batch has no columns ``_segment`` and ``_offset``.
        """
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

    def close(self) -> None:
        """End iteration, commit acknowledged offsets, and leave the group. Idempotent.

        It waits for handlers up to ``close_timeout_s``, unless a handler calls it.
        """
        if self._core.is_inside_handler():
            self._core.end()
        else:
            super().close()


class Client(_Context):
    """A connection to a cluster, made by ``seaweedmq.connect``. Any number of threads may use it.

    ``with``, :meth:`close` and the end of the interpreter close it. A forked child process cannot use it. ``admin`` is
    the administration of the cluster.
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
        """Open a publisher to one topic.

        Args:
            topic: The topic, ``namespace/name``.
            linger_s: See :class:`ClientConfig`, also for the options below. Default: the client's value.
            batch_bytes: See there.
            buffer_bytes_max: See there.
            delivery_timeout_s: See there.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If the name or an option is invalid.
        """
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
        """Open a subscriber to one topic.

        Args:
            topic: The topic, ``namespace/name``.
            group: The group to join. It divides the segments among its members and stores acknowledged offsets.
                Without a group the subscriber reads the whole topic itself.
            **options: The options below.

        Options of every subscriber:

        - ``start``: ``"earliest"`` reads all records that retention has not removed, ``"latest"`` (the default) those
          committed from now on. An int reads every record at or above that offset, in every segment. A datetime with a
          time zone reads, in every segment, the first record with at least that timestamp and all that follow it. A
          group that read the topic before continues at its committed offsets.
        - ``limit``: The number of records after which iteration ends. Default: unlimited.
        - ``stop_at``: ``"latest"`` ends iteration when all records committed at the time of opening were delivered;
          with a group, when its members have acknowledged them.
        - ``timeout``: The time without records after which iteration ends, in seconds. Default: unlimited.
        - ``columns``: The columns of the batches. Default: all.
        - ``on_missing``: ``"fail"`` (the default) raises ``DataLoss`` where records are lost, which neither retention
          nor a low watermark removed. ``"skip"`` continues after them, with a warning and an entry in ``skipped``.

        Options with a group:

        - ``member``: The member's name, 1 to 100 of ``A-Z a-z 0-9 . _ -``. Default: a random name. A later member of
          the same name fences the earlier one.
        - ``auto_ack``: Whether the request for the next records acknowledges the previous ones. Default: False.
        - ``max_deliveries``: The number of deliveries after which a record goes to ``dead_letter``. Default: unlimited.
        - ``dead_letter``: The dead-letter topic, which is created if it does not exist. Default:
          ``<topic>.<group>.dead-letter``.
        - ``max_unacked``: The limit of unacknowledged records, above which delivery waits. Default: 100,000.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If a name or an option is invalid, or an option needs a group.
            TypeError: If an option does not exist.
            Unavailable: If no broker answers within ``admin_timeout_s``.
            ResourceExhausted: If ``groups_max``, ``group_members_max`` or the leader's memory for groups is reached.
        """
        opened = self._background.run(_opened(self._core.subscriber(topic, group=group, **options)))
        kind = Subscriber if group is None else GroupSubscriber
        return kind(opened, self._background)

    def close(self) -> None:
        """Close all publishers and subscribers, then the connections. Idempotent.

        Publishers deliver the records that were sent.

        Raises:
            SeaweedMQError: If a delivery failed and no earlier call reported it: the first such failure. Everything
                is closed nevertheless.
            InvalidArgument: If a callback or a coroutine handler calls it, whose thread would wait for itself.
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
