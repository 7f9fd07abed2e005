"""The buffer of sent records: any thread fills it, the event loop drains it, and ``send`` waits while it is full.

``send`` must cost well under a microsecond, so it only appends to lists; the loop receives whole batches. Two limits
make ``send`` wait: unacknowledged bytes, and batches that the loop has not encoded yet. The second exists for the GIL.
A thread that never waits would keep it for 5 ms at every iteration of the loop; a waiting thread releases it at once.

A lock would be a third of the cost of ``send``, so while only one thread sends, it appends without the lock. Other
threads, including the loop's, only cut the batch, under the lock, in two steps: close it, then count its records. The
sending thread appends, then checks whether the batch is closed; if so, the lock decides whether the record was counted.
One of the two sees the other, because the GIL gives the steps of all threads one order. When a second thread sends, or
a signal handler during a ``send``, the batch is cut, and all threads take the lock from then on.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from seaweedmq.client.config import ClientConfig
from seaweedmq.client.publish.batches.arguments import HeaderPairs, Headers, as_bytes, as_headers
from seaweedmq.client.publish.batches.batch import Batch
from seaweedmq.client.publish.batches.framing import FRAME_BYTES_MAX, FRAME_OVERHEAD_BYTES
from seaweedmq.client.publish.batches.tables import TableJob
from seaweedmq.client.publish.futures import RecordFuture
from seaweedmq.client.publish.promise import BatchPromise
from seaweedmq.client.publish.send_room import SendRoom
from seaweedmq.client.publish.unreported_errors import UnreportedErrors
from seaweedmq.client.publish.unsettled_work import UnsettledWork, Work
from seaweedmq.client.publish.uploads.job import UploadJob
from seaweedmq.client.publish.uploads.sources import Source, ValueSource
from seaweedmq.client.start import Timestamp, to_us
from seaweedmq.errors import InvalidArgument, SeaweedMQError, fresh

RECORD_OVERHEAD_BYTES = 32
"""Size added to the bytes of every record, so that a million empty ones also count."""

_NO_THREAD_YET, _MANY = -1, -2
"""Values in place of a thread's identity, which is positive."""
_new_sent = RecordFuture.__new__
_NO_BATCH = Batch(-1, 0, 0.0, lambda _: None)


class RecordBuffer:
    """The open batch and the waiting work of one publisher.

    ``unsettled`` is the work that the loop has taken, and ``failures`` are those to be reported by flushes. ``post``
    schedules a function in the loop, from any thread; ``clock`` returns the loop's time in seconds. ``new_upload_id``
    returns a random id of an upload.
    """

    def __init__(
        self,
        *,
        unsettled: UnsettledWork,
        failures: UnreportedErrors,
        post: Callable[[Callable[[], None]], object],
        clock: Callable[[], float],
        wall_us: Callable[[], int],
        new_upload_id: Callable[[], str],
        config: ClientConfig,
    ) -> None:
        self._unsettled = unsettled
        self._failures = failures
        self._post = post
        self._clock = clock
        self._wall_us = wall_us
        self._linger_s = config.linger_s
        self._delivery_timeout_s = config.delivery_timeout_s
        self.frame_bytes_max = FRAME_BYTES_MAX
        self._reference_threshold = config.reference_threshold
        if config.reference_threshold is not None:
            self.send = self._send_by_size  # type: ignore[method-assign]  # others do not pay for the comparison
        self.new_upload_id = new_upload_id
        self._loop_thread = get_ident()
        self._thread = _NO_THREAD_YET
        """The only thread that has sent so far."""
        self._is_sending = False
        """Whether that thread is inside ``send`` without the lock, or was interrupted there."""
        self._lock = threading.Lock()
        bytes_max = config.buffer_bytes_max
        self.room = SendRoom(self._lock, bytes_max, min(config.batch_bytes, bytes_max))
        """The room for further records."""
        self._batch = _NO_BATCH
        self.work: deque[Work] = deque()
        """The work that the loop has not taken yet."""
        self.work_added = asyncio.Event()
        """An event of the loop that is set when there is work."""
        self.cut_at_s = -math.inf
        """Loop time at which the last batch was passed to the loop."""
        self.rejection: SeaweedMQError | None = None
        """The reason why the topic rejects single records; None if it does not."""
        self._closed: SeaweedMQError | None = None

    def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        timeout: float | None = None,
    ) -> RecordFuture:
        """Take in a record, with the arguments and errors of the synchronous ``Publisher.send``.

        NoRoom is raised if the buffer is full and this is the loop's thread. A task awaits ``room.available`` and
        retries.
        """
        if type(value) is not bytes:
            value = as_bytes("value", value)
        size = len(value) + RECORD_OVERHEAD_BYTES
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes("key", key)
            size += len(key)
        if headers is not None or timestamp is not None:
            return self._append_extras(value, key, headers, timestamp, size, timeout)
        if get_ident() != self._thread or self._is_sending:
            return self._append(value, key, None, None, size, timeout)
        self._is_sending = True
        batch = self._batch
        values = batch.values  # Read before the limit: a batch that is not cut yet still has its lists.
        total = batch.filled_bytes + size
        if total > batch.limit_bytes or batch.has_extras:
            self._is_sending = False
            return self._append(value, key, None, None, size, timeout)
        index = len(values)
        keys = batch.keys
        if keys is not None:
            if len(keys) != index:
                del keys[index:]  # An interrupt (Ctrl-C) came between a key and its value.
            keys.append(key)
        elif key is not None:
            batch.keys = [*[None] * index, key]
        batch.filled_bytes = total
        values.append(value)  # Last: the count of values implies their keys.
        self._is_sending = False
        if batch.limit_bytes < 0 and not self._was_counted(batch, index):
            return self._append(value, key, None, None, size, timeout)
        sent = _new_sent(RecordFuture)
        sent._promise = batch.promise  # noqa: SLF001 - saves a constructor call per record
        sent._position = index  # noqa: SLF001
        return sent

    def _send_by_size(self, value: bytes, **options: Any) -> RecordFuture:
        """Take in a record like :meth:`send`, by reference if its value is above ``reference_threshold``."""
        value = as_bytes("value", value)
        assert self._reference_threshold is not None
        if len(value) <= self._reference_threshold:
            return RecordBuffer.send(self, value, **options)
        return self._send_value(value, **options)

    def _send_value(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        timeout: float | None = None,
    ) -> RecordFuture:
        job = self.upload_job(ValueSource(value, self.new_upload_id()), key, headers, timestamp)
        while not self.add_upload(job):
            self.room.wait(job.size_bytes, timeout)
        return RecordFuture(job.promise, 0)

    def upload_job(
        self, source: Source, key: bytes | None, headers: Headers | None, timestamp: Timestamp | None
    ) -> UploadJob:
        """Return a record of a payload to be uploaded; InvalidArgument if key and headers do not fit a frame."""
        job = UploadJob(source, key=key, headers=headers, timestamp=timestamp, now_us=self._wall_us())
        if job.record_bytes + FRAME_OVERHEAD_BYTES > self.frame_bytes_max:
            raise self._over_limit(job.record_bytes)
        return job

    def add_upload(self, job: UploadJob) -> bool:
        """Queue a record whose payload is to be uploaded, like :meth:`add_table`; raises as :meth:`send`."""
        with self._lock:
            if self._closed is not None:
                raise fresh(self._closed)
            if self.rejection is not None:
                raise fresh(self.rejection)
            if not self.room.has(job.size_bytes):
                return False
            self._cut()
            job.begin(self._clock() + self._delivery_timeout_s, self._settled, self._loop_thread)
            self.room.add(job.size_bytes)
            self.work.append(job)
        self._post(self.work_added.set)
        return True

    def _was_counted(self, batch: Batch, index: int) -> bool:
        """Whether the batch, which was cut meanwhile, contains the record."""
        with self._lock:
            return index < batch.promise.count

    def _append_extras(
        self,
        value: bytes,
        key: bytes | None,
        headers: Headers | None,
        timestamp: Timestamp | None,
        size: int,
        timeout: float | None,
    ) -> RecordFuture:
        checked, headers_bytes = as_headers(headers)
        time_us = None if timestamp is None else to_us(timestamp)
        return self._append(value, key, checked, time_us, size + headers_bytes, timeout)

    def _append(
        self,
        value: bytes,
        key: bytes | None,
        headers: HeaderPairs | None,
        time_us: int | None,
        size: int,
        timeout: float | None,
    ) -> RecordFuture:
        """Take in a record that does not fit the fast path of :meth:`send`."""
        if size - RECORD_OVERHEAD_BYTES + FRAME_OVERHEAD_BYTES > self.frame_bytes_max:
            bytes_without = size - RECORD_OVERHEAD_BYTES - len(value)
            if bytes_without + FRAME_OVERHEAD_BYTES > self.frame_bytes_max:
                return self._refused(self._over_limit(bytes_without))
            return self._send_value(value, key=key, headers=headers, timestamp=time_us, timeout=timeout)
        while True:
            with self._lock:
                if get_ident() != self._thread or self._is_sending:
                    self._register_thread(get_ident())
                batch = self._batch
                if batch.filled_bytes + size <= batch.limit_bytes:
                    return _put(batch, value, key, headers, time_us, size)
                opened = self._next_batch(size)
                if opened is not None:
                    return _put(opened, value, key, headers, time_us, size)
            self.room.wait(size, timeout)

    def _register_thread(self, thread: int) -> None:
        """Register a sending thread: the first one, or a further one, after which all threads take the lock.

        A signal handler that sends during a ``send`` counts as a further thread.
        """
        if self._thread == _NO_THREAD_YET:
            self._thread = thread
        elif self._thread != _MANY:
            self._thread = _MANY
            if self._cut():
                self._post(self.work_added.set)

    def add_table(self, job: TableJob) -> bool:
        """Queue a table after the records sent before it. Return False if there is no room now.

        A table larger than the whole limit is accepted alone: the caller owns its memory.
        """
        with self._lock:
            if self._closed is not None:
                raise fresh(self._closed)
            if not self.room.has(job.size_bytes):
                return False
            self._cut()
            job.promise.on_settled = partial(self._settled, job)
            job.promise.deadline_s = self._clock() + self._delivery_timeout_s
            self.room.add(job.size_bytes)
            self.work.append(job)
        self._post(self.work_added.set)
        return True

    def cut(self, batch: Batch | None = None) -> None:
        """Pass the open batch to the loop; with ``batch``, only if it is the open one. Called in the loop."""
        with self._lock:
            has_work = (batch is None or batch is self._batch) and self._cut()
        if has_work:
            self.work_added.set()

    def waiting_work(self) -> list[Work]:
        """Return the work that the loop has not taken yet."""
        with self._lock:
            return list(self.work)

    @property
    def open_batch(self) -> Batch | None:
        """The batch that takes records; None if there is none."""
        return None if self._batch is _NO_BATCH else self._batch

    @property
    def open_records(self) -> int:
        """Number of records in the open batch."""
        return len(self._batch.values)

    def _settled(self, work: Work) -> None:
        """Release work that has its outcome, and record its failure. Called in the loop."""
        self.room.release(work.size_bytes)
        work.forget()
        self._failures.add(work.promise)
        self._unsettled.settle(work)

    def close(self, error: SeaweedMQError) -> None:
        """Raise ``error`` for every later ``send``; records sent before stay."""
        with self._lock:
            self._closed = error
            self.room.is_closed = True
        self.cut()
        self.room.wake()

    def after_fork(self, error: SeaweedMQError) -> None:
        """Reset in a child process: every call raises ``error``, and the parent's locks are replaced."""
        self._lock = threading.Lock()
        self.room = SendRoom(self._lock, 0, 0)
        self.room.is_closed = True
        self._batch = _NO_BATCH
        self._closed = error

    def _next_batch(self, size: int) -> Batch | None:
        if self._closed is not None:
            raise fresh(self._closed)
        if self.rejection is not None:
            raise fresh(self.rejection)
        has_work = self._cut()
        if not self.room.has(size):
            if has_work:
                self._post(self.work_added.set)
            return None
        limit = max(self.room.batch_bytes, size)
        deadline_s = self._clock() + self._delivery_timeout_s
        batch = Batch(limit, self._wall_us(), deadline_s, self._settled, self._loop_thread)
        self.room.reserve(limit)
        self._batch = batch
        self._post(self._linger)
        return batch

    def _linger(self) -> None:
        """Pass the open batch to the loop now, or ``linger_s`` after the previous one. Called in the loop."""
        if self.work:
            self.work_added.set()
        batch = self.open_batch
        if batch is None:
            return
        due_s = self.cut_at_s + self._linger_s
        if due_s > self._clock():
            asyncio.get_running_loop().call_at(due_s, self.cut, batch)
        else:
            self.cut(batch)

    def _cut(self) -> bool:
        """Pass the open batch to the loop's queue. Return whether there was one, so that the loop must be notified."""
        batch = self._batch
        if batch is _NO_BATCH:
            return False
        self._batch = _NO_BATCH
        batch.cut()
        self.room.fill(batch.size_bytes)
        self.cut_at_s = self._clock()
        self.work.append(batch)
        return True

    def _over_limit(self, size: int) -> InvalidArgument:
        limit = self.frame_bytes_max - FRAME_OVERHEAD_BYTES
        return InvalidArgument(
            f"a record with {size} bytes of key and headers is over the limit of {limit}: shorten them, or raise "
            "frame_bytes_max on every broker"
        )

    def _refused(self, error: InvalidArgument) -> RecordFuture:
        promise = BatchPromise(0.0, lambda: None)
        promise.begin(1)
        promise.failed(range(1), error)
        self._failures.add(promise)
        return RecordFuture(promise, 0)


RecordBuffer.send.__qualname__ = "Publisher.send"
# Python's own errors name the function, and the synchronous publisher exposes this one as its method.


def _put(
    batch: Batch, value: bytes, key: bytes | None, headers: HeaderPairs | None, time_us: int | None, size: int
) -> RecordFuture:
    """Append a record to a batch. Requires the lock."""
    batch.filled_bytes += size
    index = len(batch.values)
    batch.values.append(value)
    if batch.keys is not None:
        batch.keys.append(key)
    elif key is not None:
        batch.keys = [*[None] * index, key]
    if batch.has_extras or headers is not None or time_us is not None:
        batch.put_extras(index, headers, time_us)
    return RecordFuture(batch.promise, index)
