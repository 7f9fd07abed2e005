"""The segment as the bundler sees it, on its primary or on a follower."""

from collections.abc import Sequence
from typing import Protocol

from seaweedmq.broker.bundles.log_content import LogContent
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.segment import ProducerState, ReplicaKey


class BundleSource(Protocol):
    """A segment whose frames a bundler writes. Its frames stay in memory until log objects have them."""

    @property
    def key(self) -> ReplicaKey:
        """The segment."""

    def producers_below(self, offset: int) -> Sequence[ProducerState]:
        """Return all producer states as of an offset, below which frames were handed to the bundler."""

    def entries(self, base_offset: int, end_offset: int) -> Sequence[LogEntry]:
        """Return the frames of these offsets, which were handed to the bundler and are in no log object yet."""

    def log_content(self, base_offset: int, end_offset: int) -> LogContent:
        """Return the log object of these offsets."""

    def on_flushed(self, end_offset: int) -> None:
        """Record that bundles or log objects hold all frames below an offset."""

    def on_log(self, file: SegmentFile) -> None:
        """Record that a log object exists."""

    def on_failure(self) -> None:
        """Record that the store fails: see ``Bundler.failure``."""

    def on_ended(self) -> None:
        """Record that another process ended the sequence: nothing more is flushed."""
