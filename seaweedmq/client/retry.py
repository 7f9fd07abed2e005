"""How a client repeats what failed: ``runtime.retrying`` with the client's pauses and randomness."""

import random
from collections.abc import Callable

from tenacity import AsyncRetrying

from seaweedmq.client.config import ClientConfig
from seaweedmq.runtime.retrying import backoff, when
from seaweedmq.runtime.retrying import retrying as again


def retrying(config: ClientConfig, rng: random.Random, stop: Callable[[], bool]) -> AsyncRetrying:
    """Attempts until one succeeds, fails for good, or ``stop()`` says so; then the last error is raised."""
    return again(pauses(config, rng), stop=when(stop))


def pauses(config: ClientConfig, rng: random.Random) -> Callable[[int], float]:
    """Seconds to wait after attempt number n, from 1."""
    return backoff(rng, 2 * config.backoff_s_min, config.backoff_s_max)
