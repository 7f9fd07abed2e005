"""Validation of LZ4 frames: those that Java's client can read are accepted, no others."""

from collections.abc import Iterator

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.kafka.batch import BatchErrorCode, InvalidBatch, check_batch
from seaweedmq.codec.kafka.columns import columns_of
from seaweedmq.codec.kafka.lz4_frame import check_frame
from tests.support.kafka_batches import LZ4, Record, batch_around, batch_of, lz4_frame

HEADER_BYTES = 61
LARGE = batch_of([Record(None, bytes(range(256)) * 600), Record(None, b"b" * 150_000)])[HEADER_BYTES:]
FRAME = lz4_frame(LARGE)
EMPTY = bytes.fromhex("04224d186440a7") + bytes(4)


def with_byte(frame: bytes, at: int, value: int) -> bytes:
    return frame[:at] + bytes([value]) + frame[at + 1 :]


@given(st.binary(max_size=300_000), st.booleans())
def test_a_frame_of_independent_blocks_is_let_in_and_any_part_of_it_is_not(data: bytes, content_checksum: bool) -> None:
    frame = lz4_frame(data, content_checksum=content_checksum)
    check_frame(memoryview(frame))
    for end in range(0, len(frame), max(1, len(frame) // 50)):
        with pytest.raises(ValueError, match="frame"):
            check_frame(memoryview(frame)[:end])


def test_all_bytes_of_a_frame_count() -> None:
    for options in ({}, {"content_checksum": True}):
        frame = lz4_frame(LARGE, **options)
        for end in (*range(20), *range(len(frame) - 20, len(frame))):
            with pytest.raises(ValueError, match="frame"):
                check_frame(memoryview(frame)[:end])


def bad_frames() -> Iterator[tuple[str, bytes, str]]:
    yield "linked blocks", lz4_frame(LARGE, linked=True), "compress independent blocks"
    yield "linked blocks of a short frame", bytes(cramjam.lz4.compress(LARGE[:100])), "compress independent blocks"
    yield "two frames", lz4_frame(LARGE[:1000]) + lz4_frame(LARGE[1000:]), "send one frame per batch"
    yield "a byte behind", FRAME + b"\0", "1 bytes follow"
    yield "no end mark", FRAME[:-4], "no end mark"
    yield "a dictionary", with_byte(FRAME, 4, FRAME[4] | 1), "dictionary"
    yield "another version", with_byte(FRAME, 4, FRAME[4] ^ 0xC0), "version"
    yield "skipped first", bytes.fromhex("502a4d18") + bytes(4) + FRAME, "not a frame"
    yield "a block of nothing", EMPTY[:7] + bytes.fromhex("0100000000") + bytes(4) + FRAME[7:], "without data"
    yield "another codec", bytes(cramjam.gzip.compress(LARGE)), "not a frame"


@pytest.mark.parametrize(("frame", "said"), [pytest.param(*rest, id=name) for name, *rest in bad_frames()])
def test_what_javas_client_cannot_read_is_rejected(frame: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_frame(memoryview(frame))
    with pytest.raises(InvalidBatch, match="lz4 that every client can read") as rejected:
        check_batch(batch_around(frame, 2, attributes=LZ4))
    assert rejected.value.error_code is BatchErrorCode.INVALID_RECORD


def test_what_was_stored_before_is_still_read() -> None:
    batch = batch_around(lz4_frame(LARGE, linked=True), 2, attributes=LZ4)
    assert len(columns_of(batch, unpacked_bytes_max=1 << 20).value) == 2
