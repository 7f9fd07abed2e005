"""Futures of sent records behave like ``concurrent.futures``."""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
import pytest

from seaweedmq.client.publish.futures import RecordFuture, TableFuture
from seaweedmq.client.publish.promise import BatchPromise
from seaweedmq.client.publish.receipts import Receipt
from seaweedmq.errors import InvalidArgument


def batch(count: int) -> tuple[BatchPromise, list[RecordFuture]]:
    made = BatchPromise(100.0, lambda: None)
    made.begin(count)
    return made, [RecordFuture(made, i) for i in range(count)]


class Watched(BatchPromise):
    """A promise that records the positions that callers waited for."""

    def __init__(self, deadline_s: float, on_settled: Callable[[], None]) -> None:
        super().__init__(deadline_s, on_settled)
        self.waited_for: set[int] = set()

    def waiters(self, future: Future[Receipt], position: int) -> list[Any]:
        self.waited_for.add(position)
        return super().waiters(future, position)


async def test_a_batch_in_one_frame_settles_all_its_futures_and_parts_settle_on_their_own() -> None:
    made, futures = batch(3)
    assert not any(f.done() for f in futures)
    made.acked(range(3), 7, 100)
    assert [f.result() for f in futures] == [Receipt(7, 100), Receipt(7, 101), Receipt(7, 102)]
    assert futures[0].exception() is None
    made, futures = batch(4)
    made.acked(np.array([0, 2]), 1, 50)
    assert [f.done() for f in futures] == [True, False, True, False]
    made.failed(np.array([3]), InvalidArgument("no"))
    made.acked(np.array([1]), 2, None)
    assert [futures[0].result(), futures[2].result()] == [Receipt(1, 50), Receipt(1, 51)]
    assert futures[1].result() == Receipt(2, None)
    with pytest.raises(InvalidArgument, match="no"):
        futures[3].result()


def test_they_are_concurrent_futures() -> None:
    _, futures = batch(3)
    assert isinstance(futures[0], Future)
    assert not futures[0].cancel()
    assert not futures[0].cancelled()
    with pytest.raises(TimeoutError):
        futures[0].result(0.01)
    done, pending = wait(futures, timeout=0.01)
    assert (len(done), len(pending)) == (0, 3)


def test_threads_that_wait_are_woken() -> None:
    made, futures = batch(2)
    results: list[Receipt] = []
    threads = [
        threading.Thread(target=lambda: results.append(futures[0].result(10))),
        threading.Thread(target=lambda: results.extend(f.result() for f in as_completed(futures, timeout=10))),
        threading.Thread(target=lambda: wait(futures, timeout=10, return_when=FIRST_COMPLETED)),
    ]
    for thread in threads:
        thread.start()

    async def settle() -> None:
        made.acked(range(2), 1, 5)

    asyncio.run(settle())
    for thread in threads:
        thread.join(10)
    assert sorted(results) == [Receipt(1, 5), Receipt(1, 5), Receipt(1, 6)]
    done, pending = wait(futures, timeout=0)
    assert (len(done), len(pending)) == (2, 0)


async def test_callbacks_and_awaiting() -> None:
    made, futures = batch(2)
    called: list[object] = []
    futures[0].add_done_callback(called.append)
    awaiting = asyncio.gather(*futures)
    await asyncio.sleep(0)
    made.acked(range(2), 1, 5)
    assert await awaiting == [Receipt(1, 5), Receipt(1, 6)]
    assert called == [futures[0]]
    futures[1].add_done_callback(called.append)
    assert called == [futures[0], futures[1]]
    assert await asyncio.wrap_future(futures[0]) == Receipt(1, 5)


def test_waiting_for_a_batch_that_is_half_settled_waits_for_the_other_half() -> None:
    made = Watched(100.0, lambda: None)
    made.begin(3)
    futures = [RecordFuture(made, i) for i in range(3)]

    async def settle(row: int) -> None:
        made.acked(np.array([row]), 1, row)

    asyncio.run(settle(0))
    waited: list[int] = []
    thread = threading.Thread(target=lambda: waited.append(len(wait(futures, timeout=10).done)))
    thread.start()
    while made.waited_for != {0, 1, 2}:
        pass
    asyncio.run(settle(1))
    thread.join(0.05)
    assert waited == []
    asyncio.run(settle(2))
    thread.join(10)
    assert waited == [3]


def errors_kept() -> int:
    return sum(isinstance(each, InvalidArgument) for each in gc.get_objects())


async def test_rows_that_fail_together_share_one_error() -> None:
    made, futures = batch(1_000)
    errors_before = errors_kept()
    made.failed(np.arange(500, 1_000), InvalidArgument("second half"))
    made.acked(np.array([0]), 1, 7)
    made.failed(range(1, 500), InvalidArgument("first half"))
    assert errors_kept() - errors_before == 2
    assert [str(made.first_error()), str(made.unreported_error())] == ["first half", "first half"]
    assert futures[0].result() == Receipt(1, 7)
    assert [str(f.exception()) for f in futures[1:500]] == ["first half"] * 499
    assert str(made.unreported_error()) == "second half"
    assert [str(f.exception()) for f in futures[500:]] == ["second half"] * 500
    assert made.is_reported
    assert made.unreported_error() is None
    assert str(made.first_error()) == "first half"


def test_the_thread_that_settles_a_table_may_not_wait_for_it() -> None:
    sent = TableFuture(1, get_ident())
    for wait_for_it in (sent.result, sent.exception, partial(sent.result, 1)):
        with pytest.raises(InvalidArgument, match="await the future, or wait for it in another thread"):
            wait_for_it()
    with pytest.raises(TimeoutError):
        sent.result(0)
    sent.acked(range(1), 3, 7)
    assert sent.result().records == 1
