"""Division of a broker's memory, with and without a listener for Kafka clients, within one total limit."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.broker.memory.broker_memory import (
    COPIES,
    HEAP_BYTES_MIN,
    HEAP_SHARE,
    KAFKA_PART,
    STREAM_BYTES,
    BrokerMemory,
    KafkaMemory,
    StreamMemory,
    heap_bytes,
)
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.read_permit import turn_bytes
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.config import MIB, BrokerConfig

LISTENING = BrokerConfig(
    kafka_listen="127.0.0.1:9092",
    kafka_in_flight_bytes_max=60 * MIB,
    kafka_fetch_bytes_max=30 * MIB,
    kafka_reencode_cache_bytes_max=10 * MIB,
    kafka_groups_bytes_max=100 * MIB,
)
RUNTIME_BYTES = 150 * MIB
sizes = st.integers(1 * MIB, 2_000 * MIB)


def test_kafka_s_clients_get_what_is_configured_where_there_is_room_and_nothing_without_a_listener() -> None:
    silent = replace(LISTENING, kafka_listen="")
    assert KafkaMemory.of(silent, 800 * MIB) == KafkaMemory(0, 0, 0, 0)
    assert BrokerMemory.of(silent, RUNTIME_BYTES).logs.limit > BrokerMemory.of(LISTENING, RUNTIME_BYTES).logs.limit
    for available in (800 * MIB, 8_000 * MIB):
        assert KafkaMemory.of(LISTENING, available) == KafkaMemory(60 * MIB, 30 * MIB, 10 * MIB, 100 * MIB)
    tight = KafkaMemory.of(LISTENING, 40 * MIB)
    assert tight == KafkaMemory(3 * MIB, 3 * MIB // 2, MIB // 2, 5 * MIB), "all shrink together to a quarter"
    assert tight.total_bytes == 40 * MIB // KAFKA_PART
    assert KafkaMemory.of(LISTENING, 0) == KafkaMemory(0, 0, 0, 0)


@given(bound=st.integers(320 * MIB, 4_000 * MIB), in_flight=sizes, fetch=sizes, reencode=sizes, groups=sizes)
def test_all_that_is_configured_is_inside_the_bound(
    bound: int, in_flight: int, fetch: int, reencode: int, groups: int
) -> None:
    config = replace(
        LISTENING,
        memory_bytes_max=bound,
        frame_bytes_max=4 * MIB,
        kafka_in_flight_bytes_max=in_flight,
        kafka_fetch_bytes_max=fetch,
        kafka_reencode_cache_bytes_max=reencode,
        kafka_groups_bytes_max=groups,
    )
    heap = max(HEAP_BYTES_MIN, int(bound * HEAP_SHARE))
    available = bound - RUNTIME_BYTES - heap
    memory = BrokerMemory.of(config, RUNTIME_BYTES)
    kafka = memory.kafka
    assert kafka.total_bytes <= available // KAFKA_PART
    assert kafka.in_flight_bytes <= in_flight
    assert kafka.fetch_bytes <= fetch
    assert kafka.reencode_bytes <= reencode
    assert kafka.groups_bytes <= groups
    budgets = sum(budget.limit for budget in memory.budgets) + memory.groups_bytes
    assert budgets + kafka.total_bytes + heap + RUNTIME_BYTES <= bound


def test_so_many_read_files_at_a_time_however_much_memory_there_is() -> None:
    large = replace(LISTENING, memory_bytes_max=64 << 30, frame_bytes_max=MIB)
    for readers_max in (16, 100):
        reading = BrokerMemory.of(replace(large, file_readers_max=readers_max), RUNTIME_BYTES).reading
        assert reading.limit == readers_max * turn_bytes(large.read_chunk_bytes)
    assert BrokerMemory.of(replace(LISTENING, file_readers_max=1), RUNTIME_BYTES).reading.limit >= 32 * MIB


def test_what_the_allocator_keeps_is_within_the_bound() -> None:
    assert heap_bytes(replace(LISTENING, memory_bytes_max=120 * MIB)) == HEAP_BYTES_MIN
    assert heap_bytes(replace(LISTENING, memory_bytes_max=1_200 * MIB)) == 100 * MIB


async def test_by_default_more_than_1200_streams_fit_beside_kafka_clients_and_leave_room_for_the_largest_frames() -> (
    None
):
    config = BrokerConfig(kafka_listen="127.0.0.1:9092")
    memory = BrokerMemory.of(config, RUNTIME_BYTES)
    streams = StreamMemory(memory.logs, memory.intake, COPIES * config.frame_bytes_max)
    limit = memory.logs.limit
    async with AsyncExitStack() as opened:
        await _fill(streams, opened, 1_250)
        assert memory.logs.limit == limit - 1_250 * STREAM_BYTES
        with pytest.raises(ResourceExhausted, match="raise memory_bytes_max"):
            await _fill(streams, opened, limit // STREAM_BYTES)
        assert memory.logs.limit >= COPIES * config.frame_bytes_max
    assert memory.logs.limit == limit


async def _fill(streams: StreamMemory, opened: AsyncExitStack, count: int) -> None:
    for _ in range(count):
        await opened.enter_async_context(streams.lent())


async def test_a_stream_gets_the_memory_of_an_idle_one() -> None:
    logs = MemoryBudget(int(2.5 * STREAM_BYTES))
    async with AsyncExitStack() as first, AsyncExitStack() as second, AsyncExitStack() as third:
        ending: list[asyncio.Task[None]] = []

        def end_idle() -> bool:
            if not ending:
                ending.append(asyncio.create_task(first.aclose()))
                return True
            return False

        streams = StreamMemory(logs, MemoryBudget(0), 0, end_idle)
        await first.enter_async_context(streams.lent())
        await second.enter_async_context(streams.lent())
        await third.enter_async_context(streams.lent())
        with pytest.raises(ResourceExhausted, match="broker has 2 streams open, as many as its memory allows"):
            await second.enter_async_context(streams.lent())
