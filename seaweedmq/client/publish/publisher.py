"""The publisher: records and tables in, receipts out, over one lane per open segment."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from seaweedmq.client.closing import Closing
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.publish.batches.arguments import Headers
from seaweedmq.client.publish.batches.tables import TableJob, as_table, fit, is_plain, schema_to_adopt
from seaweedmq.client.publish.buffer import NoRoom, RecordBuffer, Work
from seaweedmq.client.publish.futures import RecordFuture, TableFuture
from seaweedmq.client.publish.outbox import Action, Deliver, Outbox, Reopen, SendLimits
from seaweedmq.client.publish.outgoing_frame import FrameAcked, FrameFailed
from seaweedmq.client.publish.promise import BatchPromise
from seaweedmq.client.publish.segment_sender import SegmentSender
from seaweedmq.client.publish.unreported_errors import UnreportedErrors
from seaweedmq.client.start import Timestamp
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.errors import Closed, DeadlineExceeded, SeaweedMQError, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import AdoptSchema
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.topic import TopicName

OVERDUE_LOOK_S = 0.5
"""How often is looked for what is overdue and can not leave its queue yet."""


class Publisher:
    """Publishes to one topic. Safe for any number of tasks of one event loop.

    Records of one key are kept in the order of the calls. A record is stored once, however often its frame had to be
    sent. With ``async with``, leaving the block delivers everything.
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._unsettled: dict[Work, None] = {}
        self._flushes: list[tuple[set[Work], asyncio.Future[None]]] = []
        self._failures = UnreportedErrors()
        self._closing = Closing()
        self._deadline: asyncio.TimerHandle | None = None
        """Set while something waits for its outcome, and sometimes for a while after."""
        self.buffer = RecordBuffer(
            owner=self, post=post, clock=self._loop.time, wall_us=cluster.env.wall_us, config=config
        )

    @property
    def topic(self) -> str:
        return str(self._topic)

    @property
    def is_closed(self) -> bool:
        """Closed for good, with everything delivered or failed."""
        return self._closing.is_done

    @property
    def is_close_reported(self) -> bool:
        """Whether it is closed, and a :meth:`close` has returned or raised how that ended."""
        return self._closing.is_reported

    def described(self) -> str:
        """Kind, topic, and the records without an outcome, for messages."""
        works = {*self._unsettled, *self.buffer.waiting_work()}
        records = self.buffer.open_records + sum(work.promise.pending for work in works)
        return f"publisher of {self._topic} ({records} records not acknowledged)"

    async def start(self) -> None:
        """Learn the topic's segments. Raises NotFound."""
        description = await self._view.description(True)
        self._report(self._outbox.begin(description.topic.ring, description.segments))
        self._spawn(self._pump(), "publisher pump")
        if description.topic.partitions is not None:
            self._view.keep_looking(self._config.metadata_max_age_s)

    # --- what users call -------------------------------------------------------------------------------------------

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> RecordFuture:
        """Take a record in, waiting while ``buffer_bytes_max`` is reached, and return the future of its receipt.

        Args:
            key: records of one key stay in order; without one the record goes anywhere.
            headers: names with their bytes or None, as a mapping, or as pairs where a name is repeated.
            timestamp: aware datetime or microseconds since 1970; now by default.

        Raises:
            InvalidArgument: an argument has the wrong type, or the topic has a schema (use ``send_table``).
            Closed: the publisher is closed.
        """
        self._cluster.check_loop()
        while True:
            try:
                return self.buffer.send(value, key=key, headers=headers, timestamp=timestamp)
            except NoRoom as full:
                await self.buffer.room(full.size_bytes)

    async def send_table(
        self, table: pa.Table | pa.RecordBatch, key: str | None = None, timestamp: str | None = None
    ) -> TableFuture:
        """Publish every row, without touching one in Python, and return the future of a ``TableReceipt``.

        The topic's schema decides which columns the table has. A topic without one takes tables of ``_value`` and,
        if wanted, ``_key, _timestamp, _headers``; given another table while still empty, it adopts its schema.

        Args:
            key, timestamp: columns to take them from. Keys are text as UTF-8, bytes, or integers as decimal text.
                Timestamps without a time zone are UTC.

        Raises:
            InvalidArgument: names the column that does not fit.
        """
        job = await self.prepare(table, key, timestamp)
        while not self.buffer.add_table(job):
            await self.buffer.room(job.size_bytes)
        return job.promise

    async def flush(self, timeout: float | None = None) -> None:
        """Return when everything sent so far is acknowledged.

        Raises:
            DeadlineExceeded: it is not within ``timeout`` seconds.
            SeaweedMQError: the first failure since the last flush.
        """
        self._cluster.check_loop()
        await self._until_settled(timeout)
        error = self._failures.take()
        if error is not None:
            raise error

    async def _until_settled(self, timeout_s: float | None) -> None:
        """Everything sent so far has an outcome. Raises DeadlineExceeded."""
        self.buffer.cut()
        pending: set[Work] = {*self._unsettled, *self.buffer.waiting_work()}
        if pending:
            done: asyncio.Future[None] = self._loop.create_future()
            entry = (pending, done)
            self._flushes.append(entry)
            try:
                async with asyncio.timeout(timeout_s):
                    await done
            except TimeoutError:
                raise DeadlineExceeded(
                    f"flush of {self._topic}: {len(pending)} batches are not acknowledged after {timeout_s:g} s; "
                    f"they are still being sent{self._outbox.last_errors()}"
                ) from None
            finally:
                self._flushes.remove(entry)

    async def close(self, timeout: float | None = None) -> None:
        """Deliver everything, then stop. What could not be delivered in time fails with Closed. Idempotent; a call that
        is cancelled leaves closing under way, and the next awaits the same, or raises what it failed with.

        Args:
            timeout: seconds; ``close_timeout_s`` by default.

        Raises:
            SeaweedMQError: something failed since the last flush, and nobody has asked its future; or, as
                :meth:`flush`, it took too long. The publisher is closed all the same.
        """
        if not self._closing.is_reported:
            self._cluster.check_loop()
        timeout_s = self._config.close_timeout_s if timeout is None else timeout
        try:
            await self._closing.once(partial(self._close, timeout_s), f"close the publisher of {self._topic}")
        finally:
            if self._closing.is_reported:  # until then the client has it, to report a failure when it is closed
                self._on_close(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _close(self, timeout_s: float) -> None:
        closed = Closed(f"the publisher of {self._topic} is closed: open another")
        self.buffer.close(closed)
        try:
            await self._until_settled(timeout_s)
            error = self._failures.untold()
            if error is not None:
                raise error
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*list(self._tasks), return_exceptions=True)
            if self._deadline is not None:
                self._deadline.cancel()
            self._view.close()
            self._fail_everything(Closed(f"the publisher of {self._topic} was closed before this was acknowledged"))

    # --- for the synchronous face ----------------------------------------------------------------------------------

    async def prepare(self, table: pa.Table | pa.RecordBatch, key: str | None, timestamp: str | None) -> TableJob:
        """A table made to fit the topic. Raises InvalidArgument."""
        self._cluster.check_loop()
        table = as_table(table)
        description = await self._view.description(False)
        if description.topic.schema is None and not is_plain(table.schema):
            suggested = schema_to_adopt(table)
            fit(table, suggested, key, timestamp)  # before anything is changed: a topic keeps what it adopted
            data, uid = schema_to_bytes(suggested), description.topic.uid
            description = await self._cluster.call(f"give {self._topic} a schema", AdoptSchema(self._topic, data, uid))
            self._view.know(description)
        batches, flags = fit(table, self._outbox.schema, key, timestamp)
        promise = TableFuture(sum(b.num_rows for b in batches), get_ident())
        job = TableJob(batches, flags, sum(b.nbytes for b in batches), self._cluster.env.wall_us(), promise)
        promise.on_settled = lambda: self.on_settled(job)
        return job

    # --- for the buffer --------------------------------------------------------------------------------------------

    def on_open(self) -> None:
        if self.buffer.work:
            self.on_work()
        batch = self.buffer.open_batch
        if batch is None:
            return
        due_s = self.buffer.cut_at_s + self._config.linger_s
        if due_s > self._loop.time():
            self._loop.call_at(due_s, self.buffer.cut, batch)
        else:
            self.buffer.cut(batch)

    def on_work(self) -> None:
        self._work.set()

    def on_settled(self, work: Work) -> None:
        self._unsettled.pop(work, None)
        self.buffer.release(work.size_bytes)
        work.forget()
        self._failures.add(work.promise)
        for pending, done in self._flushes:
            pending.discard(work)
            if not pending and not done.done():
                done.set_result(None)

    def on_refused(self, promise: BatchPromise) -> None:
        self._failures.add(promise)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=f"{name} of {self._topic}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would be delivered, so everybody who waits is told.
            fatal = Closed(f"the publisher of {self._topic} broke down: {error!r}; open another and report this")
            fatal.__cause__ = error
            self.buffer.close(fatal)
            self._fail_everything(fatal)

    def _on_description(self, description: TopicDescription) -> None:
        schema = description.topic.schema
        self._outbox.schema = None if schema is None else schema_from_bytes(schema)
        self.buffer.refusal = self._outbox.refusal
        with suppress(Unavailable):  # a cluster shows only in passing that not all of them are open
            self._outbox.grow(description.topic.ring, description.segments)
        for sender in self._senders.values():
            sender.told()

    async def _pump(self) -> None:
        while True:
            while not self.buffer.work:
                self._work.clear()
                await self._work.wait()
            work = self.buffer.work.popleft()
            self._unsettled[work] = None
            self._watch(work.promise.deadline_s)
            await self._put_out(work)
            self.buffer.encoded()

    async def _put_out(self, work: Work) -> None:
        """Work into frames, as there is room for them."""
        put_out = 0
        error: SeaweedMQError | None = None
        try:
            for rows in work.rows(self._outbox.rows_bytes):
                if self._outbox.is_crowded:
                    await self._until_room(work.promise.deadline_s)
                self._report(self._outbox.add(rows))
                put_out += len(rows)
        except SeaweedMQError as failure:
            error = failure
        if error is not None or put_out == 0:
            work.promise.settle_from(put_out, error)

    async def _until_room(self, deadline_s: float) -> None:
        """Raises DeadlineExceeded: there was none in time."""
        try:
            async with asyncio.timeout_at(deadline_s):
                while self._outbox.is_crowded:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"not sent within delivery_timeout_s{self._outbox.last_errors()}") from None

    def _watch(self, deadline_s: float) -> None:
        """See then what is overdue. One timer at a time, so that an acknowledgement costs none: what comes later is due
        later, or hardly sooner."""
        if self._deadline is None:
            self._deadline = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._deadline = None
        self._report(self._outbox.expire(self._loop.time()))
        if self._unsettled:
            soonest_s = min(work.promise.deadline_s for work in self._unsettled)
            self._watch(max(soonest_s, self._loop.time() + OVERDUE_LOOK_S))

    def _report(self, actions: Iterable[Action]) -> None:
        """Do what comes of an event: the only place where rows get their outcome while the publisher works."""
        for action in actions:
            match action:  # without patterns for the fields, which take as long as all the rest
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
                    self.buffer.batch_bytes = action.batch_bytes
        self._progress.set()

    def _sender(self, segment: int) -> SegmentSender:
        sender = self._senders.get(segment)
        if sender is None:
            window = self._outbox.window(segment)
            sender = self._senders[segment] = SegmentSender(
                self._cluster, self._view, self._outbox, window, self._report
            )
            self._spawn(self._run_sender(segment, sender), f"lane {segment}")
        return sender

    async def _run_sender(self, segment: int, sender: SegmentSender) -> None:
        await sender.run()
        del self._senders[segment]

    def _fail_everything(self, error: SeaweedMQError) -> None:
        self._report(self._outbox.clear(error))
        for work in [*self._unsettled, *self.buffer.waiting_work()]:
            work.promise.fail_rest(error)
        self.buffer.work.clear()
