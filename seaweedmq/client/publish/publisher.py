"""The publisher: sends records and tables of one topic, over one stream per open segment."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, BinaryIO

import pyarrow as pa

from seaweedmq.client.background_tasks import BackgroundTasks
from seaweedmq.client.closing import Closing, ClosingContext
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.publish.batches.arguments import Headers
from seaweedmq.client.publish.batches.batch import Batch
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.batches.tables import TableJob, as_table, fit, is_plain, schema_to_adopt
from seaweedmq.client.publish.buffer import RecordBuffer
from seaweedmq.client.publish.futures import RecordFuture, TableFuture
from seaweedmq.client.publish.outbox import Action, Deliver, Outbox, Reopen, SendLimits
from seaweedmq.client.publish.segment_sender import SegmentSender
from seaweedmq.client.publish.send_room import NoRoom
from seaweedmq.client.publish.unreported_errors import UnreportedErrors
from seaweedmq.client.publish.unsettled_work import UnsettledWork, Work
from seaweedmq.client.publish.uploads.job import UploadJob
from seaweedmq.client.publish.uploads.sources import FileSource, Source, StreamSource, new_upload_id
from seaweedmq.client.publish.uploads.uploader import Uploader
from seaweedmq.client.start import Timestamp
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.core.publish.outgoing_frame import FrameAcked, FrameFailed
from seaweedmq.errors import Closed, DeadlineExceeded, SeaweedMQError, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import AdoptSchema
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.topic import TopicName

OVERDUE_CHECK_S = 0.5
"""Interval at which overdue frames that cannot leave their window yet are checked again."""


class Publisher(ClosingContext):
    """A publisher to one topic. Any number of tasks of one event loop may use it.

    Records of one key keep the order of the calls. A record is stored once, however often its frame is sent. With
    ``async with``, the end of the block delivers all records.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        post: Callable[[Callable[[], None]], object],
        on_close: Callable[["Publisher"], None],
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._config = config
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(
            topic,
            cluster.env.rng.getrandbits(62) | NATIVE_PRODUCER_BIT,
            cluster.env.rng,
            frame_bytes=config.batch_bytes,
            bytes_max=config.buffer_bytes_max,
        )
        self._view = TopicView(cluster, topic, self._on_description, lambda: self._outbox.segments)
        self._senders: dict[int, SegmentSender] = {}
        self._tasks = BackgroundTasks(f"of {topic}", self._on_task_failed)
        self._uploader = Uploader(cluster, topic, config.delivery_timeout_s, self._tasks.spawn, self._release)
        self._progress = asyncio.Event()
        self._unsettled = UnsettledWork()
        self._failures = UnreportedErrors()
        self._closing = Closing()
        self._deadline: asyncio.TimerHandle | None = None
        """The timer of the next deadline; set while work is unsettled, and sometimes for a while after."""
        self.buffer = RecordBuffer(
            unsettled=self._unsettled,
            failures=self._failures,
            post=post,
            clock=self._loop.time,
            wall_us=cluster.env.wall_us,
            new_upload_id=partial(new_upload_id, cluster.env.rng),
            config=config,
        )

    @property
    def topic(self) -> str:
        """The topic, ``namespace/name``."""
        return str(self._topic)

    @property
    def is_closed(self) -> bool:
        """Whether the publisher is closed and every record has an outcome."""
        return self._closing.is_done

    @property
    def is_close_reported(self) -> bool:
        """Whether the publisher is closed, and a :meth:`close` has returned or raised the outcome."""
        return self._closing.is_reported

    def described(self) -> str:
        """Return the kind, the topic, and the number of unacknowledged records, for messages."""
        records = self.buffer.open_records + sum(work.promise.pending for work in self._open_work())
        return f"publisher of {self._topic} ({records} records not acknowledged)"

    async def start(self) -> None:
        """Query the topic's segments and begin to work; NotFound if the topic does not exist."""
        description = await self._view.description(True)
        self._uploader.topic_uid = description.topic.uid
        self._report(self._outbox.begin(description.topic.ring, description.segments, description.frame_bytes_max))
        self._tasks.spawn(self._pump(), "publisher pump")
        if description.topic.partitions is not None:
            self._view.refresh_periodically(self._config.metadata_max_age_s)

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> RecordFuture:
        """Send a record, and return the future of its receipt. Waits while ``buffer_bytes_max`` is reached.

        Arguments and errors are those of :meth:`seaweedmq.Publisher.send`, except ``timeout``. InvalidArgument is also
        raised in another event loop than the client's.
        """
        self._cluster.check_loop()
        while True:
            try:
                return self.buffer.send(value, key=key, headers=headers, timestamp=timestamp)
            except NoRoom as full:
                await self.buffer.room.available(full.size_bytes)

    async def send_file(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        content_type: str = "",
    ) -> RecordFuture:
        """Upload a file, then send a record that refers to it, and return its future. Waits like :meth:`send`.

        Arguments and errors are those of :meth:`seaweedmq.Publisher.send_file`, except ``timeout``.
        """
        self._cluster.check_loop()
        source = await asyncio.to_thread(FileSource, path, content_type)
        return await self._send_payload(source, key, headers, timestamp)

    async def send_stream(
        self,
        stream: BinaryIO,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        content_type: str = "",
    ) -> RecordFuture:
        """Upload what an open binary file has left, then send a record that refers to it. Waits like :meth:`send`.

        Arguments and errors are those of :meth:`seaweedmq.Publisher.send_stream`, except ``timeout``.
        """
        self._cluster.check_loop()
        source = StreamSource(stream, self.buffer.new_upload_id(), content_type)
        return await self._send_payload(source, key, headers, timestamp)

    async def _send_payload(self, source: Source, *options: Any) -> RecordFuture:
        job = self.buffer.upload_job(source, *options)
        while not self.buffer.add_upload(job):
            await self.buffer.room.available(job.size_bytes)
        return RecordFuture(job.promise, 0)

    async def send_table(
        self, table: pa.Table | pa.RecordBatch, key: str | None = None, timestamp: str | None = None
    ) -> TableFuture:
        """Publish every row of a table, and return the future of a ``TableReceipt``. Waits like :meth:`send`.

        Arguments and errors are those of :meth:`seaweedmq.Publisher.send_table`, except ``timeout``.
        """
        job = await self.prepare(table, key, timestamp)
        while not self.buffer.add_table(job):
            await self.buffer.room.available(job.size_bytes)
        return job.promise

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all records sent so far have an outcome.

        Args:
            timeout: The longest wait in seconds. Default: unlimited; each record fails after ``delivery_timeout_s``.

        Raises:
            DeadlineExceeded: If records have no outcome after ``timeout``. They are still being sent.
            SeaweedMQError: If a record failed since the last flush: the first failure.
        """
        self._cluster.check_loop()
        await self._until_settled(timeout)
        error = self._failures.take()
        if error is not None:
            raise error

    def _open_work(self) -> set[Work]:
        return {*self._unsettled, *self.buffer.waiting_work()}

    async def _until_settled(self, timeout_s: float | None) -> None:
        """Wait until everything sent so far has an outcome; DeadlineExceeded if it has not after ``timeout_s``."""
        self.buffer.cut()
        pending = self._open_work()
        if pending:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._unsettled.wait(pending)
            except TimeoutError:
                raise DeadlineExceeded(
                    f"flush of {self._topic}: {len(pending)} batches are not acknowledged after {timeout_s:g} s: "
                    f"they are still being sent{self._outbox.last_errors()}"
                ) from None

    async def close(self, timeout: float | None = None) -> None:
        """Deliver all records, then stop. Idempotent.

        Records without an outcome after ``timeout`` fail with ``Closed``. If the call is cancelled, closing continues,
        and the next call awaits it and raises its error.

        Args:
            timeout: The longest wait in seconds. Default: ``close_timeout_s`` after the last upload of a payload has
                ended, however long that takes.

        Raises:
            DeadlineExceeded: If records have no outcome after ``timeout``. The publisher is closed nevertheless.
            SeaweedMQError: If a record failed since the last flush, and its future has not reported it. The publisher
                is closed nevertheless.
        """
        if not self._closing.is_reported:
            self._cluster.check_loop()
        try:
            await self._closing.once(partial(self._close, timeout), f"close the publisher of {self._topic}")
        finally:
            if self._closing.is_reported:  # Until then the client holds it, to report a failure when it is closed.
                self._on_close(self)

    async def _close(self, timeout: float | None) -> None:
        closed = Closed(f"the publisher of {self._topic} is closed: open another")
        self.buffer.close(closed)
        try:
            if timeout is None:  # An upload ends by itself once it makes no progress.
                while any(isinstance(work, UploadJob) for work in self._open_work()):
                    await self._unsettled.wait({work for work in self._open_work() if isinstance(work, UploadJob)})
            await self._until_settled(self._config.close_timeout_s if timeout is None else timeout)
            error = self._failures.first_unreported()
            if error is not None:
                raise error
        finally:
            await self._tasks.stop()
            self._uploader.close()
            if self._deadline is not None:
                self._deadline.cancel()
            self._view.close()
            self._fail_everything(Closed(f"the publisher of {self._topic} was closed before this was acknowledged"))

    async def prepare(self, table: pa.Table | pa.RecordBatch, key: str | None, timestamp: str | None) -> TableJob:
        """Convert a table to the topic's columns. Arguments as in :meth:`send_table`."""
        self._cluster.check_loop()
        table = as_table(table)
        description = await self._view.description(False)
        if description.topic.schema is None and not is_plain(table.schema):
            suggested = schema_to_adopt(table)
            fit(table, suggested, key, timestamp)  # Before the topic changes: it keeps an adopted schema.
            data, uid = schema_to_bytes(suggested), description.topic.uid
            description = await self._cluster.call(
                f"set the schema of {self._topic}", AdoptSchema(self._topic, data, uid)
            )
            self._view.update(description)
        batches, flags = fit(table, self._outbox.schema, key, timestamp)
        promise = TableFuture(sum(b.num_rows for b in batches), get_ident())
        return TableJob(batches, flags, sum(b.nbytes for b in batches), self._cluster.env.wall_us(), promise)

    def _on_task_failed(self, name: str, error: BaseException) -> None:
        # A bug: nothing more would be delivered, so every waiter gets the error.
        fatal = Closed(f"the publisher of {self._topic} failed: {error!r}: open another one and report this")
        fatal.__cause__ = error
        self.buffer.close(fatal)
        self._fail_everything(fatal)

    def _on_description(self, description: TopicDescription) -> None:
        schema = description.topic.schema
        self._outbox.schema = None if schema is None else schema_from_bytes(schema)
        self.buffer.rejection = self._outbox.rejection
        with suppress(Unavailable):  # Transient: some new partitions are not open yet.
            self._outbox.grow(description.topic.ring, description.segments)
        for sender in self._senders.values():
            sender.on_update()

    async def _pump(self) -> None:
        while True:
            while not self.buffer.work:
                self.buffer.work_added.clear()
                await self.buffer.work_added.wait()
            work = self.buffer.work.popleft()
            self._unsettled.add(work)
            self._watch(work.promise.deadline_s)
            if isinstance(work, UploadJob):
                self._uploader.start(work)
            else:
                await self._encode(work)
            self.buffer.room.encoded()

    async def _encode(self, work: Batch | TableJob) -> None:
        """Turn work into frames, as room permits."""
        added = 0
        error: SeaweedMQError | None = None
        try:
            for rows in work.rows(self._outbox.rows_bytes):
                if self._outbox.is_crowded:
                    await self._until_room(work.promise.deadline_s)
                free = self._uploader.admit(rows)
                if free is not None:
                    self._report(self._outbox.add(free))
                added += len(rows)
        except SeaweedMQError as failure:
            error = failure
        if error is not None or added == 0:
            work.promise.settle_from(added, error)

    def _release(self, released: Rows | FrameFailed) -> None:
        """Send rows that waited for an upload: see ``Uploader``."""
        if isinstance(released, FrameFailed):
            self._report([released])
        else:
            self._report(self._outbox.add(released))
            self._watch(released.promise.deadline_s)

    async def _until_room(self, deadline_s: float) -> None:
        """Wait for room in the outbox; DeadlineExceeded if there is none before ``deadline_s``."""
        try:
            async with asyncio.timeout_at(deadline_s):
                while self._outbox.is_crowded:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                f"the record was not sent within delivery_timeout_s{self._outbox.last_errors()}"
            ) from None

    def _watch(self, deadline_s: float) -> None:
        """Check for overdue work at ``deadline_s``.

        One timer at a time, so that an acknowledgement costs none: later work is due later, or hardly sooner.
        """
        if self._deadline is None:
            self._deadline = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._deadline = None
        self._report(self._outbox.expire(self._loop.time()))
        if self._unsettled:
            soonest_s = min(work.promise.deadline_s for work in self._unsettled)
            self._watch(max(soonest_s, self._loop.time() + OVERDUE_CHECK_S))

    def _report(self, actions: Iterable[Action]) -> None:
        """Execute the actions of an event: the only place where rows get outcomes while the publisher works."""
        for action in actions:
            match action:  # Without patterns for the fields, which would double the cost.
                case FrameAcked():
                    action.promise.acked(action.positions, action.segment, action.base_offset)
                case FrameFailed():
                    action.promise.failed(action.positions, action.error)
                case Deliver():
                    self._sender(action.segment).wake()
                case Reopen():
                    self._senders[action.segment].reopen()
                case SendLimits():
                    self.buffer.frame_bytes_max = action.frame_bytes_max
                    self.buffer.room.batch_bytes = action.batch_bytes
        self._progress.set()

    def _sender(self, segment: int) -> SegmentSender:
        sender = self._senders.get(segment)
        if sender is None:
            sender = self._senders[segment] = SegmentSender(
                self._cluster, self._view, self._outbox, segment, self._report
            )
            self._tasks.spawn(self._run_sender(segment, sender), f"segment sender {segment}")
        return sender

    async def _run_sender(self, segment: int, sender: SegmentSender) -> None:
        await sender.run()
        del self._senders[segment]

    def _fail_everything(self, error: SeaweedMQError) -> None:
        self._report(self._outbox.clear(error))
        for work in self._open_work():
            work.promise.fail_rest(error)
        self.buffer.work.clear()
