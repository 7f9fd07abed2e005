"""Columns and filters of a read, without Spark running."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.errors import Unsupported
from seaweedmq.spark.filters import narrowed
from seaweedmq.spark.options import ColumnOptions
from seaweedmq.spark.topic_access import chosen_columns
from seaweedmq.storage.plan.window import Interval, ReadWindow
from tests.support.segments import make_topic
from tests.support.topic_files import NOON_US

NAMES = {"offset": "offset", "timestamp": "timestamp", "segment": "segment"}


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
