"""Descriptions of a topic: its segments, their brokers and their progress."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSelection:
    """The segments that a description includes: all open ones, and sealed ones, maybe many, in pages by id."""

    open: bool = True
    """Whether to include the open segments."""
    sealed_above: int | None = -1
    """Lower limit, exclusive, of the ids in a page of sealed segments; None: no sealed segments."""
    ids: tuple[int, ...] = ()
    """Ids of segments to include in any case, if the broker knows them; at most ``IDS_MAX``."""


ALL = SegmentSelection()


OPEN = SegmentSelection(sealed_above=None)


IDS_MAX = 10_000
"""Ids in one ``SegmentSelection``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic, its selected segments by id, and the addresses of the live brokers.

    A segment that was selected by its id and is missing, although it is below ``topic.next_segment``, was pruned: it
    was sealed long ago, and retention removed its records, if it ever had any.
    """

    topic: Topic
    segments: tuple[Segment, ...]
    addresses: Mapping[str, str]
    """Broker id -> host:port of every live broker; any of them serves a sealed segment."""
    revision: int = 0
    """Revision of the topic's record, which changes with its open segments. The bits above the first 40 hold the
    generation of the cluster, so it never falls, although a recovered etcd counts from 1."""
    more_above: int | None = None
    """Highest id of this page of sealed segments, if more follow; None: the page is the last one."""
    frame_bytes_max: int = 0
    """Limit on one frame at the answering broker. 0: the call was not ``DescribeTopic``, or the broker's version does
    not report it."""

    @property
    def known_frame_bytes_max(self) -> int:
        """The limit on one frame: the default of brokers where the broker reports none."""
        return self.frame_bytes_max or BrokerConfig().frame_bytes_max

    def segment(self, number: int) -> Segment | None:
        """Return the segment with this id, or None if the description does not include it."""
        return next((segment for segment in self.segments if segment.id == number), None)

    def by_id(self) -> dict[int, Segment]:
        """Return all segments of the description by id, for many lookups."""
        return {segment.id: segment for segment in self.segments}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedTopic:
    """A topic, and the caller's last description of it."""

    name: TopicName
    topic_uid: int
    above: int
    """``TopicDescription.revision`` that the caller knows."""
    ids: tuple[int, ...] = ()
    """Segments whose changes the caller needs, besides the open ones."""


@dataclass(frozen=True, slots=True)
class UpdatedTopics:
    """The changes of awaited topics."""

    changed: tuple[TopicDescription, ...] = ()
    """Descriptions that are newer than the caller's."""
    unknown: tuple[int, ...] = ()
    """Uids of topics that the broker does not know, or knows no longer. The broker may lag; a call for such a topic
    gets a certain answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStats:
    """The progress of one segment, from its primary (open) or the metadata (sealed)."""

    segment: int
    start_offset: int
    """Earliest offset that retention has left, as of some seconds ago."""
    high_watermark: int
    flushed_offset: int
    """First offset that is not flushed."""
    bytes_per_s: float
    records_per_s: float
