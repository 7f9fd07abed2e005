"""Live views, rendered to text."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text

from seaweedmq.cli.live.views import SEGMENTS_SHOWN_MAX, cluster_view, colors_of, ring_bar, topic_view
from seaweedmq.model.broker import BrokerInfo, BrokerLoad, BrokerStatus, ClusterStatus, Decision, SegmentLoad
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.ring import RING_SLOTS_MAX, WHOLE_RING, KeyRange, even_ranges
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Durability, TopicName
from tests.support.segments import NAME, make_segment, make_topic

NOW_US = 1_700_000_000_000_000
TOPIC = replace(make_topic(), replicas=2, durability=Durability.REPLICATED, next_segment=9)
ADDRESSES = {"b-1": "127.0.0.1:17777", "b-2": "127.0.0.1:17778"}


def rendered(view: RenderableType, width: int = 120) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(view)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def segment(number: int, lo: int, hi: int, *, primary: str = "b-1", sealed: bool = False) -> Segment:
    state = SegmentState.SEALED if sealed else SegmentState.OPEN
    replicas = (primary, "b-2" if primary == "b-1" else "b-1")
    return replace(make_segment(), id=number, slots=KeyRange(lo, hi), state=state, replicas=replicas)


def stats(number: int, bytes_per_s: float, records_per_s: float, end: int = 0) -> SegmentStats:
    rates = {"bytes_per_s": bytes_per_s, "records_per_s": records_per_s}
    return SegmentStats(segment=number, start_offset=0, high_watermark=end, flushed_offset=end, **rates)


def decision(age_s: int, kind: str, segments: tuple[int, ...], reason: str, topic: TopicName = NAME) -> Decision:
    return Decision(at_us=NOW_US - age_s * 1_000_000, topic=topic, segments=segments, kind=kind, reason=reason)


SEGMENTS = (
    segment(0, 0, RING_SLOTS_MAX, sealed=True),
    segment(3, 0, 16_384),
    segment(4, 16_384, 32_768, primary="b-2"),
    segment(5, 32_768, RING_SLOTS_MAX),
)
FOUND = TopicDescription(topic=TOPIC, segments=SEGMENTS, addresses=ADDRESSES)
STATS = (stats(3, 12_345_678, 50_000, 9_000), stats(4, 1_500, 5, 7), stats(5, 0, 0))


def view(*decisions: Decision, found: TopicDescription = FOUND, width: int = 40) -> str:
    return rendered(topic_view(found, STATS, decisions, NOW_US, width))


def test_a_topic_shows_its_ring_rates_and_decisions() -> None:
    shown = view(
        decision(600, "split", (0,), "twice its target for 3 s"),
        decision(9, "move", (2,), "[0, 9] is [bold]busy[/bold]"),
    )
    assert shown == "\n".join(
        [
            "shop/orders  replicated, 2 replicas, scaling auto",
            "status  ok",
            "3 open segments, 12.3 MB/s, 50,005 records/s",
            "",
            "▏3        ▏4        ▏5",
            "",
            "    segment  slots           share    bytes/s  records/s    end  primary",
            "██  3        [0, 16384)      25.0%  12.3 MB/s     50,000  9,000  127.0.0.1:17777",
            "██  4        [16384, 32768)  25.0%   1.5 kB/s          5      7  127.0.0.1:17778",
            "██  5        [32768, 65536)  50.0%      0 B/s          0      0  127.0.0.1:17777",
            "",
            "decided     what   segments       because",
            "9 s ago     move   shop/orders#2  [0, 9] is [bold]busy[/bold]",
            "10 min ago  split  shop/orders#0  twice its target for 3 s",
        ]
    )


def test_a_hot_key_is_the_topics_status_until_its_segment_is_gone() -> None:
    hot = decision(5, "hold", (3,), "segment 3 carries a hot key")
    assert "status  segment 3 carries a hot key" in view(hot)
    assert "status  ok" in view(replace(hot, segments=(0,)))  # the segment is sealed
    assert "status  ok" in view(hot, decision(1, "split", (3,), "the load has spread"))
    assert "status  ok" in view(replace(hot, topic=TopicName("shop", "others")))


def test_missing_replicas_are_the_first_finding_of_a_topics_status() -> None:
    hot = decision(5, "hold", (3,), "segment 3 carries a hot key")
    lost = replace(FOUND, addresses={"b-1": "127.0.0.1:17777"})
    assert "status  under-replicated: 3 of 3 segments with 1 of 2 replicas\n" in view(found=lost)
    assert "with 1 of 2 replicas; segment 3 carries a hot key\n" in view(hot, found=lost)
    placed = replace(FOUND, segments=(*SEGMENTS[:3], replace(SEGMENTS[3], replicas=("b-2",))))
    assert "status  under-replicated: 1 of 3 segments with 1 of 2 replicas\n" in view(found=placed)
    sealed = replace(FOUND, segments=(replace(SEGMENTS[0], replicas=("b-9",)), *SEGMENTS[1:]))
    assert "status  ok\n" in view(found=sealed)


def test_the_targets_of_a_topic_are_shown() -> None:
    topic = replace(TOPIC, target_bytes_per_s=1e6, target_records_per_s=5e3)
    assert "scaling auto, 1.0 MB/s and 5,000 records/s per segment" in view(found=replace(FOUND, topic=topic))


def test_a_segment_whose_primary_is_gone_is_shown_by_its_id() -> None:
    lost = replace(FOUND, segments=(segment(3, 0, RING_SLOTS_MAX, primary="b-9"),), addresses={})
    shown = rendered(topic_view(lost, (), (), NOW_US, 40))
    assert "██  3        [0, 65536)  100.0%        -          -    -  b-9" in shown
    assert "no decisions of this leader yet" in shown


def test_shares_are_those_of_the_topics_own_ring() -> None:
    cut = (segment(1, 0, 3), segment(2, 3, 12))
    shown = rendered(topic_view(replace(FOUND, topic=replace(TOPIC, partitions=12), segments=cut), (), (), NOW_US, 22))
    assert "\n▏1    ▏2\n" in shown
    assert "[0, 3)   25.0%" in shown


def test_of_many_segments_the_busiest_are_named() -> None:
    many = tuple(segment(n, r.lo, r.hi) for n, r in enumerate(even_ranges(WHOLE_RING, 100)))
    rates = [stats(n, n * 1e6, n) for n in range(100)]
    shown = rendered(topic_view(replace(FOUND, segments=many), rates, (), NOW_US, 40))
    named = [int(line.split()[1]) for line in shown.splitlines() if line.startswith("██")]
    assert named == list(range(100 - SEGMENTS_SHOWN_MAX, 100))
    assert "and 76 segments with lower rates" in shown


@given(st.integers(1, 150), st.integers(1, 300))
def test_the_bar_is_as_wide_as_asked_and_each_segment_as_wide_as_its_share(count: int, width: int) -> None:
    """With even ranges, the minimum of one cell for each segment changes nothing."""
    segments = [segment(n, r.lo, r.hi) for n, r in enumerate(even_ranges(WHOLE_RING, count))]
    bar = ring_bar(WHOLE_RING, segments, colors_of(segments), width)
    cells = [span.end - span.start for span in bar.spans]
    assert len(bar.plain) == sum(cells) == width
    assert all(abs(each - width / count) <= 1 for each in cells)


def test_the_narrowest_segment_is_seen() -> None:
    edges = [0, 1, 2, 40_000, 40_001, RING_SLOTS_MAX]
    segments = [segment(n, lo, hi) for n, (lo, hi) in enumerate(pairwise(edges))]
    assert ring_bar(WHOLE_RING, segments, colors_of(segments), 20).plain == "▏▏▏2        ▏▏4     "


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20, unique=True))
def test_neighbours_have_different_colours(numbers: list[int]) -> None:
    ranges = even_ranges(WHOLE_RING, len(numbers))
    segments = [segment(n, r.lo, r.hi) for n, r in zip(numbers, ranges, strict=True)]
    colors = list(colors_of(segments).values())
    assert all(a != b for a, b in pairwise(colors))


def test_the_bar_is_coloured() -> None:
    bar = ring_bar(WHOLE_RING, SEGMENTS[1:], colors_of(SEGMENTS[1:]), 8)
    assert isinstance(bar, Text)
    assert [(s.start, s.end) for s in bar.spans] == [(0, 2), (2, 4), (4, 8)]
    assert len({s.style for s in bar.spans}) == 3


def status(*brokers: BrokerStatus, decisions: tuple[Decision, ...] = ()) -> ClusterStatus:
    return ClusterStatus(leader="b-1", brokers=brokers, topics=1, open_segments=3, decisions=decisions)


def broker(number: int, load: BrokerLoad | None, *, draining: bool = False) -> BrokerStatus:
    address = f"127.0.0.1:1777{6 + number}"
    info = BrokerInfo(id=f"b-{number}", address=address, started_us=1, pid=1, version="1", draining=draining)
    return BrokerStatus(info=info, load=load, open_segments=number, is_leader=number == 1)


def load(cpu_share: float, bytes_per_s: float) -> BrokerLoad:
    part = SegmentLoad(topic=NAME, segment=3, bytes_per_s=bytes_per_s / 2, records_per_s=700, unwritten_bytes=0)
    parts = (part, replace(part))
    return BrokerLoad(broker="", cpu_share=cpu_share, memory_bytes=300 << 20, buffered_bytes=0, segments=parts)


def test_the_cluster_shows_its_brokers_and_decisions() -> None:
    brokers = (broker(2, None), broker(3, load(0.12, 2.5e9), draining=True), broker(1, load(0.95, 640)))
    merged = decision(7_300, "merge", (4, 5), "both carry little")
    shown = rendered(cluster_view(status(*brokers, decisions=(merged,)), NOW_US))
    assert shown == "\n".join(
        [
            "cluster  3 brokers, 1 topic, 3 open segments",
            "",
            "broker  address          state     CPU   memory   bytes/s  records/s  segments",
            "b-1     127.0.0.1:17777  leader    95%  300 MiB   640 B/s      1,400         1",
            "b-2     127.0.0.1:17778              -        -         -          -         2",
            "b-3     127.0.0.1:17779  draining  12%  300 MiB  2.5 GB/s      1,400         3",
            "",
            "decided  what   segments         because",
            "2 h ago  merge  shop/orders#4,5  both carry little",
        ]
    )


def test_the_cluster_shows_how_many_segments_lack_replicas_or_cannot_be_recovered() -> None:
    well = status(broker(1, None))
    for found, said in (
        (replace(well, under_replicated_segments=2), "2 of them under-replicated"),
        (replace(well, unrecoverable_segments=2), "2 cannot be recovered: see topic describe"),
    ):
        assert f"1 broker, 1 topic, 3 open segments, {said}\n" in rendered(cluster_view(found, NOW_US))


def test_a_topic_shows_the_files_that_its_segments_lack() -> None:
    first, *others = FOUND.segments
    found = replace(FOUND, segments=(replace(first, problem="x.log is damaged"), *others))
    assert "status  x.log is damaged" in rendered(topic_view(found, (), (), NOW_US, 60))


@pytest.mark.parametrize("width", [20, 60, 200])
def test_a_narrow_terminal_gets_what_fits(width: int) -> None:
    lines = rendered(topic_view(FOUND, STATS, (), NOW_US, width), width).splitlines()
    assert lines
    assert all(len(line) <= width for line in lines)
