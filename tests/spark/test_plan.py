"""Options, columns and filters of a read, without Spark running."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.filters import narrowed
from seaweedmq.spark.options import ColumnOptions, parse_options
from seaweedmq.spark.topic_access import chosen_columns
from seaweedmq.storage.plan.window import Interval, ReadWindow
from tests.support.segments import make_topic
from tests.support.topic_files import NOON_US

NAMES = {"offset": "offset", "timestamp": "timestamp", "segment": "segment"}
REQUIRED = {"storage": "/data", "topic": "shop/orders"}


def test_defaults_ask_for_everything() -> None:
    options = parse_options(REQUIRED)
    assert options.topic == TopicName("shop", "orders")
    assert (options.window, options.shown.columns) == (ReadWindow(), None)


def test_a_timestamp_is_iso_or_microseconds() -> None:
    def start(text: str) -> int | None:
        return parse_options({**REQUIRED, "STARTINGTIMESTAMP": text}).window.timestamps.lo

    assert start("2020-09-13T12:26:40Z") == start("2020-09-13T14:26:40+02:00") == NOON_US
    assert start(str(NOON_US)) == start("2020-09-13 12:26:40") == NOON_US
    assert start("20200913") == int(datetime(2020, 9, 13, tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize("text", ["", "{", "[1]", "1.5", "-1", '{"a": 1}', '{"0": -1}', '{"0": true}', "9" * 30])
def test_offsets_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="startingOffsets"):
        parse_options({**REQUIRED, "startingOffsets": text})


@pytest.mark.parametrize("kind", [pa.decimal256(60, 2), pa.time32("s"), pa.list_(pa.struct([("t", pa.time32("ms"))]))])
def test_a_column_that_spark_lacks_a_type_for_is_named_and_may_be_left_out(kind: pa.DataType) -> None:
    topic = make_topic(schema_to_bytes(pa.schema([("id", pa.int64()), ("odd", kind)])))
    with pytest.raises(Unsupported, match=r"column 'odd' has type .*, which Spark lacks: leave it out with option"):
        chosen_columns(topic, ColumnOptions(columns=None, include_headers=True))
    some = chosen_columns(topic, ColumnOptions(columns=("offset", "id"), include_headers=True))
    assert [column.name for column in some] == ["offset", "id"]


def test_filters_narrow_the_window_and_others_change_nothing() -> None:
    noon = datetime.fromtimestamp(NOON_US // 1_000_000, UTC)
    window = narrowed(
        ReadWindow(),
        [
            GreaterThan(("offset",), 9),
            LessThanOrEqual(("offset",), 20),
            In(("segment",), (3, 5)),
            GreaterThanOrEqual(("timestamp",), noon),
            LessThan(("timestamp",), noon.replace(tzinfo=None)),
            IsNotNull(("offset",)),
            EqualTo(("headers", "offset"), 1),
            EqualTo(("key",), b"x"),
        ],
        NAMES,
    )
    assert (window.offsets, window.segments, window.timestamps) == (
        Interval(10, 21),
        Interval(3, 6),
        Interval(NOON_US, None),
    )
