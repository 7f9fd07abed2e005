"""Which segments are replaced when brokers come and go, in which order, and who stays."""

from dataclasses import replace

from seaweedmq.core.lineage.repair import reinforcements, repairs
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.segment import Segment, SegmentId, SegmentState
from seaweedmq.model.topic import TopicName
from tests.support.segments import make_topic

NAME = TopicName("shop", "orders")
LIVE = {"a", "b", "c", "d"}


def segment(number: int, *replicas: str) -> Segment:
    return Segment(topic=NAME, id=number, slots=WHOLE_RING, epoch=1, state=SegmentState.OPEN, replicas=replicas)


def told(
    *segments: Segment,
    draining: set[str] = frozenset(),  # type: ignore[assignment]
    suspected: set[str] = frozenset(),  # type: ignore[assignment]
    broken: tuple[int, ...] = (),
) -> list[str]:
    found = repairs(
        segments,
        LIVE,
        draining=draining,
        suspected=suspected,
        broken={SegmentId(NAME, number) for number in broken},
    )
    return [f"{r.segment.id}: {r.reason}; {' '.join(r.stays) or 'nobody'} stays" for r in found]


def test_what_is_well_is_left_alone() -> None:
    assert told(segment(0, "a", "b"), segment(1, "c"), suspected={"a"}) == []


def test_what_nobody_can_write_to_comes_first_and_what_is_drained_last() -> None:
    segments = (segment(0, "d", "a"), segment(1, "b", "c"), segment(2, "a", "gone"), segment(3, "gone", "a"))
    assert told(*segments, draining={"d"}, broken=(1,)) == [
        "3: broker gone is gone; a stays",
        "1: its replicas lost each other, or it was sealed without a successor; b c stays",
        "2: broker gone is gone; a stays",
        "0: broker d is being drained; a stays",
    ]


def test_a_healthy_primary_goes_on_without_its_follower() -> None:
    assert told(segment(0, "a", "gone", "b")) == ["0: broker gone is gone; a b stays"]


def test_of_replicas_that_lost_each_other_the_one_that_is_suspected_goes() -> None:
    assert told(segment(0, "a", "b"), suspected={"a"}, broken=(0,)) == [
        "0: its replicas lost each other, or it was sealed without a successor; b stays"
    ]


def test_who_is_drained_or_suspected_does_not_stay() -> None:
    assert told(segment(0, "gone", "a", "b", "c"), draining={"a"}, suspected={"b"}) == [
        "0: broker gone is gone; c stays"
    ]
    assert told(segment(0, "gone")) == ["0: broker gone is gone; nobody stays"]


def test_an_earlier_segment_of_the_same_number_is_another_topics_business() -> None:
    """Segments that are broken are named as the metadata names them; what is not open any more is in no list."""
    assert told(broken=(0, 7)) == []


def test_replicas_are_added_where_there_are_brokers_for_them_now() -> None:
    topics = {NAME: replace(make_topic(), name=NAME, replicas=3)}
    segments = [segment(0, "a", "b"), segment(1, "a", "b", "c"), segment(2, "d")]
    found = reinforcements(segments, topics, available=3)
    assert [(r.segment.id, r.stays) for r in found] == [(0, ("a", "b")), (2, ("d",))]
    assert [r.segment.id for r in reinforcements(segments, topics, available=2)] == [2]
    assert reinforcements(segments, topics, available=1) == []
