"""What became of sent records: one shared state a batch, and futures so light that a million of them are affordable.

A future holds its batch and its position in it. The batch does not hold the future, unless somebody waits for it: a
future nobody kept costs nothing after ``send`` returned.

Threads: the event loop's thread settles, any thread asks. A settled position never changes. Positions are settled, and
those who wait are told, under the batch's condition, as ``concurrent.futures`` expects it of its futures.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from seaweedmq.client.publish.receipts import OffsetRange, Receipt, TableReceipt
from seaweedmq.errors import SeaweedMQError, fresh

Rows = range | npt.NDArray[np.int64]
"""Positions in a batch, in the order of the frame that carries them."""

_creating = threading.Lock()


def subset(rows: Rows, chosen: Rows) -> Rows:
    """The rows at the chosen positions of ``rows``."""
    if isinstance(rows, range):
        if isinstance(chosen, range):
            return rows[chosen.start : chosen.stop]
        return chosen + rows.start
    return rows[chosen.start : chosen.stop] if isinstance(chosen, range) else rows[chosen]


class Outcome(Protocol):
    """Learns what became of some rows. Called in the loop's thread, once for every row."""

    @property
    def deadline(self) -> float:
        """Loop time by which every row must have an outcome."""

    def acked(self, rows: Rows, segment: int, base_offset: int | None) -> None: ...

    def failed(self, rows: Rows, error: SeaweedMQError) -> None: ...


_NOT_YET = -1
_OFFSET_UNKNOWN = -2
_FAILED = -3
"""With the first error of the batch; the numbers below it stand for the further ones."""


class Batch:
    """Records collected by ``send``, and after that what became of them.

    Invariant: ``pending`` is the number of rows without an outcome.
    """

    __slots__ = (
        "_base",
        "_callbacks",
        "_condition",
        "_errors",
        "_offsets",
        "_on_settled",
        "_segment",
        "_segments",
        "_told",
        "_told_of",
        "_untold",
        "_waiters",
        "count",
        "deadline",
        "has_extras",
        "headers",
        "keys",
        "limit",
        "pending",
        "size",
        "timestamp",
        "timestamps",
        "values",
    )  # fmt: skip

    def __init__(self, limit: int, timestamp: int, deadline: float, on_settled: "Callable[[Batch], None]") -> None:
        self.limit = limit
        """Bytes it may grow to; -1 when it takes no more."""
        self.size = 0
        """Bytes counted so far."""
        self.timestamp = timestamp
        """Microseconds; of every record that brings none."""
        self.deadline = deadline
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[dict[str, bytes] | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.has_extras = False
        """Some record brought headers or a timestamp, so every later one is put with ``put_extras``."""
        self.count = 0
        self.pending = 0
        self._on_settled = on_settled
        self._segment = 0
        self._base = _NOT_YET
        self._segments: npt.NDArray[np.int32] | None = None
        self._offsets: npt.NDArray[np.int64] | None = None
        self._errors: list[SeaweedMQError] = []
        """One for all rows that failed together."""
        self._told_of: npt.NDArray[np.bool_] | None = None
        """Rows that failed and whose futures were asked; there once a row failed."""
        self._untold = 0
        """Rows that failed and whose futures were not asked."""
        self._condition: threading.Condition | None = None
        self._waiters: dict[int, tuple[Future[Receipt], list[Any]]] = {}
        self._told: dict[int, list[Any]] = {}
        self._callbacks: list[tuple[Sent, Callable[[Any], object]]] = []

    def put_extras(self, index: int, headers: dict[str, bytes] | None, timestamp: int | None) -> None:
        """Headers and timestamp of record ``index``; records before it had none unless they were put here too."""
        self.has_extras = True
        if headers is not None and self.headers is None:
            self.headers = [None] * index
        if self.headers is not None:
            self.headers.append(headers)
        if timestamp is not None and self.timestamps is None:
            self.timestamps = [None] * index
        if self.timestamps is not None:
            self.timestamps.append(timestamp)

    def cut(self) -> None:
        """Take no more records."""
        self.count = self.pending = len(self.values)
        self.limit = -1

    def forget_records(self) -> None:
        """The frames hold the records now, or nobody does any more."""
        self.values = []
        self.keys = self.headers = self.timestamps = None

    def acked(self, rows: Rows, segment: int, base_offset: int | None) -> None:
        # the condition is held: concurrent.futures.wait looks at every state twice and relies on it not to change
        with self.condition():
            if len(rows) == self.count and isinstance(rows, range) and base_offset is not None:
                self._segment = segment
                self._base = base_offset
            else:
                segments, offsets = self._spread()
                where = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
                segments[where] = segment
                if base_offset is None:
                    offsets[where] = _OFFSET_UNKNOWN
                else:
                    offsets[where] = np.arange(base_offset, base_offset + len(rows))
            self._wake()
        self._settled(len(rows))

    def failed(self, rows: Rows, error: SeaweedMQError) -> None:
        error = fresh(error)
        with self.condition():
            _, offsets = self._spread()
            if self._told_of is None:
                self._told_of = np.zeros(self.count, dtype=np.bool_)
            offsets[slice(rows.start, rows.stop) if isinstance(rows, range) else rows] = _FAILED - len(self._errors)
            self._errors.append(error)
            self._untold += len(rows)
            self._wake()
        self._settled(len(rows))

    def settle_from(self, row: int, error: SeaweedMQError | None) -> None:
        """The rows from ``row`` on never became frames."""
        if error is not None and row < self.count:
            self.failed(range(row, self.count), error)

    def fail_rest(self, error: SeaweedMQError) -> None:
        """Every row without an outcome gets this one; no other may come after it."""
        if self.pending:
            _, offsets = self._spread()
            self.failed(np.flatnonzero(offsets == _NOT_YET), error)

    def state(self, index: int) -> int:
        """The offset of a row, or one of the negative marks."""
        if self._base >= 0:
            return self._base + index
        offsets = self._offsets
        return _NOT_YET if offsets is None else int(offsets[index])

    def receipt(self, index: int) -> Receipt:
        """Requires that the row was acknowledged."""
        segments = self._segments
        segment = self._segment if segments is None else int(segments[index])
        offset = self.state(index)
        return Receipt(segment, None if offset == _OFFSET_UNKNOWN else offset)

    def error(self, index: int) -> SeaweedMQError | None:
        """What became of a row that failed; who asks has been told."""
        state = self.state(index)
        with self.condition():
            if state > _FAILED or self._told_of is None:
                return None
            self._untold -= not self._told_of[index]
            self._told_of[index] = True
        return fresh(self._errors[_FAILED - state])

    def first_error(self) -> SeaweedMQError | None:
        """Of the lowest row that failed."""
        with self.condition():
            return None if self._offsets is None else self._error_of_first(self._offsets <= _FAILED)

    @property
    def is_told(self) -> bool:
        """Whether the future of every row that failed was asked."""
        return not self._untold

    def untold_error(self) -> SeaweedMQError | None:
        """Of the lowest row that failed and whose future was not asked."""
        with self.condition():
            if self._offsets is None or self._told_of is None:
                return None
            return self._error_of_first((self._offsets <= _FAILED) & ~self._told_of)

    def _error_of_first(self, chosen: npt.NDArray[np.bool_]) -> SeaweedMQError | None:
        rows = np.flatnonzero(chosen)
        return fresh(self._errors[_FAILED - self.state(int(rows[0]))]) if len(rows) else None

    def condition(self) -> threading.Condition:
        """Held while rows get their outcome, and notified then. Made when first asked for; reentrant."""
        if self._condition is None:
            with _creating:
                if self._condition is None:
                    self._condition = threading.Condition()
        return self._condition

    def waiters(self, future: "Sent", index: int) -> list[Any]:
        """``concurrent.futures.wait`` and ``as_completed`` add and remove theirs here, holding the condition."""
        if self.state(index) != _NOT_YET:
            # those who wait do so for others too, and must not be told of this one again
            return self._told.setdefault(index, [])
        return self._waiters.setdefault(index, (future, []))[1]

    def add_callback(self, future: "Sent", callback: Callable[[Any], object]) -> None:
        """Call back at the outcome, in the loop's thread, or at once if it is known."""
        with self.condition():
            if self.state(future._index) == _NOT_YET:
                self._callbacks.append((future, callback))
                return
        callback(future)

    def _spread(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        if self._segments is None or self._offsets is None:
            self._segments = np.zeros(self.count, dtype=np.int32)
            self._offsets = np.full(self.count, _NOT_YET, dtype=np.int64)
        return self._segments, self._offsets

    def _settled(self, count: int) -> None:
        self.pending -= count
        if self.pending == 0:
            self.forget_records()
            self._on_settled(self)

    def _wake(self) -> None:
        self.condition().notify_all()
        for index, (future, waiters) in list(self._waiters.items()):
            state = self.state(index)
            if state == _NOT_YET:
                continue
            del self._waiters[index]
            self._told[index] = waiters
            for waiter in waiters:
                if state <= _FAILED:
                    waiter.add_exception(future)
                else:
                    waiter.add_result(future)
        due = [entry for entry in self._callbacks if self.state(entry[0]._index) != _NOT_YET]
        if due:
            self._callbacks = [entry for entry in self._callbacks if self.state(entry[0]._index) == _NOT_YET]
        for future, callback in due:
            # by way of the loop, so that an error in a callback is the loop's to report and stops nothing here
            asyncio.get_running_loop().call_soon(callback, future)


class Sent(Future[Receipt]):
    """Future of a :class:`Receipt`: a ``concurrent.futures.Future`` that can also be awaited.

    It can not be cancelled: what was sent was sent. A failure is one of ``seaweedmq.errors``.
    """

    __slots__ = ("_batch", "_index")
    _batch: Batch
    _index: int

    def __init__(self, batch: Batch, index: int) -> None:
        # Future.__init__ makes a condition and two lists, 2 us a record; the batch has them for all its records.
        self._batch = batch
        self._index = index

    if not TYPE_CHECKING:  # attributes of Future, which concurrent.futures.wait and as_completed read

        @property
        def _state(self) -> str:
            return "PENDING" if self._batch.state(self._index) == _NOT_YET else "FINISHED"

        @property
        def _condition(self) -> threading.Condition:
            return self._batch.condition()

        @property
        def _waiters(self) -> list[Any]:
            return self._batch.waiters(self, self._index)

    def done(self) -> bool:
        return self._batch.state(self._index) != _NOT_YET

    def running(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        """Always False."""
        return False

    def result(self, timeout: float | None = None) -> Receipt:
        """The receipt, waited for at most ``timeout`` seconds.

        Raises:
            TimeoutError: there is no outcome yet.
            SeaweedMQError: the record was not kept, or not for sure (DeadlineExceeded).
        """
        self._wait(timeout)
        if self._batch.state(self._index) <= _FAILED:
            raise self._batch.error(self._index) or AssertionError("a row failed without an error")
        return self._batch.receipt(self._index)

    def exception(self, timeout: float | None = None) -> SeaweedMQError | None:
        """None if the record is kept. Waits, and raises TimeoutError, as :meth:`result`."""
        self._wait(timeout)
        return self._batch.error(self._index)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            condition = self._batch.condition()
            with condition:
                if not condition.wait_for(self.done, timeout):
                    raise TimeoutError(f"no acknowledgement within {timeout:g} s; it may still come")

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(self)`` at the outcome, in the client's thread; at once if it is known. It must not block."""
        self._batch.add_callback(self, fn)

    def set_running_or_notify_cancel(self) -> bool:
        raise RuntimeError("this future belongs to a publisher, which alone settles it")

    def set_result(self, result: Receipt) -> None:
        raise RuntimeError("this future belongs to a publisher, which alone settles it")

    def set_exception(self, exception: BaseException | None) -> None:
        raise RuntimeError("this future belongs to a publisher, which alone settles it")

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        return f"<Sent {self._state.lower()}{f' {self._batch.receipt(self._index)}' if self._acked() else ''}>"

    def _acked(self) -> bool:
        return self._batch.state(self._index) > _FAILED and self.done()


class SentTable(Future[TableReceipt]):
    """Future of a :class:`TableReceipt` that can also be awaited; it can not be cancelled."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.records = records
        self.pending = records
        self.deadline = 0.0
        """Loop time; set when the table is taken in."""
        self._error: SeaweedMQError | None = None
        self._told_of = False
        """It failed, and was asked."""
        self.on_settled: Callable[[], None] = lambda: None
        self._ranges: list[OffsetRange] = []

    def cancel(self) -> bool:
        """Always False."""
        return False

    def result(self, timeout: float | None = None) -> TableReceipt:
        """The receipt, waited for at most ``timeout`` seconds. Raises as :meth:`Sent.result`."""
        if super().exception(timeout) is not None:
            raise self._told()
        return super().result()

    def exception(self, timeout: float | None = None) -> SeaweedMQError | None:
        """None if every row is kept. Waits, and raises TimeoutError, as :meth:`result`."""
        return None if super().exception(timeout) is None else self._told()

    def first_error(self) -> SeaweedMQError | None:
        return None if self._error is None else fresh(self._error)

    @property
    def is_told(self) -> bool:
        """It did not fail, or was asked."""
        return self._error is None or self._told_of

    @property
    def count(self) -> int:
        """Of outcomes that are remembered: one for all rows."""
        return 1

    def untold_error(self) -> SeaweedMQError | None:
        """The failure, if it was not asked for."""
        return None if self._error is None or self._told_of else fresh(self._error)

    def _told(self) -> SeaweedMQError:
        if self._error is None:
            raise AssertionError("a table failed without an error")
        self._told_of = True
        return fresh(self._error)

    def acked(self, rows: Rows, segment: int, base_offset: int | None) -> None:
        if base_offset is not None:
            self._ranges.append(OffsetRange(segment, base_offset, base_offset + len(rows)))
        self._settled(len(rows))

    def failed(self, rows: Rows, error: SeaweedMQError) -> None:
        self._error = self._error or fresh(error)
        self._settled(len(rows))

    def settle_from(self, row: int, error: SeaweedMQError | None) -> None:
        """The rows from ``row`` on never became frames; without an error there are none."""
        if error is None:
            self._settled(0)
        elif row < self.records:
            self.failed(range(row, self.records), error)

    def fail_rest(self, error: SeaweedMQError) -> None:
        """Every row without an outcome gets this one; no other may come after it."""
        if self.pending or not self.done():
            self.failed(range(self.pending), error)

    def _settled(self, count: int) -> None:
        self.pending -= count
        if self.pending:
            return
        if self._error is not None:
            self.set_exception(self._error)
        else:
            self.set_result(TableReceipt(self.records, _joined(self._ranges)))
        self.on_settled()

    def __await__(self) -> Generator[Any, None, TableReceipt]:
        return asyncio.wrap_future(self).__await__()


def _joined(ranges: list[OffsetRange]) -> tuple[OffsetRange, ...]:
    joined: list[OffsetRange] = []
    for r in sorted(ranges):
        if joined and joined[-1].segment == r.segment and joined[-1].end_offset == r.first_offset:
            joined[-1] = OffsetRange(r.segment, joined[-1].first_offset, r.end_offset)
        else:
            joined.append(r)
    return tuple(joined)
