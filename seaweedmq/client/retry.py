"""Retries of a client: ``runtime.retrying`` with the client's pauses and random generator."""

import random
from collections.abc import Callable

from tenacity import AsyncRetrying

from seaweedmq.client.config import ClientConfig
from seaweedmq.runtime.retrying import backoff, when
from seaweedmq.runtime.retrying import retrying as again


def retrying(config: ClientConfig, rng: random.Random, stop: Callable[[], bool]) -> AsyncRetrying:
    """Return attempts until one succeeds, one fails permanently, or ``stop()`` holds; the last error is raised."""
    return again(pauses(config, rng), stop=when(stop))


def pauses(config: ClientConfig, rng: random.Random) -> Callable[[int], float]:
    """Return a function from the number of an attempt, from 1, to the pause after it in seconds."""
    return backoff(rng, 2 * config.backoff_s_min, config.backoff_s_max)
