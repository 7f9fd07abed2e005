"""A batch that was put down in the shared storage to be published as one, exactly once, by whoever finishes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from seaweedmq.model.ring import KeyRange


class StagedSegment(NamedTuple):
    """A segment as the lineage has it."""

    segment: int
    slots: KeyRange
    predecessors: tuple[int, ...]


class FinishedSegment(NamedTuple):
    """What became of a segment's rows."""

    kept: int
    """So many of them, from the first one on, are committed there, and no more ever will be."""
    successors: tuple[int, ...]
    """Who gets the others; empty if there are none."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Frames back to back. Their producer, epoch and sequences are set when they are published."""

    name: str
    """In the batch's folder."""
    size_bytes: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a batch is: from here on everything follows from this, whoever publishes it and how often."""

    topic_uid: int
    batch: int
    """Of the sink, rising; it is the producer's epoch."""
    producer_id: int
    ring: KeyRange
    files: tuple[StagedFile, ...]
    """In the order of the rows."""
    roots: tuple[StagedSegment, ...]
    """Segments that were open at that moment."""
    checkpoint: str = ""
    """Location of the query's checkpoint; "" if it is not known."""

    @property
    def record_count(self) -> int:
        """Rows of the batch."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class SegmentProgress:
    """How far a segment is: rows below ``sequence`` are acknowledged, the last of them below ``offset``."""

    sequence: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """How far a batch is, as somebody has noted it: at least so far."""

    places: tuple[StagedSegment, ...] = ()
    """Of the segments that are named below, and of those that say when these may begin."""
    finished: Mapping[int, FinishedSegment] = field(default_factory=dict)
    """In the order of what happened."""
    reached: Mapping[int, SegmentProgress] = field(default_factory=dict)

    @property
    def record_count(self) -> int:
        """Rows that are committed, at least so many; of a segment that was sealed those that it kept."""
        kept = sum(end.kept for end in self.finished.values())
        return kept + sum(at.sequence for segment, at in self.reached.items() if segment not in self.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedBatch:
    """The last batch that a sink has finished; those before it were finished earlier."""

    batch: int
    ranges: tuple[KeyRange, ...]
    """Ranges of the segments that were open then: rows staged by them seldom have to be sorted again."""
    checkpoint: str = ""
    """Location of the query's checkpoint; "" if it is not known."""
