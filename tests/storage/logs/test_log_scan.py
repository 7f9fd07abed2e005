"""Scan of a log file in chunks: whole frames, torn tails, damage."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.codec.frame import HEADER_BYTES, stamp
from seaweedmq.codec.payload.batch import encode_frame, payload_schema
from seaweedmq.errors import Corrupt
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.logs.log_index import Mark
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.logs.lost_blocks import BLOCK_BYTES, SECTOR_BYTES
from tests.core.files import segment_files
from tests.support.segments import T0, make_frame, make_preamble, make_topic

FRAMES = [make_frame(0, 3), make_frame(3, 1, size=700), make_frame(4, 5, keys=True), make_frame(9, 2)]
PREAMBLE = make_preamble(0)
LOG = PREAMBLE + b"".join(FRAMES)
STARTS = [len(PREAMBLE) + sum(map(len, FRAMES[:i])) for i in range(5)]


def scan(
    content: bytes,
    *,
    skip_below: int = 0,
    read_bytes: int = 1_000,
    reads: list[tuple[int, int]] | None = None,
    begin: Mark | None = None,
    marks: set[Mark | None] | None = None,
) -> tuple[LogScanner, list[int]]:
    """Return the scanner after the scan, and the base offsets of the returned frames.

    ``reads`` and ``marks`` get its reads, and the positions that it offers for later scans.
    """
    file = segment_files.log(0, size_bytes=len(content))
    scanner = LogScanner(make_topic(), file, skip_below=skip_below, read_bytes=read_bytes, begin=begin)
    bases = []
    while (wanted := scanner.wants()) is not None:
        position, length = wanted
        if reads is not None:
            reads.append(wanted)
        run = scanner.feed(content[position : position + length])
        if marks is not None:
            marks.add(scanner.mark)
        for found in run.frames:
            assert (
                bytes(run.data[found.start : found.end])
                == content[found.position : found.position + found.end - found.start]
            )
            bases.append(found.frame.header.base_offset)
    return scanner, bases


@pytest.mark.parametrize("read_bytes", [1, 16, 144, 145, 1_000, 10_000])
def test_a_whole_log_is_read_frame_by_frame_whatever_the_size_of_the_reads(read_bytes: int) -> None:
    scanner, bases = scan(LOG, read_bytes=read_bytes)
    assert (bases, scanner.next_offset, scanner.torn) == ([0, 3, 4, 9], 11, None)


def test_every_read_ends_at_a_multiple_of_what_is_read_at_once() -> None:
    log = PREAMBLE + b"".join(make_frame(number, 1, size=100 + 37 * number % 500) for number in range(200))
    page_bytes, reads = 4_096, list[tuple[int, int]]()
    scanner, bases = scan(log, read_bytes=page_bytes, reads=reads)
    assert (len(bases), scanner.torn) == (200, None)
    ends = [page_bytes * number for number in range(1, len(log) // page_bytes + 2)]
    assert [position + length for position, length in reads] == ends


@given(cut=st.integers(0, len(LOG)), read_bytes=st.integers(1, 2_000), skip_below=st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_a_log_cut_anywhere_gives_the_frames_before_the_cut(cut: int, read_bytes: int, skip_below: int) -> None:
    scanner, bases = scan(LOG[:cut], read_bytes=read_bytes, skip_below=skip_below)
    whole = [i for i in range(4) if STARTS[i + 1] <= cut]
    ends = [3, 4, 9, 11]
    assert bases == [(0, 3, 4, 9)[i] for i in whole if ends[i] > skip_below]
    assert (scanner.next_offset, scanner.torn is None) == (ends[whole[-1]] if whole else 0, cut in STARTS)


@given(cut=st.integers(0, len(LOG)), read_bytes=st.integers(1, 2_000), skip_below=st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_a_walk_that_begins_where_another_was_finds_what_follows(cut: int, read_bytes: int, skip_below: int) -> None:
    marks: set[Mark | None] = set()
    whole, _ = scan(LOG[:cut], read_bytes=read_bytes, skip_below=skip_below, marks=marks)
    every = scan(LOG[:cut])[1]
    for mark in marks - {None}:
        assert mark is not None
        again, bases = scan(LOG[:cut], read_bytes=read_bytes, begin=mark)
        assert bases == [base for base in every if base >= mark.offset]
        assert (again.next_offset, again.torn is None) == (whole.next_offset, whole.torn is None)


def test_damage_is_found_from_a_mark_on_and_no_mark_lies_behind_it() -> None:
    damaged = bytearray(LOG)
    damaged[STARTS[2] + 200] ^= 1
    marks: set[Mark | None] = set()
    with pytest.raises(Corrupt):
        scan(bytes(damaged), read_bytes=400, marks=marks)
    found = [mark for mark in marks if mark is not None]
    assert Mark(4, STARTS[2]) in found
    assert all(mark.position <= STARTS[2] for mark in found)
    with pytest.raises(Corrupt, match=rf"damaged at byte {STARTS[2]}, offset 4"):
        scan(bytes(damaged), begin=Mark(3, STARTS[1]))


@given(at=st.integers(0, len(LOG) - 1), bit=st.integers(0, 7), read_bytes=st.integers(1, 2_000))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_is_never_served(at: int, bit: int, read_bytes: int) -> None:
    damaged = bytearray(LOG)
    damaged[at] ^= 1 << bit
    bases: list[int] = []
    if at < STARTS[3]:  # valid frames follow
        with pytest.raises(Corrupt, match=r"log 0-b-1"):
            scan(bytes(damaged), read_bytes=read_bytes)
    else:  # in the last frame it resembles a torn tail: only the log's end tells them apart
        scanner, bases = scan(bytes(damaged), read_bytes=read_bytes)
        assert (bases, scanner.next_offset) == ([0, 3, 4], 9)
        assert scanner.torn is not None


@pytest.mark.parametrize("start", STARTS[:3])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_of_the_version_is_damage_and_no_newer_format(start: int, bit: int) -> None:
    damaged = bytearray(LOG)
    damaged[start + 4] ^= 1 << bit
    with pytest.raises(Corrupt, match=rf"log 0-b-1 is damaged at byte {start}, .*has format version"):
        scan(bytes(damaged))


def test_skipped_frames_are_jumped_over_and_not_read() -> None:
    log = PREAMBLE + make_frame(0, 1, size=100_000) + make_frame(1, 1)
    reads: list[tuple[int, int]] = []
    scanner, bases = scan(log, skip_below=1, read_bytes=500, reads=reads)
    assert (bases, scanner.next_offset) == ([1], 2)
    assert sum(length for _, length in reads) < 2_000


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (LOG + bytes(5_000), [0, 3, 4, 9]),
        (bytes(300), []),
        (PREAMBLE + make_frame(0, 1)[:-10] + b"SWMF" + bytes(200), []),
    ],
    ids=["behind frames", "never on the disk", "of a frame whose value is a log"],
)
def test_zeros_at_the_end_are_a_torn_tail(content: bytes, whole: list[int]) -> None:
    scanner, bases = scan(content)
    assert bases == whole
    assert scanner.torn is not None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PREAMBLE + FRAMES[0] + make_frame(5, 1) + make_frame(6, 1), "offset 5, 3 was expected"),
        (make_preamble(0, uid=6, topic=TopicName("another", "topic")) + FRAMES[0], "renamed or copied"),
        (make_preamble(7) + make_frame(7, 1), "renamed or copied"),
        (b"hello world, this is not a log" * 10, r"log 0-b-1 cannot be read"),
    ],
    ids=["gap", "another topic", "renamed", "text"],
)
def test_what_is_not_this_log_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(Corrupt, match=said):
        scan(content)


def test_a_log_of_an_earlier_topic_of_the_name_is_ignored() -> None:
    scanner, bases = scan(make_preamble(0, uid=6) + FRAMES[0])
    assert bases == []
    assert scanner.foreign


BIG = [make_frame(n, 1, size=size) for n, size in enumerate((3_000, 20_000, 5_000, 100, 9_000))]
BIG_LOG = PREAMBLE + b"".join(BIG)
BIG_STARTS = [len(PREAMBLE) + sum(map(len, BIG[:i])) for i in range(6)]


@given(
    blocks=st.sets(st.integers(0, len(BIG_LOG) // BLOCK_BYTES), min_size=1),
    synced=st.integers(0, 4),
    read_bytes=st.integers(500, 50_000),
)
@settings(max_examples=300, deadline=None)
def test_blocks_lost_of_what_was_not_fsynced_are_a_torn_tail(blocks: set[int], synced: int, read_bytes: int) -> None:
    """The first ``synced`` frames were flushed; their last block is as it was then."""
    content = bytearray(BIG_LOG)
    for block in blocks:
        start, end = max(block * BLOCK_BYTES, BIG_STARTS[synced]), min((block + 1) * BLOCK_BYTES, len(content))
        content[start:end] = bytes(max(0, end - start))
    scanner, bases = scan(bytes(content), read_bytes=read_bytes)
    whole = next((n for n in range(5) if content[BIG_STARTS[n] : BIG_STARTS[n + 1]] != BIG[n]), 5)
    assert whole >= synced
    assert (bases, scanner.torn is None) == (list(range(whole)), whole == 5)


@given(sectors=st.sets(st.integers(0, 7), min_size=1), synced=st.integers(1, 4))
def test_sectors_lost_of_a_block_that_was_written_before_are_a_torn_tail(sectors: set[int], synced: int) -> None:
    content = bytearray(BIG_LOG)
    first = BIG_STARTS[synced] - BIG_STARTS[synced] % BLOCK_BYTES
    for sector in sectors:
        start, end = (first + (sector + n) * SECTOR_BYTES for n in (0, 1))
        start, end = max(start, BIG_STARTS[synced]), min(end, len(content))
        content[start:end] = bytes(max(0, end - start))
    scanner, bases = scan(bytes(content))
    assert len(bases) >= synced
    assert (scanner.torn is None) == (len(bases) == 5)


@given(at=st.integers(0, BIG_STARTS[4] - 1), bit=st.integers(0, 7), read_bytes=st.integers(1, 50_000))
@settings(max_examples=100, deadline=None)
def test_a_flipped_bit_is_no_lost_block(at: int, bit: int, read_bytes: int) -> None:
    damaged = bytearray(BIG_LOG)
    damaged[at] ^= 1 << bit
    with pytest.raises(Corrupt, match=r"log 0-b-1"):
        scan(bytes(damaged), read_bytes=read_bytes)


def test_a_block_lost_behind_a_damaged_frame_does_not_make_it_a_torn_tail() -> None:
    content = bytearray(BIG_LOG)
    content[BIG_STARTS[1] + 300] ^= 1
    content[BIG_STARTS[4] + 200 :] = bytes(len(BIG[4]) - 200)
    with pytest.raises(Corrupt, match=f"damaged at byte {BIG_STARTS[1]}"):
        scan(bytes(content))


def encode_value(value: bytes) -> bytes:
    """Return a frame at offset 0 with one record."""
    batch = pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], schema=payload_schema(0, None))
    zeros = dict.fromkeys(("flags", "producer_epoch", "first_sequence", "slot_min", "slot_max"), 0)
    histogram = (1,) + (0,) * 15
    frame = encode_frame(batch, producer_id=1, timestamp_min=T0, timestamp_max=T0, histogram=histogram, **zeros)
    return stamp(frame[:HEADER_BYTES], 0) + frame[HEADER_BYTES:]


def test_records_that_are_frames_prove_nothing() -> None:
    """A log file was sent as a record, and a block of its frame was lost or damaged."""
    value = make_frame(1_000, 1)
    outer = encode_value(value + b"x" * 20_000)
    lost = bytearray(PREAMBLE + outer)
    lost[2 * BLOCK_BYTES : 3 * BLOCK_BYTES] = bytes(BLOCK_BYTES)
    assert value in lost
    scanner, bases = scan(bytes(lost))
    assert bases == []
    assert scanner.torn is not None
