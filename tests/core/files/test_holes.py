"""Explanation of missing records: retention explains all that it removes, and nothing that it leaves."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seaweedmq.core.files.cover import uncovered
from seaweedmq.core.files.holes import first_needed, removed_by
from seaweedmq.core.files.retention import Listed, RetentionPolicy, expired_files
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from tests.core.files.segment_files import log, table
from tests.support.segments import make_segment, make_topic

TOPIC = make_topic()
EXPIRING = replace(TOPIC, retention_s=60.0)


def partition(end: int | None) -> Segment:
    """The segment of the only partition, for topics with a low watermark."""
    return replace(make_segment(end), slots=KeyRange(0, 1))


def test_a_removal_reaches_as_far_as_the_tables_that_go() -> None:
    others = [table(0, 5, segment=1), table(5, 9, segment=1)]
    for going, staying, removed in (
        ([table(0, 10), table(10, 20), others[0]], [table(20, 30), others[1]], {0: 20, 1: 5}),
        ([], [table(0, 10)], {}),
        ([table(0, 10)], [table(0, 20)], {}),  # another table holds the records
        ([table(0, 10)], [table(5, 10)], {0: 5}),  # one rewritten at a watermark stays
        ([log(0)], [table(0, 10), log(10)], {}),  # a log file goes after its tables were made
    ):
        assert removed_by([*going, *staying], going) == removed


@pytest.mark.parametrize(
    ("topic", "files", "removed_below", "needed"),
    [
        (TOPIC, [], 0, 0),
        (TOPIC, [table(50, 100)], 0, 0),
        (TOPIC, [table(50, 100)], 40, 40),
        (TOPIC, [], 300, 100),
        (replace(TOPIC, partitions=1, low_watermarks=(30,)), [table(30, 100)], 0, 30),
        (EXPIRING, [table(50, 100)], 0, 50),
        (EXPIRING, [table(50, 100)], 70, 70),
        (EXPIRING, [], 0, 100),
        (EXPIRING, [log(100)], 0, 100),
    ],
)
def test_a_sealed_segment_needs_all_that_nothing_removed(
    topic: Topic, files: list[SegmentFile], removed_below: int, needed: int
) -> None:
    assert first_needed(topic, partition(100), files, removed_below) == needed


def test_an_open_segment_without_files_needs_all() -> None:
    assert first_needed(EXPIRING, partition(None), [], 0) == 0
    assert first_needed(EXPIRING, partition(None), [table(50, 100)], 0) == 50


LAYOUTS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12), st.integers(0, 500)), min_size=1, max_size=8)
"""Tables of a segment: records, records shared with the one before it, date in microseconds."""


@given(layout=LAYOUTS, low=st.integers(0, 120), now_us=st.integers(100, 900), bytes_max=st.none() | st.integers(1, 150))
@example(layout=[(10, 0, 0), (10, 5, 300)], low=0, now_us=350, bytes_max=None)
def test_what_retention_removed_is_explained_and_what_it_left_is_needed(
    layout: list[tuple[int, int, int]], low: int, now_us: int, bytes_max: int | None
) -> None:
    """Explanations hold after retention is switched off, by its records, and although tables overlap."""
    files: list[SegmentFile] = []
    end = 0
    for records, shared, modified_us in layout:
        base = max(end - shared, files[-1].base_offset if files else 0)
        end += records
        files.append(table(base, end, size_bytes=end - base, modified_us=modified_us))
    topic = replace(TOPIC, partitions=1, low_watermarks=(low,))
    policy = RetentionPolicy(log_grace_us=100, retention_us=200, retention_bytes=bytes_max)
    recorded = 0
    while expired := expired_files([Listed(end, files, low)], policy, now_us):
        recorded = max(recorded, removed_by(files, expired).get(0, 0))
        files = [f for f in files if f not in expired]
    needed = first_needed(topic, partition(end), files, recorded)
    assert not list(uncovered(files, needed, end)), "no removed record is reported as lost"
    readable = {o for f in files for o in range(max(low, f.base_offset), f.end_offset or 0)}
    assert min(readable, default=end) >= needed, "no remaining record is considered removed"
