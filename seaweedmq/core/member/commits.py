"""Positions on their way to the coordinator: coalesced, one commit under way at a time, kept through reconnects."""

from seaweedmq.model.groups import GroupCommit, GroupCommitted, Position


class CommitQueue:
    """What is to be committed, what is under way, and what is kept.

    Invariants: of a segment, only one generation is known, and within it offsets never fall.
    """

    def __init__(self) -> None:
        self._wanted: dict[int, Position] = {}
        self._under_way: dict[int, Position] = {}
        self._kept: dict[int, Position] = {}
        self._number = 0

    @property
    def is_empty(self) -> bool:
        """Everything wanted was answered."""
        return not self._wanted and not self._under_way

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    def want(self, position: Position) -> None:
        """Commit this with the next commit, unless it is known already."""
        segment = position.segment
        known = self._wanted.get(segment) or self._under_way.get(segment) or self._kept.get(segment)
        if known is not None and known.generation == position.generation:
            if known.offset > position.offset:
                raise AssertionError(f"{position} is behind {known}")
            if known == position:
                return
        self._wanted[segment] = position

    def next(self) -> GroupCommit | None:
        """What to send now; None while an answer is awaited, or there is nothing."""
        if self._under_way or not self._wanted:
            return None
        self._number += 1
        self._under_way, self._wanted = self._wanted, {}
        return GroupCommit(self._number, tuple(self._under_way.values()))

    def answered(self, reply: GroupCommitted) -> None:
        """The coordinator's answer; what it refused is forgotten."""
        if reply.number != self._number:
            return
        self._kept |= {s: p for s, p in self._under_way.items() if s not in reply.refused}
        self._under_way = {}

    def lost(self) -> None:
        """The stream is gone: what was not answered is sent again, on a stream that counts anew."""
        self._wanted = self._under_way | self._wanted
        self._under_way = {}
        self._number = 0

    def is_pending(self, segment: int) -> bool:
        """Whether a position of the segment was not answered yet."""
        return segment in self._wanted or segment in self._under_way

    def forget(self, segment: int) -> None:
        """The segment is not held any more."""
        for positions in (self._wanted, self._under_way, self._kept):
            positions.pop(segment, None)
