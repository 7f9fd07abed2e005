"""Visibility of topics for Kafka clients, and its description."""

from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.core.kafka.visibility import seen, shown_slots, why_hidden
from seaweedmq.core.lineage.topology import new_topic
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Scaling, Topic, TopicName, TopicSpec
from tests.support.segments import make_segment


def topic(name: str = "kafka/orders", **settings: Any) -> Topic:
    spec = TopicSpec(name=TopicName.parse(name), **settings)
    made = new_topic(spec, uid=1, now_us=0, placement=[("b-1",)] * spec.first_segments).topic
    assert made is not None
    return made


def segments(of: Topic, *slots: tuple[int, int]) -> list[Segment]:
    return [replace(make_segment(), topic=of.name, id=i, slots=KeyRange(*each)) for i, each in enumerate(slots)]


def test_a_partition_is_a_slot_or_a_range_and_why_a_topic_is_hidden_says_what_helps() -> None:
    assert shown_slots(topic(partitions=2), []) == (KeyRange(0, 1), KeyRange(1, 2))
    fixed = topic(segments=2, scaling=Scaling.FIXED)
    whole = [(0, 1 << 15), (1 << 15, 1 << 16)]
    assert shown_slots(fixed, segments(fixed, *whole)) == tuple(KeyRange(*each) for each in whole)
    assert shown_slots(fixed, segments(fixed, *whole, (0, 1 << 14))) is None
    assert shown_slots(topic(scaling=Scaling.AUTO), []) is None
    made = topic()
    whole, half = segments(made, (0, 1 << 16)), segments(made, (0, 1 << 15))
    assert "Alter it to --scaling fixed" in why_hidden(made, whole)
    assert "Read it with SeaweedMQ's own client" in why_hidden(made, half)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (topic(partitions=2), "written and read as orders, where brokers show the namespace kafka"),
        (topic("shop/orders", partitions=2), "written and read as orders, where brokers show the namespace shop"),
        (topic("kafka/__consumer_offsets", partitions=8), "only read as __consumer_offsets, where"),
        (topic(scaling=Scaling.FIXED), "only read as orders, where"),
        (replace(topic(partitions=2), schema=b"columns"), "neither written nor read: it has columns"),
        (topic(), "hidden: topic kafka/orders has no partitions"),
    ],
)
def test_it_is_said_in_words(made: Topic, said: str) -> None:
    assert said in seen(made, [])
