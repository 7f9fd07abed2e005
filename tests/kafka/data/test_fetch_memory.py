"""The memory limit of replies to consumers: when memory is short, replies are smaller, and no reply is an error."""

import asyncio

from seaweedmq.kafka.data.fetch_memory import SMALL_BYTES, FetchMemory
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.config import MIB
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import Testbed
from tests.doubles.memory_store import StorageOp
from tests.kafka.in_process_client import InProcessClient, batch, in_process_clients, records_of

ORDERS = TopicName("kafka", "orders")
LIMIT_BYTES = 1 * MIB
WANTED_BYTES = 600_000
BATCH_BYTES = 50_000
BATCHES = 16
LARGE_BYTES = 600_000
"""Size of a batch of which the memory holds one."""


async def filled(testbed: Testbed) -> tuple[InProcessClient, list[bytes]]:
    """Start a broker with the least memory for replies, and fill a partition beyond it."""
    [client] = await in_process_clients(testbed, kafka_fetch_bytes_max=LIMIT_BYTES)
    await testbed.topic(client.host, ORDERS, partitions=1)
    await testbed.until(lambda: client.host.inspect.view.open_of(ORDERS))
    sent = [b"%02d" % number + bytes(BATCH_BYTES) for number in range(BATCHES)]
    for value in sent:
        assert (await client.produce("orders", 0, batch(value))).error_code == Code.NONE
    return client, sent


async def read(client: InProcessClient, offset: int = 0) -> list[bytes | None]:
    found = await client.fetch("orders", 0, offset, bytes_max=WANTED_BYTES, partition_bytes_max=WANTED_BYTES)
    assert found.error_code == Code.NONE
    return [value for _, _, value in records_of(found.records)]


async def test_who_comes_when_little_is_left_gets_less_and_no_error(testbed: Testbed) -> None:
    client, sent = await filled(testbed)
    memory = client.handlers.fetch_memory
    client.reads.clear()
    slow = []
    for _ in range(4):
        slow.append(asyncio.create_task(read(client)))
        await asyncio.sleep(1)
    assert not any(task.done() for task in slow)
    assert LIMIT_BYTES // 2 < memory.used < LIMIT_BYTES
    client.reads.set()
    replies = await asyncio.gather(*slow)
    assert all(reply == sent[: len(reply)] for reply in replies)
    whole, *smaller = map(len, replies)
    assert whole == LIMIT_BYTES // 2 // (BATCH_BYTES + 100)
    assert smaller == [5, 2, 1], "each gets half of what is free"
    assert memory.used == 0
    assert len(await read(client)) == whole


async def test_a_broker_reports_the_largest_reply_that_it_sends(testbed: Testbed) -> None:
    client, _ = await filled(testbed)
    node = client.handlers.nodes.number_of(client.host.broker.id)
    resource = {"resource_type": 4, "resource_name": str(node), "configuration_keys": ["fetch.max.bytes"]}
    [result] = (await client.ask(API.DESCRIBE_CONFIGS, 4, resources=[resource])).results
    [config] = result.configs
    found = await client.fetch("orders", 0, 0)
    assert len(found.records) <= int(config.value) < len(found.records) + BATCH_BYTES + 100
    assert int(config.value) == LIMIT_BYTES // 2
    assert config.config_source == 4, "the setting is not the default"


def test_no_reply_is_larger_than_those_of_apache_kafka() -> None:
    assert FetchMemory(1 << 30).reply_bytes_max == 57_671_680


async def test_readers_that_all_come_when_nothing_is_left_get_everything_in_the_end(testbed: Testbed) -> None:
    client, sent = await filled(testbed)
    memory = client.handlers.fetch_memory
    memory.reply().hold(LIMIT_BYTES)

    async def all_of_it() -> list[bytes | None]:
        values: list[bytes | None] = []
        while len(values) < len(sent):
            values += await read(client, len(values))
        return values

    assert await asyncio.gather(*(all_of_it() for _ in range(5))) == [sent] * 5
    assert memory.used == LIMIT_BYTES


async def test_a_client_that_goes_gives_back_what_was_held_for_it(testbed: Testbed) -> None:
    client, _ = await filled(testbed)
    memory = client.handlers.fetch_memory

    waiting = asyncio.create_task(client.fetch("orders", 0, 0, wait_ms=60_000, min_bytes=LIMIT_BYTES))
    await asyncio.sleep(1)
    assert memory.used == 0, "it waits for more, and holds no records meanwhile"
    await gone(waiting)

    client.reads.clear()
    unsent = asyncio.create_task(read(client))
    await testbed.until(lambda: memory.used > 0)
    await gone(unsent)
    assert memory.used == 0, "it did not take its reply"
    client.reads.set()

    partition = client.host.broker.ports.partitions.leads(ORDERS, 0)
    await testbed.until(lambda: partition.open_segment.log.flushed == BATCHES)
    partition.open_segment.evict(1 << 30)
    held = testbed.faults.hold(StorageOp.OPEN)
    reading = asyncio.create_task(read(client))
    await testbed.until(lambda: memory.used == LIMIT_BYTES // 2)
    await gone(reading)
    assert memory.used == 0, "its files were being read"
    held.set()
    assert await read(client)
    assert memory.used == 0


async def test_a_large_first_batch_in_memory_waits_as_one_in_files_does(testbed: Testbed) -> None:
    [client] = await in_process_clients(
        testbed, kafka_fetch_bytes_max=LIMIT_BYTES, frame_bytes_max=MIB, stream_in_flight_bytes_max=2 * MIB
    )
    await testbed.topic(client.host, ORDERS, partitions=1)
    await testbed.until(lambda: client.host.inspect.view.open_of(ORDERS))
    assert (await client.produce("orders", 0, batch(bytes(LARGE_BYTES)))).error_code == Code.NONE
    memory = client.handlers.fetch_memory
    others = memory.reply()
    others.hold(LIMIT_BYTES)
    reading = [asyncio.create_task(read(client)) for _ in range(4)]
    await asyncio.sleep(1)
    assert not any(task.done() for task in reading)
    assert memory.used == LIMIT_BYTES
    client.reads.clear()
    others.release()
    await asyncio.sleep(1)
    assert LARGE_BYTES <= memory.used <= LIMIT_BYTES, "one of them"
    client.reads.set()
    assert await asyncio.gather(*reading) == [[bytes(LARGE_BYTES)]] * 4
    assert memory.used == 0


async def gone(fetch: "asyncio.Task[object]") -> None:
    fetch.cancel()
    await asyncio.wait({fetch})
    assert fetch.cancelled()


async def test_a_large_first_batch_waits_until_others_have_read_theirs() -> None:
    memory = FetchMemory(LIMIT_BYTES)
    holding, large, larger, small = (memory.reply() for _ in range(4))
    holding.hold(LIMIT_BYTES // 2)
    waiting = [
        asyncio.create_task(large.first_batch(LIMIT_BYTES * 3 // 4)),
        asyncio.create_task(larger.first_batch(2 * LIMIT_BYTES)),
    ]
    await asyncio.sleep(0)
    await small.first_batch(SMALL_BYTES)
    assert memory.used == LIMIT_BYTES // 2
    holding.release()
    await waiting[0]
    assert (memory.used, waiting[1].done()) == (LIMIT_BYTES * 3 // 4, False)
    large.release()
    await waiting[1]
    assert memory.used == 2 * LIMIT_BYTES, "it is let in alone"
    larger.release()
    assert memory.used == 0


async def test_who_waits_for_memory_and_goes_lets_the_next_one_in() -> None:
    memory = FetchMemory(LIMIT_BYTES)
    holding, first, second = (memory.reply() for _ in range(3))
    holding.hold(LIMIT_BYTES // 2)
    tasks = [asyncio.create_task(one.first_batch(size)) for one, size in ((first, LIMIT_BYTES), (second, 100_000))]
    await asyncio.sleep(0)
    assert not tasks[1].done()
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert (first.held, second.held) == (0, 100_000)
    first.release()
    second.release()
    holding.release()
    assert memory.used == 0


async def test_what_a_reply_reserved_counts_for_its_first_batch_and_is_nothing_that_others_wait_for() -> None:
    memory = FetchMemory(LIMIT_BYTES)
    reply = memory.reply()
    assert reply.reserve(LIMIT_BYTES) == LIMIT_BYTES // 2
    await reply.first_batch(LIMIT_BYTES)
    await reply.first_batch(2 * LIMIT_BYTES)
    assert memory.used == 2 * LIMIT_BYTES

    memory = FetchMemory(LIMIT_BYTES)
    first, waits, late = (memory.reply() for _ in range(3))
    first.hold(LIMIT_BYTES // 2)
    waiting = asyncio.create_task(waits.first_batch(LIMIT_BYTES * 3 // 4))
    await asyncio.sleep(0)
    assert late.reserve(LIMIT_BYTES) == 0
    await late.first_batch(SMALL_BYTES)
    first.release()
    await waiting
    assert late.reserve(LIMIT_BYTES) == LIMIT_BYTES // 8


async def test_replies_that_wait_press_the_largest_ones_as_far_as_needed() -> None:
    memory = FetchMemory(LIMIT_BYTES)
    pressed: list[int] = []

    def press(now: float, held_bytes: int) -> bool:
        pressed.append(held_bytes)
        return True

    for part in (8, 2, 4):
        memory.reply(press).hold(LIMIT_BYTES // part)
    waits = memory.reply()
    waiting = asyncio.create_task(waits.first_batch(LIMIT_BYTES // 2))
    await asyncio.sleep(0)
    memory.press(1.0)
    assert pressed == [LIMIT_BYTES // 2], "its end is enough"
    memory.press(1.5)
    assert len(pressed) == 1, "the connection has a while to end"
    waiting.cancel()
    await asyncio.wait({waiting})
    memory.press(10.0)
    assert len(pressed) == 1, "no reply waits"


async def test_replies_that_wait_do_not_wait_for_each_other() -> None:
    memory = FetchMemory(LIMIT_BYTES)
    replies = [memory.reply() for _ in range(3)]
    for reply in replies:
        reply.reserve(LIMIT_BYTES)
    waiting = [asyncio.create_task(reply.first_batch(LIMIT_BYTES)) for reply in replies[1:]]
    await asyncio.sleep(0)
    for reply, task in zip(replies, waiting, strict=False):
        reply.release()
        await task
    assert memory.used == LIMIT_BYTES
