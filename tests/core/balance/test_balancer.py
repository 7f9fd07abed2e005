"""Properties of the balancer under any traffic, checked on a model of a cluster."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from benchmarks.balancer_world import Traffic, World, even_profile, profile_of, zipf_profile
from seaweedmq.codec.slots import histogram_of
from seaweedmq.core.balance.decide import Action, BalancerSettings, Hold, Merge, Move, Split
from seaweedmq.core.balance.splitting import share_below, split_slot
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
def test_ranges_partition_the_ring_and_replicas_stay_apart_through_everything(
    world: World, data: st.DataObject
) -> None:
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
def test_load_ends_within_a_fifth_of_the_mean(
    brokers: int, per_broker: int, crowded: int, replicas: int, seed: int
) -> None:
    world = World(SETTINGS, brokers)
    rng = random.Random(seed)
    there = max(replicas, min(crowded, brokers))
    for number in range(4):
        count = brokers * per_broker // 4
        placement = [tuple(rng.sample(sorted(world.brokers)[:there], replicas)) for _ in range(count)]
        traffic = Traffic(rng.uniform(1, 2) * 4 * count * MB, EVEN)
        world.add_topic(
            f"t/{number}",
            traffic,
            segments=count,
            replicas=replicas,
            scaling=Scaling.FIXED,
            placement=placement,
        )
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
        world.add_topic(
            f"t/{number}",
            Traffic(rng.uniform(10, 130) * MB, EVEN),
            segments=10,
            replicas=replicas,
            scaling=Scaling.FIXED,
        )
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
