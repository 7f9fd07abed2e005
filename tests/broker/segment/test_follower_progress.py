"""A follower without progress in one segment is dropped, later if it makes progress in others."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.replicate import FollowerLink, ReplicationContext
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.core.segment.follower_progress import PATIENCE
from seaweedmq.errors import DeadlineExceeded
from seaweedmq.model.messages.replication import ReplicateOpen
from seaweedmq.runtime.signal import Signal
from tests.sim.machines.loop import SimLoop

TIMEOUT_S = 3.0


class Silent:
    """A follower that accepts the opening of a segment, and never replies."""

    async def replicate(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for _ in requests:
            await asyncio.Event().wait()
            yield


async def given_up_after_s(*, answers_elsewhere: bool) -> float:
    loop = asyncio.get_running_loop()
    context = ReplicationContext(lambda _: cast(Any, Silent()), MemoryBudget(0), TIMEOUT_S, cast(Suspicions, None))
    progress = context.progress_of("b-2")
    link = FollowerLink(
        follower="b-2",
        opening=cast(ReplicateOpen, None),
        log=cast(Any, SimpleNamespace(committed=0, flushed=0, end=1)),
        context=context,
        appended=Signal(),
        on_held=lambda: None,
    )
    began_s = loop.time()
    running = asyncio.create_task(link.run())
    while not running.done():
        if answers_elsewhere:
            progress.answered_s = loop.time()
        await asyncio.sleep(0.1)
    with pytest.raises(DeadlineExceeded, match="follower b-2 held nothing beyond offset 0 for"):
        await running
    return loop.time() - began_s


@pytest.mark.parametrize(("answers_elsewhere", "timeouts"), [(False, 1), (True, PATIENCE)])
def test_it_is_given_up_after_its_time(answers_elsewhere: bool, timeouts: int) -> None:
    loop = SimLoop()
    took_s = loop.run_until_complete(given_up_after_s(answers_elsewhere=answers_elsewhere))
    loop.close()
    assert took_s == pytest.approx(timeouts * TIMEOUT_S, abs=0.2)
