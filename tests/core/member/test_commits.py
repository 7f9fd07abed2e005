"""Positions on their way to the coordinator."""

import pytest

from seaweedmq.core.member.commits import CommitQueue
from seaweedmq.model.messages.groups import GroupCommit, GroupCommitted, Position


def at(offset: int, segment: int = 0, generation: int = 1) -> Position:
    return Position(segment=segment, generation=generation, offset=offset, deliveries={})


def test_positions_are_coalesced_while_a_commit_is_under_way_and_sent_again_unless_refused() -> None:
    queue = CommitQueue()
    queue.want(at(1))
    assert queue.next() == GroupCommit(1, (at(1),))
    queue.want(at(2))
    queue.want(at(3))
    queue.want(at(9, segment=5))
    assert queue.next() is None
    queue.answered(GroupCommitted(1, {}))
    assert queue.next() == GroupCommit(2, (at(3), at(9, segment=5)))
    queue.answered(GroupCommitted(2, {}))
    assert queue.is_empty
    queue.want(at(3))
    assert queue.is_empty
    queue = CommitQueue()
    queue.want(at(1))
    queue.want(at(7, segment=5))
    queue.next()
    queue.want(at(2))
    queue.lost()
    queue.answered(GroupCommitted(1, {}))
    assert queue.next() == GroupCommit(1, (at(2), at(7, segment=5)))
    queue = CommitQueue()
    queue.want(at(1))
    queue.want(at(7, segment=5))
    queue.next()
    queue.answered(GroupCommitted(1, {5: "not yours"}))
    assert queue.is_empty
    queue.want(at(7, segment=5))
    assert queue.is_pending(5)
    assert not queue.is_pending(0)


def test_offsets_never_fall_within_a_generation() -> None:
    queue = CommitQueue()
    queue.want(at(5))
    with pytest.raises(AssertionError):
        queue.want(at(4))
    queue.want(at(4, generation=2))
    queue.forget(0)
    assert queue.is_empty
