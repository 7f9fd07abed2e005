"""Themes about many sealed segments."""

import random
from dataclasses import replace

from seaweedmq.client.config import ClientConfig
from seaweedmq.model.config import KIB
from seaweedmq.model.producer import KAFKA_SEQUENCES
from tests.sim.scenario import KafkaPlan, PublisherPlan, Scenario, TopicPlan


def much_is_forgotten(rng: random.Random, scenario: Scenario) -> Scenario:
    """Segments are sealed constantly, and pruned soon after they have lost their records, or had none."""
    retained = rng.random() < 0.5
    topics = tuple(
        replace(t, retention_s=rng.choice((1.0, 3.0)) if retained else None, retention_bytes=None)
        for t in scenario.topics
    )
    broker = replace(
        scenario.broker,
        log_roll_bytes=2 * KIB,
        log_roll_age_s=0.5,
        log_grace_s=rng.choice((0.2, 1.0)),
        maintenance_interval_s=rng.choice((0.2, 0.5)),
        segment_retention_s=rng.choice((0.3, 1.0, 6.0)),
        producer_retention_s=rng.choice((6.0, 10.0)),
    )
    return replace(
        scenario,
        broker=broker,
        topics=topics,
        publishers=tuple(_slow(rng, plan, scenario.chaos_s) for plan in scenario.publishers),
        group_members=rng.choice((0, 1, 2)),
        latecomers_max=0,
        favoured={"reshape": 80, "seal_twice": 80},
    ).impatiently()


def _slow(rng: random.Random, plan: PublisherPlan, chaos_s: float) -> PublisherPlan:
    """Slow a publisher down, so that it sends throughout: segments without new records have none to lose."""
    return replace(plan, pause_s_max=2 * chaos_s / plan.records, value_bytes=rng.choice((20, 100)))


def _steady(scenario: Scenario, topic: TopicPlan, keys: int) -> tuple[PublisherPlan, ...]:
    """Plan two publishers that send all the time."""
    plan = replace(scenario.publishers[0], topic=topic.name, keys=keys, records=200, pause_s_max=0.1, value_bytes=100)
    return tuple(replace(plan, name=f"publisher-{number}") for number in range(2))


def some_know_less(rng: random.Random, scenario: Scenario) -> Scenario:
    """Brokers have stale metadata of segments and leadership while users connect to them."""
    brokers = max(2, scenario.brokers)
    return replace(
        scenario,
        brokers=brokers,
        publishers=tuple(_slow(rng, plan, scenario.chaos_s) for plan in scenario.publishers),
        latecomers_max=rng.choice((4, 10)),
        favoured={"leave_behind": 60, "lead_without_knowing": 30, "reshape": 30},
    )


def partitions_are_added(rng: random.Random, scenario: Scenario) -> Scenario:
    """Topics have partitions, which move and grow in number while records are sent and read."""
    topics = tuple(
        replace(t, partitions=rng.choice((1, 2, 3)), retention_s=None, retention_bytes=None) for t in scenario.topics
    )
    members = rng.choice((0, 0, 1, 2))
    return replace(
        scenario,
        topics=topics,
        broker=replace(scenario.broker, partition_roll_age_s=scenario.broker.log_roll_age_s),
        publishers=tuple(
            replace(_slow(rng, plan, scenario.chaos_s), config=_that_looks_soon(plan.config))
            for plan in scenario.publishers
        ),
        subscriber=_that_looks_soon(scenario.subscriber),
        group_members=members,
        members_refuse=members > 0,  # the order along a key is not judged then, as it is not kept
        favoured={"reshape": 100},
    )


def kafka_producers(rng: random.Random, scenario: Scenario) -> Scenario:
    """Kafka producers have frames in flight to partitions that move, and whose brokers die; some producers are new."""
    partitions = rng.choice((1, 2, 3))
    topic = replace(scenario.topics[0], partitions=partitions, retention_s=None, retention_bytes=None)
    records = rng.choice((30, 100))
    pause_s = rng.choice((0.0, 5 * scenario.chaos_s / records))
    lasting = KafkaPlan(
        name="", topic=topic.name, partitions=partitions, records=records, pause_s_max=pause_s, first_sequence=0
    )
    visiting = replace(lasting, records=10, pause_s_max=rng.choice((0.0, 0.02)))
    plans = [lasting] * rng.choice((1, 2, 3)) + [visiting] * rng.choice((0, 0, 4, 10))
    return replace(
        scenario,
        brokers=max(2, scenario.brokers),
        broker=replace(
            scenario.broker,
            producer_idle_s=900.0,
            producers_per_segment_max=rng.choice((1, 1_000)),
            kafka_namespace=topic.name.partition("/")[0],
        ),
        topics=(topic,),
        publishers=(replace(scenario.publishers[0], topic=topic.name, records=20),),
        kafka=tuple(
            replace(
                plan,
                name=f"kafka-{number}",
                first_sequence=rng.choice((0, 0, 70, KAFKA_SEQUENCES - rng.randrange(1, plan.records))),
                starts_s=rng.uniform(0, scenario.chaos_s) if plan is visiting else 0.0,
            )
            for number, plan in enumerate(plans)
        ),
        group_members=0,
        lives=None,
        adoptions=(),
        favoured={"reshape": 60, "kill_broker": 20, "break_streams": 20, "lossy_network": 12, "slow_network": 12},
    )


def records_are_deleted(rng: random.Random, scenario: Scenario) -> Scenario:
    """The first records of partitions are deleted manually all the time, during sends, moves and reads; segments
    without records are pruned."""
    parted = partitions_are_added(rng, scenario)
    broker = replace(
        parted.broker,
        log_roll_bytes=2 * KIB,
        partition_roll_age_s=0.5,
        log_grace_s=rng.choice((0.2, 1.0)),
        maintenance_interval_s=rng.choice((0.3, 1.0)),
        segment_retention_s=rng.choice((1.0, 6.0, 86_400.0)),
    )
    return replace(parted, broker=broker, favoured={"reshape": 60, "delete_records": 80}).impatiently()


def _that_looks_soon(config: ClientConfig) -> ClientConfig:
    return replace(config, metadata_max_age_s=0.3)


def nobody_has_been_there(rng: random.Random, scenario: Scenario) -> Scenario:
    """Publishers know of segments long before they send anything, and replicas are considered dead meanwhile."""
    topics = tuple(replace(t, segments=8, replicas=2) for t in scenario.topics[:1])
    broker = replace(
        scenario.broker,
        lease_ttl_s=1.0,
        log_grace_s=0.2,
        maintenance_interval_s=0.2,
        segment_retention_s=rng.choice((0.2, 0.5)),
    )
    publishers = tuple(
        replace(
            scenario.publishers[0],
            name=f"publisher-{number}",
            topic=topics[0].name,
            keys=4,
            records=20,
            pause_s_max=0.5,
            waits_s=rng.uniform(2, 8),
        )
        for number in range(4)
    )
    return replace(
        scenario,
        brokers=max(3, scenario.brokers),
        broker=broker,
        topics=topics,
        publishers=publishers,
        dawdlers=0,
        lives=None,
        adoptions=(),
        pause_s=(0.1, 0.5),
        favoured={"forget_an_empty_segment": 400, "forget_replicas": 0},
    )


def a_leader_stumbles(rng: random.Random, scenario: Scenario) -> Scenario:
    """Leaders freeze briefly as their leases end, while members of groups read and commit all the time."""
    topic = replace(scenario.topics[0], segments=rng.choice((2, 4)), replicas=1, retention_s=None, retention_bytes=None)
    return replace(
        scenario,
        brokers=rng.choice((2, 3)),
        broker=replace(scenario.broker, lease_ttl_s=1.0, group_session_timeout_s=2.0),
        topics=(topic,),
        publishers=_steady(scenario, topic, keys=8),
        subscriber=replace(scenario.subscriber, stall_timeout_s=10.0, rpc_timeout_s=10.0),
        group_members=3,
        lives=None,
        adoptions=(),
        dawdlers=0,
        machines_fail=False,
        chaos_s=12.0,
        pause_s=(0.2, 1.5),
        favoured={"stumble_out_of_leading": 1_000, "reshape": 0},
    )


def members_come_back_unheard(rng: random.Random, scenario: Scenario) -> Scenario:
    """Members are unreachable while they are assigned segments, and return as these are assigned to others."""
    segments = rng.choice((3, 4, 5))
    topic = replace(scenario.topics[0], segments=segments, replicas=1, retention_s=None, retention_bytes=None)
    return replace(
        scenario,
        brokers=rng.choice((1, 2)),
        broker=replace(scenario.broker, group_session_timeout_s=6.0, group_revoke_timeout_s=300.0),
        topics=(topic,),
        publishers=_steady(scenario, topic, keys=16),
        group_members=2,
        lives=None,
        adoptions=(),
        dawdlers=0,
        machines_fail=False,
        chaos_s=12.0,
        pause_s=(0.1, 0.5),
        favoured={"come_back_unheard": 1_000, "reshape": 0},
    )


def members_refuse(rng: random.Random, scenario: Scenario) -> Scenario:
    """Members hold several records of a key at a time, and reject them in any order, while segments move to others."""
    topic = replace(scenario.topics[0], retention_s=None, retention_bytes=None)
    publishers = tuple(
        replace(plan, topic=topic.name, keys=rng.choice((2, 16)), records=200, pause_s_max=0.02, value_bytes=100)
        for plan in scenario.publishers
    )
    return replace(
        scenario,
        topics=(topic,),
        publishers=publishers,
        group_members=rng.choice((1, 2, 3)),
        members_refuse=True,
        lives=None,
        adoptions=(),
        dawdlers=0,
        favoured={"trouble_member": 20},
    )


def brokers_are_full(rng: random.Random, scenario: Scenario) -> Scenario:
    """Brokers have as many segments as they may, in addition to those of the dead."""
    brokers = max(2, scenario.brokers)
    most = rng.choice((1, 2, 3))
    topic = replace(scenario.topics[0], segments=brokers * most, replicas=1)
    return replace(
        scenario,
        brokers=brokers,
        broker=replace(scenario.broker, open_segments_max=most, merge_after_s=60.0),
        topics=(topic,),
        publishers=tuple(replace(plan, topic=topic.name) for plan in scenario.publishers),
        lives=None,
        adoptions=(),
    )
