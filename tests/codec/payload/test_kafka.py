"""Frames of Kafka's batches through the dispatch of payloads."""

import subprocess
import sys

import pyarrow as pa
import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.codec.kafka.batch import check_batch, frame_of_batch, with_append_time
from seaweedmq.codec.kafka.batch_errors import InvalidBatch
from seaweedmq.codec.payload import optional
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, clip_frame, decode_frame, full_batch, validate_payload
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from tests.codec import golden
from tests.support.kafka_batches import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    T0_MS,
    UNPACKED_BYTES_MAX,
    ZSTD,
    Record,
    batch_of,
    frame_bytes,
)

RECORDS = [
    Record(b"k0", b"v0", (("h", b"1"), ("h", None), ("", b""))),
    Record(None, None, (), T0_MS - 3),
    Record(b"", b"", (("z", b"9"),), T0_MS + 5),
]
ROWS = [
    {"_key": b"k0", "_headers": [("h", b"1"), ("h", None), ("", b"")], "_value": b"v0"},
    {"_key": None, "_headers": None, "_value": None},
    {"_key": b"", "_headers": [("z", b"9")], "_value": b""},
]


def frame_at(base: int, compression: int = NONE) -> Frame:
    (frame,) = split_frames(frame_bytes(batch_of(RECORDS, compression), base, slot=3))
    return frame


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    assert batch.schema == PLAIN_SCHEMA
    batch.validate(full=True)
    return batch.select(["_key", "_headers", "_value"]).to_pylist()


@pytest.mark.parametrize("compression", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_frame_is_let_in_and_decoded(compression: int) -> None:
    """Null is not empty; headers keep order, repeats and nulls."""
    frame = frame_at(40, compression)
    validate_payload(frame.header, frame.payload, None)
    batch = decode_frame(frame, None)
    assert rows_of(batch) == ROWS
    assert batch.column("_timestamp").view(pa.int64()).to_pylist() == [r.timestamp_ms * 1_000 for r in RECORDS]
    assert full_batch(batch, frame.header, None).equals(batch)


def test_the_bytes_of_a_frame_are_those_in_the_field() -> None:
    assert golden.kafka_frame() == golden.read("kafka.frame.hex")


def test_what_is_cut_is_a_frame_of_arrow() -> None:
    (rest,) = split_frames(clip_frame(frame_at(40), 41, None))
    header = rest.header
    assert (header.encoding, header.base_offset, header.record_count) == (1, 41, 2)
    assert (header.timestamp_min, header.timestamp_max) == ((T0_MS - 3) * 1_000, (T0_MS + 5) * 1_000)
    assert (header.slot_min, header.slot_max, rows_of(decode_frame(rest, None))) == (3, 3, ROWS[1:])
    validate_payload(header, rest.payload, None)


def test_the_time_of_the_broker_is_let_in() -> None:
    batch = batch_of(RECORDS)
    frame = frame_of_batch(
        *(stamped := with_append_time(batch, check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX), T0_MS))[:1],
        3,
        stamped[1],
    )
    validate_payload(frame.header, frame.payload, None)
    assert set(decode_frame(frame, None).column("_timestamp").view(pa.int64()).to_pylist()) == {T0_MS * 1_000}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flags": 3}, "and no other columns"),
        ({"flags": 0x107}, "and no other columns"),
        ({"record_count": 2}, "its batch has 3"),
        ({"timestamp_min": 0}, "its batch has 3"),
        ({"timestamp_max": T0_MS * 1_000 + 5_001}, "its batch has 3"),
    ],
)
def test_a_header_that_says_something_else_is_refused(changes: dict[str, int], said: str) -> None:
    frame = frame_at(0)
    with pytest.raises(InvalidArgument, match=said):
        validate_payload(frame.header._replace(**changes), frame.payload, None)


def test_a_topic_with_a_schema_does_not_take_it() -> None:
    frame = frame_at(0)
    with pytest.raises(InvalidArgument, match="and no other columns"):
        validate_payload(frame.header, frame.payload, pa.schema([("a", pa.int64())]))


def test_a_payload_is_a_batch_and_nothing_else() -> None:
    frame = frame_at(0)
    whole = bytes(frame.payload)
    assert whole[-1] == 0, "these records need to be filled up"
    for payload in (whole + bytes(8), whole[:-1] + b"\1", whole[:-8], whole[:40]):
        header = frame.header._replace(payload_length=len(payload), payload_checksum=xxh3_64_intdigest(payload))
        with pytest.raises(InvalidArgument):
            validate_payload(header, memoryview(payload), None)
    damaged = bytearray(whole)
    damaged[70] ^= 1
    with pytest.raises(InvalidBatch, match="CRC"):
        validate_payload(frame.header, memoryview(damaged), None)


def test_a_payload_that_can_not_be_read_is_damage() -> None:
    frame = frame_at(40)
    with pytest.raises(Corrupt, match="frame at offset 40: unreadable payload"):
        decode_frame(
            frame._replace(payload=memoryview(bytes(frame.payload[:61]) + bytes(len(frame.payload) - 61))), None
        )
    with pytest.raises(Corrupt, match="0 bytes are not a record batch"):
        decode_frame(frame._replace(payload=memoryview(b"")), None)
    empty = bytes(frame.payload[:57]) + bytes(len(frame.payload) - 57)
    with pytest.raises(Corrupt, match="0 records do not fit"):
        decode_frame(frame._replace(payload=memoryview(empty)), None)
    with pytest.raises(Corrupt, match="3 records where the header says 2"):
        decode_frame(frame._replace(header=frame.header._replace(record_count=2)), None)


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = frame_at(40)
    for module in [name for name in sys.modules if name.startswith("seaweedmq.codec.kafka")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "seaweedmq.codec.payload.kafka", raising=False)
    monkeypatch.delattr(sys.modules[optional.__package__], "kafka", raising=False)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(Unsupported, match=r'cramjam is not installed: pip install "seaweedmq\[kafka\]"'):
        decode_frame(frame, None)
    with pytest.raises(Unsupported, match="is not installed"):
        validate_payload(frame.header, frame.payload, None)


def test_nobody_else_pays_for_them() -> None:
    """Brokers and clients without such frames import nothing of it; and reading one needs no Kafka client."""
    asked = "aiokafka", "cramjam", "google_crc32c", "kafka"
    frame = bytes(frame_at(40, ZSTD).header_bytes) + bytes(frame_at(40, ZSTD).payload)
    code = (
        "import sys, seaweedmq.aio, seaweedmq.broker.broker, seaweedmq.codec.payload.batch as batch\n"
        "from seaweedmq.codec.frame import split_frames\n"
        f"print([name for name in {asked} if name in sys.modules])\n"
        f"(frame,) = split_frames({frame!r})\n"
        "batch.decode_frame(frame, None)\n"
        f"print([name for name in ('pandas', *{asked}) if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["[]", "['cramjam', 'google_crc32c']"]
