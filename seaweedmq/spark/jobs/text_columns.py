"""Columns of text files, CSV and JSON, so that Spark reads their values unaltered."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.functions import struct, to_csv
from pyspark.sql.types import NumericType, StringType, StructField, StructType

from seaweedmq.codec.imports import csv_tables
from seaweedmq.errors import InvalidArgument
from seaweedmq.spark.jobs.input_files import shown
from seaweedmq.spark.spark_errors import SPARK_ERRORS, explain

READER_OPTIONS: Final = {
    "parquet": {"mergeSchema": "true"},
    "csv": {
        "header": "true",
        "inferSchema": "true",
        "enforceSchema": "false",
        "mode": "FAILFAST",
        "multiLine": "true",
        "escape": '"',
        "unescapedQuoteHandling": "RAISE_ERROR",
    },
    "json": {"mode": "FAILFAST"},
}
"""Options of Spark's readers, without which they alter rows silently.

By default Spark takes the columns of one file for those of all, reads damaged rows as nulls, and ends a row at a line
break in quoted text.
"""
_PIECE_READ_BYTES: Final = 1 << 20
_COMMON: Final = frozenset({"sep", "delimiter", "inferschema", "mode", "basepath"})
_BLANKS: Final = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")


def check_header(columns: Sequence[str], options: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a header of one column whose name holds a separator, if the options give none."""
    is_given = any(name.lower() in ("sep", "delimiter") for name in options)
    other = next((mark for mark in ";\t|" if mark in columns[0]), None) if len(columns) == 1 else None
    if other is not None and not is_given:
        raise InvalidArgument(
            f"the files have one column, {columns[0]!r}: give the separator {other!r} (--separator, option 'sep') if "
            "it separates the columns, or ',' if it is part of the name"
        )


def with_texts(columns: StructType, topic_schema: pa.Schema | None, codes: Collection[str]) -> StructType:
    """Return the columns of CSV files, with text where Spark's type would alter the values.

    These are the topic's text columns, or without a schema ``codes``: columns with values like 01234 or +49151.
    """

    def is_text(field: StructField) -> bool:
        if topic_schema is None:
            return field.name in codes and isinstance(field.dataType, NumericType)
        kind = topic_schema.field(field.name).type if field.name in topic_schema.names else pa.null()
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    return StructType([StructField(each.name, StringType()) if is_text(each) else each for each in columns.fields])


def _is_common(options: Mapping[str, str]) -> bool:
    """Whether the checks here can read files with these options as Spark does."""
    return {name.lower() for name in options} <= _COMMON and len(_separator(options) or ",") == 1


def _separator(options: Mapping[str, str]) -> str | None:
    names = {name.lower(): value for name, value in options.items()}
    return names.get("sep", names.get("delimiter"))


def infer_columns(
    spark: SparkSession,
    reader: DataFrameReader,
    paths: Sequence[str],
    first: str,
    odd: str,
    format: str,  # noqa: A002
    options: Mapping[str, str],
) -> StructType:
    """Infer the columns of text files some of whose names Spark treats as patterns.

    Spark does that only while it infers columns, not while it reads rows, so it gets the rows in place of the names.
    ``first`` is one of the files, and ``odd`` the name of a file that looks like a pattern. InvalidArgument is raised
    if the options do not allow this.
    """
    if not _is_common(options):
        raise InvalidArgument(f"Spark treats {odd} as a pattern, which other files may match: rename it or its folder")
    if format == "json":
        lines = spark.read.text(list(paths)).rdd.map(itemgetter(0))
        return spark.read.options(**READER_OPTIONS["json"] | dict(options)).json(lines).schema
    separator = _separator(options) or ","
    with (
        pa.input_stream(shown(first), compression="detect") as stream,
        io.TextIOWrapper(stream, "utf-8-sig", newline="") as text,
    ):
        names = next((row for row in csv.reader(text, delimiter=separator) if row), [])
    texts = reader.schema(StructType([StructField(name, StringType()) for name in names])).load(list(paths))
    written = {"sep": separator, "escape": '"', **dict.fromkeys(_BLANKS, "false")}
    rows = texts.select(to_csv(struct(*(texts["`" + name.replace("`", "``") + "`"] for name in names)), written))
    typed = spark.read.options(**READER_OPTIONS["csv"] | dict(options) | {"header": "false"})
    found = typed.csv(rows.rdd.map(itemgetter(0))).schema.fields or [StructField("", StringType())] * len(names)
    return StructType([StructField(name, field.dataType) for name, field in zip(names, found, strict=True)])


def verify_csv(spark: SparkSession, files: Sequence[str], options: Mapping[str, str]) -> frozenset[str]:
    """Verify that files are CSV before any of their rows is published, and return the columns with codes.

    Checks only files in mounted folders, by ``csv_tables.verify``. Spark takes the end of a file for the end of a
    quotation, and replaces bytes that are not UTF-8 by question marks.
    """
    if not files or not _is_common(options):
        return frozenset()
    separator = _separator(options)
    context = spark.sparkContext
    try:
        parts = context.parallelize(files, min(len(files), 4 * context.defaultParallelism))
        return frozenset().union(*parts.map(partial(_verify_one, separator=separator)).collect())
    except SPARK_ERRORS as error:
        raise explain(error) from error


def _verify_one(uri: str, separator: str | None) -> frozenset[str]:
    with pa.input_stream(shown(uri), compression="detect") as stream:
        return csv_tables.verify(shown(uri), iter(lambda: stream.read(_PIECE_READ_BYTES), b""), separator)
