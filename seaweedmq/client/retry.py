"""One way to repeat what failed: tenacity, full jitter from the client's own randomness, stop by the loop's clock."""

import asyncio
import random
from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import SeaweedMQError


def is_retryable(error: BaseException) -> bool:
    """Whether the same call may succeed later unchanged."""
    return isinstance(error, SeaweedMQError) and error.retryable


def retrying(config: ClientConfig, rng: random.Random, stop: Callable[[], bool]) -> AsyncRetrying:
    """Attempts until one succeeds, fails for good, or ``stop()`` says so; then the last error is raised.

    Tenacity's own waits and stops use the global randomness and the real clock, which a simulation can not replace.
    """

    def wait(state: RetryCallState) -> float:
        bound = min(config.backoff_s_max, config.backoff_s_min * 2.0 ** min(state.attempt_number, 30))
        return rng.uniform(0.0, bound)

    return AsyncRetrying(
        wait=wait,
        stop=lambda _: stop(),
        retry=retry_if_exception(is_retryable),
        sleep=asyncio.sleep,
        reraise=True,
    )


def deadline(timeout_s: float) -> Callable[[], bool]:
    """A stop condition: true from ``timeout_s`` after now. Call it in the loop."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    return lambda: loop.time() >= end
