"""Native clients of every kind connect in virtual time and leave at any moment: no memory or task remains.

``tests/test_any_clients.py`` does so with a real broker, beside Kafka clients.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.config import KIB, MIB
from tests.broker.testbed import CONFIG, Host, Testbed, story
from tests.support.visitors import FRAME_BYTES_MAX, NATIVE, TOPIC

EXAMPLES = settings.default.max_examples if settings.default.max_examples > 100 else 20
"""Number of examples: all in the profile "deep". Each example has its own broker."""
SMALL = replace(CONFIG, frame_bytes_max=FRAME_BYTES_MAX, memory_bytes_max=256 * MIB, read_chunk_bytes=64 * KIB)
CROWDS = st.lists(st.tuples(st.sampled_from(sorted(NATIVE)), st.integers(0, 3_000)), min_size=1, max_size=12)
"""Visitors, each as its kind and the milliseconds after which it leaves."""


async def visit(host: Host, kind: str, leaves_ms: int, seed: str) -> None:
    """Run a client of a kind until it is time to leave, or the broker rejects it."""
    with contextlib.suppress(SeaweedMQError, TimeoutError):
        async with asyncio.timeout(leaves_ms / 1_000):
            await NATIVE[kind](host.api, random.Random(seed))


@pytest.mark.examples
@pytest.mark.timeout(1_200)
@settings(max_examples=EXAMPLES, phases=[Phase.generate])
@given(crowd=CROWDS, seed=st.integers(0, 2**32))
def test_nothing_remains_of_native_clients(crowd: Sequence[tuple[str, int]], seed: int) -> None:
    story(_receive)(crowd=crowd, seed=seed)


async def _receive(testbed: Testbed, crowd: Sequence[tuple[str, int]], seed: int) -> None:
    host = await testbed.start(SMALL)
    await testbed.topic(host, TOPIC, partitions=1)
    await testbed.until(lambda: host.inspect.view.open_of(TOPIC))
    memory = host.inspect.memory
    budgets = (memory.intake, memory.reading, memory.relaying, memory.sending)
    publisher = await host.publisher(name=TOPIC, producer=1)
    await publisher.store(frames=24, size=60 * KIB)
    log = host.inspect.segments[TOPIC, 0].log
    await testbed.until(lambda: log.flushed == log.end)
    host.evict()  # the first visitors read files
    held, tasks = [budget.used for budget in budgets], len(asyncio.all_tasks())
    await asyncio.gather(
        *(visit(host, kind, leaves_ms, f"{seed} {number}") for number, (kind, leaves_ms) in enumerate(crowd))
    )
    await publisher.store()
    await testbed.until(lambda: [budget.used for budget in budgets] == held)
    await testbed.until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert all(budget.peak <= budget.limit for budget in memory.budgets)
    assert host.inspect.leader.groups.memory.used <= memory.groups_bytes
