"""The cutter: when a broker puts its next bundle into an object store, and which frames are in it.

A PUT costs the same for one frame or for thousands, so all segments of a broker share bundles. Frames that wait for an
acknowledgement (``stored``) are cut as soon as the previous cut is ``interval_s`` ago; others wait ``patience_s``. A
segment that has ``direct_bytes`` pending gets log objects first, and a bundle refers to them: its bytes are written
once. Later frames of that segment wait for the reference, so that the bundles have each segment in order.

``bundle_puts`` decides when a bundle is done, ``bundle_ledger`` when it may be deleted, ``bundle_fence`` ends the
sequence of a broker, and ``bundle_recovery`` reads it. None of them relies on a clock, on the order of a listing or on
a rename: create-if-absent and read-after-write are enough. The proof in short: a writer never gets the number of a
valid fence, and acknowledges a bundle when all lower numbers are done. So it acknowledges nothing from the fence on,
and a reader that reads after the fence sees everything below.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from seaweedmq.model.bundle import BundledFrame, BundleRun
from seaweedmq.model.config import MIB
from seaweedmq.model.segment import ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Limits of the cutter."""

    interval_s: float = 0.1
    """Shortest time between two cuts, unless ``bundle_bytes`` are pending."""
    patience_s: float = 1.0
    """Longest time that a frame waits of which no acknowledgement waits for the object store."""
    bundle_bytes: int = 8 * MIB
    """Bytes of frames in a bundle; one frame may be longer."""
    bundles_max: int = 4
    """Bundles that are being put at a time."""
    direct_bytes: int = 4 * MIB
    """Pending bytes from which on a segment gets log objects."""
    log_bytes: int = 8 * MIB
    """Bytes of frames in a log object of the direct path."""
    logs_max: int = 4
    """Log objects that are being created at a time."""


DEFAULT_LIMITS: Final = BundleLimits()


class PendingFrame(NamedTuple):
    """A frame to be bundled. The caller has its bytes in the segment's log."""

    base_offset: int
    size_bytes: int
    frame: BundledFrame

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.frame.record_count


@dataclass(frozen=True, slots=True)
class WriteLog:
    """An action: create the log object of this run, then call ``BundleCutter.log_written``."""

    run: BundleRun


@dataclass(frozen=True, slots=True)
class PutBundle:
    """An action: put the bundle of this number, then call ``BundleCutter.put_done``."""

    number: int
    runs: tuple[BundleRun, ...]
    """Runs of frames, without positions."""
    references: tuple[BundleRun, ...]
    """Runs that are in log objects; the bundle lists them before its other runs."""


CutAction: TypeAlias = WriteLog | PutBundle


class _Queue:
    """Pending frames of one segment, behind the log objects that are being created of it."""

    __slots__ = ("frames", "is_stored", "logs", "since", "size_bytes", "written")

    def __init__(self, now: float) -> None:
        self.frames: deque[PendingFrame] = deque()
        self.size_bytes = 0
        self.logs: deque[BundleRun] = deque()
        self.written: set[int] = set()
        """Base offsets of the log objects that exist and that no bundle refers to yet."""
        self.is_stored = False
        self.since = now

    def __bool__(self) -> bool:
        return bool(self.frames or self.logs)

    def take(self, bytes_max: int) -> list[PendingFrame]:
        """Remove the next frames, at least one, up to ``bytes_max``."""
        taken: list[PendingFrame] = []
        size = 0
        while self.frames and (not taken or size + self.frames[0].size_bytes <= bytes_max):
            taken.append(self.frames.popleft())
            size += taken[-1].size_bytes
        self.size_bytes -= size
        return taken


class BundleCutter:
    """The pending frames of all segments of one broker. Times are seconds of one clock that never steps back."""

    def __init__(self, limits: BundleLimits = DEFAULT_LIMITS, *, next_number: int = 1) -> None:
        self._limits = limits
        self.next_number = next_number
        """Number of the next bundle; 0 was put before the broker registered."""
        self.pending_bytes = 0
        """Bytes of frames that neither a bundle nor a log object has taken."""
        self.under_way = 0
        """Bundles that are being put."""
        self._queues: dict[ReplicaKey, _Queue] = {}
        self._logs_under_way = 0
        self._cut_s = float("-inf")
        self._stored_s: float | None = None
        """Time since when frames can be cut for which acknowledgements wait; None: there are none."""
        self._ready_s: float | None = None
        """Time since when any frames can be cut; None: there are none."""
        self._ready_bytes = 0
        """Bytes of the frames that can be cut: those that wait behind a log object cannot."""
        self._in_haste = False

    def add(self, key: ReplicaKey, frame: PendingFrame, now: float, *, is_stored: bool) -> None:
        """Take a frame of a segment, which continues the frames before it."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(now)
        last = queue.frames[-1] if queue.frames else queue.logs[-1] if queue.logs else None
        assert last is None or last.end_offset == frame.base_offset, f"{key}: {frame} does not continue {last}"
        was_ready = self._is_ready(queue)
        queue.frames.append(frame)
        queue.size_bytes += frame.size_bytes
        queue.is_stored |= is_stored
        self.pending_bytes += frame.size_bytes
        if self._is_ready(queue):
            self._note_ready(queue, now, frame.size_bytes if was_ready else queue.size_bytes)

    def hurry(self) -> None:
        """Cut what is pending at once: the lease may end soon, or the broker leaves."""
        self._in_haste = True

    def drop(self, key: ReplicaKey) -> None:
        """Forget what is pending of a segment that is no longer served."""
        queue = self._queues.pop(key, None)
        if queue is not None:
            self.pending_bytes -= queue.size_bytes
            self._reconsider()

    def due_s(self) -> float | None:
        """Return the time from which on :meth:`cut` returns actions; None until another event."""
        if self._ready_s is None or self.under_way >= self._limits.bundles_max:
            return None
        if self._in_haste or self._ready_bytes >= self._limits.bundle_bytes:
            return self._ready_s
        next_cut_s = self._cut_s + self._limits.interval_s
        if self._stored_s is not None:
            return max(self._stored_s, next_cut_s)
        return max(self._ready_s + self._limits.patience_s, next_cut_s)

    def cut(self, now: float) -> list[CutAction]:
        """Return the log objects to create and the bundle to put, if they are due."""
        due_s = self.due_s()
        if due_s is None or now < due_s:
            return []
        actions: list[CutAction] = list(self._direct())
        runs, references = self._bundle()
        if runs or references:
            actions.append(PutBundle(self.next_number, tuple(runs), tuple(references)))
            self.next_number += 1
            self.under_way += 1
        self._cut_s = now
        self._reconsider()
        return actions

    def log_written(self, run: BundleRun) -> None:
        """Record that a log object exists, so that the next bundle refers to it."""
        self._logs_under_way -= 1
        queue = self._queues.get(run.key)
        if queue is not None:
            queue.written.add(run.base_offset)
        self._reconsider()

    def put_done(self) -> None:
        """Record that a bundle is done."""
        self.under_way -= 1

    def _direct(self) -> Iterator[WriteLog]:
        limits = self._limits
        for key, queue in self._queues.items():
            while queue.size_bytes >= limits.direct_bytes and self._logs_under_way < limits.logs_max:
                run = _run_of(key, queue.take(limits.log_bytes))
                self.pending_bytes -= run.length
                self._logs_under_way += 1
                queue.logs.append(run)
                yield WriteLog(run)

    def _bundle(self) -> tuple[list[BundleRun], list[BundleRun]]:
        """Take the runs and references of the next bundle, the longest waiting segment first."""
        runs: list[BundleRun] = []
        references: list[BundleRun] = []
        room = self._limits.bundle_bytes
        for key, queue in self._queues.items():
            while queue.logs and queue.logs[0].base_offset in queue.written:
                references.append(queue.logs.popleft())
                queue.written.discard(references[-1].base_offset)
            if queue.logs or not 0 < queue.size_bytes < self._limits.direct_bytes:
                continue
            if queue.frames[0].size_bytes > room and runs:
                break
            runs.append(_run_of(key, queue.take(room)))
            room -= runs[-1].length
            self.pending_bytes -= runs[-1].length
        return runs, references

    def _is_ready(self, queue: _Queue) -> bool:
        if queue.size_bytes >= self._limits.direct_bytes:
            return self._logs_under_way < self._limits.logs_max or self._has_reference(queue)
        return self._has_reference(queue) or (not queue.logs and queue.size_bytes > 0)

    @staticmethod
    def _has_reference(queue: _Queue) -> bool:
        return bool(queue.logs) and queue.logs[0].base_offset in queue.written

    def _note_ready(self, queue: _Queue, now: float, size_bytes: int) -> None:
        self._ready_bytes += size_bytes
        if self._ready_s is None:
            self._ready_s = now
        if queue.is_stored and self._stored_s is None:
            self._stored_s = now

    def _reconsider(self) -> None:
        """Note what can be cut after frames were taken or dropped, or a log object was created."""
        self._ready_s = self._stored_s = None
        self._ready_bytes = 0
        self._queues = {key: queue for key, queue in self._queues.items() if queue}
        for queue in self._queues.values():
            if self._is_ready(queue):
                self._note_ready(queue, queue.since, queue.size_bytes)
        self._in_haste &= bool(self._queues)


def _run_of(key: ReplicaKey, frames: list[PendingFrame]) -> BundleRun:
    return BundleRun(
        topic_uid=key.topic_uid,
        segment=key.segment,
        base_offset=frames[0].base_offset,
        end_offset=frames[-1].end_offset,
        length=sum(frame.size_bytes for frame in frames),
        frames=tuple(frame.frame for frame in frames),
    )
