"""Fence check in storage, for a primary that cannot prove that its lease is valid: see ``core.segment.commit_rule``."""

import asyncio
from collections.abc import Callable

from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import directory_of
from seaweedmq.runtime.retrying import backoff, retrying

CHECK_S_MAX = 2.0
"""Duration in seconds after which a running check is reported to publishers. The check continues."""
CHECK_RETRY_S_MAX = 1.0
"""Longest pause in seconds before a failed check is retried."""


class FenceCheck:
    """A fence check that runs until storage answers or it is cancelled; one runs at a time."""

    def __init__(
        self,
        topic: Topic,
        segment: Segment,
        context: SegmentContext,
        *,
        on_answer: Callable[[bool], None],
        on_failure: Callable[[SeaweedMQError], None],
    ) -> None:
        """Prepare a check; ``begin`` starts it.

        ``on_answer`` is called with whether there is a fence, once the check has ended; ``on_failure`` when storage
        fails or answers late, and the check continues.
        """
        self._topic = topic
        self._segment = segment
        self._store = context.store
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._spawn = context.spawn
        self._rng = context.env.rng
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start one check."""
        self._task = self._spawn(self._run(), f"check the fence of {self._segment}")

    def cancel(self) -> None:
        """Stop the check. No callback follows."""
        if self._task:
            self._task.cancel()

    async def close(self) -> None:
        """Stop the check and wait until its task has ended."""
        self.cancel()
        if self._task:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        slow = Unavailable(
            f"{self._segment}: etcd is unreachable, and storage has not answered the fence check; "
            "nothing is acknowledged until one of them answers"
        )
        timer = asyncio.get_running_loop().call_later(CHECK_S_MAX, self._on_failure, slow)
        attempts = retrying(backoff(self._rng, 0.05, CHECK_RETRY_S_MAX), on=SeaweedMQError, on_retry=self._failed)
        try:
            async for attempt in attempts:
                with attempt:
                    fenced = await directory_of(self._store).is_fenced(
                        self._topic.name, self._topic.uid, self._segment.id
                    )
        finally:
            timer.cancel()
        self._task = None  # before the callback: it may begin the next check
        self._on_answer(fenced)

    def _failed(self, _: int, error: BaseException) -> None:
        assert isinstance(error, SeaweedMQError)
        self._on_failure(error)
