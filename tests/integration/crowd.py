"""Publishers of records of 12 MB without end, as a process: ``python -m tests.integration.crowd BOOTSTRAP COUNT``.

Prints "ready" once all have begun.
"""

import asyncio
import sys

from seaweedmq import aio

LARGE = "crowd/large"
RECORD = bytes(12_000_000)


async def main(bootstrap: str, count: int) -> None:
    async with aio.connect(bootstrap) as client:
        publishers = [await client.publisher(LARGE) for _ in range(count)]

        async def publish(publisher: aio.Publisher) -> None:
            while True:
                await (await publisher.send(RECORD))

        print("ready", flush=True)
        await asyncio.gather(*map(publish, publishers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
