"""Descriptors of the file store are closed wherever the caller is cancelled, and when the storage is lost."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seaweedmq.errors import StorageFailed
from seaweedmq.storage.store.files import FileSegmentStore
from tests.support.segments import begin_log, write_log


class Held:
    """A blocking function that is held until it may continue."""

    def __init__(self, function: Callable[..., Any], applies: Callable[..., bool]) -> None:
        self._function = function
        self._applies = applies
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._applies(*args):
            self.begun.set()
            assert self.go.wait(30)
        return self._function(*args, **named)


def open_logs(store: FileSegmentStore) -> int:
    """Descriptors of log files in this process."""
    names = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]  # noqa: PTH115
    return sum(name.startswith(str(store.place.root)) and ".log" in name for name in names)


async def cancelled_while(held: Held, work: Awaitable[object]) -> None:
    """Cancel ``work`` while a thread is in the held function, which then continues."""
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(held.begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.go.set()


def of_a_log(path: object, *_: object) -> bool:
    return str(path).endswith(".log")


def closes_a_log(fd: int) -> bool:
    return of_a_log(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115


@pytest.mark.parametrize("what", ["a reader opens", "a writer creates", "a writer closes"])
async def test_cancelling_closes_the_file(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    file = await write_log(store, 0, [b"some bytes"])
    log = await begin_log(store, 1) if what == "a writer closes" else None
    with monkeypatch.context() as patch:
        held = Held(os.open, of_a_log) if log is None else Held(os.close, closes_a_log)
        patch.setattr(os, "open" if log is None else "close", held)
        if log is not None:
            await cancelled_while(held, log.close())
            await log.close()
        else:
            await cancelled_while(held, store.open(file) if what == "a reader opens" else begin_log(store, 1))
            await store.close()  # the threads have ended
    assert open_logs(store) == 0


async def test_a_file_is_closed_if_storage_is_lost(store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await write_log(store, 0, [b"some bytes"])
    guard = store._guard  # noqa: SLF001
    verify, calls = guard.verify, 0

    def lost() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise StorageFailed("the storage is another one")
        verify()

    with monkeypatch.context() as patch:
        patch.setattr(guard, "verify", lost)
        with pytest.raises(StorageFailed):
            await store.open(file)
    assert open_logs(store) == 0


@pytest.mark.parametrize("is_reading", [False, True])
async def test_a_reader_whose_close_is_cancelled_is_closed(
    store: FileSegmentStore, monkeypatch: pytest.MonkeyPatch, is_reading: bool
) -> None:
    file = await write_log(store, 0, [b"some bytes"])
    reader = await store.open(file)
    with monkeypatch.context() as patch:
        if is_reading:
            held = Held(reader._once.read_at, lambda *_: True)  # noqa: SLF001
            patch.setattr(reader._once, "read_at", held)  # noqa: SLF001
            reading = asyncio.create_task(reader.read(0, 10))
            await asyncio.to_thread(held.begun.wait, 30)
            closing = asyncio.create_task(reader.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            held.go.set()
            await reading
        else:
            held = Held(os.close, closes_a_log)
            patch.setattr(os, "close", held)
            await cancelled_while(held, reader.close())
        await reader.close()
    assert open_logs(store) == 0


async def test_a_reader_whose_close_is_cancelled_before_a_thread_has_it_is_closed(store: FileSegmentStore) -> None:
    file = await write_log(store, 0, [b"some bytes"])
    reader = await store.open(file)
    go = threading.Event()
    busy = [asyncio.get_running_loop().run_in_executor(store._reads, go.wait, 30) for _ in range(4)]  # noqa: SLF001
    closing = asyncio.create_task(reader.close())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    go.set()
    await asyncio.gather(*busy)
    await reader.close()
    assert open_logs(store) == 0
