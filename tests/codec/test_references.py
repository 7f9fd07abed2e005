"""The column of payloads by reference: what comes back, what brokers reject, and what belongs to a topic."""

import json
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.frame import COLUMN_FLAGS, FLAG_KEY, FLAG_REFERENCE, encode_header, split_frames
from seaweedmq.codec.payload.batch import (
    PLAIN_SCHEMA,
    clip_frame,
    decode_frame,
    full_batch,
    full_schema,
    payload_schema,
    validate_payload,
)
from seaweedmq.codec.references import (
    REFERENCE,
    check_own,
    column_of,
    reference_json,
    reference_of,
)
from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName
from tests.codec import golden
from tests.codec.samples import REFERENCE as FILM
from tests.codec.samples import TYPED, plain_values, sample

ORDERS = TopicName("shop", "orders")
I64 = st.integers(0, 2**63 - 1)
REFERENCES = st.builds(
    PayloadReference,
    uri=st.text(max_size=40),
    size_bytes=I64,
    content_type=st.text(max_size=20),
    sha256=st.binary(min_size=32, max_size=32),
    part_bytes=I64,
)


def with_uri(uri: str) -> PayloadReference:
    return PayloadReference(uri=uri, size_bytes=1, content_type="", sha256=bytes(32))


def frame_of(*references: PayloadReference | None, values: list[bytes | None] | None = None) -> bytes:
    columns = [plain_values(values or [None] * len(references)), column_of(references)]
    return sample("references", columns, FLAG_REFERENCE).frame_bytes


def check(data: bytes, schema: pa.Schema | None = None) -> None:
    for frame in split_frames(data):
        validate_payload(frame.header, frame.payload, schema)


@given(st.lists(st.none() | REFERENCES, min_size=1, max_size=20))
def test_any_references_come_back(references: list[PayloadReference | None]):
    column = column_of(references)
    column.validate(full=True)
    assert column.type == REFERENCE.type
    data = frame_of(*references)
    check(data)
    (frame,) = split_frames(data)
    decoded = decode_frame(frame, None)
    assert decoded.schema == payload_schema(FLAG_REFERENCE, None)
    assert [reference_of(value) for value in decoded.column("_reference").to_pylist()] == references


def test_the_committed_bytes_are_read():
    (frame,) = split_frames(golden.read("reference.frame.hex"))
    validate_payload(frame.header, frame.payload, None)
    assert (frame.header.flags, frame.header.base_offset) == (FLAG_KEY | FLAG_REFERENCE, 40)
    rows = decode_frame(frame, None)
    assert rows.column("_key").to_pylist() == [b"film", b"note"]
    assert rows.column("_value").to_pylist() == [None, b"small"]
    assert [reference_of(value) for value in rows.column("_reference").to_pylist()] == [FILM, None]


def test_a_reader_without_the_column_leaves_it_out_and_one_with_it_adds_it():
    (frame,) = split_frames(frame_of(FILM, None, values=[None, b"small"]))
    plain = full_batch(decode_frame(frame, None), frame.header, None)
    assert plain.schema == PLAIN_SCHEMA == full_schema(None)
    assert plain.column("_value").to_pylist() == [None, b"small"]
    whole = full_batch(decode_frame(frame, None), frame.header, None, has_references=True)
    assert whole.schema == full_schema(None, has_references=True)
    assert whole.schema.names == ["_key", "_timestamp", "_headers", "_value", "_reference"]
    assert [reference_of(value) for value in whole.column("_reference").to_pylist()] == [FILM, None]
    bare = sample("bare", [plain_values([b"x"])], 0).frame
    added = full_batch(decode_frame(bare, None), bare.header, None, has_references=True)
    assert (added.schema, added.column("_reference").to_pylist()) == (whole.schema, [None])


def test_a_frame_cut_in_the_middle_keeps_its_references():
    (frame,) = split_frames(frame_of(FILM, None, FILM, values=[None, b"small", None]))
    cut = clip_frame(frame, 1, None)
    check(cut)
    (rest,) = split_frames(cut)
    found = decode_frame(rest, None)
    assert found.column("_value").to_pylist() == [b"small", None]
    assert [reference_of(value) for value in found.column("_reference").to_pylist()] == [None, FILM]


def rejected(data: bytes, says: str, schema: pa.Schema | None = None) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check(data, schema)


def test_a_record_with_both_is_rejected():
    rejected(frame_of(FILM, None, values=[b"both", None]), "a record with both _value and _reference: leave the value")


@pytest.mark.parametrize("field", ["uri", "size", "content_type", "sha256", "part_bytes"])
def test_a_reference_that_lacks_a_field_is_rejected(field: str):
    whole = column_of([FILM]).to_pylist()[0]
    column = pa.array([None, {**whole, field: None}], REFERENCE.type)
    data = sample("lacking", [plain_values([None, None]), column], FLAG_REFERENCE).frame_bytes
    rejected(data, "has null within _reference: set all of its fields")
    with pytest.raises(Corrupt, match="is not sound"):
        reference_of({**whole, field: None})


@pytest.mark.parametrize("field", ["size", "part_bytes"])
def test_a_negative_size_is_rejected(field: str):
    whole = column_of([FILM]).to_pylist()[0]
    column = pa.array([{**whole, field: -1}], REFERENCE.type)
    data = sample("negative", [plain_values([None]), column], FLAG_REFERENCE).frame_bytes
    rejected(data, f"a _reference with {field} -1: sizes begin at 0")
    with pytest.raises(Corrupt, match="is not sound"):
        reference_of({**whole, field: -1})


def test_the_flag_without_the_column_and_the_column_without_the_flag_are_rejected():
    (plain,) = split_frames(sample("plain", [plain_values([b"x"])], 0).frame_bytes)
    rejected(encode_header(plain.header._replace(flags=FLAG_REFERENCE)) + plain.payload, "nodes and .* buffers where")
    (referring,) = split_frames(frame_of(FILM))
    rejected(encode_header(referring.header._replace(flags=0)) + referring.payload, "nodes and .* buffers where")


def test_a_topic_with_a_schema_has_no_references():
    schema = pa.schema([("n", pa.int64())])
    (frame,) = split_frames(sample("typed", [pa.array([1])], TYPED, schema).frame_bytes)
    header = frame.header._replace(flags=TYPED | FLAG_REFERENCE)
    rejected(encode_header(header) + frame.payload, "_reference in a topic with a schema: .* to a plain topic", schema)
    rejected(frame_of(FILM), "frame is of a plain topic, but the topic has a schema", schema)


@pytest.mark.parametrize("flag", [16, 32, 64, 128])
def test_flags_of_later_releases_are_rejected_by_brokers_and_readers(flag: int):
    """Releases before references know flags 1, 2 and 4, and reject flag 8 by the same rule."""
    (frame,) = split_frames(sample("plain", [plain_values([b"x"])], 0).frame_bytes)
    data = encode_header(frame.header._replace(flags=flag)) + frame.payload
    rejected(data, f"frame flags {flag:#06x} are unknown to this build: upgrade the older side")
    with pytest.raises(Corrupt, match="unknown to this build: upgrade"):
        decode_frame(next(split_frames(data)), None)
    assert COLUMN_FLAGS == 7


def test_a_batch_of_a_kafka_client_is_never_by_reference():
    (frame,) = split_frames(golden.kafka_frame())
    header = frame.header._replace(flags=COLUMN_FLAGS | FLAG_REFERENCE)
    rejected(encode_header(header) + bytes(frame.payload), "has key, timestamp, headers and value, and no other")


def test_the_broker_looks_at_no_single_record():
    """The check of a frame with 100,000 references takes whole columns: no Python object a record."""
    many = [FILM, None] * 50_000
    column = column_of(many)
    data = sample("many", [plain_values([None, b"x"] * 50_000), column], FLAG_REFERENCE).frame_bytes
    tracemalloc.start()
    check(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


URI = "blobs/shop/orders/7/2026-11-28/00112233445566778899aabbccddeeff"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/etc/passwd",
        "topics/shop/orders/topic.json",
        f"/{URI}",
        f"{URI}/",
        f"{URI}/00001",
        f"{URI}\n",
        URI.replace("orders", ".."),
        URI.replace("orders", "other"),
        URI.replace("shop", "other"),
        URI.replace("2026-11-28", ".."),
        URI.replace("/7/", "/8/"),
        URI.replace("/7/", "/07/"),
        URI.replace("/7/", "/\u0667/"),
        f"file:///{URI}",
        f"s3://bucket/{URI}",
        f"{URI}?x",
        URI[:-2] + "..",
        URI.replace("blobs/", "blobs/../blobs/"),
    ],
)
def test_a_reference_out_of_its_own_topic_is_one_clear_error(uri: str):
    with pytest.raises(InvalidArgument, match=r"is not one of topic shop/orders: .* with send_file or send_stream"):
        check_own(with_uri(uri), ORDERS, 7)


def test_a_reference_to_its_own_topic_has_a_name():
    assert check_own(with_uri(URI), ORDERS, 7).uri == URI


def test_a_reference_as_json_has_all_of_it():
    found = json.loads(reference_json(FILM))
    assert found == {
        "uri": FILM.uri,
        "size": FILM.size_bytes,
        "content_type": "video/mp4",
        "sha256": FILM.sha256.hex(),
        "part_bytes": FILM.part_bytes,
    }
