"""Futures of what was sent: of one record, and of a table."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from seaweedmq.client.publish.promise import NO_THREAD, BatchPromise, Positions
from seaweedmq.client.publish.receipts import OffsetRange, Receipt, TableReceipt
from seaweedmq.errors import InvalidArgument, SeaweedMQError, fresh


class RecordFuture(Future[Receipt]):
    """Future of a :class:`Receipt`: a ``concurrent.futures.Future`` that can also be awaited.

    It can not be cancelled: what was sent was sent. A failure is one of ``seaweedmq.errors``.
    """

    __slots__ = ("_position", "_promise")
    _promise: BatchPromise
    _position: int

    def __init__(self, promise: BatchPromise, position: int) -> None:
        # Future.__init__ makes a condition and two lists, 2 us a record; the promise has them for all its records.
        self._promise = promise
        self._position = position

    if not TYPE_CHECKING:  # attributes of Future, which concurrent.futures.wait and as_completed read

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
        return self._promise.is_settled(self._position)

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
            InvalidArgument: there is none yet, and this is the thread it comes from: a callback or a coroutine.
            SeaweedMQError: the record was not kept, or not for sure (DeadlineExceeded).
        """
        self._wait(timeout)
        if self._promise.has_failed(self._position):
            raise self._promise.error(self._position) or AssertionError("a row failed without an error")
        return self._promise.receipt(self._position)

    def exception(self, timeout: float | None = None) -> SeaweedMQError | None:
        """None if the record is kept. Waits, and raises TimeoutError, as :meth:`result`."""
        self._wait(timeout)
        return self._promise.error(self._position)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            _check_thread(self._promise.loop_thread, timeout)
            condition = self._promise.condition()
            with condition:
                if not condition.wait_for(self.done, timeout):
                    raise TimeoutError(f"no acknowledgement within {timeout:g} s; it may still come")

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(self)`` at the outcome, in the client's thread; at once if it is known. It must not block."""
        self._promise.add_callback(self, self._position, fn)

    def set_running_or_notify_cancel(self) -> bool:
        raise RuntimeError("this future belongs to a publisher, which alone settles it")

    def set_result(self, result: Receipt) -> None:
        raise RuntimeError("this future belongs to a publisher, which alone settles it")

    def set_exception(self, exception: BaseException | None) -> None:
        raise RuntimeError("this future belongs to a publisher, which alone settles it")

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        is_kept = self.done() and not self._promise.has_failed(self._position)
        return f"<Sent {self._state.lower()}{f' {self._promise.receipt(self._position)}' if is_kept else ''}>"


class TableFuture(Future[TableReceipt]):
    """Future of a :class:`TableReceipt` that can also be awaited; it can not be cancelled. It is its own promise."""

    def __init__(self, records: int, loop_thread: int = NO_THREAD) -> None:
        super().__init__()
        self._loop_thread = loop_thread
        self.records = records
        self.pending = records
        self.deadline_s = 0.0
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
        """The receipt, waited for at most ``timeout`` seconds. Raises as :meth:`RecordFuture.result`."""
        if self.exception(timeout) is not None:
            raise self._told()
        return super().result()

    def exception(self, timeout: float | None = None) -> SeaweedMQError | None:
        """None if every row is kept. Waits, and raises TimeoutError, as :meth:`result`."""
        if not self.done():
            _check_thread(self._loop_thread, timeout)
        return None if super().exception(timeout) is None else self._told()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(self)`` at the outcome, in the client's thread; at once if it is known. It must not block."""
        # By way of the loop, as those of records, so that nothing a callback raises stops the publisher in the middle.
        super().add_done_callback(fn if self.done() else partial(_call_soon, fn))

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

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        if base_offset is not None:
            self._ranges.append(OffsetRange(segment, base_offset, base_offset + len(positions)))
        self._count_settled(len(positions))

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        self._error = self._error or fresh(error)
        self._count_settled(len(positions))

    def settle_from(self, position: int, error: SeaweedMQError | None) -> None:
        """The rows from there on never became frames; without an error there are none."""
        if error is None:
            self._count_settled(0)
        elif position < self.records:
            self.failed(range(position, self.records), error)

    def fail_rest(self, error: SeaweedMQError) -> None:
        """Every row without an outcome gets this one; no other may come after it."""
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
    """Raises InvalidArgument: the caller is about to wait for itself."""
    if get_ident() == loop_thread and (timeout is None or timeout > 0):
        raise InvalidArgument(
            "there is no outcome yet, and it comes from this thread, that of callbacks and coroutines: await the "
            "future, or wait for it in another thread"
        )


def _call_soon(callback: Callable[[Any], object], future: "Future[Any]") -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the outcome was there already
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
