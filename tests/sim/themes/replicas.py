"""Themes about missing, stopped or lost followers, resending publishers, recreated topics and sleep."""

import random
from dataclasses import replace

from seaweedmq.model.config import KIB, BrokerConfig
from seaweedmq.model.topic import Durability
from tests.sim.scenario import LivesPlan, PublisherPlan, Scenario, TopicPlan

DWELLS = 200
"""Weight of the blow that a theme is for: most blows of the run are such."""
CHAOS_S = 8.0
PAUSE_S = (0.02, 0.4)
RECORDS = 150
HELD_UP_SHARE = 0.3
GIVES_UP_S = 0.6


def few_replicas(rng: random.Random, scenario: Scenario) -> Scenario:
    """Brokers are too few for the replicas that topics require, or stop, or sleep while their replicas are needed."""
    topics = (
        _topic("sim/topic-0", rng.choice((1, 2)), Durability.REPLICATED, replicas=2),
        _topic("sim/topic-1", 1, Durability.REPLICATED, replicas=1),
    )
    scenario = _only(scenario, topics)
    return replace(
        scenario,
        brokers=2,
        broker=replace(scenario.broker, flush_interval_s=1.0, lease_ttl_s=1.0, log_roll_bytes=64 * KIB),
        lone_replicas_fail=True,
        favoured={
            "lose_a_primary_and_stop_the_rest": DWELLS,
            "lose_a_lone_replica": DWELLS,
            "sleep_through_the_seal": DWELLS // 5,
            "reshape": 0,
        },
    )


def repeats(rng: random.Random, scenario: Scenario) -> Scenario:
    """Publishers of many small frames lose their streams or time out, and reconnect at once."""
    topics = (_topic("sim/topic-0", 1, rng.choice(tuple(Durability)), replicas=min(2, scenario.brokers)),)
    scenario = _only(scenario, topics)
    hasty, *patient = scenario.publishers
    return replace(
        scenario,
        broker=replace(
            scenario.broker,
            stream_in_flight_frames_max=rng.choice((16, 64)),
            flush_interval_s=0.05,
            producers_per_segment_max=1_000,
        ),
        publishers=(
            _in_small_frames(hasty, is_hasty=True),
            *(_in_small_frames(plan, is_hasty=False) for plan in patient),
        ),
        favoured={"deliver_late": DWELLS, "lossy_network": DWELLS // 2, "break_streams": DWELLS // 2},
    )


def namesakes(rng: random.Random, scenario: Scenario) -> Scenario:
    """A topic is deleted and recreated while brokers are busy with the earlier one, or have stale metadata."""
    is_held_up = rng.random() < HELD_UP_SHARE
    """Whether the leader is busy, with very many segments."""
    topics = (_topic("sim/topic-0", 24 if is_held_up else 1, Durability.REPLICATED, replicas=1),)
    lives = LivesPlan(
        topic=_topic("sim/lives", 1, Durability.REPLICATED, replicas=1 if is_held_up else 2),
        lives=4 if is_held_up else 3,
        life_s_min=1.2,
        life_s_max=2.4,
        records=RECORDS,
        config=scenario.subscriber,
    )
    scenario = _only(scenario, topics)
    busy = ("hold_up_replacements",) if is_held_up else ("hear_of_both_topics_at_once", "leave_a_table_behind")
    return replace(
        scenario,
        brokers=2,
        broker=replace(
            scenario.broker,
            lease_ttl_s=1.0 if is_held_up else 2.0,
            flush_interval_s=1.0,
            log_roll_bytes=8 * KIB,
            log_roll_age_s=0.5,
            maintenance_interval_s=0.3,
        ),
        publishers=scenario.publishers[:1],
        lives=lives,
        favoured={**dict.fromkeys(busy, DWELLS), "reshape": 0},
    )


def deletions_come_late(rng: random.Random, scenario: Scenario) -> Scenario:
    """The call that deletes a topic arrives after another attempt deleted it and it was recreated."""
    scenario = namesakes(rng, scenario)
    assert scenario.lives is not None
    return replace(
        scenario,
        lives=replace(scenario.lives, config=replace(scenario.lives.config, rpc_timeout_s=1.0)),
        subscriber=replace(scenario.subscriber, rpc_timeout_s=1.0),
        favoured={"delete_late": DWELLS, "reshape": 0},
    )


def sleepers(rng: random.Random, scenario: Scenario) -> Scenario:
    """Members of a group freeze while they process records, until others read them."""
    topics = (_topic("sim/topic-0", rng.choice((1, 2)), rng.choice(tuple(Durability)), replicas=1),)
    scenario = _only(scenario, topics)
    return replace(
        scenario,
        broker=replace(scenario.broker, group_session_timeout_s=2.0),
        publishers=tuple(replace(plan, records=2 * RECORDS, pause_s_max=0.0) for plan in scenario.publishers[:2]),
        group_members=rng.choice((1, 2)),
        favoured={"freeze_until_out": DWELLS, "reshape": 0},
    )


def members_are_cut_off(rng: random.Random, scenario: Scenario) -> Scenario:
    """Members of a group lose all brokers while they process records, and notice it sooner or later than the
    coordinator."""
    topics = (_topic("sim/topic-0", rng.choice((2, 3)), rng.choice(tuple(Durability)), replicas=1),)
    scenario = _only(scenario, topics)
    return replace(
        scenario,
        broker=replace(scenario.broker, group_session_timeout_s=rng.choice((2.0, 3.0))),
        publishers=tuple(replace(plan, records=2 * RECORDS, pause_s_max=0.05) for plan in scenario.publishers[:2]),
        group_members=rng.choice((2, 3)),
        favoured={"cut_off_until_out": DWELLS, "reshape": 0},
    )


def _topic(name: str, segments: int, durability: Durability, *, replicas: int) -> TopicPlan:
    return TopicPlan(name=name, segments=segments, durability=durability, replicas=replicas)


def _only(scenario: Scenario, topics: tuple[TopicPlan, ...]) -> Scenario:
    """Restrict the scenario to these topics, three busy publishers and their followers, without a power failure
    everywhere."""
    plan = scenario.publishers[0]
    return replace(
        scenario,
        topics=topics,
        broker=replace(
            scenario.broker, producer_idle_s=BrokerConfig().producer_idle_s
        ),  # patient publishers need the default
        publishers=tuple(_busy(plan, number, topics) for number in range(3)),
        machines_fail=False,
        lives=None,
        adoptions=(),
        dawdlers=0,
        group_members=0,
        chaos_s=CHAOS_S,
        pause_s=PAUSE_S,
    )


def _busy(plan: PublisherPlan, number: int, topics: tuple[TopicPlan, ...]) -> PublisherPlan:
    """Plan a publisher that sends throughout, and is patient."""
    return replace(
        plan,
        name=f"publisher-{number}",
        topic=topics[number % len(topics)].name,
        records=RECORDS,
        pause_s_max=2 * CHAOS_S / RECORDS,
        config=replace(plan.config, stall_timeout_s=3.0, rpc_timeout_s=3.0, delivery_timeout_s=120.0),
    )


def _in_small_frames(plan: PublisherPlan, *, is_hasty: bool) -> PublisherPlan:
    config = replace(plan.config, linger_s=0.0, batch_bytes=256)
    if is_hasty:
        config = replace(config, delivery_timeout_s=GIVES_UP_S)
    return replace(plan, keys=1, value_bytes=100, config=config)
