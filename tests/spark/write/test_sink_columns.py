"""Roles of a DataFrame's columns in records, without Spark."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType, VariantType

from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.errors import InvalidArgument
from seaweedmq.spark.source import SeaweedMQSource
from seaweedmq.spark.write import sink
from seaweedmq.spark.write.sink_columns import SinkColumns, check_kinds, plan_columns
from seaweedmq.spark.write.sink_options import parse_sink_options
from seaweedmq.spark.write.sink_publish import check_repeat

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Headers as Kafka's sink accepts them."""
UTC = pa.timestamp("us", "UTC")
PLACE = {"bootstrap": "h:1,h:2", "storage": "/mq", "topic": "shop/orders"}


def planned(given: dict[str, pa.DataType], topic: pa.Schema | None = None, key: str | None = None) -> SinkColumns:
    return plan_columns(pa.schema(list(given.items())), None if topic is None else schema_to_bytes(topic), key, None)


def fitted(columns: SinkColumns, **values: pa.Array) -> dict[str, list[object]]:
    batches, _ = columns.fit(pa.record_batch(values))
    return {name: pa.Table.from_batches(batches).column(name).to_pylist() for name in batches[0].schema.names}


def test_kafkas_columns_are_records_of_a_plain_topic() -> None:
    columns = planned({"value": pa.string(), "headers": HEADERS})
    assert columns.schema is None
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []], HEADERS)
    rows = fitted(columns, value=pa.array(["x", "y", None]), headers=headers)
    assert rows == {"_headers": [[("a", b"1"), ("b", None)], None, []], "_value": [b"x", b"y", None]}


def test_an_empty_topic_adopts_what_is_not_plain() -> None:
    columns = planned({"id": pa.int64(), "value": pa.float64()}, key="id")
    assert schema_from_bytes(columns.schema or b"").names == ["id", "value"]
    assert fitted(columns, id=pa.array([7]), value=pa.array([0.5])) == {"_key": [b"7"], "id": [7], "value": [0.5]}


def test_a_topic_with_columns_takes_the_others_beside_them() -> None:
    topic = pa.schema([("n", pa.int64()), ("timestamp", UTC)])
    columns = planned({"n": pa.int64(), "timestamp": UTC, "key": pa.string()}, topic)
    assert dict(columns.names) == {"key": "_key"}


def test_types_that_spark_lacks_are_written_if_the_values_fit() -> None:
    topic = pa.schema([("n", pa.uint32()), ("at", pa.timestamp("ms", "UTC")), ("big", pa.uint64())])
    given = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin")), ("big", pa.decimal128(20, 0))])
    columns = plan_columns(given, schema_to_bytes(topic), None, None)
    arrays = [
        pa.array([2**32 - 1]),
        pa.array([1_000]).cast(given.field("at").type),
        pa.array([Decimal(2**64 - 1)], given.field("big").type),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=given)
    (rows,), _ = columns.fit(batch)
    assert (rows.column("n").to_pylist(), rows.column("big").to_pylist()) == ([2**32 - 1], [2**64 - 1])
    arrays[0] = pa.array([-1])
    with pytest.raises(InvalidArgument, match="column 'n', int64, does not fit uint32"):
        columns.fit(pa.RecordBatch.from_arrays(arrays, schema=given))


@pytest.mark.parametrize(
    "kind",
    [VariantType(), ArrayType(VariantType()), MapType(StringType(), StructType([StructField("x", VariantType())]))],
)
def test_columns_of_which_a_topic_would_get_sparks_inner_encoding_are_refused(kind: DataType) -> None:
    given = StructType([StructField("id", StringType()), StructField("happened", kind)])
    with pytest.raises(InvalidArgument, match=r"column 'happened' has type variant.*to_json"):
        check_kinds(given)
    check_kinds(StructType([StructField("tags", ArrayType(MapType(StringType(), StringType())))]))


def test_a_null_that_the_topic_does_not_allow_is_refused_wherever_it_is() -> None:
    topic = pa.schema([("numbers", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    columns = planned({"numbers": pa.list_(pa.int64())}, topic)
    assert fitted(columns, numbers=pa.array([[1], None])) == {"numbers": [[1], None]}
    with pytest.raises(InvalidArgument, match="column 'numbers'"):
        columns.fit(pa.record_batch({"numbers": pa.array([[1], [None]])}))


@pytest.mark.parametrize(
    ("number", "checkpoint", "last", "last_checkpoint", "said"),
    [
        (3, "/c", 4, "/c", "batches up to 4 of the query are published"),
        (3, "", 4, "", "checkpoint .not known. is not written"),
        (4, "/copy", 4, "/c", "a query with the checkpoint /c wrote a batch with this number"),
        (4, "/c", 4, "/c", None),
        (4, "", 4, "/c", None),
        (4, "/c", 4, "", None),
    ],
)
def test_only_the_last_batch_is_repeated_and_by_its_own_query(
    number: int, checkpoint: str, last: int, last_checkpoint: str, said: str | None
) -> None:
    """Otherwise the rows of a query that resumes from a copied checkpoint would be dropped as repeats."""
    if said is None:
        check_repeat(number, checkpoint, last, last_checkpoint)
        return
    with pytest.raises(InvalidArgument, match=said):
        check_repeat(number, checkpoint, last, last_checkpoint)


def test_options_are_checked() -> None:
    options = parse_sink_options({**PLACE, "KEY": "id", "checkpointLocation": "file:/c/", "repeatunknown": "TRUE"})
    assert options.checkpoint == "/c"
    assert (options.bootstrap, options.key, options.repeat_unknown) == (("h:1", "h:2"), "id", True)
    for wrong, said in (
        ({"topc": "x"}, "did you mean 'topic'?"),
        ({"startingOffsets": "x"}, "is not an option of df.write"),
        ({"topic": ""}, "option 'topic' is missing"),
        ({"path": "/x"}, "take no path"),
        ({"repeatUnknown": "maybe"}, "give true or false"),
        ({"bootstrap": "nowhere"}, "is not HOST:PORT"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            parse_sink_options({**PLACE, **wrong})
        assert said in str(refused.value)


def test_a_stream_knows_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark passes the checkpoint's location to sinks, and only that identifies a copied checkpoint."""
    found = []
    monkeypatch.setattr(sink, "stream_sink", lambda given, schema, overwrite: found.append(parse_sink_options(given)))
    SeaweedMQSource({**PLACE, "checkpointlocation": "file:/c/", "queryName": "q"}).streamWriter(StructType(), False)
    assert [options.checkpoint for options in found] == ["/c"]
