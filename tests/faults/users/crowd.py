"""A process with very many publishers of one segment: ``python -m tests.faults.users.crowd BOOTSTRAP TOPIC COUNT``.

Each sends one record a turn. A line on stdin begins a turn, and one on stdout reports its last acknowledgement. The
publishers have their own process, since the tests' event loop carries etcd's packets.
"""

import asyncio
import contextlib
import sys

from seaweedmq import aio
from tests.faults.users.workload import CLIENT


def value(number: int, turn: int) -> bytes:
    """Return the value of a publisher's record."""
    return b"publisher %d turn %d" % (number, turn)


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def _publish(bootstrap: str, topic: str, count: int) -> None:
    async with aio.connect(bootstrap, config=CLIENT) as client, contextlib.AsyncExitStack() as stack:
        publishers = [await stack.enter_async_context(client.publisher(topic)) for _ in range(count)]
        print("ready", flush=True)
        turn = 0
        while await _line():
            receipts = [
                await publisher.send(value(number, turn), key=b"%d" % number)
                for number, publisher in enumerate(publishers)
            ]
            print("sent", flush=True)
            await asyncio.gather(*map(asyncio.wrap_future, receipts))
            print("acknowledged", flush=True)
            turn += 1


if __name__ == "__main__":
    asyncio.run(_publish(sys.argv[1], sys.argv[2], int(sys.argv[3])))
