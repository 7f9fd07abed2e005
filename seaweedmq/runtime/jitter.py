"""Back-off shared by everything here that tries etcd again."""

import random

import tenacity


def jittered(rng: random.Random, first_s: float, most_s: float) -> tenacity.wait.wait_base:
    """Waits that double from ``first_s`` up to ``most_s``, each drawn from its upper half by ``rng``.

    Tenacity's own jitter draws from the global generator, which a seeded simulation can not replay.
    """
    return _Jittered(rng, first_s, most_s)


class _Jittered(tenacity.wait.wait_base):
    def __init__(self, rng: random.Random, first_s: float, most_s: float) -> None:
        self._rng = rng
        self._first_s = first_s
        self._most_s = most_s

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        doublings = min(retry_state.attempt_number - 1, 16)
        bound_s = min(self._most_s, self._first_s * 2.0**doublings)
        return self._rng.uniform(bound_s / 2, bound_s)
