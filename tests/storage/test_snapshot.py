"""A snapshot covers every flushed offset once, Parquet first, logs for the rest."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, document_path
from seaweedmq.codec.state.documents import lineage_document, lineage_from_document, topic_document, topic_from_document
from seaweedmq.core.files.snapshot import SnapshotPiece, plan_snapshot
from seaweedmq.errors import Corrupt, DataLoss, InvalidArgument, NotFound, Unsupported
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.snapshot import list_topics, read_snapshot
from tests.core.files.segment_files import log, table
from tests.support.segments import NAME, make_segment, make_topic
from tests.support.topic_files import TopicFiles

TOPIC = make_topic()
OPEN = make_segment()


def shown(pieces: tuple[SnapshotPiece, ...]) -> list[tuple[int, int | None, str]]:
    return [(p.start_offset, p.end_offset, " ".join(f.path.split()[1] for f in p.files)) for p in pieces]


def test_tables_first_then_the_logs_that_go_on() -> None:
    files = [log(0), log(50), log(100), table(0, 60), log(150)]
    assert shown(plan_snapshot(TOPIC, OPEN, files)) == [
        (0, 60, "0-60"),
        (60, 100, "50-b-1"),
        (100, None, "100-b-1 150-b-1"),
    ]


def test_the_last_two_logs_of_an_open_segment_are_one_piece() -> None:
    """Power loss may have taken the end of the one and kept the other: it ends at the gap."""
    assert shown(plan_snapshot(TOPIC, OPEN, [log(0), log(50), log(50, "b-2")])) == [(0, None, "0-b-1 50-b-1 50-b-2")]
    assert shown(plan_snapshot(TOPIC, OPEN, [log(0), log(50), table(0, 60)])) == [(0, 60, "0-60"), (60, None, "50-b-1")]
    (piece,) = plan_snapshot(TOPIC, OPEN, [log(0), log(50)], 0, 40)
    assert not piece.complete


def test_a_log_fills_the_gap_between_tables() -> None:
    assert shown(plan_snapshot(TOPIC, make_segment(90), [table(0, 30), log(0), table(50, 90)])) == [
        (0, 30, "0-30"),
        (30, 50, "0-b-1"),
        (50, 90, "50-90"),
    ]


def test_while_a_segment_is_open_the_last_file_of_each_writer_may_hold_the_rest() -> None:
    files = [log(0, "b-1"), log(40, "b-1"), log(60, "b-2"), log(90, "b-2"), log(95, "b-2")]
    assert shown(plan_snapshot(TOPIC, OPEN, files, 0, 90)) == [
        (0, 40, "0-b-1"),
        (40, 60, "40-b-1"),
        (60, 90, "60-b-2 40-b-1"),
    ]


def test_once_it_is_sealed_earlier_files_may_too_where_the_next_did_not_get_as_far() -> None:
    files = [log(0, "b-1"), log(40, "b-1"), log(60, "b-2")]
    assert shown(plan_snapshot(TOPIC, make_segment(100), files)) == [
        (0, 40, "0-b-1"),
        (40, 60, "40-b-1 0-b-1"),
        (60, 100, "60-b-2 40-b-1 0-b-1"),
    ]


def test_nothing_beyond_the_end_of_a_sealed_segment() -> None:
    files = [table(0, 60), log(0), log(60), log(80, "b-zombie")]
    assert shown(plan_snapshot(TOPIC, make_segment(70), files)) == [(0, 60, "0-60"), (60, 70, "60-b-1 0-b-1")]


def test_what_retention_removed_is_left_out() -> None:
    topic, files, left = (
        replace(TOPIC, retention_s=60.0),
        [table(40, 60), log(60)],
        [(40, 60, "40-60"), (60, None, "60-b-1")],
    )
    assert (shown(plan_snapshot(topic, OPEN, files)), plan_snapshot(topic, make_segment(60), [])) == (left, ())
    assert shown(plan_snapshot(TOPIC, OPEN, files, removed_below=40)) == left, "and before it was switched off"
    assert plan_snapshot(TOPIC, make_segment(60), [], removed_below=60) == ()
    low = replace(TOPIC, partitions=1, low_watermarks=(40,))
    assert shown(plan_snapshot(low, replace(OPEN, slots=low.ring), files)) == left


def test_only_what_is_asked_for() -> None:
    files = [table(0, 20), table(20, 40), table(40, 60), log(60)]
    assert shown(plan_snapshot(TOPIC, OPEN, files, 25, 45)) == [(25, 40, "20-40"), (40, 45, "40-60")]
    (tail,) = plan_snapshot(TOPIC, OPEN, files, 60, 1_000)
    assert (tail.end_offset, tail.complete) == (1_000, False)
    assert plan_snapshot(TOPIC, make_segment(60), files, 60) == ()


@pytest.mark.parametrize("topic", [TOPIC, replace(TOPIC, retention_s=60.0)])
def test_lost_records_are_an_error_or_left_out(topic: Topic) -> None:
    """Retention explains the first records of a segment, and no others."""
    holes: list[tuple[Segment, list[SegmentFile], list[range]]] = [
        (OPEN, [table(0, 20), table(40, 60)], [range(20, 40)]),
        (make_segment(50), [table(0, 20)], [range(20, 50)]),
        (make_segment(90), [table(0, 20), table(40, 60), table(70, 80)], [range(20, 40), range(60, 70), range(80, 90)]),
    ]
    if not topic.expires:
        holes += [
            (make_segment(50), [], [range(50)]),
            (OPEN, [log(30)], [range(30)]),
            (make_segment(50), [table(10, 50)], [range(10)]),
        ]
    for segment, files, gaps in holes:
        with pytest.raises(DataLoss) as caught:
            plan_snapshot(topic, segment, files)
        assert (caught.value.start_offset, caught.value.end_offset) == (gaps[0].start, gaps[0].stop)
        found: list[range] = []
        pieces = plan_snapshot(topic, segment, files, missing=found)
        assert (found, [p.files[0] for p in pieces]) == (gaps, files)
    assert plan_snapshot(topic, make_segment(90), holes[2][1], 40, 60)[0].files == (table(40, 60),), "none missed"
    with pytest.raises(DataLoss, match=r"\[25, 30\)"):
        plan_snapshot(topic, make_segment(90), holes[2][1], 25, 30)


@given(
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    kinds=st.lists(st.sampled_from(["log", "table", "both"]), min_size=12, max_size=12),
    start=st.integers(0, 120),
    width=st.integers(0, 120),
    seal=st.booleans(),
)
def test_every_offset_exactly_once(cuts: list[int], kinds: list[str], start: int, width: int, seal: bool) -> None:
    files = []
    end = 0
    for size, kind in zip(cuts, kinds, strict=False):
        files += [log(end)] if kind != "table" else []
        files += [table(end, end + size)] if kind != "log" else []
        end += size
    held = []
    for piece in plan_snapshot(TOPIC, make_segment(end) if seal else OPEN, files, start, start + width):
        stop = min(end, piece.end_offset if piece.end_offset is not None else end)
        held += range(piece.start_offset, stop)
        if piece.kind is FileKind.LOG:
            assert not any(f.end_offset and f.base_offset <= piece.start_offset < f.end_offset for f in files)
    assert held == list(range(start, min(end, start + width)))


def test_read_from_documents_and_names(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    orders.open_segments(2)
    orders.table(0, 20, segment=0, keep_log=True)
    orders.log(0, 30, segment=1)
    orders.seal(1, 25)
    snapshot = read_snapshot(DirectoryPlace(tmp_path), orders.name)
    assert (snapshot.topic, snapshot.segments) == (orders.topic, tuple(orders.segments.values()))
    assert [(p.start_offset, p.end_offset, p.kind) for p in snapshot.plan(1)] == [(0, 25, FileKind.LOG)]
    assert snapshot.plan(0)[0].kind is FileKind.TABLE
    with pytest.raises(InvalidArgument, match="no segment 5: it has 0, 1"):
        snapshot.plan(5)


def test_an_unknown_topic_names_those_that_exist(tmp_path: Path) -> None:
    TopicFiles(tmp_path)
    TopicFiles(tmp_path, name=TopicName("shop", "returns"))
    (tmp_path / "topics/shop/.deleted-old-7-0").mkdir()
    (tmp_path / "topics/shop/.deleted-old-7-0/topic.json").write_bytes(b"{}")
    assert [str(t) for t in list_topics(DirectoryPlace(tmp_path))] == ["shop/orders", "shop/returns"]
    with pytest.raises(NotFound, match=r"no topic shop/x in .*: it has shop/orders, shop/returns"):
        read_snapshot(DirectoryPlace(tmp_path), TopicName("shop", "x"))
    with pytest.raises(InvalidArgument, match="is not a directory"):
        read_snapshot(DirectoryPlace(tmp_path / "nowhere"), NAME)


def test_documents_read_back(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    orders.open_segments(3)
    orders.seal(2, 50)
    assert topic_from_document(topic_document(orders.topic)) == orders.topic
    assert lineage_from_document(lineage_document(NAME, reversed(orders.segments.values()))) == (
        NAME,
        tuple(orders.segments.values()),
    )
    assert lineage_from_document(lineage_document(NAME, [])) == (NAME, ())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        *[(content, Corrupt) for content in (b"", b"[]", b'{"v":1,"topic":"shop/orders"}')],
        (b'{"v":1,"topic":"shop","segments":[]}', Corrupt),
        (b'{"v":1,"topic":"shop/orders","segments":[{}]}', Corrupt),
        (b'{"v":2,"topic":"shop/orders","segments":[]}', Unsupported),
        (b'{"v":1,"topic":"shop/returns","segments":[]}', Corrupt),
    ],
)
def test_a_lineage_that_can_not_be_read(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    orders = TopicFiles(tmp_path)
    (tmp_path / document_path(orders.name, LINEAGE_DOCUMENT)).write_bytes(content)
    with pytest.raises(error):
        read_snapshot(DirectoryPlace(tmp_path), orders.name)
