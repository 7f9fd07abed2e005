"""Themes about errors, losses and steps of etcd, clocks and the storage as a whole."""

import random
from dataclasses import replace

from seaweedmq.model.config import KIB
from tests.sim.scenario import Scenario
from tests.sim.themes.files import KEPT_S, clocks_disagree
from tests.sim.themes.kafka import kafka_groups
from tests.sim.themes.metadata import kafka_producers, much_is_forgotten


def etcd_answers_with_errors(rng: random.Random, scenario: Scenario) -> Scenario:
    """Etcd answers any call with any kind of error, or is out of space, while brokers die and segments move."""
    return replace(
        scenario,
        brokers=max(2, scenario.brokers),
        pause_s=(0.1, 0.8),
        favoured={"answer_with_errors": 150, "run_out_of_space": 40, "reshape": 40},
    )


def the_root_is_lost(rng: random.Random, scenario: Scenario) -> Scenario:
    """The storage root is unmounted and remounted, while segments are sealed, pruned and converted."""
    topics = tuple(
        replace(topic, retention_s=rng.choice((None, KEPT_S)), retention_bytes=None) for topic in scenario.topics
    )
    return replace(
        scenario,
        topics=topics,
        broker=replace(
            scenario.broker,
            log_roll_bytes=2 * KIB,
            log_roll_age_s=0.5,
            log_grace_s=rng.choice((0.2, 1.0)),
            maintenance_interval_s=0.3,
            segment_retention_s=rng.choice((0.5, 86_400.0)),
        ),
        machines_fail=False,
        pause_s=(0.1, 1.0),
        chaos_s=12.0,
        favoured={
            "lose_root": 150, "reshape": 60, "trouble": 0, "refuse_a_write_out": 0, "slow_storage": 0,
            "failing_storage": 0,
        },
    )  # fmt: skip


def the_storage_is_full(rng: random.Random, scenario: Scenario) -> Scenario:
    """The file system fills and empties, while retention frees space, brokers die and segments move."""
    topics = tuple(
        replace(topic, retention_s=rng.choice((1.0, 3.0)), retention_bytes=rng.choice((None, 4 * KIB)))
        for topic in scenario.topics
    )
    return replace(
        scenario,
        topics=topics,
        broker=replace(
            scenario.broker, log_roll_bytes=2 * KIB, log_roll_age_s=0.5, log_grace_s=0.2, maintenance_interval_s=0.3
        ),
        group_members=0,
        pause_s=(0.3, 2.0),
        chaos_s=15.0,
        favoured={"fill": 100, "trouble": 0, "refuse_a_write_out": 0},
    )


def etcd_is_lost(rng: random.Random, scenario: Scenario) -> Scenario:
    """Etcd loses all data, or is restored from a backup, and the operator rebuilds it from the storage, while segments
    split, merge and move, groups commit, and brokers die."""
    about = rng.choice((None, None, kafka_producers, kafka_groups, much_is_forgotten))
    if about is not None:
        scenario = about(rng, scenario)
    return replace(
        scenario,
        group_members=scenario.group_members if about is not None else rng.choice((1, 2, 3)),
        lives=None,
        machines_fail=False,
        pause_s=(0.1, 1.0),
        chaos_s=max(10.0, scenario.chaos_s),
        favoured={
            **scenario.favoured, "save_a_backup": 15, "lose_etcd": 40, "reshape": 50, "stop_etcd": 0, "freeze_etcd": 0,
        },
    )  # fmt: skip


def clocks_step(rng: random.Random, scenario: Scenario) -> Scenario:
    """Wall clocks of one broker, of all, or of the storage step by seconds to days, forward and back, and return; while
    files expire, sealed segments are pruned, Kafka's producers repeat batches and its groups commit."""
    about = rng.choice((clocks_disagree, much_is_forgotten, kafka_producers, kafka_groups))
    scenario = about(rng, scenario)
    if about is clocks_disagree:
        retention_s = rng.choice((KEPT_S, 5.0))
        scenario = replace(scenario, topics=tuple(replace(topic, retention_s=retention_s) for topic in scenario.topics))
    favoured = {name: weight for name, weight in scenario.favoured.items() if not name.startswith("set_a_clock")}
    return replace(
        scenario,
        wild_clocks=False,
        clocks_step=True,
        storage_clock=rng.random() < 0.5,
        pause_s=(0.1, 0.8),
        chaos_s=max(10.0, scenario.chaos_s),
        favoured={
            **favoured,
            "step_clocks": 150,
            "step_between_two_seals": 150 if about is kafka_producers else 0,
            "set_a_clock": 0,
        },
    )


def tables_are_dated_back(rng: random.Random, scenario: Scenario) -> Scenario:
    """The clock of the storage is behind for a moment and dates tables; then the broker that maintains them dies."""
    scenario = clocks_disagree(rng, scenario)
    return replace(
        scenario,
        brokers=max(3, scenario.brokers),
        broker=replace(scenario.broker, log_grace_s=rng.choice((4.0, 8.0))),
        topics=tuple(replace(topic, retention_s=5.0) for topic in scenario.topics),
        publishers=tuple(replace(plan, records=100, pause_s_max=0.4) for plan in scenario.publishers),
        wild_clocks=False,
        clocks_step=True,
        pause_s=(5.0, 8.0),
        chaos_s=max(20.0, scenario.chaos_s),
        favoured={"date_tables_back": 2_000, "set_a_clock": 0},
    )
