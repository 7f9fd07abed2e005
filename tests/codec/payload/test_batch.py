"""Payloads: round trips, and the reasons for which invalid ones are rejected."""

import io
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_TIMESTAMP, split_frames
from seaweedmq.codec.payload.batch import (
    PLAIN_SCHEMA,
    decode_frame,
    encode_frame,
    full_batch,
    full_schema,
    payload_schema,
    validate_payload,
)
from seaweedmq.errors import Corrupt, InvalidArgument
from tests.codec.samples import (
    ALL_COLUMNS,
    HEADERS,
    NESTED_SCHEMA,
    NOON_US,
    TIMESTAMP,
    TYPED,
    WIDE_SCHEMA,
    Sample,
    plain_values,
    sample,
    samples,
    with_payload,
)


def knock(data: bytes, topic_schema: pa.Schema | None = None) -> None:
    """Check and decode a client's bytes as a broker does before it trusts them."""
    for frame in split_frames(data):
        validate_payload(frame.header, frame.payload, topic_schema)


def refused(data: bytes, says: str, topic_schema: pa.Schema | None = None) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        knock(data, topic_schema)
    assert str(caught.value).startswith("frame"), "the message names its subject"
    assert "\n" not in str(caught.value)


def message(*columns: pa.Array) -> bytes:
    names = [str(i) for i in range(len(columns))]
    return bytes(memoryview(pa.RecordBatch.from_arrays(list(columns), names=names).serialize()))


PLAIN = sample("plain", [plain_values([b"a", b"bc", None])], 0)


# --- what comes back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", samples(), ids=lambda s: s.name)
def test_a_frame_comes_back_as_it_was_sent(known: Sample):
    knock(known.frame_bytes, known.topic_schema)
    batch = decode_frame(known.frame, known.topic_schema)
    assert str(batch.to_pylist()) == str(known.batch.to_pylist())  # as text, for there is a NaN among them
    assert batch.schema == payload_schema(known.frame.header.flags, known.topic_schema)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=9),
            st.integers(-(10**15), 10**15),
            st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
            st.none() | st.binary(max_size=50),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 7),
)
def test_any_records_with_any_of_the_optional_columns_come_back(records: list, flags: int):
    keys, times, headers, values = (list(column) for column in zip(*records, strict=True))
    columns = [
        (FLAG_KEY, pa.array(keys, pa.binary())),
        (FLAG_TIMESTAMP, pa.array(times, TIMESTAMP)),
        (FLAG_HEADERS, pa.array(headers, HEADERS)),
    ]
    sent = sample("any", [c for flag, c in columns if flags & flag] + [plain_values(values)], flags)
    knock(sent.frame_bytes)
    full = full_batch(decode_frame(sent.frame, None), sent.frame.header, None)
    full.validate(full=True)
    assert full.schema == PLAIN_SCHEMA
    nothing = [None] * len(records)
    assert full.column("_key").to_pylist() == (keys if flags & FLAG_KEY else nothing)
    expected_times = times if flags & FLAG_TIMESTAMP else [NOON_US] * len(records)
    assert full.column("_timestamp").cast(pa.int64()).to_pylist() == expected_times
    assert full.column("_headers").to_pylist() == (headers if flags & FLAG_HEADERS else nothing)
    assert full.column("_value").to_pylist() == values


def test_a_slice_of_a_batch_is_sent_as_what_it_shows():
    batch = pa.record_batch([plain_values([b"%d" % i for i in range(100)])], schema=payload_schema(0, None))
    sent = sample("slice", [batch.slice(40, 3).column(0)], 0)
    knock(sent.frame_bytes)
    assert decode_frame(sent.frame, None).column(0).to_pylist() == [b"40", b"41", b"42"]
    assert len(sent.frame_bytes) < 500


def test_decoding_copies_nothing():
    frame = PLAIN.frame
    values = decode_frame(frame, None).column("_value").buffers()[2]
    start = pa.py_buffer(frame.payload).address
    assert start <= values.address < start + len(frame.payload)


def test_a_typed_batch_is_completed_with_what_is_absent():
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    sent = sample("typed", [pa.array([1, 2])], TYPED, schema)
    full = full_batch(decode_frame(sent.frame, schema), sent.frame.header, schema)
    assert (full.schema, full.schema.names) == (full_schema(schema), ["_key", "_timestamp", "_headers", "n"])
    assert full.column("n").to_pylist() == [1, 2]


def test_payloads_keep_the_next_frame_aligned():
    for known in samples():
        assert len(known.frame_bytes) % 8 == 0


def test_a_frame_of_no_records_is_not_made():
    with pytest.raises(InvalidArgument, match="no records"):
        sample("empty", [plain_values([])], 0)


def test_a_small_frame_of_very_many_records_is_not_made():
    schema = pa.schema([pa.field("flag", pa.bool_())])
    with pytest.raises(InvalidArgument, match="frame of 1048577 records: a frame has from 1 to 1048576"):
        sample("flags", [pa.array([True] * (2**20 + 1))], TYPED, schema)


def test_a_frame_beyond_the_format_is_not_made():
    class Huge:
        num_rows = 1

        def serialize(self) -> object:
            return type("Buffer", (), {"size": 2**32})()

    numbers = ("flags", "producer_id", "producer_epoch", "first_sequence")
    numbers += ("timestamp_min", "timestamp_max", "slot_min", "slot_max")
    with pytest.raises(InvalidArgument, match="4 GiB"):
        encode_frame(Huge(), histogram=(0,) * 16, **dict.fromkeys(numbers, 0))


def test_a_stored_frame_that_is_not_what_it_says_is_corrupt():
    (frame,) = split_frames(with_payload(PLAIN.frame, message(plain_values([b"a"])), base_offset=77))
    with pytest.raises(Corrupt, match="frame at offset 77: 1 records where the header says 3"):
        decode_frame(frame, None)
    (frame,) = split_frames(with_payload(PLAIN.frame, b"nonsense", base_offset=77))
    with pytest.raises(Corrupt, match="frame at offset 77: unreadable payload"):
        decode_frame(frame, None)


# --- headers that lie -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"record_count": 0}, "no records"),
        ({"record_count": 2, "histogram": (0,) * 16}, "holds 3 records where the header says 2"),
        ({"record_count": 2**20, "histogram": (0,) * 16}, "holds 3 records where the header says 1048576"),
        ({"record_count": 2**32 - 1}, "frame of 4294967295 records: a frame has from 1 to 1048576"),
        ({"timestamp_min": NOON_US + 1}, "lowest first"),
        ({"timestamp_min": NOON_US - 1}, "two timestamps but no _timestamp column"),
        ({"timestamp_min": 2**62, "timestamp_max": 2**62}, "between the years 1 and 9999"),
        ({"timestamp_min": -(2**62)}, "between the years 1 and 9999"),
        ({"slot_min": 60_001}, r"slots \[60001, 60000\]: the lowest comes first"),
        ({"flags": 16}, "flags 0x0010 are unknown"),
        ({"flags": 0x200}, "flags 0x0200 are unknown"),
        ({"flags": TYPED}, "the topic is plain"),
        ({"flags": FLAG_KEY}, "has 1 nodes and 3 buffers where the topic's columns make 2 and 6"),
        ({"histogram": (1, *[0] * 15)}, "histogram counts 1 of 3 records"),
        ({"histogram": (2**32 - 1,) * 16}, "histogram counts .* of 3 records"),
    ],
)
def test_a_header_that_lies_is_refused(changes: dict, says: str):
    refused(with_payload(PLAIN.frame, bytes(PLAIN.frame.payload), **changes), says)


def test_a_histogram_may_be_left_out():
    knock(with_payload(PLAIN.frame, bytes(PLAIN.frame.payload), histogram=(0,) * 16))


def test_header_timestamps_are_those_of_the_column():
    timed = sample("timed", [pa.array([NOON_US, NOON_US + 5], TIMESTAMP), plain_values([b"a", b"b"])], FLAG_TIMESTAMP)
    knock(timed.frame_bytes)
    for changes in ({"timestamp_min": NOON_US - 1}, {"timestamp_max": NOON_US + 6}):
        refused(with_payload(timed.frame, bytes(timed.frame.payload), **changes), "take the lowest and highest")


# --- payloads that lie ----------------------------------------------------------------------------------------------


def test_arrow_offsets_outside_their_buffers_are_refused():
    payload = bytes(PLAIN.frame.payload)
    honest = struct.pack("<4i", 0, 1, 3, 3)
    assert payload.count(honest) == 1
    for lie in ((0, 1, 3, 4096), (0, 3, 1, 3), (-5, 1, 3, 3), (0, 1, 3, 2**31 - 1), (0, -1, 3, 3)):
        refused(with_payload(PLAIN.frame, payload.replace(honest, struct.pack("<4i", *lie))), "not a sound Arrow")


def test_other_messages_and_columns_are_refused():
    payload = bytes(PLAIN.frame.payload)
    dictionary = pa.record_batch([plain_values([b"a", b"a"]).dictionary_encode()], names=["_value"])
    long = pa.record_batch([plain_values([b"z" * 1_000_000] * 3)], names=["_value"])
    hidden = message(PLAIN.batch.column(0), plain_values([b"h", b"i", b"dden"]))
    packed = [stream_messages(long, pa.ipc.IpcWriteOptions(compression=codec))[1] for codec in ("lz4", "zstd")]
    assert all(len(each) < 100_000 for each in packed)
    for lie, says in (
        (hidden, "has 2 nodes and 6 buffers where the topic's columns make 1 and 3"),
        (payload + b"\0" * 8, "bytes beyond its Arrow IPC message"),
        (payload + payload, "bytes beyond its Arrow IPC message"),
        (payload + b"\0", "misalign the next frame"),
        (bytes(memoryview(PLAIN_SCHEMA.serialize())), "is not an Arrow record batch"),
        (stream_messages(dictionary)[1], "is not an Arrow record batch"),
        (b"\xff\xff\xff\xff\0\0\0\0", "frame payload"),
        (b"", "does not begin with an Arrow IPC message"),
        *((each, "compressed body") for each in packed),
        (message(pa.array([b"a", b"b", b"a longer value than fits the view"], pa.binary_view())), "has view columns"),
    ):
        refused(with_payload(PLAIN.frame, lie), says)
    text, timed = pa.schema([pa.field("text", pa.string())]), [NOON_US, NOON_US]
    entry = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    keyless, entryless = (
        message(pa.array([[each]], pa.list_(pa.field("entries", entry))), plain_values([b"v"]))
        for each in ({"key": None, "value": b"x"}, None)
    )
    headers = sample("headers", [pa.array([[("a", b"b")]], HEADERS), plain_values([b"v"])], FLAG_HEADERS)
    stamps = sample("timed", [pa.array(timed, TIMESTAMP), plain_values([b"a", b"b"])], FLAG_TIMESTAMP)
    for sent, lie, says, schema in (
        (PLAIN, payload, "the topic has a schema: publish its columns", WIDE_SCHEMA),
        (sample("text", [pa.array(["ab"])], TYPED, text), message(plain_values([b"\xff\xfe"])), "Invalid UTF8", text),
        (headers, keyless, "a map with a null key", None),
        (headers, entryless, "a map with a null key", None),
        (stamps, message(pa.array([NOON_US, None], TIMESTAMP), plain_values([b"a", b"b"])), "null in _timestamp", None),
    ):
        refused(with_payload(sent.frame, lie), says, schema)


def test_every_truncated_payload_is_refused():
    payload = bytes(PLAIN.frame.payload)
    for cut in range(len(payload)):
        with pytest.raises(InvalidArgument, match="frame payload"):
            knock(with_payload(PLAIN.frame, payload[:cut]))


def test_many_columns_on_the_same_bytes_are_refused():
    schema = pa.schema([pa.field(name, pa.int64()) for name in "ab"])
    sent = sample("two", [pa.array([1, 2]), pa.array([3, 4])], TYPED, schema)
    payload = bytes(sent.frame.payload)
    second = struct.pack("<4q", 16, 0, 16, 16)  # no validity, then 16 bytes of values behind those of the first
    assert payload.count(second) == 1
    lie = struct.pack("<4q", 16, 0, 0, 16)
    refused(with_payload(sent.frame, payload.replace(second, lie)), "buffers that overlap", schema)


def test_buffers_beyond_the_body_are_refused():
    payload = bytes(PLAIN.frame.payload)
    metadata_end = 8 + struct.unpack_from("<i", payload, 4)[0]
    at = payload.rindex(struct.pack("<qq", 24, 3), 0, metadata_end) + 8  # length of the buffer of the values
    for lie in (2**40, 2**62, -3):
        refused(with_payload(PLAIN.frame, payload[:at] + struct.pack("<q", lie) + payload[at + 8 :]), "has buffers")


def required(name: str) -> pa.Field:
    return pa.field(name, pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("field", "values", "says"),
    [
        (required("n"), [1, None], "null in column 'n', which the schema declares not null"),
        (pa.field("s", pa.struct([required("a")])), [{"a": None}, {"a": 1}], "null in column 's', field 'a'"),
        (pa.field("l", pa.list_(required("item"))), [[1], [None]], "null in column 'l'"),
        (
            pa.field("m", pa.map_(pa.string(), required("value"))),
            [[("a", None)], []],
            "null in column 'm', field 'value'",
        ),
        (pa.field("t", pa.timestamp("s")), [2**60, 0], "column 't' that milliseconds cannot hold"),
        (pa.field("t", pa.list_(pa.timestamp("s", "UTC"))), [[2**60], None], "column 't' that milliseconds"),
    ],
)
def test_values_that_no_parquet_file_could_hold_are_refused(field: pa.Field, values: list, says: str):
    schema = pa.schema([field])
    array = pa.array(values, nullable_everywhere(field.type))
    sent = sample("lie", [array], TYPED, nullable(schema))
    refused(sent.frame_bytes, says, schema)


def test_a_null_parent_excuses_its_children():
    beside = [[1, 2], {"a": 1, "b": None}, [], [1, 2], []]
    columns = [pa.array([None, value], f.type) for f, value in zip(NESTED_SCHEMA, beside, strict=True)]
    knock(sample("nested", columns, TYPED, NESTED_SCHEMA).frame_bytes, NESTED_SCHEMA)


def test_flags_say_which_columns_a_payload_has():
    assert (payload_schema(0, None).names, payload_schema(ALL_COLUMNS, None)) == (["_value"], PLAIN_SCHEMA)
    assert payload_schema(TYPED | FLAG_TIMESTAMP, pa.schema([("n", pa.int8())])).names == ["_timestamp", "n"]


def test_schemas_are_told_apart_though_one_takes_the_place_of_another_in_memory():
    for i in range(10_000):
        schema = pa.schema([(f"c{i}", pa.int64())])
        assert payload_schema(TYPED, schema).names == [f"c{i}"]
        del schema


def nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, nullable_everywhere(f.type)) for f in schema])


def nullable_everywhere(kind: pa.DataType) -> pa.DataType:
    """Declare the same type to a misbehaving client, which ignores nullability."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, kind.field(i).type) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_type)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_type)
    return kind


def stream_messages(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> list[bytes]:
    """Return the IPC messages of a stream of one batch: the schema, dictionaries if any, the batch."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [bytes(memoryview(m.serialize())) for m in reader]
