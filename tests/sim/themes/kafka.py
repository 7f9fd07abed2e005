"""Themes about Kafka consumers, alone and in groups."""

import random
from dataclasses import replace

from seaweedmq.model.config import KIB
from tests.sim.scenario import KafkaPlan, RecreatedPlan, Scenario


def kafka_consumers(rng: random.Random, scenario: Scenario) -> Scenario:
    """Kafka consumers read partitions by offsets, from memory, logs and tables of any leader, and restart at times."""
    scenario = _with_kafka(rng, scenario)
    return replace(
        scenario,
        kafka_readers=rng.choice((1, 2, 3)),
        favoured={
            "reshape": 60, "kill_broker": 20, "freeze_broker": 20, "suspend_machine": 12, "part_brokers": 20,
            "break_streams": 12, "lossy_network": 12, "slow_network": 12,
        },
    )  # fmt: skip


def kafka_groups(rng: random.Random, scenario: Scenario) -> Scenario:
    """A Kafka group reads and commits, while its members and its coordinator die, freeze and move."""
    scenario = _with_kafka(rng, scenario)
    return replace(
        scenario,
        kafka_members=rng.choice((1, 2, 2, 3)),
        machines_fail=False,  # commits of groups are always replicated
        chaos_s=rng.uniform(8, 16),
        favoured={
            "reshape": 20, "kill_broker": 12, "part_brokers": 12, "lossy_network": 12, "trouble_member": 20,
            "trouble_coordinator": 50, "wake_a_coordinator": 20, "wake_a_committer": 20,
        },
    )  # fmt: skip


def recreated_behind_coordinators(rng: random.Random, scenario: Scenario) -> Scenario:
    """A topic is recreated while coordinators of groups are dead, and its groups commit and fetch offsets."""
    scenario = _with_kafka(rng, scenario)
    topic = scenario.topics[0]
    return replace(
        scenario,
        kafka=(),
        machines_fail=False,
        recreated=RecreatedPlan(
            topic=replace(
                topic,
                name=f"{topic.name.partition('/')[0]}/recreated",
                partitions=rng.choice((1, 2)),
                replicas=min(2, scenario.brokers),
            ),
            lives_max=8,
            records=10,
            config=replace(scenario.subscriber, rpc_timeout_s=3.0),
        ),
        chaos_s=12.0,
        pause_s=(0.2, 1.5),
        favoured={
            "recreate_behind_a_coordinator": 200, "late_news": 0, "cut_off_from_etcd": 0, "freeze_broker": 0,
            "suspend_machine": 0, "seal_behind_the_primarys_back": 0,
        },
    )  # fmt: skip


def _with_kafka(rng: random.Random, scenario: Scenario) -> Scenario:
    """Add a topic with partitions and its producers, some of them native."""
    partitions = rng.choice((1, 2, 3))
    topic = replace(scenario.topics[0], partitions=partitions, retention_s=None, retention_bytes=None)
    records = rng.choice((20, 50))
    plan = KafkaPlan(
        name="",
        topic=topic.name,
        partitions=partitions,
        records=records,
        pause_s_max=2 * scenario.chaos_s / records,
        first_sequence=0,
    )
    broker = replace(
        scenario.broker,
        producer_idle_s=900.0,
        kafka_namespace=topic.name.partition("/")[0],
        kafka_internal_partitions=1,
        kafka_cursors_max=rng.choice((1, 64)),
        log_roll_bytes=rng.choice((2, 8)) * KIB,
        partition_roll_age_s=rng.choice((0.5, 2.0)),
        log_grace_s=rng.choice((0.2, 1.0, 600.0)),
        segment_buffer_bytes_max=scenario.broker.frame_bytes_max,
    )
    return replace(
        scenario,
        brokers=max(2, scenario.brokers),
        broker=broker,
        topics=(topic,),
        publishers=(replace(scenario.publishers[0], topic=topic.name, records=20, keys=2),),
        subscribers=1,
        dawdlers=0,
        kafka=tuple(replace(plan, name=f"kafka-{number}") for number in range(rng.choice((1, 2)))),
        group_members=0,
        lives=None,
        adoptions=(),
    )
