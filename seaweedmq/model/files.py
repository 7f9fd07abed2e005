"""Files of segments, known by their names alone."""

from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.model.topic import TopicName


class FileKind(StrEnum):
    LOG = "log"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A log or Parquet file of a segment, known by its name alone."""

    topic: TopicName
    segment: int
    kind: FileKind
    base_offset: int
    end_offset: int | None
    """Exclusive; None for a log file, whose end only its content tells."""
    writer: str
    """Broker id that wrote a log file; "" for a table."""
    size_bytes: int
    path: str
    """Relative to the storage root."""
    modified_us: int
    """Wall clock of the storage; the grace periods are counted from it."""
