"""The bytes of bundles and fences."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.bundle import (
    HEADER_BYTES,
    EncodedBundle,
    decode_entry,
    decode_header,
    encode_bundle,
    encode_fence,
    run_frames,
)
from seaweedmq.codec.frame import Truncated
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.bundle import BundledFrame, BundleRun, BundleSection, EntryHeader, EntryKind, SegmentTail
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState
from tests.codec import golden
from tests.codec.golden import BUNDLE_HEADER, CARRIED, FENCE_HEADER, TAILS, bundle_runs
from tests.core.segment.bundle_model import run as play

NAME = "bundles/b-7f3a91c2/0000000000000128"
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
FRAMES = st.lists(st.builds(BundledFrame, U64, U32, U64, st.integers(1, 2**32 - 1)), min_size=1, max_size=4)


@st.composite
def any_run(draw: st.DrawFn) -> tuple[BundleRun, tuple[bytes, ...]]:
    frames, base = tuple(draw(FRAMES)), draw(st.integers(0, 2**63))
    content = tuple(draw(st.lists(st.binary(min_size=1, max_size=9), max_size=3)))
    length = sum(map(len, content)) if content else draw(U64)
    end = base + sum(frame.record_count for frame in frames)
    run = BundleRun(
        topic_uid=draw(U64), segment=draw(U32), base_offset=base, end_offset=end, length=length, frames=frames
    )
    return run, content


PRODUCERS = st.builds(
    ProducerState,
    producer_id=U64,
    producer_epoch=U32,
    next_sequence=U64,
    recent=st.lists(st.builds(FrameAck, U64, U32, U64), max_size=3).map(tuple),
)
ANY_TAILS = st.lists(
    st.builds(
        SegmentTail,
        topic_uid=U64,
        segment=U32,
        end_offset=U64,
        producers=st.lists(PRODUCERS, max_size=3).map(tuple),
    ),
    max_size=3,
)


def whole(encoded: EncodedBundle) -> bytes:
    return b"".join(encoded.buffers)


def sample() -> bytes:
    return whole(encode_bundle(BUNDLE_HEADER, bundle_runs(), carried=CARRIED, tails=TAILS))


def signed(header: bytes, **fields: int) -> bytes:
    """The header with other fields and a valid checksum, as a program with a defect writes it."""
    places = {
        "version": (8, "H"),
        "kind": (10, "B"),
        "index": (12, "I"),
        "number": (16, "Q"),
        "floor": (24, "Q"),
        "done": (96, "Q"),
    }
    places |= {"sections": (76, "I"), "tails": (80, "I"), "checksum": (88, "Q"), "every": (72, "H")}
    changed = bytearray(header)
    for name, value in fields.items():
        at, width = places[name]
        struct.pack_into(f"<{width}", changed, at, value)
    struct.pack_into("<Q", changed, 120, xxh3_64_intdigest(changed[:120]))
    return bytes(changed)


@given(st.lists(any_run(), max_size=4), ANY_TAILS, st.lists(any_run(), max_size=2))
def test_a_checkpoint_comes_back_from_its_prefix(runs, tails, older):
    carried = [
        BundleSection(number=100 + i, runs=(replace(run, frames=(), position=128 + i),))
        for i, (run, _) in enumerate(older)
    ]
    encoded = encode_bundle(BUNDLE_HEADER, runs, carried=carried, tails=tails)
    data = whole(encoded)
    prefix = decode_header(data[:HEADER_BYTES], NAME)
    assert (prefix.object_bytes, prefix.header) == (len(data), BUNDLE_HEADER)
    index = decode_entry(data[: prefix.prefix_bytes], NAME, object_bytes=len(data))
    assert index == encoded.index
    assert [run.frames for run in index.runs] == [run.frames for run, _ in runs]
    for found, (_, content) in zip(index.runs, runs, strict=True):
        assert found.is_reference == (not content)
        if content:
            assert data[found.position : found.position + found.length] == b"".join(content)


def test_frames_are_passed_on_and_not_copied():
    buffers = encode_bundle(BUNDLE_HEADER, bundle_runs(), carried=CARRIED, tails=TAILS).buffers
    given = [buffer for _, frames in bundle_runs() for buffer in frames]
    runs = [(run, [memoryview(buffer) for buffer in frames]) for run, frames in bundle_runs()]
    again = encode_bundle(BUNDLE_HEADER, runs, carried=CARRIED, tails=TAILS).buffers
    assert [bytes(buffer) for buffer in buffers[1:]] == given
    assert all(passed is buffer for passed, buffer in zip(again[1:], [b for _, f in runs for b in f], strict=True))


def test_the_committed_bytes_still_read_and_write_the_same():
    data = golden.read("checkpoint.bundle.hex")
    assert sample() == data
    index = decode_entry(data, NAME, object_bytes=len(data))
    assert (index.header, index.sections[1:], index.tails) == (BUNDLE_HEADER, CARRIED, TAILS)
    frames = [
        frame.header.base_offset
        for run in index.runs
        if not run.is_reference
        for frame in run_frames(data[run.position : run.position + run.length], run, NAME)
    ]
    assert frames == [100, 103, 5]
    fence = golden.read("fence.bundle.hex")
    assert encode_fence(FENCE_HEADER, "b-00000002") == fence
    found = decode_entry(fence, NAME, object_bytes=len(fence))
    assert (found.header, found.writer, found.runs) == (FENCE_HEADER, "b-00000002", ())


@pytest.mark.parametrize("name", ["checkpoint.bundle.hex", "fence.bundle.hex"])
def test_an_entry_cut_short_is_noticed_at_every_byte(name: str):
    data = golden.read(name)
    prefix = decode_header(data, NAME)
    for cut in range(len(data)):
        with pytest.raises(Truncated, match=f"{NAME} at byte {cut}: .*restore the object|cut short"):
            decode_entry(data[:cut], NAME, object_bytes=cut if cut >= HEADER_BYTES else None)
    for cut in range(prefix.prefix_bytes):
        with pytest.raises(Truncated, match="cut short"):
            decode_entry(data[:cut], NAME)
    with pytest.raises(Corrupt, match=f"at byte {len(data) + 1}: the object ends here instead of at byte {len(data)}"):
        decode_entry(data + b"x", NAME, object_bytes=len(data) + 1)


def test_every_flipped_bit_of_header_and_index_is_noticed():
    for name in ("checkpoint.bundle.hex", "fence.bundle.hex"):
        data = golden.read(name)
        prefix = data[: decode_header(data, NAME).prefix_bytes]
        for bit in range(len(prefix) * 8):
            damaged = bytearray(prefix)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Corrupt, match=rf"^{NAME} at byte \d+: "):
                decode_entry(bytes(damaged), NAME, object_bytes=len(data))


def test_every_flipped_byte_of_a_run_is_noticed():
    data = golden.read("checkpoint.bundle.hex")
    for run in decode_entry(data, NAME).runs:
        content = data[run.position : run.position + run.length]
        for at in range(len(content) if run.position else 0):
            damaged = bytearray(content)
            damaged[at] ^= 1
            with pytest.raises((Corrupt, Unsupported), match=f"{NAME}, run of .* at byte {run.position}: frame"):
                list(run_frames(bytes(damaged), run, NAME))
        with pytest.raises(Truncated, match="cut short"):
            list(run_frames(content[:-1], run, NAME))


def test_frames_that_are_not_those_of_the_index_are_noticed():
    data = golden.read("checkpoint.bundle.hex")
    run = decode_entry(data, NAME).runs[0]
    content = data[run.position : run.position + run.length]
    other = (run.frames[0]._replace(first_sequence=9), *run.frames[1:])
    for wrong in (replace(run, base_offset=99), replace(run, frames=other)):
        with pytest.raises(Corrupt, match="is not frame 0 of its run"):
            list(run_frames(content, wrong, NAME))
    with pytest.raises(Corrupt, match="ends at offset 105 instead of 106"):
        list(run_frames(content, replace(run, end_offset=106, frames=()), NAME))


def test_a_newer_version_is_refused_and_a_damaged_one_is_told_from_it():
    header = sample()[:HEADER_BYTES]
    with pytest.raises(Unsupported, match=f"{NAME} at byte 8: format version 2, this build reads 1; upgrade"):
        decode_header(signed(header, version=2), NAME)
    damaged = bytearray(header)
    damaged[8] = 2
    with pytest.raises(Corrupt, match="at byte 8: has format version 2, but the checksum of version 1"):
        decode_header(bytes(damaged), NAME)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": 9}, "at byte 10: 9 is not a kind of entry"),
        ({"index": 2**31}, "at byte 12: index of 2147483648 bytes"),
        ({"number": 10**16}, "at byte 12: .* number 10000000000000000"),
        ({"every": 0}, "checkpoint every 0"),
        ({"floor": 65}, "at byte 24: floor 65, full checkpoint 64, done 126 and number 128 must be in ascending order"),
        ({"done": 59}, "done 59 and number 128 must be in ascending order"),
        ({"number": 129}, "its first section is not its own"),
        ({"sections": 99}, "rows end .* bytes beyond the index"),
        ({"tails": 1}, "bytes are left behind the last row"),
    ],
)
def test_entries_that_another_program_wrote_are_rejected_by_name(fields: dict[str, int], message: str):
    data = sample()
    with pytest.raises(Corrupt, match=f"{NAME} .*{message}"):
        decode_entry(signed(data[:HEADER_BYTES], **fields) + data[HEADER_BYTES:], NAME)


def test_a_foreign_object_is_rejected_by_name():
    for data in (b"PAR1", b"PAR1" + b"\0" * 200):
        with pytest.raises(Corrupt, match=f"{NAME} at byte 0: begins with b'PAR1.*not a bundle"):
            decode_header(data, NAME)


def test_what_is_no_bundle_is_not_encoded():
    first, frames = bundle_runs()[0]
    plain = replace(BUNDLE_HEADER, kind=EntryKind.BUNDLE)
    with pytest.raises(InvalidArgument, match="only a checkpoint carries sections"):
        encode_bundle(plain, [], carried=CARRIED)
    with pytest.raises(InvalidArgument, match="bytes instead of"):
        encode_bundle(plain, [(replace(first, length=1), frames)])
    with pytest.raises(InvalidArgument, match="a field does not fit its width"):
        encode_bundle(plain, [(replace(first, segment=2**32), frames)])
    with pytest.raises(InvalidArgument, match="use numbers up to"):
        encode_bundle(replace(plain, number=10**16), [])
    with pytest.raises(InvalidArgument, match="not a fence"):
        encode_fence(plain, "b-1")


def test_the_entries_of_a_history_come_back():
    for seed in range(5):
        for entry in play(seed).writer.entries.values():
            runs = [(each, () if each.is_reference else (bytes(each.length),)) for each in entry.runs]
            encoded = encode_bundle(entry.header, runs, carried=entry.sections[1:], tails=entry.tails)
            found = decode_entry(whole(encoded), NAME)
            assert (found, found.header, found.sections[1:], found.tails) == (
                encoded.index,
                entry.header,
                entry.sections[1:],
                entry.tails,
            )
            assert [replace(each, position=0) for each in found.runs] == [
                replace(each, position=0) for each in entry.runs
            ]


def test_a_bundle_without_frames_is_a_header_and_one_section():
    header = EntryHeader(
        kind=EntryKind.FULL_CHECKPOINT, number=0, floor=0, done=0, checkpoint=0, nonce=bytes(16), time_us=0
    )
    assert len(whole(encode_bundle(header, []))) == HEADER_BYTES + 16
