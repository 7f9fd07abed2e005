"""Batches and frames that the codec tests share."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import (
    FLAG_HEADERS,
    FLAG_KEY,
    FLAG_REFERENCE,
    FLAG_TIMESTAMP,
    Frame,
    encode_header,
    split_frames,
)
from seaweedmq.codec.payload.batch import encode_frame, payload_schema
from seaweedmq.codec.references import column_of
from seaweedmq.model.reference import PayloadReference

ALL_COLUMNS = FLAG_KEY | FLAG_TIMESTAMP | FLAG_HEADERS
TYPED = 1 << 8
NOON_US = 1_600_000_000_000_000
TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(pa.string(), pa.binary())


@dataclass(frozen=True)
class Sample:
    """Return a frame as a publisher would send it, and the topic's schema."""

    name: str
    frame_bytes: bytes
    topic_schema: pa.Schema | None
    batch: pa.RecordBatch

    @property
    def frame(self) -> Frame:
        (frame,) = split_frames(self.frame_bytes)
        return frame


def sample(name: str, columns: list[pa.Array], flags: int, topic_schema: pa.Schema | None = None) -> Sample:
    """Encode the columns; timestamps come from the column, or are noon."""
    schema = payload_schema(flags, topic_schema)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    lowest = highest = NOON_US
    if flags & FLAG_TIMESTAMP:
        bounds = pc.min_max(batch.column(schema.get_field_index("_timestamp")).cast(pa.int64())).as_py()
        lowest, highest = bounds["min"], bounds["max"]
    encoded = encode_frame(
        batch,
        flags=flags,
        producer_id=0xABCDEF,
        producer_epoch=3,
        first_sequence=1_000,
        timestamp_min=lowest,
        timestamp_max=highest,
        slot_min=17,
        slot_max=60_000,
        histogram=(batch.num_rows, *[0] * 15),
    )
    return Sample(name, encoded, topic_schema, batch)


def with_payload(frame: Frame, payload: bytes, **changes: int) -> bytes:
    """Return the frame with another payload and header, but valid checksums, as a misbehaving client sends it."""
    header = frame.header._replace(payload_length=len(payload), payload_checksum=xxh3_64_intdigest(payload))
    return encode_header(header._replace(**changes)) + payload


def plain_values(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


WIDE = [
    ("flag", pa.bool_(), [True, None, False]),
    ("count", pa.int32(), [1, 2, 3]),
    ("ratio", pa.float64(), [0.5, None, float("nan")]),
    ("text", pa.string(), ["a", None, "héllo"]),
    ("long_text", pa.large_string(), ["a", None, "b" * 20]),
    ("code", pa.binary(3), [b"abc", None, b"def"]),
    ("price", pa.decimal128(10, 2), [Decimal("1.25"), None, Decimal("-7.00")]),
    ("day", pa.date32(), [date(2024, 2, 29), None, date(1969, 1, 1)]),
    ("second", pa.timestamp("s"), [1_600_000_000, None, -5]),
    ("clock", pa.time64("us"), [1, None, 86_399_999_999]),
]
"""Name, type and values of columns of every flat type."""
PAIR = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
NESTED = [
    ("list", pa.list_(pa.int64()), [[1, None], None, []]),
    ("struct", PAIR, [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}]),
    ("map", pa.map_(pa.string(), pa.list_(pa.timestamp("s"))), [[("a", [1, None]), ("b", None)], None, []]),
    ("pair", pa.list_(pa.float32(), 2), [[1.0, None], None, [2.0, 3.0]]),
    ("big", pa.large_list(pa.struct([pa.field("x", pa.int8())])), [[{"x": 1}, None], None, []]),
]
WIDE_SCHEMA = pa.schema([pa.field(name, kind, nullable=name != "count") for name, kind, _ in WIDE])
NESTED_SCHEMA = pa.schema([pa.field(name, kind) for name, kind, _ in NESTED])


REFERENCE = PayloadReference(
    uri="blobs/shop/orders/7/2020-09-13/00112233445566778899aabbccddeeff",
    size_bytes=5_000_000_000,
    content_type="video/mp4",
    sha256=bytes(range(32)),
    part_bytes=64 * 1024 * 1024,
)


def samples() -> list[Sample]:
    """Return frames of every kind of column: plain, plain with all optional columns, flat types, nested types."""
    times = pa.array([NOON_US, NOON_US - 5, NOON_US + 9], TIMESTAMP)
    keys = pa.array([b"k1", None, b"a longer key"], pa.binary())
    headers = pa.array([[("h", b"v"), ("g", None)], None, []], HEADERS)
    values = plain_values([b"value", None, b""])
    wide, nested = ([pa.array(values, kind) for _, kind, values in columns] for columns in (WIDE, NESTED))
    return [
        sample("plain", [plain_values([b"x" * 100] * 50)], 0),
        sample("plain, all columns", [keys, times, headers, values], ALL_COLUMNS),
        sample(
            "by reference",
            [keys, plain_values([None, b"small", None]), column_of([REFERENCE, None, None])],
            FLAG_KEY | FLAG_REFERENCE,
        ),
        sample("flat types", [keys, *wide], TYPED | FLAG_KEY, WIDE_SCHEMA),
        sample("nested types", [times, *nested], TYPED | FLAG_TIMESTAMP, NESTED_SCHEMA),
    ]
