"""Ends and producers of segments as the bundles of one broker have them, for the tails of the next bundle."""

from collections.abc import Mapping, Sequence

from seaweedmq.broker.bundles.source import BundleSource
from seaweedmq.model.bundle import BundleRun, EntryKind, SegmentTail
from seaweedmq.model.segment import ReplicaKey


class Tails:
    """The segments of one sequence, from their first bundle until their log objects have all frames."""

    def __init__(self) -> None:
        self._ends: dict[ReplicaKey, int] = {}
        self._changed: dict[ReplicaKey, set[int] | None] = {}
        """Producers of each segment since the previous checkpoint; None: all of them, since it has no tail yet."""

    def end_of(self, key: ReplicaKey) -> int:
        """Return the end of a segment as of the last bundle; 0 if no bundle has it."""
        return self._ends.get(key, 0)

    def forget(self, key: ReplicaKey) -> None:
        """Leave out a segment of which no bundle is needed."""
        self._ends.pop(key, None)
        self._changed.pop(key, None)

    def cut(
        self,
        kind: EntryKind,
        runs: Sequence[BundleRun],
        ends: Mapping[ReplicaKey, int],
        sources: Mapping[ReplicaKey, BundleSource],
    ) -> tuple[SegmentTail, ...]:
        """Record the runs of the next bundle and return its tails.

        Args:
            kind: Kind of the bundle.
            runs: Its runs, in the order of each segment's offsets.
            ends: End of each segment that gets a tail, by ``BundleLedger.tail_ends``.
            sources: All segments of the sequence.
        """
        for run in runs:
            changed = self._changed.setdefault(run.key, set())
            if self._ends.get(run.key) != run.base_offset:
                self._changed[run.key] = None
            elif changed is not None:
                changed.update(frame.producer_id for frame in run.frames)
            self._ends[run.key] = run.end_offset
        tails = tuple(self._tail(kind, key, end, sources[key]) for key, end in ends.items())
        if kind.is_checkpoint:
            self._changed.clear()
        return tails

    def _tail(self, kind: EntryKind, key: ReplicaKey, end: int, source: BundleSource) -> SegmentTail:
        states = tuple(source.producers_below(end))
        changed = self._changed.get(key)
        if kind is EntryKind.CHECKPOINT and changed is not None:
            states = tuple(state for state in states if state.producer_id in changed)
        return SegmentTail(topic_uid=key.topic_uid, segment=key.segment, end_offset=end, producers=states)
