"""Native side of the demo: one publisher, and a group that reads."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from benchmarks.demo.records import ARRIVED
from seaweedmq.aio import Client, GroupSubscriber

SLICE_ROWS = 4_096


async def publish(
    client: Client, topic: str, records: pa.Table, count: Callable[[int], None], timeout_s: float
) -> None:
    """Publish ``_key`` and ``_value`` of all rows, and wait for all acknowledgements, counted by ``count``."""
    acknowledged = 0

    def stored(rows: int) -> None:
        nonlocal acknowledged
        acknowledged += rows
        count(acknowledged)

    async with client.publisher(topic) as publisher:
        for at in range(0, records.num_rows, SLICE_ROWS):
            some = records.slice(at, SLICE_ROWS)
            sent = await publisher.send_table(some, key="_key")
            sent.add_done_callback(partial(_told, stored, some.num_rows))
        await publisher.flush(timeout=timeout_s)


async def read(
    client: Client, topic: str, group: str, members: int, records: int, count: Callable[[int], None]
) -> list[pa.Table]:
    """Read a number of records with a number of members that share them; returns them in order, see ``ARRIVED``."""
    pieces: list[pa.Table] = []
    taken = 0
    async with contextlib.AsyncExitStack() as stack:
        joining = [client.subscriber(topic, group=group, start="earliest") for _ in range(members)]
        joined = [await stack.enter_async_context(member) for member in joining]

        async def read_on(member: GroupSubscriber) -> None:
            nonlocal taken
            async for batch in member.batches():
                pieces.append(pa.table(batch.select(ARRIVED.names)).cast(ARRIVED))
                member.ack(batch)
                taken += batch.num_rows
                count(taken)
                if taken >= records:
                    for each in joined:
                        each.end()

        async with asyncio.TaskGroup() as reading:
            for member in joined:
                reading.create_task(read_on(member))
    return pieces


def _told(stored: Callable[[int], None], rows: int, _: object) -> None:
    stored(rows)
