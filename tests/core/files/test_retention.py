"""Files that retention may remove, as small histories. Times are in microseconds, the grace period is 100."""

import math
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from seaweedmq.core.files.cover import covered_since
from seaweedmq.core.files.retention import (
    Listed,
    RetentionPolicy,
    broker_of,
    expired_files,
    is_synced,
    log_end_bound,
    retention_policy,
    synced_writer,
)
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import SegmentFile
from tests.core.files.segment_files import log, table
from tests.support.segments import make_topic

TOPIC = make_topic()


def expired(
    files: list[SegmentFile],
    now_us: int,
    *,
    end: int | None = None,
    retention_us: int | None = None,
    retention_bytes: int | None = None,
    kept_us: float = 0,
    low: int = 0,
) -> list[str]:
    policy = RetentionPolicy(
        log_grace_us=100, log_retention_us=kept_us, retention_us=retention_us, retention_bytes=retention_bytes
    )
    return [f.path for f in expired_files([Listed(end, files, low)], policy, now_us)]


def test_a_log_goes_a_grace_period_after_tables_hold_all_of_it() -> None:
    files = [log(0), log(10), table(0, 10, modified_us=50), table(10, 12)]
    assert expired(files, 149) == []
    assert expired(files, 150) == ["log 0-b-1"]
    files = [log(0), log(10), table(0, 6), table(7, 10), table(10, 12)]
    assert expired(files, 1_000) == []
    assert expired([*files, table(6, 7, modified_us=950)], 1_049) == []
    assert expired([*files, table(6, 7, modified_us=950)], 1_050) == ["log 0-b-1"]


def test_the_newest_log_of_an_open_segment_stays_for_recovery_and_its_table_outlives_it() -> None:
    files = [log(0), table(0, 10)]
    assert expired(files, 10_000) == []
    assert expired(files, 10_000, end=10) == ["log 0-b-1"]
    assert expired(files, 10**9, retention_us=0) == []
    assert expired(files, 10**9, retention_us=0, end=10) == ["log 0-b-1", "table 0-10"]


def test_an_empty_log_that_was_durable_before_it_had_its_name_lets_the_others_go() -> None:
    empty = log(10, writer=synced_writer("b-1", 0))
    assert expired([log(0), table(0, 10), empty], 10_000) == ["log 0-b-1"]
    assert expired([log(0), table(0, 10), empty], 10_000, retention_us=0) == ["log 0-b-1", "table 0-10"]
    assert expired([log(0), table(0, 10), log(10, writer="b-1.1")], 10_000) == []
    assert expired([log(0), table(0, 9), empty], 10_000) == [], "a record is in no table"
    assert expired([empty], 10_000) == []
    assert expired([empty], 10_000, end=10) == [empty.path]
    later = [empty, log(10), log(20), table(10, 21)]
    assert expired(later, 10_000) == ["log 10-b-1", empty.path]
    assert broker_of(empty.writer) == "b-1"
    assert [is_synced(log(0, writer=synced_writer("b.synced", n))) for n in (0, 7)] == [True, True]


def test_every_broker_of_an_open_segment_keeps_its_newest_and_what_lies_beyond_the_end_is_nobodys() -> None:
    files = [log(0, writer="b-1"), log(5, writer="b-2"), log(8, writer="b-2.1"), table(0, 20)]
    assert expired(files, 10_000) == ["log 5-b-2"]
    assert expired([log(0), log(10), log(20, writer="zombie"), table(0, 10)], 10_000, end=10) == [
        "log 0-b-1",
        "log 10-b-1",
        "log 20-zombie",
    ]
    assert broker_of("b-7f3a.2") == broker_of("b-7f3a") == "b-7f3a"
    assert log_end_bound(log(0), [log(0), log(0, writer="b-1.1"), log(30, writer="b-1.1")]) == 30


def test_retention_by_time_or_size_of_the_topic_takes_the_oldest_a_grace_period_after_the_limit_was_passed() -> None:
    files = [table(0, 10, modified_us=0), table(10, 20, modified_us=500)]
    assert expired(files, 1_099, retention_us=1_000, end=20) == []
    assert expired(files, 1_100, retention_us=1_000, end=20) == ["table 0-10"]
    assert expired(files, 1_600, retention_us=1_000, end=20) == ["table 0-10", "table 10-20"]
    files = [table(i * 10, i * 10 + 10, modified_us=i * 1_000, size_bytes=40) for i in range(4)]
    assert expired(files, 3_099, retention_bytes=100, end=40) == ["table 0-10"]
    assert expired(files, 3_100, retention_bytes=100, end=40) == ["table 0-10", "table 10-20"]
    assert expired(files, 10**9, retention_bytes=100, end=40) == ["table 0-10", "table 10-20"]
    assert expired([table(0, 10)], 10**15, end=10) == []
    policy = RetentionPolicy(log_grace_us=0, retention_bytes=50)
    old, new = table(0, 10, modified_us=1, size_bytes=30), table(10, 20, modified_us=2, size_bytes=30)
    assert expired_files([Listed(10, [old]), Listed(None, [new])], policy, 10) == [old]


def test_a_table_waits_for_those_before_it() -> None:
    """Three machines with different clocks made them."""
    files = [table(0, 10, modified_us=500), table(10, 20, modified_us=0), table(20, 30, modified_us=900)]
    assert expired(files, 1_599, retention_us=1_000, end=30) == []
    assert expired(files, 1_600, retention_us=1_000, end=30) == ["table 0-10", "table 10-20"]
    assert expired(files, 5_000, retention_bytes=15, end=30) == ["table 0-10", "table 10-20"]


def test_a_table_that_may_not_go_yet_holds_up_those_behind_it_and_one_within_another_goes_alone() -> None:
    files = [table(0, 10), log(10, writer="b-2"), table(10, 20), table(20, 30), log(20), log(30), table(30, 31)]
    assert expired(files, 10**9, retention_us=0) == ["log 20-b-1", "table 0-10"]
    files = [table(0, 30), table(0, 10, modified_us=50), table(10, 30), table(20, 40)]
    assert expired(files, 149, end=40) == ["table 10-30"]
    assert expired(files, 150, end=40) == ["table 0-10", "table 10-30"]


def test_a_table_from_the_future_is_no_younger_than_the_next() -> None:
    """The clock of the machine that made the first one was a year ahead."""
    files = [table(0, 10, modified_us=10**12), table(10, 20, modified_us=500), table(20, 30, modified_us=10**12)]
    assert expired(files, 1_599, retention_us=1_000, end=30) == []
    assert expired(files, 1_600, retention_us=1_000, end=30) == ["table 0-10", "table 10-20"]


def test_the_last_sound_log_stays_while_the_next_may_be_a_torso_and_tables_that_overlap_leave_no_hole() -> None:
    files = [log(0), log(10), log(20), table(0, 20)]
    assert expired(files, 10_000) == ["log 0-b-1"]
    assert expired([*files, log(20, writer="b-1.1")], 10_000) == ["log 0-b-1"]
    assert expired([*files, table(20, 21)], 10_000) == ["log 0-b-1", "log 10-b-1"]
    assert expired(files, 10_000, end=20) == ["log 0-b-1", "log 10-b-1", "log 20-b-1"]
    files = [table(0, 100, size_bytes=50), table(10, 20), table(90, 110), table(110, 120)]
    assert expired(files, 10**6, retention_bytes=70, end=120) == ["table 10-20"]


def test_a_log_of_a_sealed_segment_stays_until_tables_hold_all_that_it_may_hold() -> None:
    """An fsync of log 10 failed; log 15 began to repeat its records, and was not finished."""
    files = [log(0), log(10), log(15), table(0, 15)]
    assert expired(files, 10_000, end=20) == []
    assert expired([*files, table(15, 20)], 10_000, end=20) == ["log 0-b-1", "log 10-b-1", "log 15-b-1"]


def test_a_log_stays_for_as_long_as_its_topic_wants_but_not_without_its_tables() -> None:
    files = [log(0), table(0, 10, modified_us=50)]
    assert expired(files, 1_049, end=10, kept_us=1_000) == []
    assert expired(files, 1_050, end=10, kept_us=1_000) == ["log 0-b-1"]
    assert expired(files, 149, end=10, kept_us=7) == []  # readers that have it open finish
    assert expired(files, 649, end=10, kept_us=math.inf, retention_us=500) == []
    assert expired(files, 650, end=10, kept_us=math.inf, retention_us=500) == ["log 0-b-1", "table 0-10"]
    assert expired(files, 10**9, end=10, kept_us=math.inf) == []
    files = [log(10), table(0, 10), table(10, 20)]
    assert expired(files, 600, end=20, kept_us=math.inf, retention_us=500) == [
        "log 10-b-1",
        "table 0-10",
        "table 10-20",
    ]
    files = [log(10), table(0, 10), table(10, 20, modified_us=300)]
    assert expired(files, 600, end=20, kept_us=math.inf, retention_us=500) == ["table 0-10"]


def test_what_lies_below_the_low_watermark_goes_once_it_is_a_table_and_nothing_above() -> None:
    files = [table(0, 10), table(10, 20, modified_us=200), table(20, 30)]
    assert expired(files, 99, low=20) == []
    assert expired(files, 299, low=20) == ["table 0-10"]
    assert expired(files, 300, low=20) == ["table 0-10", "table 10-20"]
    assert expired(files, 10**9, low=29) == ["table 0-10", "table 10-20"]
    assert expired(files, 10**9, low=9) == []
    files = [log(0), log(10), table(0, 5)]
    assert expired(files, 10**9, low=20) == []
    # Recovery finds the end of an open segment in its newest log, so the table that holds a part of it stays.
    assert expired([*files, table(5, 12)], 10**9, low=20) == ["log 0-b-1", "table 0-5"]
    assert expired([*files, table(5, 12)], 10**9, low=20, end=12) == [
        "log 0-b-1",
        "log 10-b-1",
        "table 0-5",
        "table 5-12",
    ]


def test_the_policy_follows_the_configs_of_the_topic() -> None:
    limited = replace(TOPIC, retention_s=2.0, retention_bytes=7)
    config = BrokerConfig(log_grace_s=1.0)
    assert retention_policy(limited, config) == RetentionPolicy(
        log_grace_us=1_000_000, retention_us=2_000_000, retention_bytes=7
    )
    for policy, expires in (("compact", False), ("compact,delete", True), ("delete", True)):
        chosen = replace(limited, configs=(("cleanup.policy", policy),))
        assert (retention_policy(chosen, config).retention_us is not None) == expires
        assert (retention_policy(chosen, config).retention_bytes is not None) == expires
        assert chosen.has_retention == expires
    for text, kept_us in (("-2", 0), ("-1", math.inf), ("3600000", 3.6e9), ("0", 0)):
        chosen = replace(TOPIC, configs=(("local.retention.ms", text),))
        assert retention_policy(chosen, BrokerConfig()).log_retention_us == kept_us


TIMES = st.integers(0, 10_000)


@given(
    skewed=st.lists(st.lists(st.tuples(TIMES, TIMES), max_size=6), min_size=1, max_size=3),
    retention_us=st.none() | st.integers(0, 5_000),
    retention_bytes=st.none() | st.integers(0, 60),
    now_us=TIMES,
)
def test_whatever_the_clocks_say_retention_leaves_no_hole(
    skewed: list[list[tuple[int, int]]], retention_us: int | None, retention_bytes: int | None, now_us: int
) -> None:
    """Tables of some segments, each with the clock's time and the clock's error."""
    segments = [
        Listed(
            None,
            [table(n * 10 + s * 1_000, n * 10 + 10 + s * 1_000, modified_us=told) for n, (told, _) in enumerate(times)],
        )
        for s, times in enumerate(skewed)
    ]
    policy = RetentionPolicy(log_grace_us=100, retention_us=retention_us, retention_bytes=retention_bytes)
    gone = expired_files(segments, policy, now_us)
    for _, tables, *_ in segments:
        here = [f for f in gone if f in tables]
        assert here == tables[: len(here)]
        if retention_bytes is None and retention_us is not None:
            told = [f.modified_us for f in tables]
            assert all(m + retention_us + 100 <= now_us or m > now_us for m in told[: len(here)])
            assert len(here) == len(tables) or max(told[: len(here) + 1]) + retention_us + 100 > now_us
    if retention_bytes is not None and retention_us is None:
        left = [f for _, tables, *_ in segments for f in tables if f not in gone]
        assert not gone or sum(f.size_bytes for f in left) + gone[-1].size_bytes > retention_bytes or not left


@given(
    edges=st.lists(st.integers(1, 100), min_size=1, unique=True).map(sorted),
    tables=st.lists(
        st.tuples(st.integers(0, 100), st.integers(1, 30), st.integers(0, 1_000)), unique_by=lambda t: t[:2]
    ),
    now_us=st.integers(0, 2_000),
    sealed=st.booleans(),
)
@example(edges=[1, 2], tables=[(0, 1, 1), (0, 2, 0)], now_us=100, sealed=False)  # the older table holds it all
def test_no_record_is_lost_without_retention(
    edges: list[int], tables: list[tuple[int, int, int]], now_us: int, sealed: bool
) -> None:
    logs = [log(b) for b in [0, *edges[:-1]]]
    spans = dict(zip([0, *edges[:-1]], edges, strict=True))
    made = [table(b, b + n, modified_us=m) for b, n, m in tables]
    end = edges[-1] if sealed else None
    policy = RetentionPolicy(log_grace_us=100)
    gone = expired_files([Listed(end, [*logs, *made])], policy, now_us)
    left = [t for t in made if t not in gone]
    for one in (f for f in gone if f.kind == "table"):
        assert covered_since(one.base_offset, one.end_offset or 0, left) is not None
    in_time = [t for t in made if t.modified_us + 100 <= now_us]
    for one in (f for f in gone if f.kind == "log"):
        assert covered_since(one.base_offset, spans[one.base_offset], in_time) is not None


def test_what_a_merge_replaced_is_not_counted_and_goes_before_the_table_that_replaced_it() -> None:
    replaced = [table(0, 10, modified_us=0), table(10, 20, modified_us=50)]
    one, last = table(0, 20, modified_us=50, size_bytes=20), table(20, 30, modified_us=60)
    files = [*replaced, one, last]
    assert expired(files, 155, end=30, retention_bytes=30) == [replaced[0].path, replaced[1].path]
    assert expired(files, 120, end=30, retention_bytes=30) == [replaced[0].path]
    assert expired(files, 1_000, end=30, retention_bytes=10) == [*(t.path for t in replaced), one.path]
    old, young = table(0, 20, modified_us=0), table(5, 10, modified_us=500)
    assert expired([old, young], 550, end=20, retention_us=10) == []
    assert expired([old, young], 700, end=20, retention_us=10) == [young.path, old.path]
