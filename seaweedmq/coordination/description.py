"""Description of a topic for clients, from the live view."""

from dataclasses import replace

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import NotFound
from seaweedmq.model.description import ALL, SegmentSelection, TopicDescription
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName

SEALED_PER_PAGE = 250
"""Sealed segments in one description: they take a few milliseconds of the event loop."""


def describe(view: ClusterView, name: TopicName, which: SegmentSelection = ALL) -> TopicDescription:
    """Return the topic with the selected segments, sealed ones up to a page, or raise NotFound."""
    topic = view.topics.get(name)
    if topic is None:
        raise NotFound(f"there is no topic {name}: see `seaweedmq topic list`")
    known, opened = view.segments_of(name), view.open_of(name)
    chosen = {number: known[number] for number in which.ids if number in known}
    if which.open:
        chosen |= opened
    more_above = None
    if which.sealed_above is not None:
        above = which.sealed_above
        sealed = sorted(n for n in known if n > above and n not in opened)
        if len(sealed) > SEALED_PER_PAGE:
            sealed = sealed[:SEALED_PER_PAGE]
            more_above = sealed[-1]
        chosen |= {number: known[number] for number in sealed}
    return TopicDescription(
        topic=topic,
        segments=tuple(_described(chosen[number]) for number in sorted(chosen)),
        addresses={broker.id: broker.address for broker in view.brokers.values()},
        revision=view.topic_version(name),
        more_above=more_above,
    )


def _described(segment: Segment) -> Segment:
    """Return the segment without the fields that only brokers need."""
    if segment.sequences or segment.sequences_complete:
        return replace(segment, sequences=(), sequences_complete=False)
    return segment
