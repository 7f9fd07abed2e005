"""Work that holds the event loop is logged with its stack and counted; a frozen process is not."""

import asyncio
import logging
import time

import pytest

from seaweedmq.runtime.loop_watch import CHECK_INTERVAL_S, HELD_S, Finding, HoldTracker, LoopWatch


def test_a_hold_even_of_the_interpreter_is_found_once_with_its_length_and_none_in_a_frozen_process() -> None:
    tracker = HoldTracker(beat_s=0.0, checked_s=0.0)
    assert tracker.check(0.1) is Finding.NOTHING
    for tenths in range(2, 5):
        assert tracker.check(tenths / 10) is Finding.NOTHING
    assert tracker.check(0.5) is Finding.HELD
    assert tracker.check(0.6) is Finding.NOTHING
    assert tracker.check(0.7) is Finding.NOTHING
    tracker.beat_s = 0.75
    assert tracker.check(0.8) is Finding.RELEASED
    assert (tracker.holds, tracker.held_s) == (1, pytest.approx(0.7))
    assert tracker.check(0.9) is Finding.NOTHING
    tracker = HoldTracker(beat_s=0.0, checked_s=0.0)
    assert tracker.check(10.0) is Finding.NOTHING
    assert tracker.check(10.1) is Finding.NOTHING
    assert tracker.check(10.2) is Finding.NOTHING
    assert tracker.holds == 0
    tracker = HoldTracker(beat_s=0.0, checked_s=0.0, cpu_s=7.0)
    assert tracker.check(0.1, 7.1) is Finding.NOTHING
    assert tracker.check(3.1, 10.0) is Finding.LOCKED, "the watchdog was blocked, and the process was not frozen"
    assert (tracker.holds, tracker.held_s) == (1, pytest.approx(3.0))
    assert tracker.check(3.2, 10.1) is Finding.NOTHING
    assert tracker.check(9.2, 10.2) is Finding.NOTHING, "frozen"


def test_what_holds_the_loop_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def a_handler_without_turns() -> None:
        time.sleep(HELD_S + 3 * CHECK_INTERVAL_S)

    async def hold() -> int:
        watch = LoopWatch()
        watch.start()
        try:
            await asyncio.sleep(0.01)
            a_handler_without_turns()
            async with asyncio.timeout(10):
                while "event loop released" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(CHECK_INTERVAL_S)
        finally:
            watch.stop()
        return watch.holds

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(hold()) >= 1  # on a busy machine its own pause may be another one
    assert "event loop held" in caplog.text
    assert "a_handler_without_turns" in caplog.text
