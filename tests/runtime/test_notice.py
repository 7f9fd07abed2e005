"""An event that any thread may set costs the loop one callback, however often it is set."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from seaweedmq.runtime.notice import Notice


async def test_it_is_set_soon_and_once_and_not_when_muted(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    posts = []
    post = loop.call_soon_threadsafe

    def counted(callback: Callable[[], None]) -> None:
        posts.append(callback)
        post(callback)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    notice = Notice()
    for _ in range(5):
        notice.notify()
    assert not notice.is_set()
    await notice.wait()
    assert len(posts) == 1
    notice.clear()
    notice.notify()
    await notice.wait()
    assert len(posts) == 2
    notice = Notice()
    notice.notify()
    await notice.wait()
    notice.clear()
    notice.mute()
    notice.notify()
    await asyncio.sleep(1)
    assert not notice.is_set()


def test_a_thread_wakes_a_loop_that_sleeps() -> None:
    async def wait_for_a_thread() -> None:
        notice = Notice()
        thread = threading.Thread(target=notice.notify)
        thread.start()
        await notice.wait()
        thread.join()

    asyncio.run(asyncio.wait_for(wait_for_a_thread(), 10))
