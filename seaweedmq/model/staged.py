"""A staged batch: rows in the shared storage, published as one and exactly once.

Any process may complete it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from seaweedmq.model.ring import KeyRange


class StagedSegment(NamedTuple):
    """A segment of a staged batch, as in the lineage."""

    segment: int
    slots: KeyRange
    predecessors: tuple[int, ...]


class FinishedSegment(NamedTuple):
    """The outcome of a sealed segment's rows."""

    kept: int
    """Number of rows, from the first one, that are committed there; no more ever will be."""
    successors: tuple[int, ...]
    """Segments that get the other rows; empty if none remain."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of frames, back to back; publishing sets their producer, epoch and sequences."""

    name: str
    """File name in the batch's folder."""
    size_bytes: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The definition of a batch, which alone determines each later step, in any process and at each repeat."""

    topic_uid: int
    batch: int
    """Batch number of the sink, rising; it is the producer's epoch."""
    producer_id: int
    ring: KeyRange
    files: tuple[StagedFile, ...]
    """Files in the order of the rows."""
    roots: tuple[StagedSegment, ...]
    """Segments that were open when the batch was staged."""
    checkpoint: str = ""
    """Location of the query's checkpoint; "" if unknown."""

    @property
    def record_count(self) -> int:
        """The number of rows."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class SegmentProgress:
    """The progress in a segment: rows below ``sequence`` are acknowledged, the last of them below ``offset``."""

    sequence: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """The noted progress of a batch; the actual progress may be further."""

    segments: tuple[StagedSegment, ...] = ()
    """Segments that are named below, and those that determine when these may begin."""
    finished: Mapping[int, FinishedSegment] = field(default_factory=dict)
    """Outcome of each sealed segment, in the order of the events."""
    reached: Mapping[int, SegmentProgress] = field(default_factory=dict)

    @property
    def record_count(self) -> int:
        """The number of committed rows, or more; of a sealed segment, the rows that it kept."""
        kept = sum(end.kept for end in self.finished.values())
        return kept + sum(at.sequence for segment, at in self.reached.items() if segment not in self.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedBatch:
    """The last batch that a sink has completed; it completed the earlier ones before."""

    batch: int
    ranges: tuple[KeyRange, ...]
    """Ranges of the segments that were open then: rows staged by them seldom need sorting again."""
    checkpoint: str = ""
    """Location of the query's checkpoint; "" if unknown."""
