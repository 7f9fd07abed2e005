"""Decisions of the balancer, one rule per test."""

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.balancer_world import Traffic, World, even_profile, profile_of
from seaweedmq.core.balance.decide import (
    Action,
    BalancerSettings,
    ClusterColumns,
    Hold,
    Loads,
    Merge,
    Move,
    Split,
    decide,
)
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import SegmentId
from seaweedmq.model.topic import Scaling, TopicName

SETTINGS = BalancerSettings(
    segment_target_bytes_per_s=64e6,
    segment_target_records_per_s=500_000,
    split_after_s=2,
    merge_after_s=60,
    changes_at_once_max=8,
)
EVEN = even_profile()
MB = 1e6


def world_of(brokers: int, *topics: tuple[int, float], replicas: int = 1, scaling: Scaling = Scaling.AUTO) -> World:
    """Topics ``t/0``, ``t/1`` ... with so many even segments and MB/s in total, old enough for every action."""
    world = World(SETTINGS, brokers)
    for number, (segments, rate_mb) in enumerate(topics):
        traffic = Traffic(rate_mb * MB, EVEN)
        world.add_topic(f"t/{number}", traffic, segments=segments, replicas=replicas, scaling=scaling)
    world.age(120)
    world.measure(120)
    return world


def test_settings_come_from_the_brokers_configuration() -> None:
    config = BrokerConfig(split_after_s=0.5, changes_at_once_max=3)
    settings = BalancerSettings.of(config)
    assert settings.segment_target_bytes_per_s == config.segment_target_bytes_per_s
    assert (settings.split_after_s, settings.changes_at_once_max) == (0.5, 3)


def test_a_segment_over_twice_its_target_is_split_where_its_load_halves() -> None:
    world = world_of(2, (1, 130))
    [action] = world.decide()
    assert action == Split(
        TopicName("t", "0"),
        0,
        32768,
        (("b-000",), ("b-001",)),
        "segment 0 carries 130 MB/s, 2.0 times its target of 64 MB/s: split at slot 32768, 50% below",
    )


def test_records_count_as_bytes_do() -> None:
    world = world_of(2, (1, 10))
    world.traffic[TopicName("t", "0")].record_bytes = 8
    [action] = world.decide()
    assert isinstance(action, Split)
    assert "carries 1,250,000 records/s, 2.5 times its target of 500,000 records/s" in action.reason


def test_a_topics_own_target_comes_before_the_clusters() -> None:
    world = World(SETTINGS, 1)
    world.add_topic("t/low", Traffic(5 * MB, EVEN), target_bytes_per_s=2 * MB)
    world.add_topic("t/high", Traffic(500 * MB, EVEN), target_bytes_per_s=400 * MB)
    world.age(10)
    world.measure(10)
    assert [(type(a), str(a.topic)) for a in world.decide()] == [(Split, "t/low")]


def test_a_little_over_the_target_is_left_alone_while_the_brokers_are_alike() -> None:
    assert world_of(2, (2, 250)).decide() == []


def test_over_the_target_and_far_over_the_fair_share_is_split() -> None:
    [action] = world_of(4, (1, 70)).decide()
    assert isinstance(action, Split)
    assert "1.1 times its target of 64 MB/s and 4.0 times what an average broker carries" in action.reason
    assert world_of(1, (1, 70)).decide() == [], "with one broker a split would not help"


def test_a_young_segment_is_not_split() -> None:
    world = World(SETTINGS, 2)
    world.add_topic("t/0", Traffic(1000 * MB, EVEN))
    assert world.step(1.9) == []
    assert [type(a) for a in world.step(0.1)] == [Split]


def test_a_segment_that_a_wrong_clock_opened_in_the_future_is_not_waited_for() -> None:
    world = World(SETTINGS, 2)
    world.add_topic("t/0", Traffic(1000 * MB, EVEN))
    world.measure(5)
    world.now_s -= 1
    assert world.decide() == []
    world.now_s -= 3600
    assert [type(a) for a in world.decide()] == [Split]


def test_a_short_burst_does_not_merge_and_a_short_pause_does_not_either() -> None:
    world = world_of(2, (2, 100))
    world.traffic[TopicName("t", "0")].bytes_per_s = 0
    assert world.step(5) == [], "the long average still remembers"
    assert [type(a) for a in world.step(60)] == [Merge]


def test_neighbours_without_traffic_become_one_segment_and_no_fewer() -> None:
    world = world_of(3, (8, 0))
    done = world.settle()
    assert Counter(type(a) for a in done) == {Merge: 7}
    assert [s.slots.width for s in world.of(TopicName("t", "0"))] == [65_536]
    assert isinstance(done[0], Merge)
    assert "carry 0 B/s together, well below the target of 64 MB/s" in done[0].reason


def test_a_topic_keeps_as_many_segments_as_it_was_made_with() -> None:
    world = World(SETTINGS, 3)
    world.add_topic("t/0", Traffic(0, EVEN), segments=8, segments_min=3)
    world.age(120)
    done = world.settle()
    assert Counter(type(a) for a in done) == {Merge: 5}
    assert len(world.of(TopicName("t", "0"))) == 3


def test_young_neighbours_are_not_merged() -> None:
    world = World(SETTINGS, 3)
    world.add_topic("t/0", Traffic(0, EVEN), segments=2)
    assert world.step(59) == []
    assert [type(a) for a in world.step(2)] == [Merge]


def test_fixed_topics_are_moved_but_never_split_nor_merged() -> None:
    world = World(SETTINGS, 3)
    world.add_topic("t/hot", Traffic(900 * MB, EVEN), segments=9, scaling=Scaling.FIXED, placement=[("b-000",)] * 9)
    world.add_topic("t/idle", Traffic(0, EVEN), segments=4, scaling=Scaling.FIXED)
    assert {type(a) for a in world.settle()} == {Move}
    assert world.imbalance() <= 1.2


@pytest.mark.parametrize("slot", [0, 1, 4095, 4096, 31_337, 65_535])
def test_a_hot_key_is_narrowed_down_and_then_held(slot: int) -> None:
    world = World(SETTINGS, 4)
    name = world.add_topic("t/0", Traffic(300 * MB, profile_of({slot: 1.0}, even_share=0.2)))
    splits = [a for a in world.settle() if isinstance(a, Split)]
    assert len(splits) <= 8, "two for each factor of 16"
    [hot] = [s for s in world.of(name) if slot in s.slots]
    [held] = world.decide()
    assert isinstance(held, Hold)
    assert (held.topic, held.segment) == (name, hot.id)
    assert "times its target of 64 MB/s: it is one hot key, which cannot be split" in held.reason


def test_a_new_broker_gets_its_share() -> None:
    world = world_of(3, (60, 600), scaling=Scaling.FIXED)
    world.add_broker("b-new")
    done = world.settle()
    assert all(isinstance(a, Move) and a.replicas == ("b-new",) for a in done)
    assert world.imbalance() <= 1.2
    assert "b-new 0.00 times: move segment" in done[0].reason


def test_roles_are_swapped_when_that_is_all_it_takes() -> None:
    world = World(SETTINGS, 2)
    world.add_topic(
        "t/0",
        Traffic(200 * MB, EVEN),
        segments=10,
        replicas=2,
        scaling=Scaling.FIXED,
        placement=[("b-000", "b-001")] * 10,
    )
    done = world.settle()
    assert {a.replicas for a in done if isinstance(a, Move)} == {("b-001", "b-000")}
    assert len(done) <= 5
    assert world.imbalance() <= 1.2


def test_a_broker_with_one_large_segment_keeps_it() -> None:
    world = World(SETTINGS, 3)
    world.add_topic("t/0", Traffic(100 * MB, profile_of({7: 1.0})), scaling=Scaling.FIXED)
    world.age(120)
    world.measure(120)
    assert world.decide() == [], "another broker would then be overloaded"


def test_nothing_is_evened_out_beside_repairs() -> None:
    world = world_of(3, (60, 600), scaling=Scaling.FIXED)
    world.add_broker("b-new")
    world.lose_broker("b-002")
    assert world.decide() == [], "segments that lost their broker are repaired first"
    assert len(world.repair()) == 20
    assert all(isinstance(a, Move) for a in world.settle())
    assert world.imbalance() <= 1.2


def test_changes_that_are_under_way_count_against_the_pace_and_are_left_alone() -> None:
    world = world_of(50, *[(1, 200)] * 30)

    def topics_split(changing: list[SegmentId]) -> list[str]:
        cluster = ClusterColumns.of(
            world.topics.values(),
            (m.segment for m in world.segments.values()),
            world.brokers.values(),
            SETTINGS,
            changing=changing,
        )
        now_us = round(world.now_s * 1e6)
        return [str(a.topic) for a in decide(cluster, Loads.of(cluster, world.reports()), now_us, SETTINGS)]

    every = topics_split([])
    assert len(every) == 8
    busy = [(TopicName.parse(name), 0) for name in every[:5]]
    rest = topics_split(busy)
    assert len(rest) == 3
    assert not set(rest) & set(every[:5])


def test_one_topic_takes_half_of_the_pace_at_most() -> None:
    world = world_of(16, (16, 16 * 200))
    assert [type(a) for a in world.decide()] == [Split] * 4


def test_a_leader_that_has_not_heard_of_everybody_changes_only_what_it_knows() -> None:
    world = world_of(3, (4, 600), (4, 0), (30, 900))
    reports = [r for r in world.reports() if r.broker != "b-000"]
    cluster = world.cluster()
    actions = decide(cluster, Loads.of(cluster, reports), round(world.now_s * 1e6), SETTINGS)
    assert {type(a) for a in actions} == {Split}
    for action in actions:
        assert isinstance(action, Split)
        assert world.segments[action.topic, action.segment].segment.primary != "b-000"


def test_a_rebalance_that_was_asked_for_does_not_wait() -> None:
    world = World(SETTINGS, 4)
    world.add_topic("t/0", Traffic(400 * MB, EVEN), segments=80, scaling=Scaling.FIXED, placement=[("b-000",)] * 80)
    world.measure(1)
    assert world.decide() == []
    for action in world.decide(at_once=True):
        world.apply(action)
    assert world.imbalance() <= 1.2
    assert world.decide(at_once=True) == []


def test_the_order_of_the_input_does_not_matter() -> None:
    world = world_of(5, (6, 800), (10, 5), replicas=2)
    world.drain_broker("b-002")

    def decided(turn: int) -> list[Action]:
        cluster = ClusterColumns.of(
            list(world.topics.values())[::turn],
            [m.segment for m in world.segments.values()][::turn],
            list(world.brokers.values())[::turn],
            SETTINGS,
        )
        return decide(cluster, Loads.of(cluster, list(world.reports())[::turn]), round(world.now_s * 1e6), SETTINGS)

    assert decided(1) == decided(-1)
    assert decided(1)


def test_what_is_not_known_does_not_count() -> None:
    world = world_of(1, (1, 200))
    [name] = world.topics
    [segment] = [m.segment for m in world.segments.values()]
    [report] = world.reports()
    [load] = report.segments
    stranger = replace(segment, topic=TopicName("t", "deleted"))
    cluster = ClusterColumns.of(world.topics.values(), [stranger, segment], world.brokers.values(), SETTINGS)
    assert cluster.topic.tolist() == [0]
    loads = Loads.of(
        cluster,
        [
            replace(report, segments=(replace(load, topic=stranger.topic), replace(load, segment=99), load)),
            replace(report, broker="b-999", segments=(replace(load, bytes_per_s=1.0),)),
        ],
    )
    assert loads.bytes_per_s.tolist() == [200 * MB]
    assert loads.reported.tolist() == [True]
    assert [type(a) for a in decide(cluster, loads, round(world.now_s * 1e6), SETTINGS)] == [Split]
    assert name == segment.topic


def test_an_empty_cluster_has_nothing_to_decide() -> None:
    cluster = ClusterColumns.of([], [], [], SETTINGS)
    assert decide(cluster, Loads.of(cluster, []), 0, SETTINGS) == []


def test_reports_of_segments_that_are_gone_do_not_count_even_if_none_is_left() -> None:
    world = world_of(1, (1, 200))
    cluster = ClusterColumns.of([], [], world.brokers.values(), SETTINGS)
    loads = Loads.of(cluster, world.reports())
    assert loads.bytes_per_s.tolist() == []
    assert decide(cluster, loads, 0, SETTINGS) == []
