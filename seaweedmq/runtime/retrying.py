"""Retries: tenacity with full jitter from a given generator, stopped by the loop's clock.

Tenacity's own waits and stops use the global generator and the real clock, which a seeded simulation cannot replay; the
linter bans them. Full jitter: Brooker, "Exponential Backoff And Jitter" (AWS, 2015).
"""

import asyncio
import random
from collections.abc import Callable
from typing import TypeAlias

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_never

from seaweedmq.errors import SeaweedMQError

Stop: TypeAlias = Callable[[RetryCallState], bool]


def is_retryable(error: BaseException) -> bool:
    """Whether the same call may succeed later unchanged."""
    return isinstance(error, SeaweedMQError) and error.retryable


def retrying(
    pause_s: Callable[[int], float],
    *,
    on: type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool] = is_retryable,
    stop: Stop = stop_never,
    on_retry: Callable[[int, BaseException], None] | None = None,
) -> AsyncRetrying:
    """Return attempts that continue until one succeeds, raises another error than ``on``, or ``stop`` holds.

    The last error is then raised. ``pause_s`` returns the seconds to wait after attempt number n, from 1, see
    :func:`backoff`; ``on`` has errors or is a predicate of an error. ``on_retry`` gets the number of an attempt and its
    error before each pause. By default attempts continue until cancelled; see :func:`after_s`, :func:`after_attempts`
    and :func:`when` for ``stop``.
    """
    is_retried = (lambda error: isinstance(error, on)) if isinstance(on, (type, tuple)) else on

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if on_retry is not None and error is not None:
            on_retry(state.attempt_number, error)

    return AsyncRetrying(
        retry=retry_if_exception(is_retried),
        wait=lambda state: pause_s(state.attempt_number),
        stop=stop,
        sleep=asyncio.sleep,
        before_sleep=before_sleep,
        reraise=True,
    )


def backoff(rng: random.Random, first_s: float, max_s: float) -> Callable[[int], float]:
    """Return random pauses whose bound doubles with each attempt, from ``first_s`` up to ``max_s``."""
    return lambda attempt: rng.uniform(0.0, min(max_s, first_s * 2.0 ** min(attempt - 1, 30)))


def after_s(timeout_s: float) -> Stop:
    """Stop once ``timeout_s`` have passed since this call, which has to be in the loop."""
    return when(deadline(timeout_s))


def after_attempts(count: int) -> Stop:
    """Stop after ``count`` attempts."""
    return stop_after_attempt(count)


def when(condition: Callable[[], bool]) -> Stop:
    """Stop once ``condition`` holds."""
    return lambda _: condition()


def deadline(timeout_s: float) -> Callable[[], bool]:
    """Return a condition that holds from ``timeout_s`` after now, by the loop's clock."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    return lambda: loop.time() >= end
