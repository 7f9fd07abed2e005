"""A waiting task is woken by the next signal, not by an earlier one."""

import asyncio

from seaweedmq.runtime.signal import Signal


async def test_all_that_wait_for_one_of_some_signals_are_woken_and_nobody_later() -> None:
    signal = Signal()
    signal.fire()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(1)
    assert not any(task.done() for task in waiting)
    signal.fire()
    await asyncio.gather(*waiting)
    late = asyncio.create_task(signal.wait())
    await asyncio.sleep(1)
    assert not late.done()
    late.cancel()
    first, second = Signal(), Signal()
    for fired in (first, second):
        waiting = asyncio.create_task(first.wait(second))
        await asyncio.sleep(0)
        fired.fire()
        await waiting
    signal = Signal()
    gone, staying = asyncio.create_task(signal.wait()), asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    gone.cancel()
    signal.fire()
    await staying
    assert (await asyncio.gather(gone, return_exceptions=True))[0].__class__ is asyncio.CancelledError


def test_a_listener_is_called_at_every_fire_until_it_is_removed() -> None:
    signal, calls = Signal(), list[str]()

    def first() -> None:
        calls.append("first")
        signal.unlisten(first)

    def second() -> None:
        calls.append("second")

    signal.listen(first)
    signal.listen(second)
    signal.fire()
    signal.fire()
    signal.unlisten(second)
    signal.unlisten(second)
    signal.fire()
    assert calls == ["first", "second", "second"]
