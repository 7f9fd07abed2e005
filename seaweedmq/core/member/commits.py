"""The queue of positions to commit: coalesced, one commit in flight at a time, kept across reconnects."""

from seaweedmq.model.messages.groups import GroupCommit, GroupCommitted, Position


class CommitQueue:
    """The positions to commit, those in flight, and those that the coordinator accepted.

    Invariants: each segment is known in one generation, and its offsets never fall within it.
    """

    def __init__(self) -> None:
        self._wanted: dict[int, Position] = {}
        self._under_way: dict[int, Position] = {}
        self._kept: dict[int, Position] = {}
        self._number = 0

    @property
    def is_empty(self) -> bool:
        """Whether every position was answered."""
        return not self._wanted and not self._under_way

    @property
    def is_under_way(self) -> bool:
        """Whether a commit is in flight."""
        return bool(self._under_way)

    def want(self, position: Position) -> None:
        """Add a position to the next commit, unless it is already known."""
        segment = position.segment
        known = self._wanted.get(segment) or self._under_way.get(segment) or self._kept.get(segment)
        if known is not None and known.generation == position.generation:
            assert known.offset <= position.offset, f"{position} is behind {known}"
            if known == position:
                return
        self._wanted[segment] = position

    def next(self) -> GroupCommit | None:
        """Return the commit to send now; None while an answer is pending, or if there is nothing to commit."""
        if self._under_way or not self._wanted:
            return None
        self._number += 1
        self._under_way, self._wanted = self._wanted, {}
        return GroupCommit(self._number, tuple(self._under_way.values()))

    def answered(self, reply: GroupCommitted) -> None:
        """Process the coordinator's answer. Rejected positions are dropped."""
        if reply.number != self._number:
            return
        self._kept |= {s: p for s, p in self._under_way.items() if s not in reply.refused}
        self._under_way = {}

    def lost(self) -> None:
        """Queue unanswered positions again: the stream is lost, and the next one numbers its commits from 1 again."""
        self._wanted = self._under_way | self._wanted
        self._under_way = {}
        self._number = 0

    def is_pending(self, segment: int) -> bool:
        """Whether a position of the segment is unanswered."""
        return segment in self._wanted or segment in self._under_way

    def forget(self, segment: int) -> None:
        """Drop a segment that is no longer held."""
        for positions in (self._wanted, self._under_way, self._kept):
            positions.pop(segment, None)
