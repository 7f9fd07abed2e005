"""Themes about the effects of power failures and clocks on files."""

import random
from dataclasses import replace

from seaweedmq.model.config import KIB
from seaweedmq.model.topic import Durability
from tests.sim.scenario import PublisherPlan, Scenario

KEPT_S = 600.0
"""Retention in seconds, longer than a run: no record is deleted, but readers check for deletions."""


def power_fails_behind_an_fsync(rng: random.Random, scenario: Scenario) -> Scenario:
    """All topics are ``stored``; the power repeatedly fails after many writes during a hanging fsync."""
    brokers = rng.choice((2, 3))
    return replace(
        scenario,
        brokers=brokers,
        broker=replace(
            scenario.broker,
            lease_ttl_s=1.0,
            log_roll_bytes=rng.choice((1, 1, 64)) * KIB,
            log_roll_age_s=10.0,
            stream_in_flight_bytes_max=4 * scenario.broker.frame_bytes_max,
            stream_in_flight_frames_max=16,
        ),
        topics=tuple(
            replace(
                topic,
                segments=1,
                durability=Durability.STORED,
                replicas=rng.choice((1, 1, 2)),
                retention_s=None,
                retention_bytes=None,
            )
            for topic in scenario.topics[:1]
        ),
        publishers=_busy(rng, scenario, 12.0, value_bytes=1_000),
        dawdlers=0,
        lives=None,
        adoptions=(),
        group_members=0,
        chaos_s=12.0,
        pause_s=(0.05, 0.3),
        machines_fail=True,
        favoured={
            "lose_a_writer_behind_an_fsync": 1_000,
            "lose_a_writer_before_its_first_fsync": 1_000,
            "lose_files_that_are_believed": 250,
        },
    )


def clocks_disagree(rng: random.Random, scenario: Scenario) -> Scenario:
    """The storage dates files by its own clock, brokers' clocks differ, and retention depends on the age of files."""
    return replace(
        scenario,
        broker=replace(
            scenario.broker,
            log_roll_bytes=2 * KIB,
            log_roll_age_s=0.5,
            log_grace_s=rng.choice((0.2, 1.0)),
            maintenance_interval_s=0.3,
        ),
        topics=tuple(replace(t, retention_s=rng.choice((5.0, 15.0)), retention_bytes=None) for t in scenario.topics),
        group_members=0,
        wild_clocks=True,
        storage_clock=True,
        rest_s=6.0,
        pause_s=(0.05, 0.5),
        favoured={"set_a_clock": 100, "set_a_clock_far_back": 50, "reshape": 300},
    )


def sealed_unheard(rng: random.Random, scenario: Scenario) -> Scenario:
    """Primaries continue with their publishers while their segments are sealed, and learn of it last."""
    brokers = rng.choice((3, 4))
    return replace(
        scenario,
        brokers=brokers,
        broker=replace(scenario.broker, stream_in_flight_frames_max=64),
        topics=tuple(replace(topic, segments=rng.choice((1, 2)), replicas=2) for topic in scenario.topics[:1]),
        publishers=_busy(rng, scenario, 12.0, value_bytes=100),
        lives=None,
        adoptions=(),
        group_members=0,
        chaos_s=12.0,
        pause_s=(0.1, 0.5),
        favoured={"seal_behind_a_busy_primary": 500, "leave_a_fence_unseen": 500, "forget_replicas": 0},
    )


def files_begin_in_vain(rng: random.Random, scenario: Scenario) -> Scenario:
    """Log files are small and soon become tables, and the next one repeatedly fails to begin."""
    return replace(
        scenario,
        brokers=2,
        broker=replace(
            scenario.broker,
            lease_ttl_s=1.0,
            log_roll_bytes=KIB,
            log_roll_age_s=0.5,
            flush_interval_s=0.05,
            log_grace_s=0.2,
            maintenance_interval_s=0.3,
        ),
        topics=tuple(
            replace(topic, segments=1, replicas=rng.choice((1, 2)), retention_s=None, retention_bytes=None)
            for topic in scenario.topics[:1]
        ),
        publishers=_busy(rng, scenario, 8.0, value_bytes=100),
        lives=None,
        adoptions=(),
        group_members=0,
        chaos_s=8.0,
        pause_s=(0.1, 0.5),
        favoured={"die_behind_a_torso": 2_000},
    )


def written_again(rng: random.Random, scenario: Scenario) -> Scenario:
    """Writes fail behind acknowledged, unflushed records, and sealed segments are read before they are tables."""
    return replace(
        scenario,
        brokers=2,
        broker=replace(
            scenario.broker,
            lease_ttl_s=1.0,
            log_roll_bytes=rng.choice((1, 64)) * KIB,
            flush_interval_s=rng.choice((0.3, 1.0)),
            maintenance_interval_s=2.0,
        ),
        topics=tuple(
            replace(
                topic,
                segments=1,
                durability=Durability.REPLICATED,
                replicas=1,
                retention_s=rng.choice((None, KEPT_S)),
                retention_bytes=None,
            )
            for topic in scenario.topics[:1]
        ),
        publishers=_busy(rng, scenario, 12.0, value_bytes=100),
        lives=None,
        adoptions=(),
        group_members=0,
        machines_fail=False,
        chaos_s=12.0,
        pause_s=(0.1, 0.5),
        latecomers_max=20,
        favoured={"die_while_writing_again": 2_000},
    )


def _busy(rng: random.Random, scenario: Scenario, for_s: float, *, value_bytes: int) -> tuple[PublisherPlan, ...]:
    """Plan publishers that send for a while, nearly every record in its own frame, without waiting for
    acknowledgements."""
    plan = scenario.publishers[0]
    records = 150
    return tuple(
        replace(
            plan,
            name=f"publisher-{number}",
            topic=scenario.topics[0].name,
            keys=rng.choice((1, 2)),
            records=records,
            pause_s_max=2 * for_s / records,
            value_bytes=value_bytes,
            config=replace(plan.config, linger_s=0.002, batch_bytes=256, buffer_bytes_max=64 * KIB),
        )
        for number in range(3)
    )
