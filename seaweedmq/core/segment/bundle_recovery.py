"""Recovery of all segments of one broker from its bundles, and the leftovers that become log objects.

One fence and one index serve all segments of a broker. The entry below the fence names the last full checkpoint; with
the checkpoints after it and the bundles after the last of those, at most 127 entries have the place of every frame,
the end of each segment, and what each producer stored. No payload is read.

A needed entry can be absent for two reasons. Its writer deleted it below a floor that was declared after the search for
the fence: a new search shows that floor. Or another broker has written all leftovers as log objects and deletes the
entries: then a new search shows the same floor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from seaweedmq.core.segment.bundle_fence import FenceFound
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.errors import Corrupt
from seaweedmq.model.bundle import BundleRun, EntryIndex, SegmentTail
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState, ReplicaKey

LEFTOVER_BYTES_MAX: Final = 16 * MIB
"""Bytes of frames in a log object of leftovers; one run may be longer."""


class LocatedRun(NamedTuple):
    """A run, and the bundle that holds it or refers to it."""

    number: int
    run: BundleRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """One segment as a dead broker left it in its bundles and log objects."""

    key: ReplicaKey
    end_offset: int
    producers: tuple[ProducerState, ...]
    """Producer states at the end, the longest idle first."""
    runs: tuple[LocatedRun, ...]
    """Runs in bundles from the floor on and references, by offset. Missing offsets are in log objects or, if the broker
    was a follower, in bundles of the primary."""


@dataclass(frozen=True, slots=True)
class ReadIndexes:
    """An action: read header and index of these entries side by side, then call ``Recovery.read``."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SearchAgain:
    """An action: search for the fence again, then call ``Recovery.begin``: an entry was deleted."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result: the segments of the broker."""

    segments: Mapping[ReplicaKey, RecoveredSegment]


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """The result: all frames are in log objects."""


RecoveryAction: TypeAlias = ReadIndexes | SearchAgain | Recovered | WrittenOut


class Recovery:
    """The reading of one dead broker's entries, one action at a time."""

    def __init__(self) -> None:
        self._fence = FenceFound(0, 0, has_bundles=False)
        self._entries: dict[int, EntryIndex] = {}
        self._absent: int | None = None
        """An entry that was absent before the last search."""

    def begin(self, fence: FenceFound) -> RecoveryAction:
        """Begin with a fence that a search has just found."""
        self._fence = fence
        self._entries = {}
        if fence.number == 0:
            return Recovered({})
        if not fence.has_bundles or (self._absent is not None and self._absent >= fence.floor):
            return WrittenOut()
        return ReadIndexes((fence.number - 1,))

    def read(self, entries: Mapping[int, EntryIndex | None]) -> RecoveryAction:
        """Record the requested entries; None for each that is absent."""
        for number, entry in entries.items():
            # A late request of a leader may have put a fence where a bundle was written out and deleted.
            if entry is None or entry.header.is_fence:
                self._absent = number
                return SearchAgain()
            self._entries[number] = entry
        last = self._fence.number - 1
        header = self._entries[last].header
        missing = [
            number
            for number in needed_entries(header.checkpoint, self._fence.number, header.checkpoint_every)
            if number not in self._entries
        ]
        if missing:
            return ReadIndexes(tuple(missing))
        return Recovered(recovered_segments([self._entries[n] for n in sorted(self._entries)], self._fence.floor))


def needed_entries(full_checkpoint: int, fence: int, checkpoint_every: int) -> list[int]:
    """Return the numbers of the entries that describe the sequence from a full checkpoint to the fence."""
    checkpoints = [n for n in range(full_checkpoint, fence) if n == full_checkpoint or n % checkpoint_every == 0]
    return [*checkpoints, *range(checkpoints[-1] + 1, fence)]


@dataclass(slots=True)
class _Found:
    """The part of one segment that was found so far."""

    end: int
    states: dict[int, ProducerState] = field(default_factory=dict)
    """Producer states of the last checkpoint, the longest idle first."""
    later: list[tuple[BundleRun, int]] = field(default_factory=list)
    """Runs after that checkpoint, with the offset from which on their frames count."""
    runs: dict[int, LocatedRun] = field(default_factory=dict)
    """Runs by base offset."""

    def set_tail(self, tail: SegmentTail) -> None:
        """Take the end and the producers as of an entry, which cover all frames that were found before."""
        for state in tail.producers:
            self.states.pop(state.producer_id, None)
            self.states[state.producer_id] = state
        self.later.clear()
        self.end = tail.end_offset

    def add(self, number: int, run: BundleRun) -> None:
        """Take a run of the entry itself, which its tail covers if it has one."""
        self.runs[run.base_offset] = LocatedRun(number, run)
        if run.base_offset > self.end:
            raise Corrupt(
                f"bundle {number}: its run of {run.key} begins at offset {run.base_offset}, but the segment ends at "
                f"{self.end} in the bundles below; restore the missing bundle"
            )
        if run.end_offset > self.end:
            self.later.append((run, self.end))
            self.end = run.end_offset

    def producers(self) -> tuple[ProducerState, ...]:
        """Return the states at the end."""
        table = ProducerTable(states=self.states.values())
        for run, start in self.later:
            offset = run.base_offset
            for frame in run.frames:
                if offset >= start:
                    ack = FrameAck(frame.first_sequence, frame.record_count, offset)
                    table.follow(frame.producer_id, frame.producer_epoch, ack)
                offset += frame.record_count
        return table.snapshot()


def recovered_segments(entries: Sequence[EntryIndex], floor: int) -> dict[ReplicaKey, RecoveredSegment]:
    """Return the segments of a broker as of the last of its entries.

    Args:
        entries: Those that :func:`needed_entries` names, in ascending order.
        floor: Floor of the highest bundle: the log objects have what bundles below it had.

    Raises:
        Corrupt: If a segment has a gap, which is impossible unless entries were changed or deleted by others.
    """
    found: dict[ReplicaKey, _Found] = {}
    for entry in entries:
        for section in entry.sections[1:]:
            for run in section.runs:
                each = found.setdefault(run.key, _Found(run.base_offset))
                each.runs[run.base_offset] = LocatedRun(section.number, run)
        for tail in entry.tails:
            found.setdefault(tail.key, _Found(tail.end_offset)).set_tail(tail)
        for run in entry.runs:
            found.setdefault(run.key, _Found(run.base_offset)).add(entry.header.number, run)
    return {
        key: RecoveredSegment(
            key=key,
            end_offset=each.end,
            producers=each.producers(),
            runs=tuple(
                located
                for _, located in sorted(each.runs.items())
                if located.run.is_reference or located.number >= floor
            ),
        )
        for key, each in found.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverLog:
    """An action: read these runs and create one log object of them, then call ``Leftovers.written``."""

    key: ReplicaKey
    runs: tuple[LocatedRun, ...]
    """Contiguous runs in bundles."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.runs[0].run.base_offset

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.runs[-1].run.end_offset


@dataclass(frozen=True, slots=True)
class DeleteEntries:
    """An action: delete all entries of the broker but its fences, then call ``Leftovers.deleted``."""


@dataclass(frozen=True, slots=True)
class LeftoversDone:
    """The result: log objects have all frames of the broker, and only fences are left of its sequence."""


LeftoverAction: TypeAlias = LeftoverLog | DeleteEntries | LeftoversDone


class Leftovers:
    """The work of one living broker on what a dead one left in its bundles.

    Entries are deleted only after all log objects exist: until then readers of the segments use the bundles.
    """

    def __init__(
        self, segments: Iterable[RecoveredSegment], readable: Mapping[ReplicaKey, int], ends: Mapping[ReplicaKey, int]
    ) -> None:
        """Create the work.

        Args:
            segments: The recovered segments.
            readable: End of the log objects of each segment, as their names say; a segment without any is absent.
            ends: End of each segment as it was sealed; a segment that no longer exists is absent.
        """
        self._logs = [
            log
            for segment in segments
            if segment.key in ends
            for log in leftover_logs(segment, readable.get(segment.key, 0), ends[segment.key])
        ]
        self._unwritten = {(log.key, log.base_offset) for log in self._logs}

    def begin(self) -> Sequence[LeftoverAction]:
        """Return the first actions."""
        return self._logs or (DeleteEntries(),)

    def written(self, log: LeftoverLog) -> Sequence[LeftoverAction]:
        """Record that a log object exists."""
        self._unwritten.discard((log.key, log.base_offset))
        return () if self._unwritten else (DeleteEntries(),)

    def deleted(self) -> Sequence[LeftoverAction]:
        """Record that the entries are deleted."""
        return (LeftoversDone(),)


def leftover_logs(segment: RecoveredSegment, readable: int, end_offset: int) -> list[LeftoverLog]:
    """Return the log objects to make of a segment's runs that reach above ``readable`` and begin below its end."""
    logs: list[LeftoverLog] = []
    taken: list[LocatedRun] = []
    size = 0
    for located in segment.runs:
        run = located.run
        if run.is_reference or run.end_offset <= readable or run.base_offset >= end_offset:
            continue
        if taken and (size + run.length > LEFTOVER_BYTES_MAX or taken[-1].run.end_offset != run.base_offset):
            logs.append(LeftoverLog(key=segment.key, runs=tuple(taken)))
            taken, size = [], 0
        taken.append(located)
        size += run.length
    if taken:
        logs.append(LeftoverLog(key=segment.key, runs=tuple(taken)))
    return logs
