"""Under-replicated segments: the next one to replace, and the few lookups that takes."""

from dataclasses import replace

from seaweedmq.core.lineage.short_segments import ShortSegments
from seaweedmq.model.segment import Segment, SegmentId
from tests.support.segments import make_segment, make_topic

TOPIC = replace(make_topic(), replicas=3)
TOPICS = {TOPIC.name: TOPIC}
BROKERS = ("a", "b", "c")


class View:
    """Open segments of one topic, and the number of lookups."""

    def __init__(self) -> None:
        self.open: dict[SegmentId, Segment] = {}
        self.lookups = 0

    def add(self, number: int, replicas: int) -> SegmentId:
        segment = replace(make_segment(), topic=TOPIC.name, id=number, replicas=BROKERS[:replicas])
        self.open[segment.key] = segment
        return segment.key

    def find(self, key: SegmentId) -> Segment | None:
        self.lookups += 1
        return self.open.get(key)


def next_of(short: ShortSegments, view: View, available: int, *busy: SegmentId) -> SegmentId | None:
    found = short.next(available, TOPICS, view.find, frozenset(busy))
    return None if found is None else found.segment.key


def test_the_first_that_could_have_more_replicas_is_next() -> None:
    view, short = View(), ShortSegments()
    keys = [view.add(number, replicas) for number, replicas in enumerate([2, 1, 1])]
    for key in keys:
        short.add(key)
    assert next_of(short, view, 2) == keys[1]
    assert next_of(short, view, 2, keys[1]) == keys[2], "a segment in replacement is skipped"
    assert next_of(short, view, 2, keys[1], keys[2]) is None
    assert next_of(short, view, 3, keys[1], keys[2]) == keys[0], "it could not have more before"


def test_closed_ones_and_those_that_have_enough_are_dropped() -> None:
    view, short = View(), ShortSegments()
    closed, forgotten, whole = view.add(0, 1), view.add(1, 1), view.add(2, 3)
    for key in (closed, forgotten, whole):
        short.add(key)
    del view.open[closed]
    short.forget(forgotten)
    assert next_of(short, view, 3) is None
    view.lookups = 0
    assert next_of(short, view, 3) is None
    assert view.lookups == 0


def test_one_that_was_settled_and_has_changed_is_next() -> None:
    view, short = View(), ShortSegments()
    key = view.add(0, 2)
    short.add(key)
    assert next_of(short, view, 2) is None
    view.add(0, 1)
    short.add(key)
    assert next_of(short, view, 2) == key


def test_thousands_that_cannot_have_more_are_looked_at_once() -> None:
    view, short = View(), ShortSegments()
    for number in range(3_000):
        short.add(view.add(number, 2))
    for number in range(3_000, 6_000):
        short.add(view.add(number, 1))
        found = next_of(short, view, 2)
        assert found == SegmentId(TOPIC.name, number)
        del view.open[found]
    assert view.lookups <= 9_000
    assert next_of(short, view, 3) == SegmentId(TOPIC.name, 0)
