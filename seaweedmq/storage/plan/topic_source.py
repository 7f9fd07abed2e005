"""Topic as it is at one moment: what a read is planned over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import TopicSnapshot, read_snapshot

TimeSearch: TypeAlias = Callable[[Mapping[int, tuple[int, int]]], Mapping[int, int]]
"""Segment -> (microseconds since 1970 UTC, end offset), to the first offset at or after that time, or the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOffsets:
    """The segments' offsets as brokers report them at one moment."""

    begins: Mapping[int, int]
    """Earliest retained offset of each segment."""
    ends: Mapping[int, int]
    """First uncommitted offset of each segment; nothing from there on is read."""
    is_all: bool = False
    """Whether brokers serve all records, and no files are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic as it is at one moment."""

    place: Place | None = None
    """Place of the storage; None if brokers serve all records."""
    snapshot: TopicSnapshot
    known: BrokerOffsets | None = None
    """Offsets that brokers report; None if none were queried."""
    search: TimeSearch | None = field(default=None, compare=False)
    """Search for times on brokers; None to search the files."""

    @property
    def storage(self) -> Place:
        """Place of the storage, of a source with files."""
        assert self.place is not None, f"a file of topic {self.snapshot.topic.name} was listed, and there is no storage"
        return self.place

    def relisted(self) -> "TopicSource":
        """Return the source with the files as they are now, and the low watermarks, which may explain removed ones."""
        again = read_snapshot(self.storage, self.snapshot.topic.name)
        topic = replace(self.snapshot.topic, low_watermarks=again.topic.low_watermarks)
        return replace(self, snapshot=replace(self.snapshot, topic=topic, files=again.files, removed=again.removed))
