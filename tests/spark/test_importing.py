"""Columns and files that an import would lose, found by their names alone."""

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from seaweedmq.errors import InvalidArgument
from seaweedmq.spark.jobs.input_files import check_hidden, folder_of_partitions, shown
from seaweedmq.spark.jobs.text_columns import check_header, with_texts

SALES = ("file:///in/my%20sales/day=1/hour=2/a.parquet", "file:///in/my%20sales/day=2/hour=2/b.parquet")


def test_folders_that_spark_takes_for_columns_are_left_to_it() -> None:
    assert folder_of_partitions(SALES, ["id", "day", "hour"]) is None
    assert folder_of_partitions(["file:///in/a.parquet", "file:///in/b/c.parquet"], ["id"]) is None
    assert folder_of_partitions(["file:///in/=/a.parquet", "file:///in/x=/a.parquet"], ["id"]) is None


def test_folders_that_are_given_themselves_are_columns_as_well() -> None:
    """The paths are those of a shell's ``sales/*``, or one file."""
    assert folder_of_partitions(SALES, ["id"]) == "file:///in/my sales"
    assert folder_of_partitions(SALES[:1], ["id", "HOUR"]) == "file:///in/my sales"
    assert folder_of_partitions(["hdfs://host/in/day=1/a.parquet"], ["id"]) == "hdfs://host/in"


def test_a_folder_is_no_column_of_a_topic_that_lacks_it() -> None:
    assert folder_of_partitions(SALES, ["id"], {"id"}) is None
    assert folder_of_partitions(SALES, ["id"], {"id", "day"}) == "file:///in/my sales"


def test_files_whose_rows_or_columns_would_be_lost_are_refused() -> None:
    """Spark ignores files beside folders of columns."""
    with pytest.raises(InvalidArgument, match=r"several kinds \(day=\.\.\./hour=\.\.\., no such folder\)"):
        folder_of_partitions([*SALES, "file:///in/my%20sales/c.parquet"], ["id", "day", "hour"])
    with pytest.raises(InvalidArgument, match="file:///in and file:///other both have folders"):
        folder_of_partitions(["file:///in/day=1/a.csv", "file:///other/day=1/a.csv"], ["id"])
    for name in ("in/_part.csv", "/in/.part.csv"):
        with pytest.raises(InvalidArgument, match="Spark skips"):
            check_hidden(["in/part.csv", name])
    check_hidden([".", "..", "../in/", "/in/_day=1", "in/*.csv"])


def test_a_header_of_another_separator_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="one column, 'id;note': give the separator ';'"):
        check_header(["id;note"], {})
    check_header(["id;note"], {"SEP": ","})
    check_header(["id", "a;b"], {})
    check_header(["id"], {})


def test_a_file_is_shown_as_it_is_called() -> None:
    assert shown("file:///in/my%20sales/50%25.csv") == "/in/my sales/50%.csv"
    assert shown("hdfs://host/a%23.csv") == "hdfs://host/a#.csv"


def test_columns_that_numbers_would_alter_are_text() -> None:
    found = StructType(
        [StructField("id", LongType()), StructField("zip", IntegerType()), StructField("at", TimestampType())]
    )
    plain = with_texts(found, None, {"zip", "at"})
    assert [field.dataType for field in plain] == [LongType(), StringType(), TimestampType()]
    topic = pa.schema([("id", pa.string()), ("zip", pa.int32()), ("more", pa.string())])
    typed = with_texts(found, topic, {"zip"})
    assert [field.dataType for field in typed] == [StringType(), IntegerType(), TimestampType()]
    assert with_texts(found, None, ()) == found
