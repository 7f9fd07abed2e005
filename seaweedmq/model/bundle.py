"""Bundles: the entries that a broker appends to its own sequence in an object store.

A bundle holds frames of many segments in one object; the fence is the last entry of a sequence. ``codec.bundle`` has
their bytes, and ``core.segment.bundling`` the rules.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from seaweedmq.model.segment import ProducerState, ReplicaKey

CHECKPOINT_EVERY: Final = 64
"""Bundles from one checkpoint to the next, and checkpoints from one full checkpoint to the next: with one full
checkpoint, 63 checkpoints and 63 bundles, a recovery reads at most 127 entries of a broker."""
NUMBER_MAX: Final = 10**16 - 1
"""Highest number of an entry: 16 digits."""
NONCE_BYTES: Final = 16


class EntryKind(IntEnum):
    """The kind of an entry."""

    BUNDLE = 1
    """Frames, and the index of them."""
    CHECKPOINT = 2
    """Also the index and the producers of the bundles since the previous checkpoint."""
    FULL_CHECKPOINT = 3
    """Also the index of all bundles that are needed, and the ends and producers of all segments."""
    FENCE = 4
    """The end of the sequence."""

    @property
    def is_checkpoint(self) -> bool:
        """Whether the entry covers earlier ones."""
        return self in (EntryKind.CHECKPOINT, EntryKind.FULL_CHECKPOINT)


class BundledFrame(NamedTuple):
    """The part of a frame's header that recovers a producer."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRun:
    """Contiguous frames of one segment, in a bundle or in a log object that the bundle refers to."""

    topic_uid: int
    segment: int
    base_offset: int
    end_offset: int
    """Offset after the last record."""
    length: int
    """Bytes of the frames; of a reference, bytes of the log object."""
    position: int = 0
    """Byte of the bundle where the frames begin; 0: the log object ``base-end-writer`` of the bundle's broker has
    them."""
    frames: tuple[BundledFrame, ...] = ()
    """The frames in order; empty in the sections that a checkpoint carries of earlier bundles, whose producers are in
    the tails."""

    @property
    def key(self) -> ReplicaKey:
        """The segment."""
        return ReplicaKey(self.topic_uid, self.segment)

    @property
    def is_reference(self) -> bool:
        """Whether the frames are in a log object."""
        return self.position == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSection:
    """The runs of one bundle."""

    number: int
    """Number of the bundle that holds them."""
    runs: tuple[BundleRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTail:
    """The end of one segment and its producers as of the entry that has it.

    In a checkpoint that is not full, only the producers that stored frames since the previous one.
    """

    topic_uid: int
    segment: int
    end_offset: int
    producers: tuple[ProducerState, ...] = ()
    """Producer states, the longest idle first."""

    @property
    def key(self) -> ReplicaKey:
        """The segment."""
        return ReplicaKey(self.topic_uid, self.segment)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryHeader:
    """The identity of an entry and what it declares about earlier ones."""

    kind: EntryKind
    number: int
    """Place in the sequence, from 0."""
    floor: int
    """Number below which no entry is needed; never falls from one bundle to the next."""
    done: int
    """Number below which all entries were done when this one was cut: a valid fence is not below it."""
    checkpoint: int
    """Number of the last full checkpoint, up to this entry."""
    nonce: bytes
    """Random bytes, by which a writer recognizes its own entry."""
    time_us: int
    """Wall clock of the writer, microseconds since 1970 UTC. For people; no rule depends on it."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Divisor of the numbers that are checkpoints."""

    @property
    def is_fence(self) -> bool:
        """Whether the sequence ends here."""
        return self.kind is EntryKind.FENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryIndex:
    """An entry without its frames: all that a recovery needs."""

    header: EntryHeader
    sections: tuple[BundleSection, ...] = ()
    """The entry's own runs first, then those that a checkpoint carries, the lowest number first; empty for a fence."""
    tails: tuple[SegmentTail, ...] = ()
    """Segments as of this entry: in a checkpoint, and in a bundle whose runs do not continue earlier ones."""
    writer: str = ""
    """Id of the broker that put a fence; "" for a bundle, whose name has its broker."""

    @property
    def runs(self) -> tuple[BundleRun, ...]:
        """The entry's own runs."""
        return self.sections[0].runs if self.sections else ()
