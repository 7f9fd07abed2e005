"""Steps of one broker's wall clock by minutes to days, forward or back, and its return."""

import asyncio

from tests.faults.machines.wall_clock import SEEN_WITHIN_S
from tests.faults.testbed import FaultTestbed

STEPS_S = (90.0, 16 * 60.0, 3_700.0, 86_400.0, 9 * 86_400.0)
"""Seconds longer than a lease, and than the retention of producers, replaced tables, sealed segments and offsets."""
STAYS_S = 4.0


async def clock_step(testbed: FaultTestbed) -> None:
    """Step a broker's wall clock, and back after a while; steady clocks do not step."""
    node = next(node for node in testbed.cluster.nodes if node.clock is not None)
    assert node.clock is not None, "see faults.NEEDS_CLOCKS"
    ahead_s = testbed.rng.choice(STEPS_S) * testbed.rng.choice((1, 1, -1))
    testbed.say(f"the wall clock of {node} steps by {ahead_s:+g} s")
    node.clock.step(ahead_s)
    try:
        await asyncio.sleep(SEEN_WITHIN_S + testbed.rng.uniform(0.5, STAYS_S))
    finally:
        node.clock.step(0.0)
    testbed.say(f"the wall clock of {node} is right again")
