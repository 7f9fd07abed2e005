"""The publisher: records and tables in, receipts out, over one lane per open segment."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster, TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.publish.buffer import Headers, NoRoom, RecordBuffer, Work
from seaweedmq.client.publish.delivery import Sent, SentTable
from seaweedmq.client.publish.failures import Failures
from seaweedmq.client.publish.framing import Piece, encode, piece_of, route
from seaweedmq.client.publish.lane import Lane
from seaweedmq.client.publish.routing import Routes, Trail
from seaweedmq.client.publish.rows import piece_of_records
from seaweedmq.client.publish.tables import TableJob, as_table, fit, is_plain, schema_to_adopt
from seaweedmq.client.publish.window import OutFrame
from seaweedmq.client.retry import retrying
from seaweedmq.client.start import Timestamp
from seaweedmq.codec.frame import SCHEMA_VERSION_SHIFT
from seaweedmq.codec.payload.batch import schema_from_bytes, schema_to_bytes
from seaweedmq.errors import Closed, DeadlineExceeded, InvalidArgument, OutOfRange, SeaweedMQError, Unavailable, fresh
from seaweedmq.model.calls import AdoptSchema
from seaweedmq.model.config import MIB
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.publish import PublishReady, PublishSealed
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName

LANES_PER_BATCH_MAX = 8
"""A batch is made larger for more segments, up to this, so that the frames it is split into do not get small."""
FRAME_BYTES_MAX = 120 * MIB
"""More than this no client receives in a message. Brokers take less, as each says when a lane has reached it."""
AHEAD_BYTES = 4 * MIB
"""Frames encoded ahead of a connected lane: enough to keep it busy, few enough to stay in the processor's cache."""


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
        self._producer_id = cluster.env.rng.getrandbits(63)
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._view = TopicView(cluster, topic, self._on_description, lambda: self._lanes)
        self._schema: pa.Schema | None = None
        self._routes: Routes | None = None
        self._heirs: dict[int, Segment] = {}
        """The segments of the routes, as they were described when records began to go there."""
        self._lanes: dict[int, Lane] = {}
        self._trail = Trail()
        """Segments whose lane was handed over -> to whom. None of them gets a lane again: it would number from 0 on,
        and what the segment has of the first lane would pass for what the second one sent."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._unsettled: dict[Work, None] = {}
        self._flushes: list[tuple[set[Work], asyncio.Future[None]]] = []
        self._failures = Failures()
        self._closing: asyncio.Task[None] | None = None
        self.buffer = RecordBuffer(
            post=post,
            clock=self._loop.time,
            wall_us=cluster.env.wall_us,
            batch_bytes=min(config.batch_bytes, config.buffer_bytes_max),
            bytes_max=config.buffer_bytes_max,
            delivery_timeout_s=config.delivery_timeout_s,
            frame_bytes_max=self._frame_bytes_max,
            on_open=self._on_open,
            on_work=self._work.set,
            on_settled=self._on_settled,
            on_refused=self._failures.add,
        )

    @property
    def topic(self) -> str:
        return str(self._topic)

    @property
    def is_closed(self) -> bool:
        """Closed for good, with everything delivered or failed."""
        return self._closing is not None and self._closing.done()

    async def start(self) -> None:
        """Learn the topic's segments. Raises NotFound."""
        description = await self.description(True)
        self._routes = Routes.to_open(description.topic.ring, description.segments)
        self._heirs = {s.id: s for s in description.segments if s.is_open}
        self.buffer.batch_bytes = min(self._piece_bytes(), self._config.buffer_bytes_max)
        self._spawn(self._pump(), "publisher pump")
        self._spawn(self._watch_deadlines(), "publisher deadlines")

    # --- what users call -------------------------------------------------------------------------------------------

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
    ) -> Sent:
        """Take a record in, waiting while ``buffer_bytes_max`` is reached, and return the future of its receipt.

        Args:
            key: records of one key stay in order; without one the record goes anywhere.
            timestamp: aware datetime or microseconds since 1970; now by default.

        Raises:
            InvalidArgument: an argument has the wrong type, or the topic has a schema (use ``send_table``).
            Closed: the publisher is closed.
        """
        while True:
            try:
                return self.buffer.send(value, key=key, headers=headers, timestamp=timestamp)
            except NoRoom as full:
                await self.buffer.room(full.size)

    async def send_table(
        self, table: pa.Table | pa.RecordBatch, key: str | None = None, timestamp: str | None = None
    ) -> SentTable:
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
            await self.buffer.room(job.size)
        return job.future

    async def flush(self, timeout: float | None = None) -> None:
        """Return when everything sent so far is acknowledged.

        Raises:
            DeadlineExceeded: it is not within ``timeout`` seconds.
            SeaweedMQError: the first failure since the last flush.
        """
        await self._settled(timeout)
        error = self._failures.take()
        if error is not None:
            raise error

    async def _settled(self, timeout_s: float | None) -> None:
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
                    f"they are still being sent{self._last_errors()}"
                ) from None
            finally:
                self._flushes.remove(entry)

    async def close(self, timeout: float | None = None) -> None:
        """Deliver everything, then stop. What could not be delivered in time fails with Closed. Idempotent.

        Args:
            timeout: seconds; ``close_timeout_s`` by default.

        Raises:
            SeaweedMQError: something failed since the last flush, and nobody has asked its future; or, as
                :meth:`flush`, it took too long. The publisher is closed all the same.
        """
        if self.is_closed:
            return
        if self._closing is None:
            timeout_s = self._config.close_timeout_s if timeout is None else timeout
            self._closing = asyncio.create_task(self._close(timeout_s))
        await asyncio.shield(self._closing)

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
            await self._settled(timeout_s)
            error = self._failures.untold()
            if error is not None:
                raise error
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*list(self._tasks), return_exceptions=True)
            self._fail_everything(Closed(f"the publisher of {self._topic} was closed before this was acknowledged"))
            self._on_close(self)

    # --- for the synchronous face ----------------------------------------------------------------------------------

    async def prepare(self, table: pa.Table | pa.RecordBatch, key: str | None, timestamp: str | None) -> TableJob:
        """A table made to fit the topic. Raises InvalidArgument."""
        table = as_table(table)
        description = await self.description(False)
        if description.topic.schema is None and not is_plain(table.schema):
            data, uid = schema_to_bytes(schema_to_adopt(table)), description.topic.uid
            description = await self._cluster.call(f"give {self._topic} a schema", AdoptSchema(self._topic, data, uid))
            self._view.know(description)
        batches, flags = fit(table, self._schema, key, timestamp)
        future = SentTable(sum(b.num_rows for b in batches))
        job = TableJob(batches, flags, sum(b.nbytes for b in batches), self._cluster.env.wall_us(), future)
        future.on_settled = lambda: self._on_settled(job)
        return job

    # --- for lanes -------------------------------------------------------------------------------------------------

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription:
        return await self._view.description(refresh, ids)

    def _on_description(self, description: TopicDescription) -> None:
        schema = description.topic.schema
        self._schema = None if schema is None else schema_from_bytes(schema)
        self.buffer.refusal = (
            None
            if schema is None
            else InvalidArgument(f"{self._topic} has a schema: publish tables of its columns with send_table")
        )

    def on_ready(self, lane: Lane, ready: PublishReady) -> None:
        self._frame_bytes_max = min(self._frame_bytes_max, ready.frame_bytes_max)
        self.buffer.frame_bytes_max = self._frame_bytes_max
        # Whoever said it first, this lane may hold frames that were cut before.
        too_long = lane.window.first_longer(ready.frame_bytes_max, ready.next_sequence)
        if too_long is not None:
            self._send_again(lane.window.take_from(too_long))
        self.on_progress()

    def on_progress(self) -> None:
        self._progress.set()

    async def on_sealed(self, lane: Lane, sealed: PublishSealed) -> None:
        successors = await self._successors(sealed.successors)
        # From here to the end nothing awaits: a record sent meanwhile can not slip in between.
        routes = self._current_routes().replace(lane.segment.id, successors)
        lost = lane.window.loss(sealed)
        committed, rest = lane.window.sealed(sealed)
        if lost is not None:
            for frame in rest:
                frame.outcome.failed(frame.rows, lost)
            rest = []
        for frame, base_offset in committed:
            frame.outcome.acked(frame.rows, lane.segment.id, base_offset)
        self._hand_over(lane, successors, routes)
        self._send_again(rest)

    async def on_segment_gone(self, lane: Lane) -> None:
        description = await self.description(True)
        heirs = [s for s in description.segments if s.is_open]
        routes = self._current_routes().replace(lane.segment.id, heirs)
        rest = lane.window.take_unstored()
        gone = OutOfRange(
            f"{lane.segment} was sealed long ago and is forgotten: what was sent there and not acknowledged may have "
            "been kept, until retention removed it; publish it again only if a second copy does no harm"
        )
        for frame in lane.window.take_all():
            frame.outcome.failed(frame.rows, gone)
        self._hand_over(lane, heirs, routes)
        self._send_again(rest)

    def _hand_over(self, lane: Lane, heirs: list[Segment], routes: Routes) -> None:
        """End the lane. The routes were made before its window was emptied: that fails while metadata is changing."""
        self._routes = routes
        known = self._heirs | {heir.id: heir for heir in heirs}
        self._heirs = {number: known[number] for number in routes.segments}
        self._trail.leave(lane.segment.id, (heir.id for heir in heirs), routes)
        del self._lanes[lane.segment.id]
        self.buffer.batch_bytes = min(self._piece_bytes(), self._config.buffer_bytes_max)

    def _send_again(self, frames: list[OutFrame]) -> None:
        for frame in frames:
            try:
                piece = piece_of(frame.data, self._schema, frame.rows, frame.outcome)
                if self.buffer.refusal is not None and not piece.flags >> SCHEMA_VERSION_SHIFT:
                    raise fresh(self.buffer.refusal)
            except SeaweedMQError as error:
                frame.outcome.failed(frame.rows, error)  # it is in no queue any more: nobody else would say so
                continue
            self._enqueue(piece)

    async def _successors(self, ids: Iterable[int]) -> list[Segment]:
        """Where to go on. After a merge the other side may have been there, and gone on, already; and what came next
        may be pruned when the publisher was away for long."""
        refresh = False
        async for attempt in retrying(self._config, self._cluster.env.rng, lambda: not self._unsettled):
            with attempt:
                wanted = self._trail.follow(ids)  # anew each time: lanes end meanwhile
                description = await self.description(refresh, wanted)
                found = {s.id: s for s in description.segments}
                if wanted and found.keys() >= wanted:
                    return [found[number] for number in sorted(wanted)]
                refresh = True
                if wanted and max(wanted) < description.topic.next_segment:
                    return [s for s in description.segments if s.is_open]
                raise Unavailable(
                    f"the successors {sorted(wanted)} of a sealed segment of {self._topic} are not known yet"
                )
        raise AssertionError("retrying ended without a result")

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

    def _on_open(self) -> None:
        batch = self.buffer.open_batch
        if batch is not None:
            self._loop.call_later(self._config.linger_s, self.buffer.cut, batch)

    def _on_settled(self, work: Work) -> None:
        self._unsettled.pop(work, None)
        self.buffer.release(work.size)
        if isinstance(work, TableJob):
            work.forget_rows()  # its future is with the caller, and among the failures
            self._failures.add(work.future)
        else:
            self._failures.add(work)
        for pending, done in self._flushes:
            pending.discard(work)
            if not pending and not done.done():
                done.set_result(None)

    async def _pump(self) -> None:
        while True:
            while not self.buffer.work:
                self._work.clear()
                await self._work.wait()
            work = self.buffer.work.popleft()
            self._unsettled[work] = None
            await self._encode(work)
            self.buffer.encoded()

    async def _encode(self, work: Work) -> None:
        enqueued = 0
        error: SeaweedMQError | None = None
        try:
            async with asyncio.timeout_at(work.deadline):
                for piece in self._pieces(work):
                    await self._until_room()
                    self._enqueue(piece)
                    enqueued += len(piece.rows)
        except TimeoutError:
            error = DeadlineExceeded(f"not sent within delivery_timeout_s{self._last_errors()}")
        except SeaweedMQError as refusal:
            error = refusal
        if error is not None or work.count == 0:
            work.settle_from(enqueued, error)

    def _pieces(self, work: Work) -> Iterable[Piece]:
        if isinstance(work, TableJob):
            return work.pieces(self._piece_bytes())
        if self.buffer.refusal is not None:
            raise fresh(self.buffer.refusal)
        piece = piece_of_records(work)
        work.forget_records()
        return [piece]

    async def _until_room(self) -> None:
        while self._is_crowded():
            self._progress.clear()
            await self._progress.wait()

    def _is_crowded(self) -> bool:
        windows = [lane.window for lane in self._lanes.values()]
        if sum(window.queued_bytes for window in windows) > self._config.buffer_bytes_max:
            return True
        return any(window.is_open and window.waiting_bytes > AHEAD_BYTES for window in windows)

    async def _watch_deadlines(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._config.delivery_timeout_s / 10))
            for lane in self._lanes.values():
                lane.expire(self._loop.time())
            self.on_progress()

    def _fail_everything(self, error: SeaweedMQError) -> None:
        for lane in self._lanes.values():
            lane.window.take_all()
        for work in [*self._unsettled, *self.buffer.waiting_work()]:
            work.fail_rest(error)
        self.buffer.work.clear()

    def _last_errors(self) -> str:
        errors = [str(lane.last_error) for lane in self._lanes.values() if lane.last_error is not None]
        return f"; last: {'; '.join(errors[:3])}" if errors else ""

    def _current_routes(self) -> Routes:
        if self._routes is None:
            raise AssertionError("start() comes first")
        return self._routes

    def _lane(self, segment: int) -> Lane:
        lane = self._lanes.get(segment)
        if lane is None:
            known = self._heirs[segment]
            lane = self._lanes[segment] = Lane(self, self._cluster, self._topic, known, self._producer_id)
            self._spawn(lane.run(), f"lane {segment}")
        return lane

    def _piece_bytes(self) -> int:
        return self._config.batch_bytes * min(LANES_PER_BATCH_MAX, max(1, len(self._current_routes().segments)))

    def _enqueue(self, piece: Piece) -> None:
        """Route and encode rows and put them into their lanes. Does not await: see ``on_sealed``."""
        for share in route(piece, self._current_routes(), self._pick):
            lane = self._lane(share.segment)
            for frame in encode(
                share,
                slots_range=lane.segment.slots,
                producer_id=self._producer_id,
                first_sequence=lane.window.next_sequence,
                frame_bytes=self._config.batch_bytes,
                frame_bytes_max=self._frame_bytes_max,
            ):
                lane.window.add(frame.data, frame.rows, frame.outcome)
            lane.wake()

    def _pick(self, slots: KeyRange) -> int:
        return self._cluster.env.rng.randrange(slots.lo, slots.hi)
