"""Searches for reference cycles hold the event loop, so each covers few objects."""

import gc
from typing import Any

from seaweedmq.cli.servers.process import GARBAGE_THRESHOLDS

OBJECTS_AT_ONCE_MAX = 50_000
"""Limit of one search, some 8 ms."""


def test_a_large_request_has_few_of_its_objects_looked_through_at_once() -> None:
    looked: list[int] = []

    def count(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] < 2:
            looked.append(sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1)))

    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.callbacks.append(count)
    try:
        request = [[number] for number in range(500_000)]
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*before)
    assert len(request) == 500_000
    assert len(looked) > 20
    assert max(looked) <= OBJECTS_AT_ONCE_MAX
