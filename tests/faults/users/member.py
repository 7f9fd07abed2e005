"""A member of a consumer group as a process that can be killed: ``python -m tests.faults.users.member``.

It writes delivered records to a file, one per line, before it acknowledges them, so that each record the group
considers processed is in some member's file. It prints ``ready`` once it is a member; on SIGTERM it leaves the group
and exits 0.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Self

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig

CLIENT = ClientConfig(connect_timeout_s=60.0, connect_refused_s=60.0)
"""Client that may start while no broker answers."""
PADDING = b"."
"""Padding at the end of values; they are unique without it."""


def brief(value: bytes) -> bytes:
    """Return a value without its padding, and its length: unique, and short."""
    return b"%b:%d" % (value.rstrip(PADDING), len(value))


@dataclass(frozen=True, slots=True)
class Line:
    at_ns: int
    """Monotonic clock of the machine, which all processes share."""
    topic: str
    segment: int
    offset: int
    deliveries: int
    key: bytes
    brief: bytes

    def encode(self) -> bytes:
        """Return one line. Keys and values of the tests hold no tabs and no line feeds."""
        numbers = f"{self.at_ns}\t{self.topic}\t{self.segment}\t{self.offset}\t{self.deliveries}\t".encode()
        return b"%b%b\t%b\n" % (numbers, self.key, self.brief)

    @classmethod
    def decode(cls, line: bytes) -> Self:
        at_ns, topic, segment, offset, deliveries, key, value = line.split(b"\t")
        return cls(int(at_ns), topic.decode(), int(segment), int(offset), int(deliveries), key, value)


async def _read(subscriber: aio.GroupSubscriber, topic: str, file: int) -> None:
    async for message in subscriber:
        line = Line(
            time.monotonic_ns(),
            topic,
            message.segment,
            message.offset,
            message.deliveries,
            message.key or b"",
            brief(message.value),
        )
        os.write(file, line.encode())
        message.ack()


async def _run(bootstrap: str, group: str, member: str, path: str, topics: list[str]) -> None:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    loop.add_signal_handler(signal.SIGTERM, me.cancel)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with contextlib.suppress(asyncio.CancelledError):
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(aio.connect(bootstrap, config=CLIENT))
            subscribers = {
                topic: await stack.enter_async_context(
                    client.subscriber(topic, group=group, member=member, start="earliest")
                )
                for topic in topics
            }
            print("ready", flush=True)
            async with asyncio.TaskGroup() as tasks:
                for topic, subscriber in subscribers.items():
                    tasks.create_task(_read(subscriber, topic, file))


if __name__ == "__main__":
    bootstrap, group, member, path, *topics = sys.argv[1:]
    asyncio.run(_run(bootstrap, group, member, path, topics))
