"""Exhaustion of a broker process's resource limits."""

import asyncio
import resource

import psutil

from tests.faults.testbed import FaultTestbed

FEW_S = (0.5, 6.0)
"""Seconds shorter and longer than a lease."""


async def few_descriptors(testbed: FaultTestbed) -> None:
    """Keep a broker from opening files or connections for a while; open ones stay usable."""
    node = await testbed.victim("a primary", 0)
    if node.pid is None:
        return
    process = psutil.Process(node.pid)
    before = process.rlimit(resource.RLIMIT_NOFILE)
    opened = await asyncio.to_thread(process.num_fds)
    testbed.say(f"{node} may open nothing beyond {opened} files")
    try:
        process.rlimit(resource.RLIMIT_NOFILE, (opened, before[1]))
        await asyncio.sleep(testbed.rng.uniform(*FEW_S))
        process.rlimit(resource.RLIMIT_NOFILE, before)
    except psutil.NoSuchProcess:
        return  # another fault has ended it
    testbed.say(f"{node} may open files again")
