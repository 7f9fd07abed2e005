"""Topic schemas: every accepted type survives a frame and a Parquet file; other types are rejected by column."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seaweedmq.codec.payload.batch import (
    check_topic_schema,
    decode_frame,
    schema_from_bytes,
    schema_to_bytes,
    validate_payload,
)
from seaweedmq.errors import InvalidArgument
from tests.codec import golden
from tests.codec.samples import TYPED, sample

CARRIED = [
    (pa.bool_(), [True, None]),
    *[(pa.type_for_alias(name), [1, None]) for name in ("int8", "int16", "int32", "int64")],
    *[(pa.type_for_alias(name), [1, None]) for name in ("uint8", "uint16", "uint32", "uint64")],
    *[(pa.type_for_alias(name), [0.5, None]) for name in ("float16", "float32", "float64")],
    *[(pa.timestamp(unit, tz), [1, None]) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC", "Europe/Vienna")],
    *[(pa.duration(unit), [1, None]) for unit in ("s", "ms", "us", "ns")],
    *[
        (pa.type_for_alias(name), [1, None])
        for name in ("date32", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]")
    ],
    *[(kind, [1, None]) for kind in (pa.decimal32(5, 2), pa.decimal64(15, 2), pa.decimal128(30, 0))],
    (pa.decimal256(60, 10), [1, None]),
    *[(kind, ["é", None]) for kind in (pa.string(), pa.large_string())],
    *[(kind, [b"\xff", None]) for kind in (pa.binary(), pa.large_binary())],
    (pa.binary(2), [b"ab", None]),
    (pa.list_(pa.int64()), [[1, None], None]),
    (pa.large_list(pa.string()), [["a"], None]),
    (pa.list_(pa.int16(), 2), [[1, 2], None]),
    (pa.struct([("a", pa.int8()), ("b", pa.struct([("c", pa.string())]))]), [{"a": 1, "b": {"c": "x"}}, None]),
    (pa.map_(pa.string(), pa.list_(pa.int32())), [[("k", [1])], None]),
    (pa.map_(pa.int64(), pa.string(), keys_sorted=True), [[(1, "a")], None]),
]
REFUSED = [
    (pa.null(), "give it a type"),
    (pa.dictionary(pa.int32(), pa.string()), "cast it to its value type"),
    *[(union([pa.field("a", pa.int8())]), "use a struct") for union in (pa.dense_union, pa.sparse_union)],
    (pa.run_end_encoded(pa.int32(), pa.int64()), "decode it"),
    *[(kind, "cast it") for kind in (pa.string_view(), pa.binary_view(), pa.list_view(pa.int64()))],
    (pa.date64(), "cast it to date32"),
    (pa.month_day_nano_interval(), "use duration"),
    (pa.binary(0), "width must be at least 1"),
    (pa.list_(pa.int8(), 0), "fixed size 0"),
    (pa.struct([]), "struct without fields"),
    (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "two fields of one name"),
    *[(pa.decimal128(5, scale), "0 <= scale <= precision") for scale in (-2, 6)],
    (pa.uuid(), "extension type"),
    (pa.list_(pa.dictionary(pa.int32(), pa.string())), "cast it to its value type"),
    (pa.map_(pa.string(), pa.string_view()), "cast it"),
]


@pytest.mark.parametrize(("kind", "values"), CARRIED, ids=lambda x: str(x) if isinstance(x, pa.DataType) else "")
def test_what_is_let_in_survives_a_frame_and_a_file(kind: pa.DataType, values: list):
    schema = pa.schema([pa.field("c", kind)])
    assert schema_from_bytes(schema_to_bytes(schema)) == schema
    sent = sample("typed", [pa.array(values, kind)], TYPED, schema)
    validate_payload(sent.frame.header, sent.frame.payload, schema)
    batch = decode_frame(sent.frame, schema)
    assert batch.column(0).equals(pa.array(values, kind))
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file)
    read = pq.read_table(file).column("c")
    assert read.cast(kind).combine_chunks().equals(batch.column(0))  # Parquet knows no seconds: they come as ms


@pytest.mark.parametrize(("kind", "says"), REFUSED, ids=lambda x: str(x) if isinstance(x, pa.DataType) else "")
def test_what_is_not_is_refused_by_column(kind: pa.DataType, says: str):
    with pytest.raises(InvalidArgument, match=f"column 'price'.*{says}"):
        check_topic_schema(pa.schema([pa.field("id", pa.int64()), pa.field("price", kind)]))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "has 0 columns"),
        ([f"c{i}" for i in range(1_001)], "has 1001 columns: a topic has from 1 to 1000"),
        (["_offset"], "column '_offset' begins with '_'"),
        (["a", "b", "a"], "column 'a' has the name of column 'a'"),
        (["Price", "price"], "column 'price' has the name of column 'Price'"),
        ([""], "has the name ''"),
        (["a\nb"], "has the name 'a.nb'"),
        (["x" * 256], "use 1 to 255 printable characters"),
    ],
)
def test_names_that_readers_could_not_use_are_refused(names: list[str], says: str):
    with pytest.raises(InvalidArgument, match=says):
        check_topic_schema(pa.schema([pa.field(name, pa.int64()) for name in names]))


def test_nesting_has_an_end():
    kind = pa.int64()
    for _ in range(15):
        kind = pa.list_(kind)
    check_topic_schema(pa.schema([pa.field("deep", kind)]))
    with pytest.raises(InvalidArgument, match="column 'deep' is nested deeper than 16"):
        check_topic_schema(pa.schema([pa.field("deep", pa.list_(kind))]))


def test_an_extension_type_that_this_process_does_not_know_is_still_refused():
    field = pa.field("shape", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"})
    with pytest.raises(InvalidArgument, match="column 'shape' has an extension type"):
        check_topic_schema(pa.schema([field]))


def test_equal_columns_give_equal_bytes_whatever_metadata_they_carry():
    plain = pa.schema([pa.field("a", pa.list_(pa.field("item", pa.int64())))])
    file = io.BytesIO()
    pq.write_table(plain.empty_table(), file)
    from_parquet = pq.read_schema(file).with_metadata({"pandas": "{}"})
    assert schema_to_bytes(from_parquet) == schema_to_bytes(plain)
    assert schema_from_bytes(schema_to_bytes(from_parquet)).metadata is None


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10\0\0\0" + b"\0" * 16])
def test_bytes_that_are_no_schema_are_refused(data: bytes):
    with pytest.raises(InvalidArgument, match="not an Arrow IPC schema message"):
        schema_from_bytes(data)


def test_the_committed_schema_still_reads():
    assert schema_from_bytes(golden.read("typed.schema.hex")) == golden.PRICES
