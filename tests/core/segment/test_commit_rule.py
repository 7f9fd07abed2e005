"""The commit rule: records that become visible, with and without the lease. Transcripts: ``test_segment_lifecycle``."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.segment.commit_rule import (
    CheckFence,
    RaiseHighWatermark,
    ReportLeaseDoubt,
    RequestFsync,
    RetrySoon,
    commit_rule,
)


@dataclass(frozen=True)
class At:
    """Ends of a log, for a topic that requires written or flushed records."""

    committed: int
    flushed: int
    written: int
    stored: bool = False

    @property
    def committable(self) -> int:
        return self.flushed if self.stored else self.written


def rule(
    at: At, *, lease: bool = False, stuck: bool = False, lost: bool = False, is_checking: bool = False
) -> list[object]:
    return list(commit_rule(at, lease_alive=lease, stuck=stuck, follower_lost=lost, is_checking=is_checking))


def test_with_the_lease_what_the_durability_asks_for_is_committed() -> None:
    assert rule(At(10, 20, 30), lease=True) == [RaiseHighWatermark(30)]
    assert rule(At(10, 20, 30, stored=True), lease=True) == [RaiseHighWatermark(20)]
    assert rule(At(30, 20, 30), lease=True) == []


def test_with_a_follower_lost_it_comes_again_to_see_the_lease_end() -> None:
    assert rule(At(10, 30, 30), lease=True, stuck=True, lost=True) == [RaiseHighWatermark(30), RetrySoon()]
    assert rule(At(30, 30, 30), stuck=True, lost=True) == [ReportLeaseDoubt(), RetrySoon()]


def test_without_the_lease_and_without_followers_it_waits() -> None:
    assert rule(At(10, 30, 30), stuck=True) == [ReportLeaseDoubt(), RetrySoon()]
    assert rule(At(30, 30, 30), stuck=True) == []


def test_without_the_lease_it_has_fsynced_first_whatever_the_durability() -> None:
    assert rule(At(10, 10, 30)) == [RequestFsync(), RetrySoon()]


def test_then_it_looks_for_the_fence_once() -> None:
    assert rule(At(10, 20, 30)) == [CheckFence(20), RetrySoon()]
    assert rule(At(10, 20, 30), is_checking=True) == [RetrySoon()]


@pytest.mark.parametrize("lease", [True, False])
@given(
    sizes=st.tuples(*[st.integers(0, 50)] * 3),
    stored=st.booleans(),
    stuck=st.booleans(),
    lost=st.booleans(),
    is_checking=st.booleans(),
)
def test_whatever_the_standing(
    lease: bool, sizes: tuple[int, int, int], stored: bool, stuck: bool, lost: bool, is_checking: bool
) -> None:
    flushed, written = sizes[0], sizes[0] + sizes[1]
    at = At(min(sizes[2], flushed if stored else written), flushed, written, stored)
    actions = rule(at, lease=lease, stuck=stuck, lost=lost, is_checking=is_checking)
    for action in actions:
        match action:
            case RaiseHighWatermark(offset):
                assert lease
                assert at.committed < offset <= at.committable
            case CheckFence(flushed=target):
                assert not lease, "no fence check is needed while the lease is valid"
                assert not stuck, "the result of the check would not matter"
                assert not is_checking, "one fence check at a time"
                assert at.committed < target <= at.flushed
    behind = at.committable > at.committed
    assert not behind or is_checking or actions, "a durable record waits for no further event"
