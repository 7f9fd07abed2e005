"""Looking for a fence in the storage, for a primary whose lease is not sure: see ``core.segment.commit``."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.segment import Segment
from seaweedmq.runtime.retrying import backoff, retrying

CHECK_S_MAX = 2.0
"""A look that takes longer is told to publishers; it is not repeated before it has ended."""
CHECK_RETRY_S_MAX = 1.0


class FenceCheck:
    """One look at a time, until the storage answers or it is cancelled."""

    def __init__(
        self,
        segment: Segment,
        is_fenced: Callable[[], Awaitable[bool]],
        *,
        on_answer: Callable[[bool], None],
        on_trouble: Callable[[SeaweedMQError], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        rng: random.Random,
    ) -> None:
        """
        Args:
            on_answer: called with whether there is a fence. The look has ended.
            on_trouble: called when the storage fails, or takes long. The look goes on.
        """
        self._segment = segment
        self._is_fenced = is_fenced
        self._on_answer = on_answer
        self._on_trouble = on_trouble
        self._spawn = spawn
        self._rng = rng
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look once."""
        self._task = self._spawn(self._look(), f"look for the fence of {self._segment}")

    def cancel(self) -> None:
        """Nothing is called any more."""
        if self._task:
            self._task.cancel()

    async def close(self) -> None:
        """As ``cancel``; on return nothing of it runs."""
        self.cancel()
        if self._task:
            await asyncio.wait({self._task})

    async def _look(self) -> None:
        slow = Unavailable(
            f"{self._segment}: etcd is out of reach, and the storage does not say whether others sealed the segment; "
            "nothing is acknowledged until one of them answers"
        )
        timer = asyncio.get_running_loop().call_later(CHECK_S_MAX, self._on_trouble, slow)
        looks = retrying(backoff(self._rng, 0.05, CHECK_RETRY_S_MAX), on=SeaweedMQError, told=self._failed)
        try:
            async for look in looks:
                with look:
                    fenced = await self._is_fenced()
        finally:
            timer.cancel()
        self._task = None  # the answer may have the next one begin
        self._on_answer(fenced)

    def _failed(self, _: int, error: BaseException) -> None:
        assert isinstance(error, SeaweedMQError)
        self._on_trouble(error)
