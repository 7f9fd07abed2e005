"""Files that Spark writes: `publish` reads equal values, or rejects the file."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

from seaweedmq.cli.records.reading import InputFormat
from seaweedmq.errors import InvalidArgument
from tests.cli.records import published

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.examples, pytest.mark.timeout(1_800)]

EXAMPLES = settings.default.max_examples if settings.default.max_examples > 100 else 8
"""Number of files to write and read; in the profile "deep", its number of examples."""
TEXTS = st.none() | st.text(st.sampled_from('ab",;\\\n\r üß€'), max_size=6)
ROWS = st.lists(
    st.tuples(
        TEXTS, st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.floats(), st.lists(TEXTS, max_size=2)
    ),
    max_size=6,
)
TYPES = {"id": LongType(), "note": StringType(), "n": LongType(), "x": DoubleType(), "tags": ArrayType(StringType())}
SPARK = StructType([StructField(name, kind) for name, kind in TYPES.items()])
ARROW_TYPES = (pa.int64(), pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string()))
ARROW = pa.schema(list(zip(TYPES, ARROW_TYPES, strict=True)))
WRITERS: dict[str, tuple[InputFormat, dict[str, str]]] = {
    "parquet": (InputFormat.PARQUET, {}),
    "json": (InputFormat.JSONL, {"ignoreNullFields": "false"}),
    "csv": (InputFormat.CSV, {"header": "true"}),
    "csv of RFC 4180": (InputFormat.CSV, {"header": "true", "escape": '"'}),
}


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
@pytest.mark.parametrize("name", WRITERS)
def test_written_is_read_equal(spark: SparkSession, tmp_path: Path, name: str, rows: list[tuple[Any, ...]]) -> None:
    kind, options = WRITERS[name]
    is_csv = kind is InputFormat.CSV
    schema = ARROW.remove(4) if is_csv else ARROW  # CSV has no lists
    if name == "csv":  # Spark doubles backslashes within quotation marks, where RFC 4180 takes them as they are
        rows = [(note and note.replace("\\", "/"), *others) for note, *others in rows]
    given_rows = [(at, *row) for at, row in enumerate(rows)]
    frame = spark.createDataFrame(given_rows, SPARK).coalesce(1)
    folder = tmp_path / "written"
    (frame.drop("tags") if is_csv else frame).write.format(name.split()[0]).options(**options).mode("overwrite").save(
        str(folder)
    )
    files = sorted(folder.glob("part-*"))
    if not rows and not files:
        return
    # Spark marks quotation marks by backslashes, leaves texts with returns unquoted, or writes nothing at all.
    may_be_refused = is_csv and (not rows or any(mark in (row[0] or "") for row in rows for mark in '"\r\n'))
    with suppress(InvalidArgument) if may_be_refused else nullcontext():
        read = published(files[0], kind, schema)
        assert not rows or read.schema == schema
        written = [dict(zip(schema.names, row, strict=False)) for row in given_rows]
        found, expected = ([comparable(row, is_csv=is_csv) for row in each] for each in (read.to_pylist(), written))
        assert found == expected


def comparable(row: dict[str, Any], *, is_csv: bool) -> dict[str, str]:
    """Return a row as texts, since NaN is unlike itself. Spark's CSV omits blanks around texts unless configured."""
    return {
        name: (value or "").strip() if is_csv and name == "note" else str(value)
        for name, value in row.items()
        if name != "tags" or not is_csv
    }
