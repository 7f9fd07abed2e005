"""Many clients of one broker as a process: ``python -m tests.integration.crowd KIND BOOTSTRAP COUNT``.

``paused``: subscribers that take one batch only. ``deaf``: subscribe streams with credit that are never read.
``large``: publishers of records of 12 MB, one after another, without end. Prints "ready" once all have begun.
"""

import asyncio
import sys

import grpc.aio

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages import data
from seaweedmq.rpc.transport import SUBSCRIBE

STORED = "crowd/stored"
LARGE = "crowd/large"
RECORD = bytes(12_000_000)
CREDIT_BYTES = 200 * MIB


async def paused(bootstrap: str, count: int) -> None:
    async with aio.connect(bootstrap, config=ClientConfig(subscribe_buffer_bytes_max=4 * MIB)) as client:

        async def begin() -> object:
            batches = (await client.subscriber(STORED, start="earliest")).batches()
            await anext(batches)
            return batches

        begun = await asyncio.gather(*(begin() for _ in range(count)))
        await _stay(begun)


async def deaf(bootstrap: str, count: int) -> None:
    opening = SubscribeOpen(topic=TopicName.parse(STORED), segment=0, start=EARLIEST, credit_bytes=CREDIT_BYTES)
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
    channels = [grpc.aio.insecure_channel(bootstrap, options=options) for _ in range(count)]
    calls = [channel.stream_stream(SUBSCRIBE)() for channel in channels]
    for call in calls:
        await call.write(data.encode_subscribe_request(opening))
    await _stay(calls)


async def large(bootstrap: str, count: int) -> None:
    async with aio.connect(bootstrap) as client:
        publishers = [await client.publisher(LARGE) for _ in range(count)]

        async def publish(publisher: aio.Publisher) -> None:
            while True:
                await (await publisher.send(RECORD))

        print("ready", flush=True)
        await asyncio.gather(*map(publish, publishers))


async def _stay(held: object) -> None:
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"paused": paused, "deaf": deaf, "large": large}[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
