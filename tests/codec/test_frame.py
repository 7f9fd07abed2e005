"""Frames: written ones are readable, and damaged ones are rejected by name."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import (
    HEADER_BYTES,
    FrameHeader,
    Truncated,
    decode_header,
    encode_header,
    split_frames,
    stamp,
)
from seaweedmq.errors import Corrupt, Unsupported
from tests.codec import golden

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
I64 = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.builds(
    FrameHeader,
    encoding=st.just(1),
    flags=U16,
    record_count=U32,
    payload_length=U32,
    payload_checksum=U64,
    timestamp_min=I64,
    timestamp_max=I64,
    producer_id=U64,
    first_sequence=U64,
    producer_epoch=U32,
    slot_min=U16,
    slot_max=U16,
    histogram=st.tuples(*[U32] * 16),
    base_offset=U64,
)


def frame_of(payload: bytes, base_offset: int = 0) -> bytes:
    header = FrameHeader(1, 0, 2, len(payload), xxh3_64_intdigest(payload), 5, 5, 7, 0, 1, 3, 9, (2, *[0] * 15))
    return encode_header(header._replace(base_offset=base_offset)) + payload


def resigned(data: bytes) -> bytes:
    """Return the header with a checksum of its current fields."""
    return data[:136] + struct.pack("<Q", xxh3_64_intdigest(data[:136])) + data[144:]


@given(HEADERS)
def test_a_header_comes_back(header: FrameHeader):
    data = encode_header(header)
    assert len(data) == HEADER_BYTES
    assert decode_header(data) == header
    assert decode_header(b"before" + data + b"after", 6) == header


@given(HEADERS, U64)
def test_stamping_changes_the_base_offset_and_nothing_else(header: FrameHeader, base_offset: int):
    stamped = stamp(encode_header(header), base_offset)
    assert decode_header(stamped) == header._replace(base_offset=base_offset)
    assert stamped == stamp(memoryview(encode_header(header)), base_offset)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_frames_back_to_back_come_apart_again(payloads: list[bytes]):
    data = b"".join(frame_of(payload, base_offset=2 * i) for i, payload in enumerate(payloads))
    frames = list(split_frames(data))
    assert [bytes(frame.payload) for frame in frames] == payloads
    assert [frame.header.base_offset for frame in frames] == [2 * i for i in range(len(payloads))]
    assert b"".join(bytes(f.header_bytes) + bytes(f.payload) for f in frames) == data
    assert sum(frame.header.frame_bytes for frame in frames) == len(data)


def test_splitting_copies_nothing():
    data = bytearray(frame_of(b"payload"))
    (frame,) = split_frames(memoryview(data))
    data[-1:] = b"D"
    assert frame.payload == b"payloaD"
    assert isinstance(frame.payload, memoryview)
    assert frame.payload.obj is data


def test_what_a_header_derives():
    header = FrameHeader(1, 0x0103, 10, 56, 0, 0, 0, 0, 0, 0, 0, 0, (0,) * 16, base_offset=5)
    assert (header.end_offset, header.schema_version, header.frame_bytes) == (15, 1, 200)


def test_every_flipped_bit_is_noticed():
    data = frame_of(b"some payload")
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, Unsupported)):
            list(split_frames(bytes(damaged)))


def test_every_truncation_is_told_from_damage():
    whole, last = frame_of(b"first"), frame_of(b"second")
    for cut in range(1, len(last)):
        frames = split_frames(whole + last[:cut])
        assert next(frames).payload == b"first"  # whole frames are still returned
        with pytest.raises(Truncated, match=f"frame at byte {len(whole)}: .* missing"):
            next(frames)


def test_without_verification_only_the_header_is_checked():
    damaged = frame_of(b"payload")[:-1] + b"?"
    (frame,) = split_frames(damaged, verify=False)
    assert frame.payload == b"payloa?"
    with pytest.raises(Corrupt, match="frame at byte 0: payload checksum"):
        list(split_frames(damaged))


@pytest.mark.parametrize(
    ("position", "value", "error", "says"),
    [
        (0, b"RIFF", Corrupt, "begins with b'RIFF' instead of b'SWMF'; not a frame"),
        (4, b"\x02", Unsupported, "format version 2, this build reads 1"),
        (12, b"\xff\xff\xff\xff", Truncated, "payload of 4294967295 bytes"),
    ],
)
def test_lies_under_a_right_checksum_are_refused_by_name(position: int, value: bytes, error: type, says: str):
    data = frame_of(b"payload")
    with pytest.raises(error, match=says):
        list(split_frames(resigned(data[:position] + value + data[position + len(value) :])))


def test_a_damaged_header_is_named_with_its_position():
    data = frame_of(b"one") + frame_of(b"two").replace(b"\x07", b"\x08", 1)
    with pytest.raises(Corrupt, match="frame at byte 147: header checksum"):
        list(split_frames(data))


def test_no_frames_are_no_error():
    assert list(split_frames(b"")) == []


def test_a_position_outside_the_data_is_truncation():
    for position in (-1, 1, 10_000):
        with pytest.raises(Truncated):
            decode_header(frame_of(b"")[:144], position)


def test_the_committed_header_still_reads_and_writes_the_same():
    data = golden.read("typed.frame.hex")
    header = FrameHeader(
        encoding=1,
        flags=0x100,
        record_count=2,
        payload_length=len(data) - HEADER_BYTES,
        payload_checksum=xxh3_64_intdigest(data[HEADER_BYTES:]),
        timestamp_min=1_600_000_000_000_000,
        timestamp_max=1_600_000_000_000_000,
        producer_id=0xABCDEF,
        first_sequence=1_000,
        producer_epoch=3,
        slot_min=17,
        slot_max=60_000,
        histogram=(2, *[0] * 15),
        base_offset=5,
    )
    assert decode_header(data) == header
    assert encode_header(header) == data[:HEADER_BYTES]
