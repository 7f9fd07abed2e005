"""A follower's copy of a segment: it follows one epoch, drops flushed records, and takes nothing once fenced."""

import pytest

from seaweedmq.core.segment.replica import Replica
from seaweedmq.core.segment.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry
from seaweedmq.errors import Deposed, Fenced, InvalidArgument, ProtocolViolation


def follower(start: int = 100) -> Replica:
    return Replica(name="shop/orders#3", start_offset=start, epoch=5)


def entry(base: int, count: int) -> LogEntry:
    return LogEntry(base, base + count, 1, b"h" * 10, b"p" * count)


def append(replica: Replica, base: int, count: int, *, epoch: int = 5, sequence: int | None = None) -> None:
    replica.append(epoch, 7, 0, base - 100 if sequence is None else sequence, entry(base, count), now=0.0)


def test_it_holds_what_comes_and_forgets_what_is_flushed() -> None:
    replica = follower()
    append(replica, 100, 10)
    append(replica, 110, 20)
    assert (replica.end, replica.held_bytes) == (130, 50 + 2 * ENTRY_OVERHEAD_BYTES)
    assert replica.on_progress(5, committed=130, flushed=110) == 20 + ENTRY_OVERHEAD_BYTES
    assert [e.base_offset for e in replica.unflushed()] == [110]
    assert replica.held_bytes == 30 + ENTRY_OVERHEAD_BYTES
    assert replica.release_all() == 30 + ENTRY_OVERHEAD_BYTES


def test_a_fenced_replica_takes_nothing_of_the_old_epoch_and_keeps_what_it_has() -> None:
    replica = follower()
    append(replica, 100, 10)
    assert replica.fence(6) == 110
    with pytest.raises(Fenced, match="epoch 5 is fenced by epoch 6"):
        append(replica, 110, 1)
    with pytest.raises(Fenced):
        replica.on_progress(5, committed=110, flushed=110)
    assert replica.fence(6) == 110, "the leader, or its successor, may repeat the fence"
    assert [e.base_offset for e in replica.unflushed()] == [100]


def test_an_older_leader_can_not_fence_what_a_newer_one_has() -> None:
    replica = follower()
    replica.fence(8)
    with pytest.raises(Deposed, match="epoch 8 is newer"):
        replica.fence(7)


def test_fencing_with_the_epoch_that_is_followed_is_a_mistake_and_changes_nothing() -> None:
    replica = follower()
    with pytest.raises(InvalidArgument, match="above 5"):
        replica.fence(5)
    append(replica, 100, 1)


@pytest.mark.parametrize("base", [99, 101, 120])
def test_a_frame_that_does_not_begin_at_the_end_is_refused(base: int) -> None:
    replica = follower()
    with pytest.raises(ProtocolViolation, match="the log ends at 100"):
        append(replica, base, 5, sequence=0)
    assert replica.end == 100


@pytest.mark.parametrize(("committed", "flushed"), [(111, 100), (110, 111), (99, 100), (110, 99)])
def test_progress_that_can_not_be_is_refused(committed: int, flushed: int) -> None:
    replica = follower()
    append(replica, 100, 10)
    with pytest.raises(ProtocolViolation, match="broke the protocol"):
        replica.on_progress(5, committed, flushed)
    assert (replica.committed, replica.flushed) == (100, 100)


def test_the_producers_of_a_file_that_begins_at_an_offset_leave_out_what_comes_after() -> None:
    replica = follower()
    append(replica, 100, 10)
    append(replica, 110, 20)
    [state] = replica.producers_below(110)
    assert (state.next_sequence, len(state.recent)) == (10, 1)
    [state] = replica.producers_below(replica.end)
    assert state.next_sequence == 30


def test_a_dropped_replica_takes_nothing_more() -> None:
    """A stream that remains would fill memory that is never freed."""
    replica = follower()
    append(replica, 100, 10)
    replica.release_all()
    with pytest.raises(Fenced):
        append(replica, 110, 1)
    assert replica.held_bytes == 0
