"""Promises of sent rows: the publisher settles them, futures read them.

The event loop's thread settles; any thread reads. A settled position never changes. Positions are settled, and waiters
notified, under the promise's condition, as ``concurrent.futures`` requires of its futures.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from seaweedmq.client.publish.receipts import Receipt
from seaweedmq.core.publish.outgoing_frame import Positions
from seaweedmq.errors import SeaweedMQError, fresh

NO_THREAD = 0
"""A value in place of a thread's identity, which is positive."""
_NOT_YET = -1
_OFFSET_UNKNOWN = -2
_FAILED = -3
"""The mark of a row that failed with the batch's first error; lower numbers stand for later errors."""

_creating = threading.Lock()


class BatchPromise:
    """The shared state of all records of a batch, which makes a million futures affordable.

    A future holds its promise and its position. The promise holds a future only while a caller waits for it: a dropped
    future costs nothing after ``send`` returned.

    Invariant: ``pending`` is the number of rows without an outcome.
    """

    __slots__ = (
        "_base", "_callbacks", "_condition", "_errors", "_notified", "_offsets", "_on_settled", "_reported", "_segment",
        "_segments", "_unreported", "_waiters", "count", "deadline_s", "loop_thread", "pending",
    )  # fmt: skip

    def __init__(self, deadline_s: float, on_settled: Callable[[], None], loop_thread: int = NO_THREAD) -> None:
        self.deadline_s = deadline_s
        self.loop_thread = loop_thread
        """The identity of the thread that settles, which must not wait for an outcome."""
        self.count = 0
        """The number of rows, set when the batch is cut."""
        self.pending = 0
        self._on_settled: Callable[[], None] | None = on_settled
        self._segment = 0
        self._base = _NOT_YET
        self._segments: npt.NDArray[np.int32] | None = None
        self._offsets: npt.NDArray[np.int64] | None = None
        self._errors: list[SeaweedMQError] = []
        """The errors: one for all rows that failed together."""
        self._reported: npt.NDArray[np.bool_] | None = None
        """Whether a row failed and its future has reported it; None until a row fails."""
        self._unreported = 0
        """The number of failed rows whose futures have not reported it."""
        self._condition: threading.Condition | None = None
        self._waiters: dict[int, tuple[Future[Receipt], list[Any]]] = {}
        self._notified: dict[int, list[Any]] = {}
        """The waiters of settled rows, by position."""
        self._callbacks: list[tuple[int, Future[Receipt], Callable[[Any], object]]] = []

    def begin(self, count: int) -> None:
        """Set the number of rows that wait for an outcome: the batch is complete."""
        self.count = self.pending = count

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        """Settle rows as acknowledged, at consecutive offsets from ``base_offset`` if it is known."""
        # Under the condition: concurrent.futures.wait reads every state twice and relies on it not to change.
        with self.condition():
            if len(positions) == self.count and isinstance(positions, range) and base_offset is not None:
                self._segment = segment
                self._base = base_offset
            else:
                segments, offsets = self._spread()
                where = _index_of(positions)
                segments[where] = segment
                if base_offset is None:
                    offsets[where] = _OFFSET_UNKNOWN
                else:
                    offsets[where] = np.arange(base_offset, base_offset + len(positions))
            self._wake()
        self._count_settled(len(positions))

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        """Settle rows as not stored, or possibly not."""
        error = fresh(error)
        with self.condition():
            _, offsets = self._spread()
            if self._reported is None:
                self._reported = np.zeros(self.count, dtype=np.bool_)
            offsets[_index_of(positions)] = _FAILED - len(self._errors)
            self._errors.append(error)
            self._unreported += len(positions)
            self._wake()
        self._count_settled(len(positions))

    def settle_from(self, position: int, error: SeaweedMQError | None) -> None:
        """Settle the rows from ``position`` on, which never became frames; without an error there are none."""
        if error is not None and position < self.count:
            self.failed(range(position, self.count), error)

    def fail_rest(self, error: SeaweedMQError) -> None:
        """Fail every row without an outcome. No other outcome may follow."""
        if self.pending:
            _, offsets = self._spread()
            self.failed(np.flatnonzero(offsets == _NOT_YET), error)

    def first_error(self) -> SeaweedMQError | None:
        """Return the error of the first row that failed, if any."""
        with self.condition():
            return None if self._offsets is None else self._error_of_first(self._offsets <= _FAILED)

    @property
    def is_reported(self) -> bool:
        """Whether the futures of all failed rows have reported it."""
        return not self._unreported

    def unreported_error(self) -> SeaweedMQError | None:
        """Return the error of the first failed row whose future has not reported it, if any."""
        with self.condition():
            if self._offsets is None or self._reported is None:
                return None
            return self._error_of_first((self._offsets <= _FAILED) & ~self._reported)

    def is_settled(self, position: int) -> bool:
        """Whether the row has an outcome."""
        offsets = self._offsets
        return self._base >= 0 or (offsets is not None and bool(offsets[position] != _NOT_YET))

    def has_failed(self, position: int) -> bool:
        """Whether the row has failed."""
        offsets = self._offsets
        return self._base < 0 and offsets is not None and bool(offsets[position] <= _FAILED)

    def receipt(self, position: int) -> Receipt:
        """Return the receipt of a row. Requires that the row was acknowledged."""
        segments = self._segments
        segment = self._segment if segments is None else int(segments[position])
        offset = self._state(position)
        return Receipt(segment, None if offset == _OFFSET_UNKNOWN else offset)

    def error(self, position: int) -> SeaweedMQError | None:
        """Return the error of a row, if it failed, and mark it as reported."""
        state = self._state(position)
        with self.condition():
            if state > _FAILED or self._reported is None:
                return None
            self._unreported -= not self._reported[position]
            self._reported[position] = True
        return fresh(self._errors[_FAILED - state])

    def condition(self) -> threading.Condition:
        """Return the reentrant condition that is held and notified when rows are settled. Made on first use."""
        if self._condition is None:
            with _creating:
                if self._condition is None:
                    self._condition = threading.Condition()
        return self._condition

    def waiters(self, future: Future[Receipt], position: int) -> list[Any]:
        """Return the list of waiters, which ``concurrent.futures.wait`` changes while it holds the condition."""
        if self.is_settled(position):
            # A waiter may wait for other futures also, and must not get this one twice.
            return self._notified.setdefault(position, [])
        return self._waiters.setdefault(position, (future, []))[1]

    def add_callback(self, future: Future[Receipt], position: int, callback: Callable[[Any], object]) -> None:
        """Call ``callback(future)`` at the outcome, in the loop's thread, or at once if it is known."""
        with self.condition():
            if not self.is_settled(position):
                self._callbacks.append((position, future, callback))
                return
        callback(future)

    def _state(self, position: int) -> int:
        """Return the offset of a row, or one of the negative marks."""
        if self._base >= 0:
            return self._base + position
        offsets = self._offsets
        return _NOT_YET if offsets is None else int(offsets[position])

    def _error_of_first(self, chosen: npt.NDArray[np.bool_]) -> SeaweedMQError | None:
        rows = np.flatnonzero(chosen)
        return fresh(self._errors[_FAILED - self._state(int(rows[0]))]) if len(rows) else None

    def _spread(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        if self._segments is None or self._offsets is None:
            self._segments = np.zeros(self.count, dtype=np.int32)
            self._offsets = np.full(self.count, _NOT_YET, dtype=np.int64)
        return self._segments, self._offsets

    def _count_settled(self, count: int) -> None:
        self.pending -= count
        if self.pending == 0 and self._on_settled is not None:
            on_settled, self._on_settled = self._on_settled, None  # Break the cycle: it holds the batch.
            on_settled()

    def _wake(self) -> None:
        self.condition().notify_all()
        for position, (future, waiters) in list(self._waiters.items()):
            state = self._state(position)
            if state == _NOT_YET:
                continue
            del self._waiters[position]
            self._notified[position] = waiters
            for waiter in waiters:
                if state <= _FAILED:
                    waiter.add_exception(future)
                else:
                    waiter.add_result(future)
        due = [entry for entry in self._callbacks if self.is_settled(entry[0])]
        if due:
            self._callbacks = [entry for entry in self._callbacks if not self.is_settled(entry[0])]
        for _, future, callback in due:
            # Through the loop, which reports an error in a callback, so that it interrupts nothing here.
            asyncio.get_running_loop().call_soon(callback, future)


def _index_of(positions: Positions) -> slice | npt.NDArray[np.int64]:
    return slice(positions.start, positions.stop) if isinstance(positions, range) else positions
