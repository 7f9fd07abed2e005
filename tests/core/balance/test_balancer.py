"""Properties of the balancer under any traffic, checked on a model of a cluster."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from benchmarks.balancer_world import Traffic, World, even_profile, profile_of, zipf_profile
from seaweedmq.codec.slots import histogram_of
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
from seaweedmq.core.balance.splitting import share_below, split_slot
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, RING_SLOTS_MAX, KeyRange
from seaweedmq.model.segment import SegmentId
from seaweedmq.model.topic import Scaling, TopicName

SETTINGS = BalancerSettings(
    segment_target_bytes_per_s=64e6,
    segment_target_records_per_s=500_000,
    split_after_s=2,
    merge_after_s=60,
    changes_at_once_max=8,
)
MB = 1e6
FEW = settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""Settings for whole histories: shrinking one would take minutes."""
MANY = settings(max_examples=100, deadline=None)
EVEN = even_profile()

ranges = st.tuples(st.integers(0, RING_SLOTS_MAX - 1), st.integers(1, RING_SLOTS_MAX)).map(
    lambda r: KeyRange(min(r[0], r[1] - 1), max(r[0] + 1, r[1]))
)
histograms = st.lists(st.floats(0, 1e9), min_size=HISTOGRAM_BUCKETS, max_size=HISTOGRAM_BUCKETS)


@st.composite
def worlds(draw: st.DrawFn, *, scaling: Scaling | None = None) -> World:
    """A few brokers and topics of every kind."""
    brokers = draw(st.integers(2, 8))
    world = World(SETTINGS, brokers, seed=draw(st.integers(0, 99)))
    for number in range(draw(st.integers(1, 5))):
        rng = random.Random(draw(st.integers(0, 99)))
        profile = draw(
            st.sampled_from(
                [EVEN, zipf_profile(2_000, 1.1, rng), profile_of({rng.randrange(RING_SLOTS_MAX): 1.0}, 0.3)]
            )
        )
        world.add_topic(
            f"t/{number}",
            Traffic(draw(st.sampled_from([0, 1, 20, 100, 400, 1_500])) * MB, profile),
            segments=draw(st.integers(1, 12)),
            replicas=draw(st.integers(1, min(3, brokers))),
            scaling=scaling or draw(st.sampled_from(Scaling)),
        )
    return world


@MANY
@given(slots=ranges, histogram=st.one_of(st.just([]), histograms))
@example(slots=KeyRange(0, 2), histogram=[0.0] * 15 + [1.0])
@example(slots=KeyRange(5, 8), histogram=[0.0, 1.0] + [0.0] * 14)
def test_a_cut_is_always_inside_and_none_where_there_is_no_inside(slots: KeyRange, histogram: list[float]) -> None:
    at = split_slot(slots.lo, slots.hi, histogram)
    if at is None:
        hot = max(histogram, default=0)
        assert slots.width == 1 or (slots.width <= 2 * HISTOGRAM_BUCKETS and hot > 0.9 * sum(histogram) > 0)
    else:
        assert slots.split(at)
        assert 0 <= share_below(slots.lo, slots.hi, histogram, at) <= 1.001


@MANY
@given(slots=ranges.filter(lambda r: r.width >= 256), seed=st.integers(0, 999))
def test_a_cut_halves_what_many_keys_carry(slots: KeyRange, seed: int) -> None:
    rng = np.random.default_rng(seed)
    center = rng.uniform(slots.lo, slots.hi)
    there = np.clip(rng.normal(center, slots.width / 4, 4_000), slots.lo, slots.hi - 1).astype(np.uint16)
    histogram = histogram_of(there, slots)
    at = split_slot(slots.lo, slots.hi, histogram)
    assert at is not None
    below = float((there < at).mean())
    if max(histogram) < 0.5 * sum(histogram):
        assert below == pytest.approx(0.5, abs=0.06), "interpolated within the bucket"
    assert share_below(slots.lo, slots.hi, histogram, at) == pytest.approx(below, abs=0.06)


@MANY
@given(slots=ranges.filter(lambda r: r.width >= 2), seed=st.integers(0, 999))
def test_cuts_next_to_a_hot_bucket_are_at_its_edges_as_the_frames_count_them(slots: KeyRange, seed: int) -> None:
    hot = random.Random(seed).randrange(slots.lo, slots.hi)
    histogram = histogram_of(np.full(100, hot, np.uint16), slots)
    at = split_slot(slots.lo, slots.hi, histogram)
    if at is not None:
        bucket = [s for s in range(slots.lo, slots.hi) if (s - slots.lo) * 16 // slots.width == histogram.index(100)]
        assert at in (bucket[0], bucket[-1] + 1)


def test_a_skewed_topic_is_balanced_by_few_splits() -> None:
    world = World(SETTINGS, 8)
    name = world.add_topic("t/0", Traffic(1_000 * MB, zipf_profile(50_000, 1.1, random.Random(5))))
    splits = [a for a in world.settle() if isinstance(a, Split)]
    loads = [rate for m, rate in zip(world.segments.values(), world.rates(), strict=True) if m.segment.topic == name]
    assert len(splits) <= 2 * 1_000 / 64
    assert sorted(loads)[-2] <= 2 * 64 * MB, "except for the hottest key no segment exceeds twice the target"


@FEW
@given(world=worlds(), data=st.data())
def test_ranges_partition_the_ring_and_replicas_stay_apart(world: World, data: st.DataObject) -> None:
    """The model asserts at each change that replicas differ, live, and are neither drained nor suspected."""
    for number in range(12):
        event = data.draw(st.sampled_from(["join", "lose", "drain", "suspect", "rate", "nothing"]))
        broker = data.draw(st.sampled_from(sorted(world.brokers)))
        name = data.draw(st.sampled_from(sorted(world.topics)))
        calm = [b.id for b in world.brokers.values() if not b.draining]
        if event == "join":
            world.add_broker(f"b-new-{number}")
        elif event == "lose" and len(world.brokers) > 1:
            world.lose_broker(broker)
        elif event == "drain" and len(calm) > 1:
            world.drain_broker(broker)
        elif event == "rate":
            world.traffic[name].bytes_per_s = data.draw(st.sampled_from([0, 30, 700])) * MB
        world.suspected = {broker} if event == "suspect" else set()
        for _ in range(8):
            before = {key: m.segment for key, m in world.segments.items()}
            actions = world.step(data.draw(st.sampled_from([1.0, 5.0, 30.0])), noise=0.2)
            world.check()
            _fixed_ranges_stand(world, actions)
            assert len({key for a in actions for key in _parents(a)}) == sum(len(_parents(a)) for a in actions)
            assert all(key in before for a in actions for key in _parents(a))


@FEW
@given(world=worlds())
def test_it_converges_and_is_silent_on_steady_load(world: World) -> None:
    world.settle()
    world.check()
    assert all(isinstance(a, Hold) for _ in range(100) for a in world.step(7))


@settings(FEW, derandomize=True)
@given(world=worlds())
@pytest.mark.deep
def test_it_never_flaps_on_noise(world: World) -> None:
    """Noise may push a load at a threshold over it; the balancer never undoes the resulting action."""
    world.settle()
    segments = len(world.segments)
    split: set[tuple[TopicName, KeyRange]] = set()
    merged: set[tuple[TopicName, KeyRange]] = set()
    moved: Counter[tuple[TopicName, KeyRange]] = Counter()
    for _ in range(400):
        slots = {key: m.segment.slots for key, m in world.segments.items()}
        for action in world.step(noise=0.2):
            parents = [(topic, slots[topic, number]) for topic, number in _parents(action)]
            if isinstance(action, Split):
                split.update(parents)
            elif isinstance(action, Merge):
                merged.add((action.topic, KeyRange(parents[0][1].lo, parents[1][1].hi)))
            elif isinstance(action, Move):
                moved.update(parents)
    assert not split & merged
    assert all(times == 1 for times in moved.values())
    assert len(split) + len(merged) + moved.total() <= segments, "each once, at most"


@FEW
@given(
    brokers=st.integers(2, 7),
    per_broker=st.integers(20, 28),
    crowded=st.integers(1, 10),
    replicas=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_load_ends_near_the_mean(brokers: int, per_broker: int, crowded: int, replicas: int, seed: int) -> None:
    world = World(SETTINGS, brokers)
    rng = random.Random(seed)
    there = max(replicas, min(crowded, brokers))
    for number in range(4):
        count = brokers * per_broker // 4
        placement = [tuple(rng.sample(sorted(world.brokers)[:there], replicas)) for _ in range(count)]
        traffic = Traffic(rng.uniform(1, 2) * 4 * count * MB, EVEN)
        fixed = {"scaling": Scaling.FIXED, "placement": placement}
        world.add_topic(f"t/{number}", traffic, segments=count, replicas=replicas, **fixed)
    world.settle(steps_max=3_000)
    loads = world.broker_loads().values()
    mean = sum(loads) / len(loads)
    assert max(loads) <= 1.2 * mean
    assert min(loads) >= 0.8 * mean


def _crowd(brokers: int, seed: int, replicas: int = 1) -> World:
    """A balanced cluster: segments of many sizes."""
    world = World(SETTINGS, brokers)
    rng = random.Random(seed)
    for number in range(brokers * 3):
        traffic = Traffic(rng.uniform(10, 130) * MB, EVEN)
        world.add_topic(f"t/{number}", traffic, segments=10, replicas=replicas, scaling=Scaling.FIXED)
    world.settle(steps_max=2_000)
    return world


@FEW
@given(brokers=st.integers(2, 6), seed=st.integers(0, 99))
def test_a_new_broker_costs_few_moves(brokers: int, seed: int) -> None:
    world = _crowd(brokers, seed)
    world.add_broker("b-new")
    rates = sorted(world.rates(), reverse=True)
    missing, least = 0.8 * sum(rates) / (brokers + 1), 0
    while missing > 0:
        missing -= rates[least]
        least += 1
    moves = world.settle(steps_max=2_000)
    assert world.imbalance() <= 1.2
    assert len(moves) <= 1.5 * least + 2, "least: as if the new broker got the very largest segments"


@FEW
@given(brokers=st.integers(3, 6), seed=st.integers(0, 99), replicas=st.integers(1, 3))
def test_a_lost_broker_costs_no_move_but_of_what_it_had(brokers: int, seed: int, replicas: int) -> None:
    world = _crowd(brokers, seed, replicas)
    lost = {key for key, m in world.segments.items() if "b-001" in m.segment.replicas}
    world.lose_broker("b-001")
    assert {repair.segment.key for repair in world.repair()} == lost
    assert len(world.settle(steps_max=2_000)) <= len(lost) // 10 + 2, "its load was spread out at once"
    assert world.imbalance() <= 1.2


@FEW
@given(world=worlds(), data=st.data())
def test_draining_empties_a_broker_at_once(world: World, data: st.DataObject) -> None:
    world.settle()
    broker = data.draw(st.sampled_from(sorted(world.brokers)))
    had = {key for key, m in world.segments.items() if broker in m.segment.replicas}
    world.drain_broker(broker)
    assert {repair.segment.key for repair in world.repair()} == had
    assert not [m for m in world.segments.values() if broker in m.segment.replicas]


@FEW
@given(world=worlds(), seconds=st.integers(1, 40))
def test_the_same_cluster_gets_the_same_decision(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.step(noise=0.2)
    world.measure(1)
    assert world.decide() == world.decide()
    assert world.decide(at_once=True) == world.decide(at_once=True)


def _parents(action: Action) -> list[SegmentId]:
    if isinstance(action, Merge):
        return [(action.topic, number) for number in action.segments]
    return [] if isinstance(action, Hold) else [(action.topic, action.segment)]


def _fixed_ranges_stand(world: World, actions: list[Action]) -> None:
    for action in actions:
        if world.topics[action.topic].scaling is Scaling.FIXED:
            assert isinstance(action, Move)


# --- one rule per test
def world_of(brokers: int, *topics: tuple[int, float], replicas: int = 1, scaling: Scaling = Scaling.AUTO) -> World:
    """Topics ``t/0``, ``t/1`` ... with so many even segments and MB/s in total, old enough for every action."""
    world = World(SETTINGS, brokers)
    for number, (segments, rate_mb) in enumerate(topics):
        traffic = Traffic(rate_mb * MB, EVEN)
        world.add_topic(f"t/{number}", traffic, segments=segments, replicas=replicas, scaling=scaling)
    world.age(120)
    world.measure(120)
    return world


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


def test_records_count_as_bytes_do_and_a_topics_own_target_comes_before_the_clusters() -> None:
    world = world_of(2, (1, 10))
    world.traffic[TopicName("t", "0")].record_bytes = 8
    [action] = world.decide()
    assert isinstance(action, Split)
    assert "carries 1,250,000 records/s, 2.5 times its target of 500,000 records/s" in action.reason
    world = World(SETTINGS, 1)
    world.add_topic("t/low", Traffic(5 * MB, EVEN), target_bytes_per_s=2 * MB)
    world.add_topic("t/high", Traffic(500 * MB, EVEN), target_bytes_per_s=400 * MB)
    world.age(10)
    world.measure(10)
    assert [(type(a), str(a.topic)) for a in world.decide()] == [(Split, "t/low")]


@pytest.mark.parametrize(
    ("brokers", "topic", "splits"),
    [
        (2, (2, 250), 0),  # a little over the target, and the brokers are alike
        (4, (1, 70), 1),  # over the target and far over the fair share
        (1, (1, 70), 0),  # with one broker a split would not help
        (16, (16, 16 * 200), 4),  # one topic takes half of the pace at most
    ],
)
def test_over_the_target_and_far_over_the_fair_share_is_split(
    brokers: int, topic: tuple[int, float], splits: int
) -> None:
    actions = world_of(brokers, topic).decide()
    assert [type(a) for a in actions] == [Split] * splits
    if brokers == 4:
        assert "1.1 times its target of 64 MB/s and 4.0 times what an average broker carries" in actions[0].reason


def test_young_segments_are_left_alone_unless_a_wrong_clock_opened_them_in_the_future() -> None:
    for rate_mb, segments, young_s, wait_s, action in ((1_000, 1, 1.9, 0.1, Split), (0, 2, 59, 1, Merge)):
        world = World(SETTINGS, 3)
        world.add_topic("t/0", Traffic(rate_mb * MB, EVEN), segments=segments)
        assert world.step(young_s) == [], action
        assert [type(a) for a in world.step(wait_s)] == [action]
    world = World(SETTINGS, 2)
    world.add_topic("t/0", Traffic(1000 * MB, EVEN))
    world.measure(5)
    world.now_s -= 1
    assert world.decide() == []
    world.now_s -= 3600
    assert [type(a) for a in world.decide()] == [Split]


def test_a_short_burst_or_pause_does_not_merge_and_settings_come_from_the_configuration() -> None:
    world = world_of(2, (2, 100))
    world.traffic[TopicName("t", "0")].bytes_per_s = 0
    assert world.step(5) == [], "the long average still remembers"
    assert [type(a) for a in world.step(60)] == [Merge]
    config = BrokerConfig(split_after_s=0.5, changes_at_once_max=3)
    settings = BalancerSettings.of(config)
    assert settings.segment_target_bytes_per_s == config.segment_target_bytes_per_s
    assert (settings.split_after_s, settings.changes_at_once_max) == (0.5, 3)


def test_neighbours_without_traffic_become_one_segment_or_as_many_as_the_topic_was_made_with() -> None:
    world = world_of(3, (8, 0))
    done = world.settle()
    assert Counter(type(a) for a in done) == {Merge: 7}
    assert [s.slots.width for s in world.of(TopicName("t", "0"))] == [65_536]
    assert isinstance(done[0], Merge)
    assert "carry 0 B/s together, well below the target of 64 MB/s" in done[0].reason
    world = World(SETTINGS, 3)
    world.add_topic("t/0", Traffic(0, EVEN), segments=8, segments_min=3)
    world.age(120)
    done = world.settle()
    assert Counter(type(a) for a in done) == {Merge: 5}
    assert len(world.of(TopicName("t", "0"))) == 3


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


def test_a_new_broker_gets_its_share_but_not_beside_repairs() -> None:
    world = world_of(3, (60, 600), scaling=Scaling.FIXED)
    world.add_broker("b-new")
    done = world.settle()
    assert all(isinstance(a, Move) and a.replicas == ("b-new",) for a in done)
    assert world.imbalance() <= 1.2
    assert "b-new 0.00 times: move segment" in done[0].reason
    world = world_of(3, (60, 600), scaling=Scaling.FIXED)
    world.add_broker("b-new")
    world.lose_broker("b-002")
    assert world.decide() == [], "segments that lost their broker are repaired first"
    assert len(world.repair()) == 20
    assert all(isinstance(a, Move) for a in world.settle())
    assert world.imbalance() <= 1.2


def test_roles_are_swapped_when_that_is_all_it_takes_and_a_broker_with_one_large_segment_keeps_it() -> None:
    world = World(SETTINGS, 2)
    placement = [("b-000", "b-001")] * 10
    world.add_topic("t/0", Traffic(200 * MB, EVEN), segments=10, replicas=2, scaling=Scaling.FIXED, placement=placement)
    done = world.settle()
    assert {a.replicas for a in done if isinstance(a, Move)} == {("b-001", "b-000")}
    assert len(done) <= 5
    assert world.imbalance() <= 1.2
    world = World(SETTINGS, 3)
    world.add_topic("t/0", Traffic(100 * MB, profile_of({7: 1.0})), scaling=Scaling.FIXED)
    world.age(120)
    world.measure(120)
    assert world.decide() == [], "another broker would then be overloaded"


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


def test_reports_of_what_is_not_known_or_gone_do_not_count_even_if_nothing_is_left() -> None:
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
    cluster = ClusterColumns.of([], [], world.brokers.values(), SETTINGS)
    loads = Loads.of(cluster, world.reports())
    assert loads.bytes_per_s.tolist() == []
    assert decide(cluster, loads, 0, SETTINGS) == []
    empty = ClusterColumns.of([], [], [], SETTINGS)
    assert decide(empty, Loads.of(empty, []), 0, SETTINGS) == []
