"""Themes about paused readers, large messages, and topics that get their first data."""

import random
from dataclasses import replace

from seaweedmq.client.config import ClientConfig
from seaweedmq.model.config import KIB, MIB, BrokerConfig
from seaweedmq.model.topic import Durability
from tests.sim.scenario import AdoptionPlan, PublisherPlan, Scenario, TopicPlan

LARGE_FRAME_BYTES_MAX = 512 * KIB
ADOPTIONS = 8


def large_records(rng: random.Random, scenario: Scenario) -> Scenario:
    """Records exceed the size that needs no reserved memory, with small ones between them, and some of their readers
    pause or never read."""
    topics = tuple(replace(topic, retention_s=None, retention_bytes=None) for topic in scenario.topics)
    return replace(
        scenario,
        topics=topics,
        broker=_for_large_frames(rng, scenario.broker),
        publishers=tuple(
            _publisher(rng, f"{size}-{number}", topics[0].name, scenario.chaos_s, value_bytes)
            for size, numbers, value_bytes in (("large", 4, rng.choice((100, 300)) * KIB), ("small", 4, 200))
            for number in range(numbers)
        ),
        subscriber=replace(
            scenario.subscriber,
            subscribe_buffer_bytes_max=rng.choice((1, 4)) * MIB,
            credit_bytes_min=rng.choice((64, 512)) * KIB,
        ),
        dawdlers=rng.choice((3, 8)),
        sleepers=rng.choice((0, 4, 12)),
        lives=None,
        adoptions=(),
        budget_bytes=rng.choice((2, 4)) * LARGE_FRAME_BYTES_MAX,
        passage_bytes=rng.choice((2, 32)) * LARGE_FRAME_BYTES_MAX,
        favoured={"slow_storage": 20, "slow_network": 10, "failing_storage": 6, "break_streams": 6},
    )


def first_data(rng: random.Random, scenario: Scenario) -> Scenario:
    """One topic after another gets its first plain record and its first table at once, while messages are slow and its
    segments are replaced."""
    brokers = max(scenario.brokers, 2)
    config = ClientConfig(
        rpc_timeout_s=3.0, stall_timeout_s=3.0, delivery_timeout_s=20.0, close_timeout_s=5.0, backoff_s_max=0.5
    )
    return replace(
        scenario,
        brokers=brokers,
        publishers=scenario.publishers[:1],
        dawdlers=0,
        lives=None,
        group_members=0,
        adoptions=tuple(
            AdoptionPlan(
                topic=TopicPlan(
                    name=f"sim/adoption-{number}",
                    segments=rng.choice((1, 2, 4)),
                    durability=Durability.STORED if scenario.machines_fail else rng.choice(tuple(Durability)),
                    replicas=rng.choice((1, 2)),
                ),
                sends=rng.choice((1, 3)),
                starts_s_max=rng.choice((0.05, 0.5)),
                pause_s_max=0.0,
                config=config,
                begins_s=rng.uniform(0, scenario.chaos_s),
            )
            for number in range(ADOPTIONS)
        ),
        pause_s=(0.02, 0.3),
        favoured={"slow_network": 15, "lossy_network": 5, "seal_while_adopting": 30, "stop_broker": 8},
    )


def _for_large_frames(rng: random.Random, broker: BrokerConfig) -> BrokerConfig:
    return replace(
        broker,
        frame_bytes_max=LARGE_FRAME_BYTES_MAX,
        segment_buffer_bytes_max=rng.choice((1, 4, 4)) * LARGE_FRAME_BYTES_MAX,
        stream_in_flight_bytes_max=rng.choice((1, 4)) * LARGE_FRAME_BYTES_MAX,
        read_chunk_bytes=rng.choice((64, 256)) * KIB,
        log_roll_bytes=rng.choice((1, 4)) * MIB,
        table_row_group_bytes=1 * MIB,
    )


def _publisher(rng: random.Random, name: str, topic: str, chaos_s: float, value_bytes: int) -> PublisherPlan:
    records = rng.choice((8, 16)) if value_bytes > KIB else 60
    return PublisherPlan(
        name=name,
        topic=topic,
        keys=rng.choice((1, 5)),
        records=records,
        pause_s_max=rng.choice((0.0, 2 * chaos_s / records)),
        value_bytes=value_bytes,
        config=ClientConfig(
            rpc_timeout_s=3.0,
            stall_timeout_s=3.0,
            batch_bytes=rng.choice((4, 256)) * KIB,
            buffer_bytes_max=2 * MIB,
            backoff_s_max=0.5,
        ),
    )
