"""The storage of one open segment as its primary uses it: log files of a directory, or bundles and log objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.core.segment.segment_lifecycle import Action, SegmentLifecycle
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import StorageFailed
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


class SegmentSink(Protocol):
    """The storage of one open segment. The caller reports to the log what is written, flushed and readable."""

    sealed: list[SegmentFile]
    """Complete log files or log objects that are not converted to tables yet, in order."""
    roll_bytes: int
    """Size in bytes at which a log file is complete."""

    @property
    def failure(self) -> StorageFailed | None:
        """The reason why nothing is flushed at the moment; None if there is none."""

    @property
    def flushed(self) -> int:
        """The offset below which all frames are flushed."""

    @property
    def readable(self) -> int:
        """The offset below which readers find all frames in log files, at most ``flushed``."""

    async def append(
        self, chunks: Sequence[bytes | memoryview], size_bytes: int, end: int, *, urgent: bool = False
    ) -> bool:
        """Write frames, header and payload by turns, from the log's ``written`` offset on.

        Return whether ``sync`` should follow at once. Raises StorageFailed; then no frame counts as written.
        """

    async def probe(self) -> None:
        """Raise StorageFailed if the storage accepts no writes at all. Call after a failure."""

    def pause_s(self, failed: int) -> float:
        """Return the pause in seconds after ``failed`` failures in a row."""

    def hurry(self) -> None:
        """Flush what is written soon."""

    async def sync(self) -> None:
        """Flush all written frames. A failure is set as ``failure``, not raised."""

    def relieve(self) -> None:
        """Make flushed frames readable soon, because the memory of the broker is full."""

    def retire(self) -> None:
        """Complete the log file of what is written so far; ``sync`` then also makes it readable."""

    def retire_if_older(self, age_s: float) -> None:
        """Complete a log file whose oldest frame is ``age_s`` seconds old or older."""

    def is_last_due(self, low_watermark: int, expires_s: float | None) -> bool:
        """Whether an idle segment needs ``put_empty`` before retention can remove its last log file."""

    async def put_empty(self) -> None:
        """Put an empty log file at the end of an idle segment. Raises StorageFailed."""

    async def close(self) -> None:
        """Write nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEvents:
    """Functions of the primary that a sink calls."""

    request_sync: Callable[[], None]
    """Requests a call of ``sync`` soon, as ``fsync.SyncRounds``."""
    on_progress: Callable[[], None]
    """Reacts to a change of ``flushed``, ``readable`` or ``failure`` outside of ``append`` and ``sync``."""
    on_actions: Callable[[Sequence[Action]], None]
    """Performs actions of the lifecycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSink:
    """The storage of one segment, with the rules for its commits."""

    sink: SegmentSink
    lifecycle: SegmentLifecycle
    advance: Callable[[], Sequence[Action]]
    """Returns the actions of the commit rule after progress of the log."""


class SegmentStorage(Protocol):
    """The storage of all open segments of one broker incarnation."""

    def open(self, topic: Topic, segment: Segment, log: SegmentLog, events: SinkEvents) -> OpenedSink:
        """Prepare the storage of a segment whose log is empty."""
