"""Maximum age of tables, independent of the clock that dated them."""

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.files.retention import Listed, RetentionPolicy, confirmed_files, expired_files
from seaweedmq.core.files.seen_tables import LISTINGS_MAX, SeenTables
from seaweedmq.model.config import US_PER_S
from tests.core.files.segment_files import table

S = US_PER_S


def test_a_table_is_no_older_than_the_last_listing_without_it() -> None:
    seen = SeenTables()
    seen.note({0: 0, 1: 50}, 100.0)
    seen.note({0: 10, 1: 50}, 200.0)
    seen.note({0: 10, 1: 50}, 250.0)
    assert seen.absent(0, 300.0) == ((0, 200 * S), (10, 50 * S))
    assert seen.absent(1, 300.0) == ((50, 50 * S),)
    assert seen.absent(2, 300.0) == ((-1, 50 * S),)
    seen.note({1: 50}, 300.0)
    assert seen.absent(0, 310.0) == ((-1, 10 * S),)
    seen = SeenTables()
    assert (seen.watched_s(50.0), seen.absent(5, 50.0)) == (0.0, ())
    seen.note({0: 10}, 100.0)
    seen.note({0: 10}, 200.0)
    assert (seen.watched_s(250.0), seen.absent(5, 250.0)) == (150.0, ((-1, 50 * S),))
    seen.note({0: 10, 5: 7}, 300.0)
    assert seen.absent(5, 350.0) == ((-1, 150 * S), (7, 50 * S))
    seen = SeenTables()
    seen.note({0: 10}, 100.0)
    seen.note({0: 0}, 200.0)
    assert seen.absent(0, 300.0) == ((10, 100 * S),)


@given(
    made=st.lists(st.tuples(st.integers(1, 100), st.integers(-(10**6), 10**6)), min_size=1, max_size=3 * LISTINGS_MAX)
)
def test_no_table_goes_before_its_true_age_though_the_clock_that_dated_it_was_behind_or_ahead(
    made: list[tuple[int, int]],
) -> None:
    """Tables in sequence, ``(seconds later, clock error)``; each interval has a listing."""
    retention_s, now_s, seen, tables, born_s = 50, 10**7, SeenTables(), [], []
    policy = RetentionPolicy(log_grace_us=0, retention_us=retention_s * S)
    seen.note({0: 0}, float(now_s))
    is_thin = len(made) >= LISTINGS_MAX
    for later_s, off_s in made:
        now_s += later_s
        number = len(tables)
        tables.append(table(number * 10, number * 10 + 10, modified_us=(now_s + off_s) * S))
        born_s.append(now_s - later_s)  # at the last listing without it, or just after
        absent = seen.absent(0, float(now_s))
        gone = expired_files([Listed(None, tables, absent=absent)], policy, now_s * S)
        assert is_thin or all(now_s - born_s[t.base_offset // 10] >= retention_s for t in gone)
        seen.note({0: len(tables) * 10}, float(now_s))
        assert len(seen.absent(0, 0.0)) <= LISTINGS_MAX
    now_s += 3 * 10**6
    gone = expired_files([Listed(None, tables, absent=seen.absent(0, float(now_s)))], policy, now_s * S)
    assert [t.path for t in gone] == [t.path for t in tables]


def test_each_period_is_over_by_the_time_that_is_confirmed_for_it() -> None:
    """The last hour is confirmed for short periods only: the clock has just stepped, or the broker has just started."""
    policy = RetentionPolicy(log_grace_us=10 * S, retention_us=100 * S, retention_bytes=50)
    first, second = table(0, 10, modified_us=0, size_bytes=30), table(10, 20, modified_us=500 * S, size_bytes=30)
    third = table(20, 30, modified_us=900 * S, size_bytes=30)
    listed = [Listed(None, [first, second, third])]

    def confirmed_us(period_s: float) -> int:
        return 1_000 * S if period_s <= 10 else 0

    assert confirmed_files(listed, policy, confirmed_us) == [first, second], "by size"
    assert confirmed_files(listed, policy, lambda _: 0) == []
    assert confirmed_files(listed, policy, lambda _: 2_000 * S) == [first, second, third]
    by_time = RetentionPolicy(log_grace_us=10 * S, retention_us=100 * S)
    assert confirmed_files(listed, by_time, confirmed_us) == []
    assert confirmed_files(listed, by_time, lambda _: 700 * S) == [first, second]
