"""Placement of new segments, as properties over any cluster."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.lineage.allocation import (
    RATE_COST_BYTES,
    SEGMENT_COST,
    Candidate,
    fits,
    maintainer,
    place,
    typical_cost,
)
from seaweedmq.errors import InvalidArgument

loads = st.floats(0, 4, allow_nan=False)
brokers = st.lists(
    st.builds(
        Candidate,
        broker=st.integers(0, 99).map(lambda n: f"b-{n}"),
        segments=st.integers(0, 50),
        cpu_share=loads,
        bytes_per_s=st.floats(0, 1e9),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda c: c.broker,
)


def ties(seed: int = 0) -> Callable[[], float]:
    return random.Random(seed).random


def idle(count: int) -> list[Candidate]:
    return [Candidate(broker=f"b-{n}") for n in range(count)]


@given(candidates=brokers, segments=st.integers(0, 40), data=st.data())
def test_each_segment_gets_different_live_brokers_and_the_same_for_the_same_ties(
    candidates: list[Candidate], segments: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, len(candidates)))
    placed = place(candidates, segments=segments, replicas=replicas, tie=ties())
    assert placed == place(candidates, segments=segments, replicas=replicas, tie=ties())
    assert len(placed) == segments
    for chosen in placed:
        assert len(chosen) == len(set(chosen)) == replicas
        assert set(chosen) <= {c.broker for c in candidates}


@given(brokers=st.integers(1, 10), segments=st.integers(0, 60), seed=st.integers())
def test_idle_brokers_get_the_same_number_of_segments_but_for_one(brokers: int, segments: int, seed: int) -> None:
    placed = place(idle(brokers), segments=segments, replicas=1, tie=ties(seed))
    counts = Counter(primary for (primary,) in placed)
    each = [counts[c.broker] for c in idle(brokers)]
    assert max(each) - min(each) <= 1


@given(candidates=brokers, seed=st.integers())
def test_one_segment_goes_to_a_least_loaded_broker(candidates: list[Candidate], seed: int) -> None:
    ((chosen,),) = place(candidates, segments=1, replicas=1, tie=ties(seed))
    cost = {c.broker: c.cost for c in candidates}
    assert cost[chosen] == min(cost.values())


def test_equal_brokers_are_chosen_at_random_and_busy_ones_only_when_others_carry_as_much() -> None:
    firsts = {place(idle(3), segments=1, replicas=1, tie=ties(seed))[0][0] for seed in range(40)}
    assert firsts == {"b-0", "b-1", "b-2"}
    busy = Candidate(broker="busy", cpu_share=3 * SEGMENT_COST)
    placed = place([busy, Candidate(broker="free")], segments=3, replicas=1, tie=ties())
    assert placed == [("free",)] * 3
    assert Candidate(broker="b", bytes_per_s=RATE_COST_BYTES).cost == pytest.approx(1)


def test_a_fresh_broker_gets_what_it_can_carry_and_not_all_that_is_new() -> None:
    busy = [Candidate(broker=f"b-{n}", segments=10, cpu_share=0.8) for n in range(3)]
    candidates = [*busy, Candidate(broker="fresh")]
    cost = typical_cost(candidates)
    assert cost == pytest.approx(0.1)
    counts = Counter(primary for (primary,) in place(candidates, segments=30, replicas=1, tie=ties(), cost=cost))
    assert counts["fresh"] == pytest.approx(15, abs=2), "ten to be even, then every fourth"
    given = replace(candidates[3], segments=15, expected=15 * cost)
    ((next_one,),) = place([*busy, given], segments=1, replicas=1, tie=ties(), cost=cost)
    assert next_one != "fresh", "its new segments count before any report has them"


@given(brokers=st.integers(2, 6), segments=st.integers(2, 40), loads=st.lists(loads, min_size=6, max_size=6))
def test_brokers_that_all_get_every_segment_lead_as_many_each(brokers: int, segments: int, loads: list[float]) -> None:
    candidates = [Candidate(broker=f"b-{n}", cpu_share=loads[n]) for n in range(brokers)]
    placed = place(candidates, segments=segments, replicas=brokers, tie=ties())
    counts = Counter(primary for primary, *_ in placed)
    each = [counts[c.broker] for c in candidates]
    assert max(each) - min(each) <= 1


def test_a_busy_broker_leads_less_though_it_follows_every_segment() -> None:
    leads = Counter({"b-0": 0, "b-1": 0, "b-2": 0})
    for _ in range(300):
        candidates = [
            Candidate(broker=broker, segments=leads.total(), leads=count, cpu_share=0.2 * (broker == "b-0"))
            for broker, count in leads.items()
        ]
        leads.update(primary for primary, *_ in place(candidates, segments=4, replicas=3, tie=ties()))
    assert leads["b-1"] - leads["b-0"] == pytest.approx(0.2 / SEGMENT_COST, abs=2), "its other load counts"
    assert leads["b-2"] == pytest.approx(leads["b-1"], abs=2)
    candidates = [Candidate(broker="full", room=0), Candidate(broker="busy", cpu_share=1)]
    placed = place(candidates, segments=3, replicas=2, tie=ties())
    assert placed == [("busy", "full")] * 3


def test_a_wish_is_kept_as_far_as_it_can_be_and_filled_up_with_the_cheapest() -> None:
    a, b, c = Candidate(broker="a", segments=9), Candidate(broker="b", segments=1), Candidate(broker="c")
    full, free = Candidate(broker="full", room=0), Candidate(broker="free", cpu_share=3.0)
    for candidates, replicas, preferred, placed in (
        ([a, b, c], 2, ["a"], ("a", "c")),
        ([a, b, c], 2, ["gone", "b"], ("b", "c")),
        ([a, b, c], 1, ["a", "b"], ("a",)),
        ([full, free], 1, ["full"], ("free",)),  # one without room only if no other is left
        ([full, free], 2, ["full"], ("free", "full")),
        ([full], 1, ["full"], ("full",)),
    ):
        assert place(candidates, segments=1, replicas=replicas, tie=ties(), preferred=preferred) == [placed]


@pytest.mark.parametrize(("brokers", "replicas"), [(0, 1), (2, 3), (2, 0)])
def test_more_replicas_than_brokers_are_refused(brokers: int, replicas: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{replicas} replicas requested, but {brokers} brokers are live"):
        place(idle(brokers), segments=1, replicas=replicas, tie=ties())


@given(live=st.lists(st.text(min_size=1), min_size=2, unique=True), weights=st.integers(), data=st.data())
def test_one_broker_maintains_a_sealed_segment_and_few_move(live: list[str], weights: int, data: st.DataObject) -> None:
    def weight(broker: str) -> int:
        return xxhash.xxh3_64_intdigest(f"{weights}/{broker}".encode("utf-8", "surrogatepass"))

    mine = maintainer("gone", live, weight)
    assert mine in live
    assert maintainer("gone", list(reversed(live)), weight) == mine
    leaving = data.draw(st.sampled_from([b for b in live if b != mine]))
    assert maintainer("gone", [b for b in live if b != leaving], weight) == mine
    assert maintainer(leaving, live, weight) == leaving


@given(
    rooms=st.lists(st.integers(-2, 6), min_size=1, max_size=6),
    segments=st.integers(1, 10),
    seed=st.integers(),
    data=st.data(),
)
def test_no_broker_gets_more_than_it_has_room_for_if_all_find_room(
    rooms: list[int], segments: int, seed: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, len(rooms)))
    costs = data.draw(st.lists(loads, min_size=len(rooms), max_size=len(rooms)))
    room = {f"b-{n}": free for n, free in enumerate(rooms)}
    candidates = [Candidate(broker=b, room=room[b], cpu_share=cost) for b, cost in zip(room, costs, strict=True)]
    placed = place(candidates, segments=segments, replicas=replicas, tie=ties(seed))
    counts = Counter(broker for chosen in placed for broker in chosen)
    within = all(count <= max(0, room[broker]) for broker, count in counts.items())
    assert within == fits(room, segments=segments, replicas=replicas)
