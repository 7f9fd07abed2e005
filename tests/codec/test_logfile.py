"""The beginning of a log file."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import Truncated, split_frames
from seaweedmq.codec.logfile import LogPreamble, decode_preamble, encode_preamble
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState
from seaweedmq.model.topic import TopicName
from tests.codec import golden

U64 = st.integers(0, 2**64 - 1)
BASE = 2**63
RECENT = st.lists(st.builds(FrameAck, U64, U64, U64), max_size=3).map(tuple)
PRODUCERS = st.builds(ProducerState, producer_id=U64, producer_epoch=U64, next_sequence=U64, recent=RECENT)
PREAMBLES = st.builds(
    LogPreamble,
    topic=st.just(TopicName("shop", "orders")),
    topic_uid=U64,
    segment=U64,
    base_offset=st.integers(BASE, 2**64 - 1),
    flushed=st.none() | st.integers(0, BASE),
    writer=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    producers=st.lists(PRODUCERS, max_size=3).map(tuple),
)


def signed(text: bytes, magic: bytes = b"SWMQLOG1") -> bytes:
    covered = magic + struct.pack("<I", len(text)) + text
    return covered + struct.pack("<Q", xxh3_64_intdigest(covered))


@given(PREAMBLES, st.binary(max_size=50))
def test_a_preamble_comes_back_and_frames_begin_aligned(preamble: LogPreamble, frames: bytes):
    data = encode_preamble(preamble)
    assert (decode_preamble(data + frames), len(data) % 16) == ((preamble, len(data)), 0)


def test_the_committed_file_still_reads_and_writes_the_same():
    data = golden.read("plain.log.hex")
    preamble, used = decode_preamble(data)
    assert (preamble, encode_preamble(preamble)) == (golden.PREAMBLE, data[:used])
    assert [frame.header.base_offset for frame in split_frames(data[used:])] == [100, 103]


def test_a_torn_preamble_asks_for_more():
    data = encode_preamble(golden.PREAMBLE)
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            decode_preamble(memoryview(data)[:cut])


def test_every_flipped_bit_is_noticed():
    data = encode_preamble(golden.PREAMBLE)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode_preamble(bytes(damaged))


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"PAR1", Corrupt, "not a log file"),
        (b"PAR1" + b"\0" * 100, Corrupt, "not a log file"),
        (b"SWMQLOG1\xff\xff\xff\xff" + b"\0" * 100, Corrupt, "length 4294967295 is above"),
        (signed(b""), Corrupt, "unreadable JSON"),
        (signed(b"[]"), Corrupt, "unreadable JSON"),
        (signed(b"[" * 100_000), Corrupt, "unreadable JSON"),
        (signed(b'{"v":1}'), Corrupt, "KeyError: 'topic'"),
        (signed(b'{"v":1,"topic":"no-slash"}'), Corrupt, "NAMESPACE/NAME"),
        (signed(b'{"v":1,"topic":"a/b","topic_uid":-1}'), Corrupt, "-1 is not a whole number"),
        (signed(b'{"v":1,"topic":"a/b","topic_uid":true}'), Corrupt, "True is not a whole number"),
        (
            signed(
                b'{"v":1,"topic":"a/b","topic_uid":1,"segment":2,"base_offset":3,"writer":"b","producers":[],"flushed":4}'
            ),
            Corrupt,
            "flushed 4 is beyond base_offset 3",
        ),
        (signed(b'{"v":2,"topic":{}}'), Unsupported, "version 2, this build reads 1"),
    ],
)
def test_foreign_files_are_refused_by_name(data: bytes, error: type, says: str):
    with pytest.raises(error, match=says):
        decode_preamble(data)


def test_unknown_fields_of_a_later_build_are_passed_over():
    text = b'{"v":1,"new":5,"topic":"a/b","topic_uid":1,"segment":2,"base_offset":3,"writer":"w","producers":[]}'
    preamble, _ = decode_preamble(signed(text))
    assert (preamble.segment, preamble.base_offset, preamble.producers) == (2, 3, ())
