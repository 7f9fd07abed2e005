"""What became of sent rows, on the side that settles it: futures look at a promise, the publisher keeps it.

Threads: the event loop's thread settles, any thread asks. A settled position never changes. Positions are settled, and
those who wait are told, under the promise's condition, as ``concurrent.futures`` expects it of its futures.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from seaweedmq.client.publish.receipts import Receipt
from seaweedmq.errors import SeaweedMQError, fresh

Positions = range | npt.NDArray[np.int64]
"""Of rows in the batch or table they were sent with, in the order of the frame that carries them."""


class Promise(Protocol):
    """Learns what became of the rows of one batch or table. Called in the loop's thread, once for every row."""

    @property
    def deadline_s(self) -> float:
        """Loop time by which every row must have an outcome."""

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        """The rows are kept, at ``base_offset ...`` if it is known."""

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        """The rows were not kept, or not for sure."""


NO_THREAD = 0
"""In place of a thread's identity, which is positive."""
_NOT_YET = -1
_OFFSET_UNKNOWN = -2
_FAILED = -3
"""With the first error of the batch; the numbers below it stand for the further ones."""

_creating = threading.Lock()


class BatchPromise:
    """One state for all records of a batch, so that a million futures are affordable.

    A future holds its promise and its position. The promise does not hold the future, unless somebody waits for it: a
    future nobody kept costs nothing after ``send`` returned.

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
        "deadline_s",
        "loop_thread",
        "pending",
    )

    def __init__(self, deadline_s: float, on_settled: Callable[[], None], loop_thread: int = NO_THREAD) -> None:
        self.deadline_s = deadline_s
        self.loop_thread = loop_thread
        """The thread that settles, which may not wait for that."""
        self.count = 0
        """Rows, once the batch takes no more."""
        self.pending = 0
        self._on_settled: Callable[[], None] | None = on_settled
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
        self._callbacks: list[tuple[int, Future[Receipt], Callable[[Any], object]]] = []

    # --- for the publisher -----------------------------------------------------------------------------------------

    def begin(self, count: int) -> None:
        """The batch is complete: so many rows wait for their outcome."""
        self.count = self.pending = count

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        # the condition is held: concurrent.futures.wait looks at every state twice and relies on it not to change
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
        error = fresh(error)
        with self.condition():
            _, offsets = self._spread()
            if self._told_of is None:
                self._told_of = np.zeros(self.count, dtype=np.bool_)
            offsets[_index_of(positions)] = _FAILED - len(self._errors)
            self._errors.append(error)
            self._untold += len(positions)
            self._wake()
        self._count_settled(len(positions))

    def settle_from(self, position: int, error: SeaweedMQError | None) -> None:
        """The rows from there on never became frames; without an error there are none."""
        if error is not None and position < self.count:
            self.failed(range(position, self.count), error)

    def fail_rest(self, error: SeaweedMQError) -> None:
        """Every row without an outcome gets this one; no other may come after it."""
        if self.pending:
            _, offsets = self._spread()
            self.failed(np.flatnonzero(offsets == _NOT_YET), error)

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

    # --- for the futures of its rows -------------------------------------------------------------------------------

    def is_settled(self, position: int) -> bool:
        """Whether the row has its outcome."""
        offsets = self._offsets
        return self._base >= 0 or (offsets is not None and bool(offsets[position] != _NOT_YET))

    def has_failed(self, position: int) -> bool:
        """Whether the row has an outcome, and was not kept or not for sure."""
        offsets = self._offsets
        return self._base < 0 and offsets is not None and bool(offsets[position] <= _FAILED)

    def receipt(self, position: int) -> Receipt:
        """Requires that the row was acknowledged."""
        segments = self._segments
        segment = self._segment if segments is None else int(segments[position])
        offset = self._state(position)
        return Receipt(segment, None if offset == _OFFSET_UNKNOWN else offset)

    def error(self, position: int) -> SeaweedMQError | None:
        """What became of a row that failed; who asks has been told."""
        state = self._state(position)
        with self.condition():
            if state > _FAILED or self._told_of is None:
                return None
            self._untold -= not self._told_of[position]
            self._told_of[position] = True
        return fresh(self._errors[_FAILED - state])

    def condition(self) -> threading.Condition:
        """Held while rows get their outcome, and notified then. Made when first asked for; reentrant."""
        if self._condition is None:
            with _creating:
                if self._condition is None:
                    self._condition = threading.Condition()
        return self._condition

    def waiters(self, future: Future[Receipt], position: int) -> list[Any]:
        """``concurrent.futures.wait`` and ``as_completed`` add and remove theirs here, holding the condition."""
        if self.is_settled(position):
            # those who wait do so for others too, and must not be told of this one again
            return self._told.setdefault(position, [])
        return self._waiters.setdefault(position, (future, []))[1]

    def add_callback(self, future: Future[Receipt], position: int, callback: Callable[[Any], object]) -> None:
        """Call back at the outcome, in the loop's thread, or at once if it is known."""
        with self.condition():
            if not self.is_settled(position):
                self._callbacks.append((position, future, callback))
                return
        callback(future)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _state(self, position: int) -> int:
        """The offset of a row, or one of the negative marks."""
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
            on_settled, self._on_settled = self._on_settled, None  # it holds the batch, which holds this
            on_settled()

    def _wake(self) -> None:
        self.condition().notify_all()
        for position, (future, waiters) in list(self._waiters.items()):
            state = self._state(position)
            if state == _NOT_YET:
                continue
            del self._waiters[position]
            self._told[position] = waiters
            for waiter in waiters:
                if state <= _FAILED:
                    waiter.add_exception(future)
                else:
                    waiter.add_result(future)
        due = [entry for entry in self._callbacks if self.is_settled(entry[0])]
        if due:
            self._callbacks = [entry for entry in self._callbacks if not self.is_settled(entry[0])]
        for _, future, callback in due:
            # by way of the loop, so that an error in a callback is the loop's to report and stops nothing here
            asyncio.get_running_loop().call_soon(callback, future)


def _index_of(positions: Positions) -> slice | npt.NDArray[np.int64]:
    return slice(positions.start, positions.stop) if isinstance(positions, range) else positions
