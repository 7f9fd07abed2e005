"""One member of a group as a process: ``python -m tests.integration.group_member BOOTSTRAP TOPIC MEMBER HOW``.

``read``: prints "offset deliveries value" of every record, and acknowledges it. ``hold``: prints the first record,
waits for a line on stdin, acknowledges, and prints the outcome of the commit. ``slow``: as ``read``, a record every
0.2 s, and prints the time of the machine's steady clock in front. ``burn`` and ``burn-aio``: a handler that computes,
in a thread or in the event loop itself, before it returns; prints "burnt" then.
"""

import asyncio
import sys
import time
from collections.abc import Callable

import seaweedmq
from seaweedmq import aio
from seaweedmq.client.subscribe.messages import Message

GROUP = "it"
BURN_S = 15.0


def burn() -> None:
    """Compute in pure Python, which holds the interpreter's lock."""
    end = time.monotonic() + BURN_S
    number = 0
    while time.monotonic() < end:
        number += sum(range(1_000))


def tell(message: Message) -> None:
    print(message.offset, message.deliveries, message.value.decode(), flush=True)


def read(subscriber: seaweedmq.GroupSubscriber) -> None:
    for message in subscriber:
        tell(message)
        message.ack()


def read_slowly(subscriber: seaweedmq.GroupSubscriber) -> None:
    for message in subscriber:
        print(time.monotonic(), end=" ")
        tell(message)
        time.sleep(0.2)
        message.ack()


def hold(subscriber: seaweedmq.GroupSubscriber) -> None:
    message = next(iter(subscriber))
    tell(message)
    sys.stdin.readline()


def burn_in_thread(subscriber: seaweedmq.GroupSubscriber) -> None:
    def handler(message: Message) -> None:
        tell(message)
        burn()
        print("burnt", flush=True)

    subscriber.handle(handler)


async def burn_in_loop(bootstrap: str, topic: str, member: str) -> None:
    async def handler(message: Message) -> None:
        tell(message)
        burn()
        print("burnt", flush=True)

    async with (
        aio.connect(bootstrap) as client,
        client.subscriber(topic, group=GROUP, member=member, start="earliest") as subscriber,
    ):
        await subscriber.handle(handler)


WAYS: dict[str, Callable[[seaweedmq.GroupSubscriber], None]] = {
    "read": read,
    "slow": read_slowly,
    "hold": hold,
    "burn": burn_in_thread,
}


def main() -> None:
    """Run the member that the module describes."""
    bootstrap, topic, member, how = sys.argv[1:]
    if how == "burn-aio":
        asyncio.run(burn_in_loop(bootstrap, topic, member))
        return
    with (
        seaweedmq.connect(bootstrap) as client,
        client.subscriber(topic, group=GROUP, member=member, start="earliest") as subscriber,
    ):
        WAYS[how](subscriber)


if __name__ == "__main__":
    main()
