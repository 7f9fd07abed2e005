"""How a client repeats what failed: ``runtime.retrying`` with the client's pauses and randomness."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying

from seaweedmq.client.config import ClientConfig
from seaweedmq.runtime.retrying import backoff, when
from seaweedmq.runtime.retrying import retrying as again


def retrying(
    config: ClientConfig,
    rng: random.Random,
    stop: Callable[[], bool],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncRetrying:
    """Attempts until one succeeds, fails for good, or ``stop()`` says so; then the last error is raised. ``sleep``
    waits between them for so many seconds, or less if there is reason to."""
    return again(backoff(rng, 2 * config.backoff_s_min, config.backoff_s_max), stop=when(stop), sleep=sleep)
