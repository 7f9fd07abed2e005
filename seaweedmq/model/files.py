"""Files of segments, described by their names alone."""

from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.model.topic import TopicName


class FileKind(StrEnum):
    """The kind of a segment's file."""

    LOG = "log"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A log file or table of a segment, described by its name alone."""

    topic: TopicName
    segment: int
    kind: FileKind
    base_offset: int
    end_offset: int | None
    """End, exclusive; None for a log file of a directory, whose end only its content shows."""
    writer: str
    """Broker id of the writer of a log file; "" for a table."""
    size_bytes: int
    path: str
    """Path relative to the storage root."""
    modified_us: int
    """Wall clock of the storage; the grace periods count from it."""
