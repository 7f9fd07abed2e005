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


@pytest.mark.parametrize(
    ("at", "how", "actions"),
    [
        # with the lease: what the durability requires is committed
        (At(10, 20, 30), {"lease": True}, [RaiseHighWatermark(30)]),
        (At(10, 20, 30, stored=True), {"lease": True}, [RaiseHighWatermark(20)]),
        (At(30, 20, 30), {"lease": True}, []),
        # a lost follower: it comes again to see the lease end
        (At(10, 30, 30), {"lease": True, "stuck": True, "lost": True}, [RaiseHighWatermark(30), RetrySoon()]),
        (At(30, 30, 30), {"stuck": True, "lost": True}, [ReportLeaseDoubt(), RetrySoon()]),
        # without the lease and without followers it waits
        (At(10, 30, 30), {"stuck": True}, [ReportLeaseDoubt(), RetrySoon()]),
        (At(30, 30, 30), {"stuck": True}, []),
        # without the lease: first an fsync for any durability, then one fence check
        (At(10, 10, 30), {}, [RequestFsync(), RetrySoon()]),
        (At(10, 20, 30), {}, [CheckFence(20), RetrySoon()]),
        (At(10, 20, 30), {"is_checking": True}, [RetrySoon()]),
    ],
)
def test_the_rule(at: At, how: dict[str, bool], actions: list[object]) -> None:
    assert rule(at, **how) == actions


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
