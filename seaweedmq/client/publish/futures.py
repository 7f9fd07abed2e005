"""Futures of sent records and tables."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from seaweedmq.client.publish.promise import NO_THREAD, BatchPromise
from seaweedmq.client.publish.receipts import OffsetRange, Receipt, TableReceipt
from seaweedmq.core.publish.outgoing_frame import Positions
from seaweedmq.errors import InvalidArgument, SeaweedMQError, fresh


class RecordFuture(Future[Receipt]):
    """The future of a :class:`Receipt`: a ``concurrent.futures.Future`` that can also be awaited.

    It cannot be cancelled. A failure is one of ``seaweedmq.errors``.
    """

    __slots__ = ("_position", "_promise")
    _promise: BatchPromise
    _position: int

    def __init__(self, promise: BatchPromise, position: int) -> None:
        # Future.__init__ makes a condition and two lists, 2 us per record; the promise has them for all its records.
        self._promise = promise
        self._position = position

    if not TYPE_CHECKING:  # Attributes of Future that concurrent.futures.wait and as_completed read.

        @property
        def _state(self) -> str:
            return "FINISHED" if self._promise.is_settled(self._position) else "PENDING"

        @property
        def _condition(self) -> threading.Condition:
            return self._promise.condition()

        @property
        def _waiters(self) -> list[Any]:
            return self._promise.waiters(self, self._position)

    def done(self) -> bool:
        """Return whether the record has an outcome."""
        return self._promise.is_settled(self._position)

    def running(self) -> bool:
        """Return False: the future is never running."""
        return False

    def cancelled(self) -> bool:
        """Return False: the future cannot be cancelled."""
        return False

    def cancel(self) -> bool:
        """Return False: the future cannot be cancelled."""
        return False

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for the outcome and return the receipt.

        Args:
            timeout: The longest wait in seconds. Default: unlimited.

        Raises:
            TimeoutError: If there is no outcome within ``timeout``.
            InvalidArgument: If there is no outcome yet, and the call is made in the client's thread, by a callback or a
                coroutine.
            SeaweedMQError: If the record is not stored, or possibly not (``DeadlineExceeded``).
        """
        self._wait(timeout)
        if self._promise.has_failed(self._position):
            raise self._promise.error(self._position) or AssertionError("a row failed without an error")
        return self._promise.receipt(self._position)

    def exception(self, timeout: float | None = None) -> SeaweedMQError | None:
        """Wait for the outcome like :meth:`result`. Return the failure, or None if the record was acknowledged.

        Raises TimeoutError and InvalidArgument as :meth:`result`.
        """
        self._wait(timeout)
        return self._promise.error(self._position)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            _check_thread(self._promise.loop_thread, timeout)
            condition = self._promise.condition()
            with condition:
                if not condition.wait_for(self.done, timeout):
                    raise TimeoutError(f"no acknowledgement within {timeout:g} s: it may still come")

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(self)`` at the outcome, in the client's thread; at once if it is known. It must not block."""
        self._promise.add_callback(self, self._position, fn)

    def set_running_or_notify_cancel(self) -> bool:
        """Raise RuntimeError: only the publisher settles the future."""
        raise RuntimeError("this future belongs to a publisher: only the publisher settles it")

    def set_result(self, result: Receipt) -> None:
        """Raise RuntimeError: only the publisher settles the future."""
        raise RuntimeError("this future belongs to a publisher: only the publisher settles it")

    def set_exception(self, exception: BaseException | None) -> None:
        """Raise RuntimeError: only the publisher settles the future."""
        raise RuntimeError("this future belongs to a publisher: only the publisher settles it")

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        is_kept = self.done() and not self._promise.has_failed(self._position)
        return f"<Sent {self._state.lower()}{f' {self._promise.receipt(self._position)}' if is_kept else ''}>"


class TableFuture(Future[TableReceipt]):
    """The future of a :class:`TableReceipt`, which can also be awaited. It cannot be cancelled.

    It is also the promise of its rows.
    """

    def __init__(self, records: int, loop_thread: int = NO_THREAD) -> None:
        super().__init__()
        self._loop_thread = loop_thread
        self.records = records
        self.pending = records
        self.deadline_s = 0.0
        """The loop time by which every row must have an outcome; set when the table is taken in."""
        self._error: SeaweedMQError | None = None
        self._reported = False
        """Whether the table failed and the future has reported it."""
        self.on_settled: Callable[[], None] = lambda: None
        self._ranges: list[OffsetRange] = []

    def cancel(self) -> bool:
        """Return False: the future cannot be cancelled."""
        return False

    def result(self, timeout: float | None = None) -> TableReceipt:
        """Wait for the outcome and return the receipt. Raises as :meth:`RecordFuture.result`."""
        if self.exception(timeout) is not None:
            raise self._reported_error()
        return super().result()

    def exception(self, timeout: float | None = None) -> SeaweedMQError | None:
        """Wait for the outcome like :meth:`result`. Return the failure, or None if every row was acknowledged."""
        if not self.done():
            _check_thread(self._loop_thread, timeout)
        return None if super().exception(timeout) is None else self._reported_error()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(self)`` at the outcome, in the client's thread; at once if it is known. It must not block."""
        # Through the loop, like callbacks of records, so that an error in a callback does not interrupt the publisher.
        super().add_done_callback(fn if self.done() else partial(_call_soon, fn))

    def first_error(self) -> SeaweedMQError | None:
        """Return the failure, if any."""
        return None if self._error is None else fresh(self._error)

    @property
    def is_reported(self) -> bool:
        """Whether there is no failure that the future has not reported."""
        return self._error is None or self._reported

    @property
    def count(self) -> int:
        """The number of stored outcomes: one for all rows."""
        return 1

    def unreported_error(self) -> SeaweedMQError | None:
        """Return the failure if the future has not reported it."""
        return None if self._error is None or self._reported else fresh(self._error)

    def _reported_error(self) -> SeaweedMQError:
        assert self._error is not None, "a table failed without an error"
        self._reported = True
        return fresh(self._error)

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        """Settle rows as acknowledged; ``base_offset`` is the first one's offset, if known."""
        if base_offset is not None:
            self._ranges.append(OffsetRange(segment, base_offset, base_offset + len(positions)))
        self._count_settled(len(positions))

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        """Settle rows as failed. The first error is the table's."""
        self._error = self._error or fresh(error)
        self._count_settled(len(positions))

    def settle_from(self, position: int, error: SeaweedMQError | None) -> None:
        """Settle the rows from ``position`` on, which never became frames; without an error there are none."""
        if error is None:
            self._count_settled(0)
        elif position < self.records:
            self.failed(range(position, self.records), error)

    def fail_rest(self, error: SeaweedMQError) -> None:
        """Fail every row without an outcome. No other outcome may follow."""
        if self.pending or not self.done():
            self.failed(range(self.pending), error)

    def _count_settled(self, count: int) -> None:
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


def _check_thread(loop_thread: int, timeout: float | None) -> None:
    """Raise InvalidArgument if a wait would block the thread that ends it."""
    if get_ident() == loop_thread and (timeout is None or timeout > 0):
        raise InvalidArgument(
            "there is no outcome yet, and this thread, which runs callbacks and coroutines, delivers it: await the "
            "future, or wait for it in another thread"
        )


def _call_soon(callback: Callable[[Any], object], future: "Future[Any]") -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # The outcome was known already.
        callback(future)
    else:
        loop.call_soon(callback, future)


def _joined(ranges: list[OffsetRange]) -> tuple[OffsetRange, ...]:
    joined: list[OffsetRange] = []
    for r in sorted(ranges):
        if joined and joined[-1].segment == r.segment and joined[-1].end_offset == r.first_offset:
            joined[-1] = OffsetRange(r.segment, joined[-1].first_offset, r.end_offset)
        else:
            joined.append(r)
    return tuple(joined)
