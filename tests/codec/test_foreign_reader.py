"""A log file reader that uses only the specification in ``codec/FORMATS.md``: struct, xxhash, Arrow's own IPC reader.

It imports nothing of seaweedmq. If this test has to change, so has the specification, and files in the field no longer
match their description.
"""

import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

GOLDEN = Path(__file__).parent / "golden"
NOON = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def read_log(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the preamble's JSON, and the records with their offsets."""
    assert data[:8] == b"SWMQLOG1"
    (json_length,) = struct.unpack_from("<I", data, 8)
    json_end = 12 + json_length
    (checksum,) = struct.unpack_from("<Q", data, json_end)
    assert checksum == xxhash.xxh3_64_intdigest(data[:json_end])
    preamble = json.loads(data[12:json_end])
    records = []
    position = json_end + 8
    assert position % 16 == 0
    while position < len(data):
        frame_records, position = read_frame(data, position, [pa.field("_value", pa.binary())])
        records += frame_records
    return preamble, records


def read_frame(data: bytes, position: int, value_fields: list[pa.Field]) -> tuple[list[dict[str, Any]], int]:
    """Return the records of one frame, and the position of the next one."""
    header = data[position : position + 144]
    (magic, version, encoding, flags, record_count, payload_length) = struct.unpack_from("<4sBBHII", header, 0)
    (payload_checksum, timestamp_min, timestamp_max) = struct.unpack_from("<Qqq", header, 16)
    (base_offset, header_checksum) = struct.unpack_from("<QQ", header, 128)
    assert (magic, version, encoding) == (b"SWMF", 1, 1)
    assert header_checksum == xxhash.xxh3_64_intdigest(header[:136])
    end = position + 144 + payload_length
    payload = data[position + 144 : end]
    assert (len(payload), payload_checksum) == (payload_length, xxhash.xxh3_64_intdigest(payload))

    fields = []
    if flags & 1:
        fields.append(pa.field("_key", pa.binary()))
    if flags & 2:
        fields.append(pa.field("_timestamp", pa.timestamp("us", tz="UTC")))
    if flags & 4:
        fields.append(pa.field("_headers", pa.map_(pa.string(), pa.binary())))
    batch = pa.ipc.read_record_batch(payload, pa.schema(fields + value_fields))
    batch.validate(full=True)
    assert batch.num_rows == record_count
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    absent = {"_key": None, "_timestamp": epoch + timestamp_min * MICROSECOND, "_headers": None}
    records = [{"_offset": base_offset + i, **absent, **row} for i, row in enumerate(batch.to_pylist())]
    stamps = [record["_timestamp"] for record in records]
    assert min(stamps) == epoch + timestamp_min * MICROSECOND
    assert max(stamps) == epoch + timestamp_max * MICROSECOND
    return records, end


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text())


def test_a_log_file_is_read_by_its_specification_alone():
    preamble, records = read_log(golden("plain.log.hex"))
    assert preamble == {
        "v": 1,
        "topic": "shop/orders",
        "topic_uid": 0x1122334455667788,
        "segment": 7,
        "base_offset": 100,
        "writer": "b-7f3a91c2",
        "producers": [[0xABCDEF, 3, 1_000, [[990, 4, 90], [994, 6, 94]]], [2**64 - 1, 0, 0, []]],
    }
    late, early = NOON + MICROSECOND, NOON - MICROSECOND
    headers = [("source", b"web"), ("empty", None)]
    assert records == [
        {"_offset": 100, "_key": b"ann", "_timestamp": NOON, "_headers": headers, "_value": b"first"},
        {"_offset": 101, "_key": None, "_timestamp": late, "_headers": None, "_value": None},
        {"_offset": 102, "_key": b"bob", "_timestamp": early, "_headers": [], "_value": b""},
        {"_offset": 103, "_key": None, "_timestamp": NOON, "_headers": None, "_value": b"fourth"},
        {"_offset": 104, "_key": None, "_timestamp": NOON, "_headers": None, "_value": b"fifth"},
    ]


def test_a_frame_of_a_topic_with_a_schema_is_read_with_that_schema():
    schema = pa.ipc.read_schema(pa.py_buffer(golden("typed.schema.hex")))
    data = golden("typed.frame.hex")
    (flags,) = struct.unpack_from("<H", data, 6)
    assert flags >> 8 == 1  # schema version 1: the topic's columns in place of _value
    records, end = read_frame(data, 0, list(schema))
    absent = {"_key": None, "_timestamp": NOON, "_headers": None}
    assert records == [
        {"_offset": 5, **absent, "item": "pen", "price": 1.5},
        {"_offset": 6, **absent, "item": "ink", "price": None},
    ]
    assert end == len(data)


def test_a_payload_by_reference_is_read_by_the_specification_alone():
    data = golden("reference.frame.hex")
    (flags,) = struct.unpack_from("<H", data, 6)
    assert flags == 1 | 8
    fields = [("uri", pa.string()), ("size", pa.int64()), ("content_type", pa.string())]
    fields += [("sha256", pa.binary(32)), ("part_bytes", pa.int64())]
    columns = [pa.field("_value", pa.binary()), pa.field("_reference", pa.struct(fields))]
    records, end = read_frame(data, 0, columns)
    absent = {"_timestamp": NOON, "_headers": None}
    film = {
        "uri": "blobs/shop/orders/7/2020-09-13/00112233445566778899aabbccddeeff",
        "size": 5_000_000_000,
        "content_type": "video/mp4",
        "sha256": bytes(range(32)),
        "part_bytes": 67_108_864,
    }
    assert records == [
        {"_offset": 40, "_key": b"film", **absent, "_value": None, "_reference": film},
        {"_offset": 41, "_key": b"note", **absent, "_value": b"small", "_reference": None},
    ]
    assert end == len(data)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return a record of Kafka's, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_number(data, at)
    return (None, at) if length == -1 else (data[at : at + length], at + length)


def test_a_batch_of_a_kafka_client_is_read_by_the_specification_alone():
    data = golden("kafka.frame.hex")
    assert (data[5], data[6], data[7]) == (2, 7, 0)
    assert struct.unpack_from("<QQIHH", data, 40) == (5_000, 70, 2, 3, 3)
    (lowest, highest) = struct.unpack_from("<qq", data, 24)
    (base_offset,) = struct.unpack_from("<Q", data, 128)
    payload = data[144:]
    assert len(payload) % 8 == 0
    (length,) = struct.unpack_from(">i", payload, 8)
    batch, rest = payload[: 12 + length], payload[12 + length :]
    assert not any(rest)
    (magic, _, attributes, last, first_timestamp, _, *producer, count) = struct.unpack_from(">bIhiqqqhii", batch, 16)
    assert (magic, attributes, last, producer, count) == (2, 0, 1, [5_000, 2, 70], 2)
    records = []
    at = 61
    for number in range(count):
        size, at = read_number(batch, at)
        end = at + size
        delta, at = read_number(batch, at + 1)
        told, at = read_number(batch, at)
        key, at = read_bytes(batch, at)
        value, at = read_bytes(batch, at)
        headers = []
        header_count, at = read_number(batch, at)
        for _ in range(header_count):
            name, at = read_bytes(batch, at)
            item, at = read_bytes(batch, at)
            headers.append((name.decode(), item))
        assert (told, at) == (number, end)
        records.append((base_offset + number, 1_000 * (first_timestamp + delta), key, value, headers))
    assert at == len(batch)
    noon = (NOON - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND
    assert records == [
        (200, noon, b"ann", None, [("source", b"web"), ("source", None)]),
        (201, noon - 5_000, None, b"second", []),
    ]
    assert (lowest, highest) == (noon - 5_000, noon)


def test_the_header_says_who_sent_the_frame_and_which_slots_it_has():
    header = golden("typed.frame.hex")[:144]
    assert struct.unpack_from("<QQIHH", header, 40) == (0xABCDEF, 1_000, 3, 17, 60_000)
    assert struct.unpack_from("<16I", header, 64) == (2, *[0] * 15)
