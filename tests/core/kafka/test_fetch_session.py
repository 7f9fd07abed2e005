"""Fetch sessions: the state that both sides share, and the partitions that replies name."""

from collections.abc import Iterable

import pytest

from seaweedmq.core.kafka.fetch_session import (
    EPOCH_MAX,
    UNUSED_S,
    Exchange,
    FetchSessions,
    PartitionKey,
    RequestedPartition,
    SentPartition,
    SessionProblem,
    SessionRejected,
    epoch_after,
)

A, B, C = ("orders", 0), ("orders", 1), ("bills", 0)
NOTHING_NEW = SentPartition(high_watermark=10, log_start=0)


def sessions(limit: int = 10, partitions_max: int = 100) -> FetchSessions:
    numbers = iter(range(100, 200))
    return FetchSessions(lambda: next(numbers), limit, partitions_max)


def wants(*keys: PartitionKey, offset: int = 0) -> dict[PartitionKey, RequestedPartition]:
    return {key: RequestedPartition(offset, 1_000, -1) for key in keys}


def named(
    exchange: Exchange, told: SentPartition = NOTHING_NEW, *, with_records: Iterable[PartitionKey] = ()
) -> list[PartitionKey]:
    """Return the partitions that a reply names."""
    return [
        key
        for key in list(exchange.partitions)
        if exchange.settle(key, told, has_records=key in with_records, has_error=False)
    ]


def rejected(mine: FetchSessions, session_id: int, epoch: int, *keys: PartitionKey) -> SessionProblem:
    with pytest.raises(SessionRejected) as refused:
        mine.begin(session_id, epoch, wants(*keys), (), 1.0)
    return refused.value.problem


def test_without_a_session_all_is_named_each_time() -> None:
    all_of_them = sessions()
    for _ in range(2):
        exchange = all_of_them.begin(0, -1, wants(A, B), (), 0.0)
        assert (exchange.session_id, named(exchange)) == (0, [A, B])
    assert len(all_of_them) == 0


def test_a_session_names_what_changed_and_serves_last_who_got_records() -> None:
    mine = sessions()
    first = mine.begin(0, 0, wants(A, B), (), 0.0)
    assert (first.session_id, named(first)) == (100, [A, B])
    assert named(mine.begin(100, 1, {}, (), 1.0)) == []
    assert named(mine.begin(100, 2, {}, (), 2.0), SentPartition(11, 0)) == [A, B]
    assert named(mine.begin(100, 3, {}, (), 3.0), SentPartition(11, 5)) == [A, B]
    assert named(mine.begin(100, 4, {}, (), 4.0), SentPartition(11, 5), with_records=[B]) == [B]
    mine = sessions()
    named(mine.begin(0, 0, wants(A, B, C), (), 0.0), with_records=[A])
    assert list(mine.begin(100, 1, {}, (), 1.0).partitions) == [B, C, A]


def test_partitions_come_change_and_go_and_errors_are_said() -> None:
    mine = sessions()
    named(mine.begin(0, 0, wants(A), (), 0.0))
    exchange = mine.begin(100, 1, {}, (), 1.0)
    assert exchange.settle(A, NOTHING_NEW, has_records=False, has_error=True)
    assert named(mine.begin(100, 2, {}, (), 2.0)) == [A]
    assert named(mine.begin(100, 3, {}, (), 3.0)) == []
    mine = sessions()
    named(mine.begin(0, 0, wants(A), (), 0.0))
    exchange = mine.begin(100, 1, wants(A, B, offset=7), (), 1.0)
    assert {key: want.offset for key, want in exchange.partitions.items()} == {A: 7, B: 7}
    assert named(exchange) == [B]
    exchange = mine.begin(100, 2, {}, [A], 2.0)
    assert list(exchange.partitions) == [B]
    assert named(mine.begin(100, 3, wants(A), (), 3.0)) == [A], "a forgotten partition is new again"


def test_a_request_that_is_not_the_next_one_or_names_otherwise_is_refused() -> None:
    mine = sessions()
    mine.begin(0, 0, wants(A), (), 0.0)
    assert [rejected(mine, 100, epoch) for epoch in (2, 0x7FFF)] == [SessionProblem.EPOCH] * 2
    assert rejected(mine, 101, 1) is SessionProblem.UNKNOWN
    mine = sessions()
    mine.begin(0, 0, wants(A), (), 0.0, by_id=True)
    assert rejected(mine, 100, 1, A) is SessionProblem.NAMING
    assert list(mine.begin(100, 1, {}, (), 2.0, by_id=True).partitions) == [A], "the session continues"


def test_a_session_may_begin_with_nothing_ends_and_begins_anew_by_its_epoch() -> None:
    mine = sessions()
    assert mine.begin(0, 0, {}, (), 0.0).session_id == 100
    assert list(mine.begin(100, 1, wants(A), (), 1.0).partitions) == [A]
    mine = sessions()
    mine.begin(0, 0, wants(A), (), 0.0)
    assert mine.begin(100, 0, wants(B), (), 1.0).session_id == 101
    assert mine.begin(101, -1, wants(B), (), 2.0).session_id == 0
    assert len(mine) == 0
    assert epoch_after(1) == 2
    assert epoch_after(EPOCH_MAX) == 1


def test_a_session_that_is_in_use_gives_no_place_to_another() -> None:
    mine = sessions(limit=2)
    mine.begin(0, 0, wants(A), (), 0.0)
    mine.begin(0, 0, wants(A), (), 1.0)
    mine.begin(100, 1, {}, (), 5.0)
    assert mine.begin(0, 0, wants(A), (), UNUSED_S).session_id == 0, "the client fetches without a session"
    assert mine.begin(0, 0, wants(A), (), UNUSED_S + 1.0).session_id == 102
    mine.begin(100, 2, {}, (), UNUSED_S + 1.0)
    assert rejected(mine, 101, 1) is SessionProblem.UNKNOWN


def test_sessions_hold_so_many_partitions_together_and_no_more() -> None:
    mine = sessions(partitions_max=2)
    assert mine.begin(0, 0, wants(A), (), 0.0).session_id == 100
    assert mine.begin(0, 0, wants(B, C), (), 0.0).session_id == 0, "there is room for one more"
    assert mine.begin(0, 0, wants(B), (), 0.0).session_id == 101
    mine.begin(100, 1, wants(C), (A,), 1.0)
    assert rejected(mine, 100, 2, A) is SessionProblem.UNKNOWN
    assert len(mine) == 1, "the session starts over ..."
    assert mine.begin(0, 0, wants(A, C), (), 3.0).session_id == 0, (
        "... and without one, as long as the others have theirs"
    )
    mine.begin(101, -1, {}, (), 4.0)
    assert mine.begin(0, 0, wants(A, C), (), 5.0).session_id == 102
