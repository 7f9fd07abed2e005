"""The event loop of asynchronous tests here: virtual time, where waiting costs nothing."""

import asyncio
from collections.abc import Callable, Mapping

from tests.sim.machines.loop import SimLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the simulation's loop."""
    return {"virtual": SimLoop}
