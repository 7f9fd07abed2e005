"""Assembly of large frames from the pieces of a subscribe stream."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from seaweedmq.client.subscribe.assembler import FrameAssembler
from seaweedmq.codec.frame import HEADER_BYTES, FrameHeader, encode_header, split_payload
from seaweedmq.errors import Corrupt, ProtocolViolation
from seaweedmq.model.messages.frames import FrameHead
from seaweedmq.model.messages.subscribe import SubscribeEnd, SubscribeFrames, SubscribeReady

READY = SubscribeReady(start_offset=0, high_watermark=1)
END = SubscribeEnd(end_offset=1, successors=())


def frame_of(payload: bytes) -> bytes:
    header = FrameHeader(1, 0, 2, len(payload), xxh3_64_intdigest(payload), 5, 5, 7, 0, 1, 3, 9, (2, *[0] * 15))
    return encode_header(header) + payload


@given(payload=st.binary(min_size=1, max_size=2_000), piece_bytes=st.integers(1, 500))
def test_a_frame_is_assembled_from_its_head_and_pieces(payload: bytes, piece_bytes: int) -> None:
    assembler, frame = FrameAssembler(), frame_of(payload)
    for _ in range(2):
        assert assembler.add(READY) is READY
        assert assembler.add(FrameHead(frame[:HEADER_BYTES])) is None
        *before, last = split_payload(payload, piece_bytes)
        assert [assembler.add(SubscribeFrames(piece)) for piece in before] == [None] * len(before)
        whole = assembler.add(SubscribeFrames(last))
        assert isinstance(whole, SubscribeFrames)
        assert whole.data == frame


def test_replies_between_frames_pass_as_they_are_and_a_damaged_head_is_corrupt() -> None:
    assembler = FrameAssembler()
    for reply in (READY, SubscribeFrames(frame_of(b"payload")), END):
        assert assembler.add(reply) is reply
    head = bytearray(frame_of(b"payload")[:HEADER_BYTES])
    head[50] ^= 1
    with pytest.raises(Corrupt):
        FrameAssembler().add(FrameHead(bytes(head)))


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (END, "SubscribeEnd came where the payload"),
        (FrameHead(frame_of(b"payload")[:HEADER_BYTES]), "payload of another one is due"),
        (SubscribeFrames(b"payload and more"), "9 bytes beyond"),
    ],
)
def test_what_is_not_the_payload_of_the_frame_is_rejected(reply: object, text: str) -> None:
    assembler = FrameAssembler()
    assembler.add(FrameHead(frame_of(b"payload")[:HEADER_BYTES]))
    with pytest.raises(ProtocolViolation, match=re.escape(text)):
        assembler.add(reply)  # type: ignore[arg-type]
