"""Commits and checkpoints of a Delta log: round trips, golden lines, and invalid files."""

import json
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.tables.delta import (
    Add,
    Commit,
    LogMetadata,
    Remove,
    commit_info,
    decode_commit,
    encode_commit,
    stats_json,
)
from seaweedmq.codec.tables.delta_checkpoint import Checkpoint, checkpoint_of, checkpoint_table
from seaweedmq.codec.timestamps import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, moment_text, us_of_text
from seaweedmq.errors import Corrupt, Unsupported

TEXT = st.text(max_size=20)
COUNT = st.integers(0, 2**63 - 1)
ADDS = st.builds(Add, path=TEXT, size_bytes=COUNT, modified_ms=COUNT, data_change=st.booleans(), stats=st.just("{}"))
REMOVES = st.builds(Remove, path=TEXT, size_bytes=COUNT, removed_ms=COUNT, data_change=st.booleans())
METADATA = st.builds(
    LogMetadata, id=TEXT, name=TEXT, schema=TEXT, configuration=st.dictionaries(TEXT, TEXT), created_ms=COUNT
)
FEATURES = st.sampled_from([frozenset[str](), frozenset({"timestampNtz"})])
COMMITS = st.builds(
    Commit,
    adds=st.lists(ADDS, max_size=4).map(tuple),
    removes=st.lists(REMOVES, max_size=4).map(tuple),
    metadata=st.none() | METADATA,
    features=st.none() | FEATURES,
    info=st.just(commit_info(operation="WRITE", timestamp_ms=5, files=(1, 2, 3), rows=(4, 5))),
)


@given(COMMITS)
def test_a_commit_is_read_as_it_was_written(commit: Commit) -> None:
    assert decode_commit(encode_commit(commit), "0.json") == commit


@given(METADATA, FEATURES, st.lists(ADDS, max_size=5), st.lists(REMOVES, max_size=5))
def test_a_checkpoint_is_read_as_it_was_written(
    metadata: LogMetadata, features: frozenset[str], adds: list[Add], removes: list[Remove]
) -> None:
    written = Checkpoint(metadata=metadata, features=features, adds=adds, removes=removes)
    read = checkpoint_of(checkpoint_table(written), "0.checkpoint.parquet")
    assert (read.metadata, read.features) == (metadata, features)
    added = attrgetter("path", "size_bytes", "modified_ms", "stats")
    removed = attrgetter("path", "size_bytes", "removed_ms")
    assert ([*map(added, read.adds)], [*map(removed, read.removes)]) == ([*map(added, adds)], [*map(removed, removes)])


@given(st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US))
def test_times_are_written_to_the_microsecond(us: int) -> None:
    assert us_of_text(moment_text(us)) == us


def test_lines_are_what_other_programs_read() -> None:
    commit = Commit(
        adds=(Add(path="a.parquet", size_bytes=7, modified_ms=8, stats=stats_json(2, {"_offset": (0, 1, 0)})),),
        removes=(Remove(path="b.parquet", size_bytes=9, removed_ms=10, data_change=False),),
        features=frozenset({"timestampNtz"}),
    )
    assert encode_commit(commit).decode().splitlines() == [
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timestampNtz"],'
        '"writerFeatures":["seaweedmq","timestampNtz"]}}',
        '{"remove":{"path":"b.parquet","deletionTimestamp":10,"dataChange":false,"extendedFileMetadata":true,'
        '"partitionValues":{},"size":9}}',
        '{"add":{"path":"a.parquet","partitionValues":{},"size":7,"modificationTime":8,"dataChange":true,'
        r'"stats":"{\"numRecords\":2,\"minValues\":{\"_offset\":0},\"maxValues\":{\"_offset\":1},'
        r'\"nullCount\":{\"_offset\":0}}"}}',
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[]", "{}", '{"add":{"path":"a"}}', '{"add":7}'),
        '{"add":{"path":"a","size":"x","modificationTime":1,"dataChange":true}}',
        '{"add":{"path":"a","size":1,"modificationTime":1,"dataChange":true,"deletionVector":{"storageType":"u"}}}',
        *('{"metaData":{"id":"a"}}', '{"protocol":{}}', "\x00\xff"),
    ],
)
def test_what_is_no_action_is_named_with_its_line(line: str) -> None:
    with pytest.raises(Corrupt, match=r"7\.json is damaged in line 2"):
        decode_commit(b'{"txn":{"appId":"x","version":1}}\n' + line.encode("latin-1"), "7.json")


def test_a_log_that_asks_readers_for_what_is_not_known_is_refused() -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    with pytest.raises(Unsupported, match="deletionVectors"):
        decode_commit(json.dumps({"protocol": protocol}).encode(), "0.json")


def test_a_checkpoint_of_nothing_is_none() -> None:
    metadata = LogMetadata(id="", name="", schema="", configuration={}, created_ms=0)
    whole = checkpoint_table(Checkpoint(metadata=metadata, features=frozenset(), adds=[], removes=[]))
    with pytest.raises(Corrupt, match="0 protocols"):
        checkpoint_of(whole.slice(2), "x")
    with pytest.raises(Corrupt, match="x is damaged"):
        checkpoint_of(whole.select(["add"]), "x")
