"""The limit of requests at one time."""

import asyncio

import pytest

from seaweedmq.storage.objects.concurrency import Concurrency


async def hold(concurrency: Concurrency, log: list[int], number: int, leave: asyncio.Event) -> int:
    async with concurrency.one() as halved:
        log.append(number)
        await leave.wait()
        return halved


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_beyond_the_limit_wait_in_order() -> None:
    concurrency, log = Concurrency(2), list[int]()
    leave = [asyncio.Event() for _ in range(5)]
    tasks = [asyncio.create_task(hold(concurrency, log, n, leave[n])) for n in range(5)]
    await settle()
    assert log == [0, 1]
    leave[1].set()
    await settle()
    assert log == [0, 1, 2]
    assert concurrency.under_way == 2
    for each in leave:
        each.set()
    await asyncio.gather(*tasks)
    assert log == [0, 1, 2, 3, 4]
    assert concurrency.under_way == 0


async def test_a_cancelled_request_gives_its_turn_to_the_next() -> None:
    concurrency, log, leave = Concurrency(1), list[int](), asyncio.Event()
    tasks = [asyncio.create_task(hold(concurrency, log, n, leave)) for n in range(4)]
    await settle()
    tasks[1].cancel()
    await settle()
    leave.set()
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [False, True, True, False]
    assert log == [0, 3]
    assert concurrency.under_way == 0


async def test_a_request_cancelled_as_its_turn_comes_passes_it_on() -> None:
    concurrency, log, leave = Concurrency(1), list[int](), asyncio.Event()
    async with concurrency.one():
        first = asyncio.create_task(hold(concurrency, log, 1, leave))
        second = asyncio.create_task(hold(concurrency, log, 2, leave))
        await settle()
    first.cancel()  # its turn came, and it has not run since
    leave.set()
    await asyncio.gather(first, second, return_exceptions=True)
    assert log == [2]
    assert concurrency.under_way == 0


async def test_one_overload_halves_the_limit_once() -> None:
    concurrency = Concurrency(64)
    async with concurrency.one() as begun:
        async with concurrency.one() as begun_also:
            concurrency.throttled(begun)
            concurrency.throttled(begun_also)
        assert concurrency.limit == 32
        async with concurrency.one() as later:
            concurrency.throttled(later)
    assert concurrency.limit == 16


@pytest.mark.parametrize("overloads", [6, 20])
async def test_the_limit_stays_at_one_and_grows_again(overloads: int) -> None:
    concurrency = Concurrency(64)
    for _ in range(overloads):
        async with concurrency.one() as begun:
            concurrency.throttled(begun)
    assert concurrency.limit == 1
    for expected in (2, 3, 4):
        for _ in range(expected - 1):
            concurrency.succeeded()
        assert concurrency.limit == expected


async def test_the_limit_never_passes_the_given_one() -> None:
    concurrency = Concurrency(2)
    for _ in range(100):
        concurrency.succeeded()
    assert concurrency.limit == 2
