"""A process that joins a group at the given address, blocks its event loop for the given seconds, then commits."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from seaweedmq.model.messages import groups as g
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.rpc.client import GrpcDialer
from tests.rpc.fake_broker import NAME


def burn(seconds: float) -> None:
    """Run pure Python that never yields to the event loop, as a careless handler may."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


async def member(address: str, busy_s: float) -> None:
    """Print ``joined`` and, after the reply to the commit, ``committed``."""
    busy_over = asyncio.Event()

    async def requests() -> AsyncIterator[g.GroupRequest]:
        yield g.GroupOpen(
            group="billing", topic=NAME, member="m-1", incarnation=7, start=EARLIEST, client="test", held={}
        )
        await busy_over.wait()
        yield g.GroupCommit(1, ())

    dialer = GrpcDialer()
    async for reply in dialer.dial(address).join_group(requests()):
        print("joined" if isinstance(reply, g.GroupAssignment) else "committed", flush=True)
        burn(busy_s)
        busy_over.set()
    await dialer.close()


if __name__ == "__main__":
    asyncio.run(member(sys.argv[1], float(sys.argv[2])))
