"""What brokers tell of a topic: its segments, who serves them, and how far they are."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSelection:
    """The segments a description should have. Open ones all come at once; sealed ones, which may be very many, in pages
    by id."""

    open: bool = True
    sealed_above: int | None = -1
    """Sealed ones with a higher id, a page of them; None: no sealed ones."""
    ids: tuple[int, ...] = ()
    """These in any case, as far as they are known."""


ALL = SegmentSelection()


OPEN = SegmentSelection(sealed_above=None)


IDS_MAX = 10_000
"""Ids in one ``SegmentSelection``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic, the segments that were asked for (by id) and the addresses of the brokers that live now.

    A segment that was asked for by its id and is not in it, though it is below ``topic.next_segment``, was pruned: it
    was sealed long ago, and its records, if it ever had any, were removed by retention.
    """

    topic: Topic
    segments: tuple[Segment, ...]
    addresses: Mapping[str, str]
    """Broker id -> host:port, of every live broker: any of them serves a sealed segment."""
    revision: int = 0
    """Revision of the topic's record, which changes with its open segments. The generation of the cluster stands in the
    bits above the first 40, so it never falls, though a recovered etcd counts from 1."""
    more_above: int | None = None
    """More sealed segments that were asked for have an id above this one; None: these are all."""
    frame_bytes_max: int = 0
    """Limit of one frame at the broker that answers. 0: the call was not ``DescribeTopic``, or the broker is of a
    version that does not report it."""

    @property
    def known_frame_bytes_max(self) -> int:
        """The limit of one frame: the default of brokers where the broker reports none."""
        return self.frame_bytes_max or BrokerConfig().frame_bytes_max

    def segment(self, number: int) -> Segment | None:
        """The segment with this id, if it is in the description."""
        return next((segment for segment in self.segments if segment.id == number), None)

    def by_id(self) -> dict[int, Segment]:
        """All segments in it, to look up many."""
        return {segment.id: segment for segment in self.segments}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStats:
    """How far one segment is, as its primary (open) or the metadata (sealed) knows."""

    segment: int
    start_offset: int
    """Earliest offset that retention has left, as of some seconds ago."""
    high_watermark: int
    flushed_offset: int
    """First offset not yet fsynced."""
    bytes_per_s: float
    records_per_s: float
