"""Errors that Spark raises are explained in a sentence, from Python and the JVM alike."""

import pytest

from seaweedmq.errors import InvalidArgument, SeaweedMQError
from seaweedmq.spark.spark_errors import explain

OURS = """[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: Traceback (most recent call last):
  File "seaweedmq/spark/write/sink.py", line 113, in _planned
seaweedmq.errors.NotFound: no file

The above exception was the direct cause of the following exception:

seaweedmq.errors.InvalidArgument: column 'other' is not in the topic's schema (id): drop it
 SQLSTATE: 38000"""
OF_THE_JVM = """An error occurred while calling o105.load.
: org.apache.spark.SparkException: [FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading a.parquet.
If not, convert it. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFooterForFileError(QueryExecutionErrors.scala:1109)"""

NOT_FOUND = "[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03"
NO_FIT = "CSV header does not conform to the schema"
WITHOUT_REASON = """An error occurred while calling o1053.save.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading b.csv.  SQLSTATE: KD001
\tat org.apache.spark.Some.thing(Some.scala:920)
Caused by: java.lang.IllegalArgumentException: CSV header does not conform to the schema.
 Header: b, a
\tat org.apache.spark.Other.thing(Other.scala:1)
\t... 3 more"""


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (OURS, InvalidArgument, "column 'other' is not in the topic's schema (id): drop it"),
        (OF_THE_JVM, SeaweedMQError, "Spark: Encountered error while reading a.parquet. If not, convert it."),
        (NOT_FOUND, SeaweedMQError, "Spark: Path does not exist: file:/a."),
        (WITHOUT_REASON, SeaweedMQError, f"Spark: Encountered error while reading b.csv. {NO_FIT}. Header: b, a"),
        ("the JVM went away\nand more", SeaweedMQError, "Spark: the JVM went away"),
    ],
)
def test_what_failed_is_one_sentence(text: str, kind: type[SeaweedMQError], said: str) -> None:
    error = explain(RuntimeError(text))
    assert (type(error), str(error)) == (kind, said)


def test_a_reason_may_be_what_it_was_raised_from() -> None:
    error = RuntimeError("[FAILED_READ_FILE.NO_HINT] Encountered error while reading b.csv. SQLSTATE: KD001")
    error.__cause__ = RuntimeError("its header is wrong")
    assert str(explain(error)) == "Spark: Encountered error while reading b.csv. its header is wrong"
