"""Fence check in storage, for a primary that cannot prove that its lease is valid: see ``core.segment.commit_rule``."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.segment import Segment
from seaweedmq.runtime.retrying import backoff, retrying

CHECK_S_MAX = 2.0
"""Duration in seconds after which a running check is reported to publishers. The check continues."""
CHECK_RETRY_S_MAX = 1.0
"""Longest pause in seconds before a failed check is retried."""


class FenceCheck:
    """A fence check that runs until storage answers or it is cancelled; one runs at a time."""

    def __init__(
        self,
        segment: Segment,
        is_fenced: Callable[[], Awaitable[bool]],
        *,
        on_answer: Callable[[bool], None],
        on_failure: Callable[[SeaweedMQError], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        rng: random.Random,
    ) -> None:
        """Prepare a check; ``begin`` starts it.

        Args:
            segment: The open segment.
            is_fenced: Asks storage whether the segment has a fence.
            on_answer: Called with whether there is a fence, once the check has ended.
            on_failure: Called when storage fails or answers late. The check continues.
            spawn: Starts a named task.
            rng: Source of the jitter in pauses.
        """
        self._segment = segment
        self._is_fenced = is_fenced
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._spawn = spawn
        self._rng = rng
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start one check."""
        self._task = self._spawn(self._look(), f"check the fence of {self._segment}")

    def cancel(self) -> None:
        """Stop the check. No callback follows."""
        if self._task:
            self._task.cancel()

    async def close(self) -> None:
        """Stop the check and wait until its task has ended."""
        self.cancel()
        if self._task:
            await asyncio.wait({self._task})

    async def _look(self) -> None:
        slow = Unavailable(
            f"{self._segment}: etcd is unreachable, and storage has not answered the fence check; "
            "nothing is acknowledged until one of them answers"
        )
        timer = asyncio.get_running_loop().call_later(CHECK_S_MAX, self._on_failure, slow)
        looks = retrying(backoff(self._rng, 0.05, CHECK_RETRY_S_MAX), on=SeaweedMQError, told=self._failed)
        try:
            async for look in looks:
                with look:
                    fenced = await self._is_fenced()
        finally:
            timer.cancel()
        self._task = None  # before the callback: it may begin the next check
        self._on_answer(fenced)

    def _failed(self, _: int, error: BaseException) -> None:
        assert isinstance(error, SeaweedMQError)
        self._on_failure(error)
