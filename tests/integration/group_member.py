"""A member whose handler computes for long: ``python -m tests.integration.group_member BOOTSTRAP TOPIC MEMBER HOW``.

``burn`` computes in the handler's thread, ``burn-aio`` in the event loop itself. It prints "offset deliveries value" of
each record, and "burnt" before its handler returns.
"""

import asyncio
import sys
import time

import seaweedmq
from seaweedmq import aio
from seaweedmq.client.subscribe.messages import Message

GROUP = "it"
BURN_S = 15.0


def burn(message: Message) -> None:
    """Compute in pure Python, which holds the interpreter's lock."""
    print(message.offset, message.deliveries, message.value.decode(), flush=True)
    end = time.monotonic() + BURN_S
    number = 0
    while time.monotonic() < end:
        number += sum(range(1_000))
    print("burnt", flush=True)


async def burn_in_loop(bootstrap: str, topic: str, member: str) -> None:
    async def handler(message: Message) -> None:
        burn(message)

    async with (
        aio.connect(bootstrap) as client,
        client.subscriber(topic, group=GROUP, member=member, start="earliest") as subscriber,
    ):
        await subscriber.handle(handler)


def main() -> None:
    bootstrap, topic, member, how = sys.argv[1:]
    if how == "burn-aio":
        asyncio.run(burn_in_loop(bootstrap, topic, member))
        return
    with (
        seaweedmq.connect(bootstrap) as client,
        client.subscriber(topic, group=GROUP, member=member, start="earliest") as subscriber,
    ):
        subscriber.handle(burn)


if __name__ == "__main__":
    main()
