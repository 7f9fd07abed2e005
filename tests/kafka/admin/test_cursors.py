"""Closing of idle cursors."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from seaweedmq.broker.local import Tail
from seaweedmq.codec.frame import split_frames
from seaweedmq.kafka.admin.cursors import IDLE_S, Cursor, CursorKey, Cursors
from tests.sim.machines.loop import SimLoop
from tests.support.kafka_batches import Record, batch_of, frame_bytes

ROUNDED_S = 45.826
"""A time at which adding 30 s and subtracting the time again leaves less than 30 s."""


class IdleTail:
    """The part of a tail that an idle cursor uses."""

    reads_files = True

    def __init__(self, position: int) -> None:
        self.found = SimpleNamespace(topic=SimpleNamespace(uid=1), segment=SimpleNamespace(id=2))
        self.position = position

    def keep(self) -> None:
        """Called when a reader continues."""

    def offer(self) -> None:
        """Called when no reader needs its memory."""

    async def close(self) -> None:
        self.reads_files = False


def spawn(work: Any, name: str) -> "asyncio.Task[None]":
    return asyncio.create_task(work, name=name)


def run(steps_max: int, story: Any) -> None:
    loop = SimLoop(steps_max=steps_max)
    try:
        loop.run_until_complete(story)
        assert loop.failures() == []
    finally:
        loop.close()


def test_an_idle_cursor_is_closed_in_its_time_and_nothing_turns_until_then() -> None:
    assert (ROUNDED_S + IDLE_S) - ROUNDED_S < IDLE_S

    async def story() -> None:
        cursors, tail = Cursors(spawn, cursors_max=4, rest_bytes_max=1_000), IdleTail(7)
        await asyncio.sleep(ROUNDED_S)
        cursors.put(Cursor(cast(Tail, tail)))
        await asyncio.sleep(IDLE_S - 1)
        assert len(cursors) == 1
        await asyncio.sleep(2)
        assert len(cursors) == 0
        assert not tail.reads_files

    run(100, story())


def test_no_more_are_kept_than_configured() -> None:
    async def story() -> None:
        cursors = Cursors(spawn, cursors_max=2, rest_bytes_max=1_000)
        tails = [IdleTail(position) for position in range(3)]
        for tail in tails:
            cursors.put(Cursor(cast(Tail, tail)))
        await asyncio.sleep(0)
        assert [tail.reads_files for tail in tails] == [False, True, True]
        await cursors.close()

    run(100, story())


def test_what_is_taken_and_not_given_is_bounded_over_all_cursors() -> None:
    frame = next(split_frames(frame_bytes(batch_of([Record(b"key", b"x" * 500)]))))

    async def story() -> None:
        cursors = Cursors(spawn, cursors_max=10, rest_bytes_max=2 * frame.header.frame_bytes)
        tails = [IdleTail(position) for position in range(3)]
        for tail in tails:
            cursor = Cursor(cast(Tail, tail))
            cursor.rest.append(frame)
            cursors.put(cursor)
        assert len(cursors) == 2
        assert cursors.take(CursorKey(1, 2, 0)) is None, "the longest idle went"
        again = cursors.take(CursorKey(1, 2, 1))
        assert again is not None
        assert list(again.rest) == [frame]
        cursors.put(again)
        assert len(cursors) == 2
        await asyncio.sleep(0)
        await cursors.close()

    run(100, story())
