"""Virtual time for these tests: waiting costs nothing, and a task that waits in vain is named."""

import asyncio
from collections.abc import Callable, Mapping

from tests.sim.machines.loop import SimLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": SimLoop}
