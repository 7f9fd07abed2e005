"""File names encode the contents of files, and sort by offset."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec import paths
from seaweedmq.codec.paths import (
    document_path,
    log_path,
    parse_segment_file,
    table_dir,
    table_path,
    table_prefix,
    topic_dir,
)
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import NAME_LENGTH_MAX, TOPIC_NAME_LENGTH_MAX, TopicName

ORDERS = TopicName("shop", "orders.v2")
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)
TOPICS = st.builds(TopicName, NAMES, NAMES)
SEGMENTS = st.integers(0, 10**10 - 1)
OFFSETS = st.integers(0, 2**64 - 1)


def test_where_things_lie():
    assert topic_dir(ORDERS) == "topics/shop/orders.v2"
    assert document_path(ORDERS, "topic.json") == "topics/shop/orders.v2/topic.json"
    assert log_path(ORDERS, 7, 100, "b-7f3a") == "topics/shop/orders.v2/log/00000007/00000000000000000100-b-7f3a.log"
    assert (
        table_path(ORDERS, 7, 100, 250)
        == "topics/shop/orders.v2/table/00000007-00000000000000000100-00000000000000000250.parquet"
    )


@given(TOPICS, SEGMENTS, OFFSETS, NAMES, st.integers(1, 10**6))
def test_the_name_of_a_file_says_all_that_was_put(topic: TopicName, segment: int, base: int, writer: str, count: int):
    assert parse_segment_file(log_path(topic, segment, base, writer)) == (topic, segment, "log", base, None, writer)
    path = table_path(topic, segment, base, base + count)
    assert parse_segment_file(path) == (topic, segment, "table", base, base + count, "")


@given(TOPICS, SEGMENTS, SEGMENTS)
def test_the_tables_of_a_segment_are_told_by_how_their_names_begin(topic: TopicName, segment: int, other: int):
    beginning = f"{table_dir(topic)}/{table_prefix(segment)}"
    assert table_path(topic, other, 0, 1).startswith(beginning) == (segment == other)


@given(OFFSETS, OFFSETS)
def test_names_sort_as_offsets_do(one: int, other: int):
    assert (log_path(ORDERS, 0, one, "w") < log_path(ORDERS, 0, other, "w")) == (one < other)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "topics/shop/orders/topic.json",
        "topics/shop/orders/log/00000007/00000000000000000100-.log",
        "topics/shop/orders/log/00000007/00000000000000000100-a/b.log",
        "topics/shop/orders/log/00000007/100-w.log",
        "topics/shop/orders/log/7/00000000000000000100-w.log",
        "topics/shop/orders/log/000000007/00000000000000000100-w.log",
        "topics/shop/orders/log/00000007/00000000000000000100-w.log.tmp",
        "topics/shop/orders/log/00000007/00000000000000000100-w.log\n",
        "topics/shop/orders/log/\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0667/00000000000000000100-w.log",
        "topics/../orders/log/00000007/00000000000000000100-w.log",
        "/topics/shop/orders/log/00000007/00000000000000000100-w.log",
        "topics/shop/orders/table/00000007-00000000000000000100-00000000000000000100.parquet",
        "topics/shop/orders/table/00000007-00000000000000000100-00000000000000000099.parquet",
        "topics/shop/orders/table/000000007-00000000000000000100-00000000000000000200.parquet",
        "topics/shop/orders/table/.00000007-00000000000000000100-00000000000000000200.parquet",
        "topics/shop/orders/table/00000007/00000000000000000100-00000000000000000200.parquet",
        "topics/shop/orders/table/part-00000.parquet",
    ],
)
def test_foreign_names_are_not_taken_for_ours(path: str):
    assert parse_segment_file(path) is None


@given(st.text(max_size=60))
def test_any_text_is_ours_or_foreign_and_never_an_error(text: str):
    parse_segment_file(text)
    parse_segment_file(f"topics/shop/orders/log/00000007/{text}.log")


def test_names_that_would_leave_the_folder_are_refused():
    for name in ("../../etc/passwd", "", ".", "a/b"):
        with pytest.raises(InvalidArgument):
            log_path(ORDERS, 0, 0, name)
        with pytest.raises(InvalidArgument):
            document_path(ORDERS, name)


def test_an_empty_table_has_no_name():
    with pytest.raises(InvalidArgument, match="at least one record"):
        table_path(ORDERS, 0, 5, 5)


LONGEST = {
    "topic": TopicName("n" * NAME_LENGTH_MAX, "t" * TOPIC_NAME_LENGTH_MAX),
    "segment": 10**10 - 1,
    **dict.fromkeys(("uid", "topic_uid", "batch", "revision"), 2**63 - 1),
    **{"base_offset": 2**64 - 1, "base": 2**64 - 2, "end": 2**64 - 1},
    **{name: letter * NAME_LENGTH_MAX for name, letter in (("name", "d"), ("writer", "w"), ("sink", "s"))},
    **{"generation": 2**31 - 1, "number": 10**9},
    **{"kind": "producer-ids", "day": "2026-11-28", "blob_id": "f" * 32},
    "journal": paths.journal_name(2**31 - 1, 2**63 - 1, 10**9),
    "table": table_path(ORDERS, 10**10 - 1, 2**64 - 2, 2**64 - 1),
}
"""Arguments of the functions that compose paths."""
FILE_NAME_BYTES_MAX = 255
"""Limit of the usual file systems."""
COMPOSING = [
    function
    for name, function in inspect.getmembers(paths, inspect.isfunction)
    if function.__module__ == paths.__name__ and not name.startswith("parse_") and name != "sink_of_mark"
]


@pytest.mark.parametrize("compose", COMPOSING, ids=lambda function: function.__name__)
def test_names_of_the_permitted_lengths_become_names_that_file_systems_take(compose):
    path = compose(**{name: LONGEST[name] for name in inspect.signature(compose).parameters})
    path = path.staged if isinstance(path, paths.BlobName) else path
    assert max(len(part.encode()) for part in path.split("/")) <= FILE_NAME_BYTES_MAX
