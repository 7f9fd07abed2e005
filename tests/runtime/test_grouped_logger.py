"""Many failures for one reason are one line, soon; others have separate lines."""

import asyncio
import logging

import pytest

from seaweedmq.runtime.grouped_logger import GATHER_S, GroupedLogger

log = logging.getLogger(__name__)


async def test_one_line_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    together = GroupedLogger(log)
    with caplog.at_level(logging.INFO):
        for number in range(165):
            together.add(logging.INFO, f"a/b#{number}", "no answer")
        together.add(logging.WARNING, "a/c#1", "refused")
        assert caplog.messages == []
        await asyncio.sleep(GATHER_S)
        assert caplog.messages == ["a/b#0, a/b#1, a/b#2 and 162 more: no answer", "a/c#1: refused"]
        together.add(logging.INFO, "a/b#7", "no answer")
        await asyncio.sleep(GATHER_S)
    assert [(r.levelname, r.getMessage()) for r in caplog.records[1:]] == [
        ("WARNING", "a/c#1: refused"),
        ("INFO", "a/b#7: no answer"),
    ]
