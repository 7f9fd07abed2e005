"""Rejections appear in the log without flooding it."""

import asyncio
import logging

import pytest

from seaweedmq.errors import ResourceExhausted
from seaweedmq.runtime.log_once import REJECTIONS_PAUSE_S, RejectionLog
from tests.sim.machines.loop import SimLoop


def test_the_first_rejection_is_logged_at_once_and_then_their_number(caplog: pytest.LogCaptureFixture) -> None:
    async def reject() -> None:
        rejections = RejectionLog(logging.getLogger("test"), "streams")
        for _ in range(100):
            rejections.add(ResourceExhausted("no memory: raise memory_bytes_max"))
        await asyncio.sleep(REJECTIONS_PAUSE_S)
        rejections.add(ResourceExhausted("no memory: raise memory_bytes_max"))

    loop = SimLoop()
    loop.run_until_complete(reject())
    loop.close()
    assert caplog.messages == [
        "streams rejected: 1 since the last such line: no memory: raise memory_bytes_max",
        "streams rejected: 100 since the last such line: no memory: raise memory_bytes_max",
    ]
